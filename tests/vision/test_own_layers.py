"""Models whose layers read other tokens than the patches of a grid: ViT-MAE, Swin, BLIP-2; and those with a bias of positions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from margins import approx
from PIL import Image
from tiny_pictures import OWN_LAYERS, TinyPictureModels, noise
from torch import Tensor

from attention import AttentionError, ConfigError, File, Model, ModelError
from attention.base.tokens import Patch
from attention.patching.intervention import Intervention

TEXT = "the owl asked"
WINDOWED = ("Swin", "Swin padded", "Swin backbone", "SwinV2")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> TinyPictureModels:
    return TinyPictureModels(tmp_path_factory.mktemp("models"))


def picture() -> Image.Image:
    return Image.fromarray(noise())


def source(models: TinyPictureModels, family: str, **options: Any) -> Model:
    return Model(models(family), TEXT if family == "BLIP-2" else "", image=picture(), **options)


def own_model(models: TinyPictureModels, family: str, implementation: str = "eager") -> Any:
    cls = getattr(transformers, OWN_LAYERS[family][0])
    return cls.from_pretrained(models(family), attn_implementation=implementation).eval()


def own_inputs(models: TinyPictureModels, family: str) -> dict[str, Tensor]:
    """What the library's own processor gives, with the noise of our masks."""
    path = models(family)
    image_processor = transformers.AutoImageProcessor.from_pretrained(path, backend="pil")
    if family == "BLIP-2":
        processor = transformers.AutoProcessor.from_pretrained(path, backend="pil")
        processor.image_processor = image_processor
        return dict(processor(images=picture(), text=TEXT, return_tensors="pt"))
    inputs = dict(image_processor(images=picture(), return_tensors="pt"))
    if "MAE" in family:
        inputs["noise"] = torch.randperm(9, generator=torch.Generator().manual_seed(0))[None]
    return inputs


def own_attentions(model: Any, inputs: dict[str, Tensor]) -> list[Tensor]:
    """The weights of each call in a pass of the library, in the order of the calls, by hooks on its attention modules."""
    calls: list[Tensor] = []

    def note(_: Any, __: Any, output: Any) -> None:
        calls.append(output[1])

    names = ("Attention", "MultiHeadAttention", "SelfAttention")
    innermost = [
        module
        for module in model.modules()
        if type(module).__name__.endswith(names)
        and not any(type(child).__name__.endswith(names) for child in module.modules() if child is not module)
    ]
    handles = [module.register_forward_hook(note) for module in innermost]
    with torch.no_grad():
        model(**inputs, output_attentions=True)
    for handle in handles:
        handle.remove()
    return calls


def blocks(layer: Any, length: int) -> Tensor:
    """The weights of each window, [window head query_pos key_pos], and nothing between two of them."""
    weights = layer.blocks("weights")[0]
    starts = range(0, weights.shape[-1], length)
    found = torch.stack([weights[:, start : start + length, start : start + length] for start in starts])
    assert float(weights.sum()) == approx(float(found.sum()))
    return found


@pytest.mark.sample(2)
@pytest.mark.parametrize("family", OWN_LAYERS)
def test_the_weights_are_those_of_the_library(models: TinyPictureModels, family: str) -> None:
    expected = own_attentions(own_model(models, family), own_inputs(models, family))
    trace = source(models, family).trace()
    in_call_order = sorted(trace.layers, key=lambda layer: _call(layer.name)) if "BLIP" in family else trace.layers
    assert len(trace.layers) == len(expected) > 0
    for layer, own in zip(in_call_order, expected, strict=True):
        weights = blocks(layer, own.shape[-1]) if family in WINDOWED else layer.weights[None]
        assert weights.shape == own.shape, layer.name
        assert weights == approx(own)
        assert layer.weights.sum(-1) == approx(torch.tensor(1.0))
        if layer.formula is not None:  # the scores add up
            steps = (layer.biased_scores, layer.scaled_scores, layer.scores)
            before = next(step for step in steps if step is not None)
            mask = layer.mask if layer.mask is not None else torch.ones(before.shape[-2:], dtype=torch.bool)
            again = before.masked_fill(~mask, -torch.inf).softmax(-1)
            assert again == approx(layer.weights)


def _call(name: str) -> tuple[int, int, int]:
    kind, number = name.split()
    return {"vision": 0, "layer": 0, "qformer": 1, "cross": 1, "text": 2}[kind], int(number), kind == "cross"


