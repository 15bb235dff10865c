"""Where tokens are, as a user says it: by one argument that means the same beside a recorded module and beside tensors."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from margins import approx
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

import attention
from attention import ConfigError, File, ShapeError, Trace
from attention.base.tokens import Patch, PatchPlace, Placed

pytestmark = pytest.mark.quick

N_HEADS = 2


class Attention(nn.Module):
    """The attention of timm's ViT, as it is written there: one matrix for Q, K and V, then fused attention or its steps by hand."""

    def __init__(self, dim: int, fused: bool) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.scale = N_HEADS, dim // N_HEADS, (dim // N_HEADS) ** -0.5
        self.fused_attn = fused
        self.qkv = nn.Linear(dim, dim * 3, bias=True)
        self.q_norm, self.k_norm, self.norm = nn.Identity(), nn.Identity(), nn.Identity()
        self.attn_drop, self.proj, self.proj_drop = nn.Dropout(0.0), nn.Linear(dim, dim), nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        n_batch, n_tokens, width = x.shape
        qkv = self.qkv(x).reshape(n_batch, n_tokens, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        q, k = self.q_norm(q), self.k_norm(k)
        if self.fused_attn:
            x = F.scaled_dot_product_attention(q, k, v, dropout_p=self.attn_drop.p if self.training else 0.0)
        else:
            attn = (q * self.scale) @ k.transpose(-2, -1)
            x = self.attn_drop(attn.softmax(dim=-1)) @ v
        x = self.norm(x.transpose(1, 2).reshape(n_batch, n_tokens, width))
        return self.proj_drop(self.proj(x))


class ViT(nn.Module):
    """Patches of 4 × 4 of a picture of 12 × 8, [CLS] before them, and two blocks."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, 8, 4, stride=4)
        self.cls_token = nn.Parameter(torch.randn(1, 1, 8))
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(2))
        self.blocks = nn.ModuleList(Attention(8, fused) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(len(x), -1, -1), x), dim=1)
        for norm, block in zip(self.norms, self.blocks, strict=True):
            x = x + block(norm(x))
        return x


def pixels() -> Tensor:
    return torch.randn(1, 3, 12, 8, generator=torch.Generator().manual_seed(0))


def own_weights(net: ViT) -> list[Tensor]:
    """The weights of each block, from its input by the formula of the paper."""
    found: list[Tensor] = []

    def note(block: Attention, args: tuple[Tensor, ...]) -> None:
        q, k, _ = block.qkv(args[0])[0].chunk(3, -1)
        split = (each.view(-1, N_HEADS, 4).transpose(0, 1) for each in (q, k))
        q, k = split
        found.append((q @ k.mT / 2).softmax(-1))

    handles = [block.register_forward_pre_hook(note) for block in net.blocks]
    with torch.no_grad():
        net(pixels())
    for handle in handles:
        handle.remove()
    return found


@pytest.mark.parametrize("fused", [True, False])
def test_a_vision_transformer_of_timm_s_form_is_drawn_over_its_picture(fused: bool) -> None:
    torch.manual_seed(0)
    net = ViT(fused).eval()
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 255, (30, 20, 3), np.uint8))
    trace = attention.record(net, pixels(), places=(3, 2), picture=photo)
    assert [layer.name for layer in trace.layers] == ["blocks.0", "blocks.1"]
    for layer, own in zip(trace.layers, own_weights(net), strict=True):
        assert layer.weights is not None
        assert layer.weights == approx(own)
        assert layer.tokens[0] == "[CLS]"
        assert [token.place for token in layer.tokens[1:]] == [
            PatchPlace(0, row, column, (column * 16, row * 16, column * 16 + 16, row * 16 + 16))
            for row in range(3)
            for column in range(2)
        ]
    assert trace.pictures[0].words == "resized as a whole to 32 × 48"
    assert trace.pictures[0].rgb.shape == (48, 32, 3)
    # The same by tensors.
    again = Trace.of([layer.weights for layer in trace.layers], places=(3, 2), picture=photo)
    assert again.layers[1].tokens == trace.layers[1].tokens
    assert again.pictures[0].digest == trace.pictures[0].digest


WEIGHTS = torch.softmax(torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(1)), -1)


def recorded(**options: Any) -> Trace:
    """The trace of a function that attends with the weights above."""
    q, v = torch.randn(1, 2, 4, 8), torch.randn(1, 2, 4, 8)
    return attention.record(lambda: F.scaled_dot_product_attention(q, q, v), **options)


@pytest.mark.parametrize("make", [recorded, lambda **options: Trace.of(WEIGHTS, **options)], ids=["record", "of"])
class TestPlaces:
    def test_any_value_becomes_the_place(self, make: Callable[..., Trace]) -> None:
        trace = make(places=[0.0, 0.02, 0.04, 0.06])
        assert [token.place for token in trace.tokens] == [0.0, 0.02, 0.04, 0.06]
        assert [str(token) for token in trace.tokens] == ["0", "0.02", "0.04", "0.06"]
        assert trace.layers[0].key_tokens == trace.tokens
        assert not trace.pictures
        assert pickle.loads(pickle.dumps(trace.tokens[1])).place == 0.02

    def test_words_name_tokens_at_places_that_have_no_name(self, make: Callable[..., Trace]) -> None:
        trace = make(tokens=["a", "b", "c", "d"], places=[(0.0, 0.5), "chain A", None, 7])
        assert trace.tokens == ("a", "b", "c", "d")
        assert [getattr(token, "place", "none") for token in trace.tokens] == [(0.0, 0.5), "chain A", "none", 7]

    def test_rows_and_columns_are_patches_in_any_order(self, make: Callable[..., Trace]) -> None:
        trace = make(places=[(1, 2), None, (0, 0), (0, 1)])
        assert [(token.row, token.column) for token in trace.tokens if isinstance(token, Patch)] == [(1, 2), (0, 0), (0, 1)]  # fmt: skip
        assert trace.tokens[1] == "x1"
        assert (trace.pictures[0].rows, trace.pictures[0].columns) == (2, 3)
        again = make(places=torch.tensor([[1, 2], [0, 2], [0, 0], [0, 1]]))
        assert again.tokens[0] == trace.tokens[0]

    def test_patches_keep_their_boxes_in_the_picture_s_own_pixels(self, make: Callable[..., Trace]) -> None:
        boxes = [(0, 0, 5, 7), (5, 0, 10, 7), (0, 7, 5, 14), (5, 7, 10, 14)]
        patches = [Patch(0, i // 2, i % 2, box) for i, box in enumerate(boxes)]
        picture = np.random.default_rng(0).integers(0, 255, (15, 11, 3), np.uint8)
        trace = make(places=patches, picture=picture)
        assert [token.box for token in trace.tokens] == boxes
        assert np.array_equal(trace.pictures[0].rgb, picture)
        assert trace.pictures[0].patch_size == (7, 5)
        with pytest.raises(ConfigError, match=r"11 × 15 .* got boxes up to 10 × 20"):
            make(places=[*patches[:3], Patch(0, 1, 1, (5, 7, 10, 20))], picture=picture)

    def test_tokens_of_another_medium_are_kept(self, make: Callable[..., Trace]) -> None:
        token = Placed("residue 3")
        token.place = 3
        trace = make(places=[token, None, None, None], tokens=["K", "L", "M", "N"])
        assert trace.tokens[0].place == 3
        assert trace.tokens[1:] == ("L", "M", "N")

    def test_places_that_are_none_get_a_sentence(self, make: Callable[..., Trace]) -> None:
        for places, sentence in (
            ("14x14", "a grid such as"), ((0, 3), "got 0 × 3"), ([], "a grid such as"), (7, "a grid such as"),
            ((2**20, 2**20), "at most 65,536"), ([(0, -1), (0, 0), None, None], "count from 0"),
            ([Patch(1, 0, 0, (0, 0, 1, 1)), None, None, None], "patches of one picture"),
        ):  # fmt: skip
            with pytest.raises(ConfigError, match=sentence):
                make(places=places)
        with pytest.raises(ConfigError, match="picture= lies beneath places="):
            make(picture="photo.png")
        with pytest.raises(ConfigError, match="places that are none"):
            make(places=[0.5, 1, 2, 3], picture="photo.png")


def test_places_for_another_number_of_tokens_are_said() -> None:
    with pytest.raises(ShapeError, match="places are 3 places, and the layers have 4 queries and 4 keys"):
        Trace.of(WEIGHTS, places=[0.1, 0.2, 0.3])
    assert "3 places and another number of positions" in recorded(places=[0.1, 0.2, 0.3]).notes[0]


def test_a_file_keeps_the_patches(tmp_path: Path) -> None:
    trace = Trace.of(WEIGHTS, places=[(1, 2), None, (0, 0), (0, 1)])
    trace.save(tmp_path / "saved.npz")
    saved = File.open(tmp_path / "saved.npz").trace()
    assert [getattr(token, "place", None) for token in saved.tokens] == [getattr(token, "place", None) for token in trace.tokens]  # fmt: skip
