"""The reference cases of ONNX's operator Attention, with the inputs and outputs of its package, through our sources."""

from __future__ import annotations

from collections import Counter
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from margins import approx
from onnx import helper
from onnx.backend.test.case import node
from onnx.backend.test.case.node import attention  # noqa: F401  # fills the list of cases

from attention import AttentionConfig, File, Layer, Matrices
from attention.formula.override import Override

pytestmark = pytest.mark.quick

CASES = {case.name.removeprefix("test_"): case for case in node._NodeTestCases if not case.name.endswith("_expanded")}
INPUTS = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
MODES = (("scaled_scores",), ("capped_scores", "scaled_scores"), ("masked_scores",), ("weights",))


class Case:
    """One case: its inputs in four axes, its attributes, and the knobs that say the same."""

    def __init__(self, name: str) -> None:
        (operator,) = CASES[name].model.graph.node
        given, expected = CASES[name].data_sets[0]
        self.attributes = {each.name: helper.get_attribute_value(each) for each in operator.attribute}
        self.dtype = expected[0].dtype.name
        self.low_precision = expected[0].dtype.itemsize == 2
        arrays = dict(
            zip((name for name, used in zip(INPUTS, operator.input, strict=False) if used), given, strict=True)
        )
        self.inputs = {name: self._in_four_axes(name, array) for name, array in arrays.items()}
        outputs = ("Y", "present_key", "present_value", "qk_matmul_output")
        names = (name for name, used in zip(outputs, operator.output, strict=False) if used)
        self.outputs = {name: self._in_four_axes("Q", array) for name, array in zip(names, expected, strict=True)}
        past = self.inputs.get("past_key", np.zeros((1, 1, 0, 1)))
        self.keys, self.values = self.inputs["K"], self.inputs["V"]
        if past.shape[2]:
            self.keys = np.concatenate([past, self.keys], axis=2)
            self.values = np.concatenate([self.inputs["past_value"], self.values], axis=2)
        self.batch, self.heads, self.n_queries, _ = self.inputs["Q"].shape
        self.n_keys, self.offset = self.keys.shape[2], past.shape[2]

    def _in_four_axes(self, name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if array.dtype != bool:
            array = array.astype(np.float64)  # from 16 bits, too
        heads = {"Q": "q_num_heads", "K": "kv_num_heads", "V": "kv_num_heads"}.get(name)
        if heads and array.ndim == 3:
            return array.reshape(*array.shape[:2], self.attributes[heads], -1).transpose(0, 2, 1, 3)
        return array

    def mask(self, sentence: int) -> np.ndarray[Any, Any] | None:
        """The mask of a sentence as it is given, with the keys that it leaves out, which are hidden."""
        mask = self.inputs.get("attn_mask")
        if mask is None:
            return None
        mask = mask[min(sentence, len(mask) - 1)] if mask.ndim == 4 else mask
        hidden = False if mask.dtype == bool else -np.inf
        return np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, self.n_keys - mask.shape[-1])], constant_values=hidden)

    def knobs(self, sentence: int) -> dict[str, Any]:
        """The mask by position as knobs."""
        left, right = (self.attributes.get(f"{side}_window_size", -1) for side in ("left", "right"))
        causal, offset = self.attributes.get("is_causal"), self.offset
        if "nonpad_kv_seqlen" in self.inputs:
            offset = int(self.inputs["nonpad_kv_seqlen"][sentence]) - self.n_queries
        kind = ("causal window" if causal else "window") if max(left, right) >= 0 else "causal" if causal else "none"
        size = {"window": left if left >= 0 else self.n_keys} if "window" in kind else {}
        if kind == "window":
            size["window_right"] = right if right >= 0 else self.n_keys
        return {"mask": kind, "query_offset": offset, **size}


def check(case: Case, sentence: int, layer: Layer) -> None:
    """Asserts that a layer has the outputs of a sentence."""
    outputs = {"Y": ("head_output",), "qk_matmul_output": MODES[case.attributes.get("qk_matmul_output_mode", 0)]}
    for output, steps in outputs.items():
        if output in case.outputs:
            actual = next(layer[step] for step in steps if layer.has(step)).numpy()
            assert actual == approx(case.outputs[output][sentence], dtype=case.dtype)


def tuples(array: np.ndarray[Any, Any]) -> Any:
    return tuple(map(tuples, array)) if array.ndim else array.item()


def test_every_case_of_the_package_is_here() -> None:
    opsets = Counter(case.model.opset_import[0].version for case in CASES.values())
    assert (len(CASES), sorted(opsets)) == (93, [23, 24, 25])
    assert len(FILES) == 62


@pytest.mark.parametrize("name", CASES)
def test_matrices_give_the_outputs_of_the_operator(name: str) -> None:
    case = Case(name)
    for sentence in range(case.batch):
        mask, valid = case.mask(sentence), case.inputs.get("nonpad_kv_seqlen")
        scale = case.attributes.get("scale")
        source = Matrices(
            query=tuples(case.inputs["Q"][sentence]),
            key=tuples(case.keys[sentence]),
            value=tuples(case.values[sentence]),
            config=AttentionConfig(cap=case.attributes.get("softcap") or None, **case.knobs(sentence)),
            divisor=1 / scale if scale else None,
            valid=None if valid is None else int(valid[sentence]),
            mask=() if mask is None else tuples(mask),
        )
        check(case, sentence, source.trace().layers[0])


def in_a_file(case: Case) -> bool:
    """Whether a file can say it: without a cap, with one length for all sentences, and not by a mask and a rule of positions together."""
    alone = "attn_mask" not in case.inputs or case.knobs(0)["mask"] == "none"
    return "nonpad_kv_seqlen" not in case.inputs and not case.attributes.get("softcap") and alone


FILES = [name for name in CASES if in_a_file(Case(name))]


@pytest.mark.parametrize("name", FILES)
def test_files_give_the_outputs_of_the_operator(name: str) -> None:
    case, content = Case(name), BytesIO()
    arrays = {
        "query": case.inputs["Q"],
        "key": case.keys,
        "value": case.values,
    }  # [layer head pos width]: sentences as layers
    mask, scale = case.inputs.get("attn_mask"), case.attributes.get("scale")
    np.savez(content, **arrays, **({} if mask is None else {"mask": mask}), **({"scaling": scale} if scale else {}))
    knobs = {} if mask is not None else {**case.knobs(0)}
    trace = File("x.npz", "", content=content.getvalue(), config=Override(**knobs)).trace()
    assert "query [layer head query d_k]" in " ".join(trace.notes)
    for sentence, layer in enumerate(trace.layers):
        check(case, sentence, layer)