@pytest.mark.parametrize("family", [family for family in OWN_LAYERS if family not in ("data2vec-vision", "SwinV2")])
def test_what_is_recorded_is_the_library_s_own_to_the_bit(models: TinyPictureModels, family: str) -> None:
    from attention.models import recorder, running

    loaded, inputs = source(models, family).load_inputs()
    recorded: list[Tensor] = []

    def note(call: Any) -> None:
        recorded.append(call.weights)

    with recorder.recording(note):
        output = running.run(loaded, inputs)
    expected = own_attentions(own_model(models, family), own_inputs(models, family))
    with torch.no_grad():
        own = own_model(models, family)(**own_inputs(models, family))
    for weights, each in zip(recorded, expected, strict=True):
        if len(each) > 1:
            n, size = len(each), each.shape[-1]
            for window in range(n):
                at = slice(window * size, (window + 1) * size)
                assert torch.equal(weights[:, at, at], each[window])
        else:
            assert torch.equal(weights, each[0])
    name = next(name for name in ("logits", "last_hidden_state", "feature_maps", "image_embeds") if name in own)
    first, second = (each[name] if isinstance(each[name], tuple) else (each[name],) for each in (output, own))
    if family != "BLIP-2":  # of which the logits of some positions are computed
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def places(tokens: tuple[str, ...], columns: int) -> list[int]:
    """The number of each patch in its grid, row by row; −1 for padding."""
    return [token.row * columns + token.column if isinstance(token, Patch) else -1 for token in tokens]


@pytest.mark.parametrize(("family", "sides"), [("Swin", ((6, 6), (3, 3), (2, 2))), ("Swin padded", ((7, 5), (4, 3)))])
def test_windows_are_those_of_the_library(
    models: TinyPictureModels, family: str, sides: tuple[tuple[int, int], ...]
) -> None:
    from transformers.models.swin.modeling_swin import window_partition

    model, trace = own_model(models, family), source(models, family).trace()
    with torch.no_grad():
        model(**own_inputs(models, family))  # a layer learns the size of its window there
    stages = [module for module in model.modules() if type(module).__name__ == "SwinStage"]
    of_blocks = [(block, side) for stage, side in zip(stages, sides, strict=True) for block in stage.blocks]
    assert [len(stage.blocks) for stage in stages] == [2, 2, 1][: len(stages)]
    shifts = []
    for layer, (block, (rows, columns)) in zip(trace.layers, of_blocks, strict=True):
        numbers = torch.arange(1.0, rows * columns + 1).view(1, rows, columns, 1)
        padded, _ = block.maybe_pad(numbers, rows, columns)
        windows = window_partition(block.cyclic_shift(padded), block.window_size).flatten()
        assert places(layer.tokens, columns) == (windows.long() - 1).tolist()
        assert layer.key_tokens == layer.tokens
        shifts.append(int(block.shift_size))
    assert shifts == {"Swin": [0, 1, 0, 1, 0], "Swin padded": [0, 1, 0, 0]}[family]


@pytest.mark.parametrize("family", ["Swin", "Swin padded"])
def test_outputs_put_back_at_their_pixels_are_what_the_layer_adds(models: TinyPictureModels, family: str) -> None:
    """The library puts its windows back by itself, by window_reverse and a shift: between its two norms stands what attention added."""
    model, trace = own_model(models, family), source(models, family).trace()
    before, after = list[Tensor](), list[Tensor]()
    for module in model.modules():
        if type(module).__name__ == "SwinLayer":
            module.layernorm_before.register_forward_pre_hook(lambda _, args: before.append(args[0][0]))
            module.layernorm_after.register_forward_pre_hook(lambda _, args: after.append(args[0][0]))
    with torch.no_grad():
        model(**own_inputs(models, family))
    for layer, x, y in zip(trace.layers, before, after, strict=True):
        columns = max(token.column for token in layer.tokens if isinstance(token, Patch)) + 1
        added = torch.full_like(x, torch.nan)
        output = layer.output
        assert output is not None
        for position, place in enumerate(places(layer.tokens, columns)):
            if place >= 0:
                added[place] = output[position]
        assert added == approx(y - x)


