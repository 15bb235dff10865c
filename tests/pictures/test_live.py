import numpy as np
import pytest
import torch

from attention import AttentionConfig, Layer, TypedText
from attention.pictures.live_inputs import _MAX_LIVE_BYTES, _mask_rule, live_inputs

pytestmark = pytest.mark.quick


def layer(text="the owl asked the moon and the moon blinked", **knobs):
    return TypedText(text, AttentionConfig(**knobs), max_tokens=2048).trace().layers[0]


def rows(matrix):
    return matrix["rows"][matrix["index"]] if "index" in matrix else matrix["rows"]


def bytes_of(sent):
    return sum(array.nbytes for head in sent["heads"].values() for matrix in head.values() for array in matrix.values())


def test_live_message_contains_exact_queries_keys_and_values():
    sample = layer()
    sent = live_inputs(sample, 2)
    assert list(sent["heads"]) == ["0", "1", "2", "3"]
    for i, head in enumerate(sent["heads"].values()):
        for name in ("query", "key", "value"):
            np.testing.assert_array_equal(rows(head[name]), sample[name][i].numpy())
    np.testing.assert_array_equal(sent["w_o"], sample.w_o.flatten(0, 1).numpy())
    assert (sent["head"], sent["divisor"], sent["temperature"]) == (2, 4.0, 1.0)


def test_repeated_word_is_sent_once():
    head = live_inputs(layer("owl " * 100), 0)["heads"]["0"]
    assert head["query"]["rows"].shape == (1, 16)
    np.testing.assert_array_equal(rows(head["query"]), layer("owl " * 100).query[0].numpy())


def test_long_text_sends_only_the_shown_head():
    sample = layer(" ".join(f"w{i}" for i in range(512)))
    sent = live_inputs(sample, 3)
    assert list(sent["heads"]) == ["3"]
    assert sent["w_o"] is None
    assert "value" not in sent["heads"]["3"]
    assert bytes_of(sent) == 2 * 512 * 16 * 4 < _MAX_LIVE_BYTES


def test_dropped_weights_are_drawn_only_by_the_server():
    assert live_inputs(layer(dropout=0.5), 0)["w_o"] is None


def test_padding_stays_hidden_under_every_mask():
    """Keys that only the mask hides from every query are not padding: another mask shows them."""
    text = TypedText("alpha beta", AttentionConfig(mask="causal"), "v w x y z")
    assert _mask_rule(text.trace().layers[0])["real"] is None
    padded = TypedText("a b\na b c d", AttentionConfig(mask="causal"), pad=True).trace().layers[0]
    assert _mask_rule(padded)["real"].tolist() == [1, 1, 0, 0]


def test_mask_without_a_rule_is_sent_cell_by_cell():
    visible = torch.tensor([[True, False, True], [False, True, True]])
    rule = _mask_rule(Layer(recorded={"mask": visible}))
    assert rule["kind"] == "custom"
    np.testing.assert_array_equal(rule["bits"], visible.numpy())
