import numpy as np
import torch

from attention import AttentionConfig, Layer, Notebook, TypedText
from attention.pictures.live import MAX_LIVE_BYTES, live, mask_rule


def layer(text="the owl asked the moon and the moon blinked", **knobs):
    return TypedText(text, AttentionConfig(**knobs), max_tokens=2048).trace().layers[0]


def rows(matrix):
    return matrix["rows"][matrix["index"]] if "index" in matrix else matrix["rows"]


def bytes_of(sent):
    return sum(array.nbytes for head in sent["heads"].values() for matrix in head.values() for array in matrix.values())


def test_what_is_sent_are_the_queries_keys_and_values_to_the_bit():
    given = layer()
    sent = live(given, 2)
    assert list(sent["heads"]) == ["0", "1", "2", "3"]
    for i, head in enumerate(sent["heads"].values()):
        for name in ("query", "key", "value"):
            np.testing.assert_array_equal(rows(head[name]), given[name][i].numpy())
    np.testing.assert_array_equal(sent["w_o"], given.w_o.flatten(0, 1).numpy())
    assert (sent["head"], sent["divisor"], sent["temperature"]) == (2, 4.0, 1.0)


def test_the_same_word_is_sent_once():
    head = live(layer("owl " * 100), 0)["heads"]["0"]
    assert head["query"]["rows"].shape == (1, 16)
    np.testing.assert_array_equal(rows(head["query"]), layer("owl " * 100).query[0].numpy())


def test_a_long_text_sends_the_shown_head_alone_and_says_less_than_its_matrices():
    given = layer(" ".join(f"w{i}" for i in range(512)))
    sent = live(given, 3)
    assert list(sent["heads"]) == ["3"]
    assert sent["w_o"] is None
    assert "value" not in sent["heads"]["3"]
    assert bytes_of(sent) == 2 * 512 * 16 * 4 < MAX_LIVE_BYTES


def test_dropped_weights_are_drawn_by_the_server_alone():
    assert live(layer(dropout=0.5), 0)["w_o"] is None


def test_scores_that_are_no_product_are_not_made_in_the_page():
    scores = torch.ones(1, 2, 2)
    shifted = Layer(
        recorded={"query": torch.ones(1, 2, 3), "key": torch.ones(1, 2, 3), "scores": scores, "weights": scores / 2}
    )
    assert live(shifted, 0) is None
    assert live(Notebook("averaging-trick").trace().layers[0], 0) is None
    assert live(Notebook("heatmaps-unscaled").trace().layers[0], 0) is None  # it has no weights


def test_only_padding_is_hidden_under_every_mask():
    """What the mask alone hides of every query is no padding: another mask shows it."""
    text = TypedText("alpha beta", AttentionConfig(mask="causal"), "v w x y z")
    assert mask_rule(text.trace().layers[0])["real"] is None
    padded = TypedText("a b\na b c d", AttentionConfig(mask="causal"), pad=True).trace().layers[0]
    assert mask_rule(padded)["real"].tolist() == [1, 1, 0, 0]


def test_a_mask_that_no_rule_says_is_sent_cell_by_cell():
    visible = torch.tensor([[True, False, True], [False, True, True]])
    rule = mask_rule(Layer(recorded={"mask": visible}))
    assert rule["kind"] == "custom"
    np.testing.assert_array_equal(rule["bits"], visible.numpy())