def test_a_patch_of_a_later_stage_covers_those_that_were_merged(models: TinyPictureModels) -> None:
    trace = source(models, "Swin padded").trace()
    assert trace.pictures[0].rgb.shape == (28, 20, 3)
    assert (trace.pictures[0].rows, trace.pictures[0].columns) == (7, 5)
    boxes = {token.box for token in trace.layers[2].tokens if isinstance(token, Patch)}
    assert (8, 16, 16, 24) in boxes
    assert (16, 24, 20, 28) in boxes  # of an odd grid, the last one reaches the edge of the picture alone
    assert trace.layers[2].tokens.count("[padding]") == 6  # 4 × 3 patches in two windows of 3 × 3
    assert trace.predictions[0].classifies


def test_hidden_patches_are_those_of_the_library(models: TinyPictureModels) -> None:
    with torch.no_grad():
        output = own_model(models, "ViT-MAE")(**own_inputs(models, "ViT-MAE"))
    trace = source(models, "ViT-MAE").trace()
    assert [layer.name for layer in trace.layers] == ["encoder 0", "encoder 1", "decoder 0", "decoder 1"]
    seen = places(trace.layers[0].tokens[1:], 3)
    assert trace.layers[0].tokens[0] == "[CLS]"
    assert [int(output.ids_restore[0, place]) for place in seen] == [0, 1, 2, 3]  # 9 · (1 − 0.5), rounded down
    assert {place for place in range(9) if not output.mask[0, place]} == {*seen}
    assert places(trace.layers[2].tokens[1:], 3) == list(range(9))
    assert trace.notes[0].startswith("5 of 9 patches are hidden from the encoder, mask_ratio=0.5 of them")
    again = source(models, "ViT-MAE").trace()
    assert torch.equal(again.layers[3].weights, trace.layers[3].weights)
    alone = source(models, "ViT-MAE encoder").trace()
    assert [layer.name for layer in alone.layers] == ["layer 0", "layer 1"]
    assert alone.layers[1].tokens == trace.layers[1].tokens


def test_a_user_s_ratio_of_hidden_patches_counts(models: TinyPictureModels) -> None:
    model = own_model(models, "ViT-MAE")
    processor = transformers.AutoImageProcessor.from_pretrained(models("ViT-MAE"), backend="pil")
    model.config.mask_ratio = 0.0
    model.vit.embeddings.config.mask_ratio = 0.0
    trace = Model.of(model, processor, image=picture()).trace()
    assert len(trace.layers[0].tokens) == len(trace.layers[2].tokens) == 10
    assert trace.notes == ()


def test_half_precision_hides_the_same_patches(models: TinyPictureModels) -> None:
    processor = transformers.AutoImageProcessor.from_pretrained(models("ViT-MAE"), backend="pil")
    trace = Model.of(own_model(models, "ViT-MAE").to(torch.bfloat16), processor, image=picture()).trace()
    assert trace.layers[0].tokens == source(models, "ViT-MAE").trace().layers[0].tokens
    assert trace.layers[2].formula is not None


def test_queries_attend_to_patches_and_are_read_by_the_text(models: TinyPictureModels) -> None:
    trace = source(models, "BLIP-2").trace()
    names = [layer.name for layer in trace.layers]
    assert names == ["vision 0", "vision 1", "qformer 0", "qformer 1", "qformer 2", "text 0", "text 1", "cross 0", "cross 2"]  # fmt: skip
    queries = tuple(f"query {number}" for number in range(4))
    for layer in trace.layers:
        if layer.name.startswith("qformer"):
            assert layer.tokens == layer.key_tokens == queries
        elif layer.name.startswith("cross"):
            assert layer.tokens == queries
            assert layer.key_tokens == trace.layers[0].tokens
            assert places(layer.key_tokens[1:], 3) == list(range(9))
    text = trace.layers[5].tokens
    assert text[:4] == queries
    assert len(text) == own_inputs(models, "BLIP-2")["input_ids"].shape[1]
    assert not any(query in trace.layers[0].tokens for query in queries)
    assert source(models, "BLIP-2", generate=2).trace().generated == 2


def test_an_image_token_of_the_user_changes_nothing_in_blip_2(models: TinyPictureModels) -> None:
    written = Model(models("BLIP-2"), f"<image>{TEXT}", image=picture()).trace()
    assert written.tokens == source(models, "BLIP-2").trace().tokens
    assert torch.equal(written.layers[5].weights, source(models, "BLIP-2").trace().layers[5].weights)
    with pytest.raises(ConfigError, match="one picture at a time"):
        Model(models("BLIP-2"), TEXT, image=[picture(), picture()]).trace()


