"""Models whose layers read other tokens than the patches of a grid: ViT-MAE, Swin, BLIP-2; and those with a bias of positions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tiny_pictures import OWN_LAYERS, TinyPictureModels, noise
from torch import Tensor

from attention import Model, ModelError
from attention.base.tokens import Patch
from attention.trace.trace import Trace

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
    assert float(weights.sum()) == pytest.approx(float(found.sum()))
    return found


@pytest.mark.parametrize("family", OWN_LAYERS)
def test_the_weights_are_those_of_the_library(models: TinyPictureModels, family: str) -> None:
    expected = own_attentions(own_model(models, family), own_inputs(models, family))
    trace = source(models, family).trace()
    in_call_order = sorted(trace.layers, key=lambda layer: _call(layer.name)) if "BLIP" in family else trace.layers
    assert len(trace.layers) == len(expected) > 0
    for layer, own in zip(in_call_order, expected, strict=True):
        weights = blocks(layer, own.shape[-1]) if family in WINDOWED else layer.weights[None]
        assert weights.shape == own.shape, layer.name
        torch.testing.assert_close(weights, own, atol=2e-6, rtol=0)
        assert torch.allclose(layer.weights.sum(-1), torch.tensor(1.0), atol=1e-5)
        if layer.formula is not None:  # the scores add up
            before = layer.biased_scores if layer.biased_scores is not None else layer.scaled_scores
            assert before is not None
            mask = layer.mask if layer.mask is not None else torch.ones(before.shape[-2:], dtype=torch.bool)
            again = before.masked_fill(~mask, -torch.inf).softmax(-1)
            torch.testing.assert_close(again, layer.weights, atol=1e-6, rtol=0)


def _call(name: str) -> tuple[int, int, int]:
    kind, number = name.split()
    return {"vision": 0, "layer": 0, "query": 1, "cross": 1, "text": 2}[kind], int(number), kind == "cross"


@pytest.mark.parametrize("family", [family for family in OWN_LAYERS if family not in ("data2vec-vision", "SwinV2")])
def test_what_is_recorded_is_the_library_s_own_to_the_bit(models: TinyPictureModels, family: str) -> None:
    from attention.models import forward_pass, recorder, running

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
    assert forward_pass.run_recorded(loaded, inputs, forward_pass.PatchedForward())[2] is None