def test_a_blip_2_that_is_not_read_says_which_are(models: TinyPictureModels) -> None:
    config = transformers.AutoConfig.from_pretrained(models("BLIP-2"))
    processor = transformers.AutoProcessor.from_pretrained(models("BLIP-2"), backend="pil")
    processor.image_processor = transformers.AutoImageProcessor.from_pretrained(models("BLIP-2"), backend="pil")
    other = transformers.Blip2ForImageTextRetrieval(config)
    with pytest.raises(ModelError, match=r"reads its text in another way: .* attention\.record"):
        Model.of(other, processor, TEXT, image=picture()).trace()


def test_the_bias_of_positions_is_a_step(models: TinyPictureModels) -> None:
    model = own_model(models, "Swin")
    layer = source(models, "Swin").trace().layers[1]
    attention = model.encoder.layers[0].blocks[1].attention
    own = attention.relative_position_bias()[0].detach()
    assert layer.bias is not None
    assert layer.biased_scores is not None
    assert layer.scaled_scores is not None
    assert layer.bias[:, :4, :4] == approx(own)  # the first window of a shifted layer is whole
    last = layer.bias[:, -4:, -4:] - own  # in the last one, each patch comes from another corner of the picture
    assert last == approx((torch.eye(4) - 1).expand(2, 4, 4) * 100)
    visible = layer.mask
    assert visible is not None
    assert int(visible.sum()) == 9 * 16
    assert layer.biased_scores[:, visible] == approx((layer.scaled_scores + layer.bias)[:, visible])


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_head_of_windows_can_be_ablated(models: TinyPictureModels, implementation: str) -> None:
    model = own_model(models, "Swin padded", implementation)
    processor = transformers.AutoImageProcessor.from_pretrained(models("Swin padded"), backend="pil")
    change = Intervention(1, 1, ablate="zero")
    trace = Model.of(model, processor, image=picture(), interventions=(change,)).trace()

    def without_head(_: Any, args: tuple[Tensor, ...]) -> tuple[Tensor]:
        changed = args[0].clone()
        changed[..., 4:] = 0  # the second of two heads of width 4
        return (changed,)

    handle = model.swin.encoder.layers[0].blocks[1].attention.o_proj.register_forward_pre_hook(without_head)
    with torch.no_grad():
        logits = model(**own_inputs(models, "Swin padded")).logits[0]
    handle.remove()
    assert trace.predictions[0].all_logits == approx(logits)
    unchanged = Model.of(model, processor, image=picture()).trace()
    assert unchanged.predictions[0].all_logits != approx(logits)
    assert unchanged.max_weight_error is not None
    assert unchanged.max_weight_error == approx(0, scale=1)


def test_windows_that_were_clamped_before_stay_so(models: TinyPictureModels) -> None:
    """A layer of Swin that has read a grid no larger than a window never shifts it again."""
    sizes = {"image_size": 24, "patch_size": 4, "embed_dim": 8, "depths": [2], "num_heads": [2], "window_size": 2}
    model = transformers.SwinModel._from_config(transformers.SwinConfig(**sizes), attn_implementation="eager").eval()
    processor = transformers.AutoImageProcessor.from_pretrained(models("Swin"), backend="pil")
    with torch.no_grad():
        model(torch.zeros(1, 3, 8, 8))
    assert model.encoder.layers[0].blocks[1].shift_size == 0
    trace = Model.of(model, processor, image=picture()).trace()
    assert trace.layers[1].tokens == trace.layers[0].tokens
    with torch.no_grad():
        expected = own_attentions(model, own_inputs(models, "Swin"))
    assert blocks(trace.layers[1], 4) == approx(expected[1])


@pytest.mark.parametrize("family", ["Swin padded", "ViT-MAE", "BLIP-2"])
def test_files_keep_the_tokens_of_every_layer(models: TinyPictureModels, family: str, tmp_path: Path) -> None:
    trace = source(models, family).trace()
    trace.save(tmp_path / "saved.npz")
    again = File.open(tmp_path / "saved.npz").trace()
    assert again.pictures[0].digest == trace.pictures[0].digest
    for one, other in zip(trace.layers, again.layers, strict=True):
        assert one.tokens == other.tokens
        assert [getattr(token, "place", None) for token in one.key_tokens] == [
            getattr(token, "place", None) for token in other.key_tokens
        ]
        assert one.weights == approx(other.weights)


def test_maps_of_windows_are_counted_before_a_pass(models: TinyPictureModels) -> None:
    n_bytes = source(models, "Swin").memory_bytes()
    of_bias = 4 * (
        2 * 2 * 36**2 + 2 * 4 * 16**2
    )  # of the windows of the first stage, and of the second, which are padded
    assert n_bytes > of_bias
    with pytest.raises(ConfigError, match="All steps may take at most"):
        source(models, "Swin", max_bytes=n_bytes - 1).trace()
    assert 0 < source(models, "SwinV2").memory_bytes() < 10**6


def test_rollout_and_residual_of_other_tokens_say_why(models: TinyPictureModels) -> None:
    trace = source(models, "Swin").trace()
    with pytest.raises(AttentionError):
        _ = trace.residual[0]


_OF_THEIR_TESTS = {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 2, 1], "num_heads": [2, 2, 4], "window_size": 2, "mlp_ratio": 2.0}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "values", "side"),
    [
        ("SwinModel", _OF_THEIR_TESTS, 32),
        ("SwinModel", _OF_THEIR_TESTS | {"patch_size": 3}, 32),  # whose last patches reach beyond the picture
        ("SwinForMaskedImageModeling", _OF_THEIR_TESTS | {"encoder_stride": 8}, 32),
        ("Swinv2Model", _OF_THEIR_TESTS, 32),
        ("BeitForMaskedImageModeling", {"image_size": 30, "patch_size": 2, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37, "vocab_size": 100, "use_mask_token": True, "use_shared_relative_position_bias": True}, 30),
        ("ViTMAEModel", {"image_size": 30, "patch_size": 2, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37, "mask_ratio": 0.5}, 30),
    ],
)  # fmt: skip
def test_the_sizes_of_transformers_own_tests_are_read(name: str, values: dict[str, Any], side: int) -> None:
    """What tests/models/swin, swinv2, beit and vit_mae of transformers make, in memory, with the attention that it runs by default too."""
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    cls = getattr(transformers, name)
    torch.manual_seed(0)
    network = cls._from_config(cls.config_class(**values), attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    processor = ViTImageProcessorPil(size={"height": side, "width": side})
    inputs = dict(processor(images=picture(), return_tensors="pt"))
    if "MAE" in name:
        inputs["noise"] = torch.randperm(225, generator=torch.Generator().manual_seed(0))[None]
    expected = own_attentions(network, inputs)
    trace = Model.of(network, processor, image=picture()).trace()
    assert len(trace.layers) == len(expected)
    for layer, own in zip(trace.layers, expected, strict=True):
        weights = blocks(layer, own.shape[-1]) if "Swin" in name else layer.blocks("weights")[0][None]
        assert weights == approx(own)
        assert len(layer.tokens) == weights.shape[0] * weights.shape[2]
    if "MAE" in name:
        assert len(trace.tokens) == 113  # "(num_patches + 1) * (1 - mask_ratio), rounded above"


@pytest.mark.parametrize("family", ["Swin", "Swin padded"])
def test_patches_that_a_shift_brought_together_are_kept_apart(models: TinyPictureModels, family: str) -> None:
    """The question of github.com/microsoft/Swin-Transformer/issues/38: which pairs a shifted window masks. Those that are no neighbours in the picture."""
    model, trace = own_model(models, family), source(models, family).trace()
    layer, block = (
        trace.layers[1],
        model.get_submodule("swin" if "padded" in family else "").encoder.layers[0].blocks[1],
    )
    own, side = block.attention.relative_position_bias()[0].detach(), int(block.window_size)
    assert layer.bias is not None
    for start in range(0, len(layer.tokens), side**2):
        window = slice(start, start + side**2)
        added = layer.bias[0, window, window] - own[0]
        tokens = layer.tokens[window]
        for i, first in enumerate(tokens):
            for j, second in enumerate(tokens):
                if isinstance(first, Patch) and isinstance(second, Patch):
                    apart = max(abs(first.row - second.row), abs(first.column - second.column)) >= side
                    assert float(added[i, j]) == approx(-100 if apart else 0, scale=1)
