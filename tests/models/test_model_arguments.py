"""What `Model.of` reads: texts, tensors, chats; and the one sentence that anything else is refused with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_model import CAT, OWL
from test_model_in_memory import check_equal, load
from tiny_models import SENTENCES, TinyModels, byte_level
from torch import nn

from attention import AttentionError, ConfigError, Intervention, Model, ModelError, TextError

TEMPLATE = (
    "{% for message in messages %}<s>{{ message['role'] }} {{ message['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant{% endif %}"
)


@pytest.fixture(scope="module")
def gpt2(tiny: TinyModels) -> Any:
    return load(tiny, "GPT-2", "sdpa")


def ids(tokenizer: Any, text: str) -> torch.Tensor:
    result: torch.Tensor = tokenizer(text, return_tensors="pt")["input_ids"]
    return result


def test_tensors_have_the_trace_of_their_text(gpt2: Any, tokenizer: Any) -> None:
    expected = Model.of(gpt2, tokenizer, OWL).trace()
    encoded = tokenizer(OWL, return_tensors="pt")
    row = encoded["input_ids"]
    n_tokens = row.shape[1]
    for inputs in (
        encoded,
        {"input_ids": row},
        {"input_ids": row[0].tolist(), "attention_mask": None},
        {"input_ids": row.int(), "position_ids": torch.arange(n_tokens), "token_type_ids": None},
    ):
        source = Model.of(gpt2, tokenizer, inputs=inputs)
        assert source.text == OWL
        check_equal(source.trace(), expected)
        assert len({source: 0, Model.of(gpt2, tokenizer, inputs=inputs): 1}) == 1


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_left_out_with_a_note(gpt2: Any, tokenizer: Any, side: str) -> None:
    expected = Model.of(gpt2, tokenizer, CAT).trace()
    tokenizer.padding_side = side
    padded = tokenizer(CAT, padding="max_length", max_length=9, return_tensors="pt")
    trace = Model.of(gpt2, tokenizer, inputs=padded).trace()
    n_padding = 9 - len(expected.tokens)
    assert trace.notes[0] == f"{n_padding} padding tokens are left out: attention_mask hides them."
    assert trace.tokens == expected.tokens
    assert trace.layers[1]["weights"].equal(expected.layers[1]["weights"])


def test_two_texts_as_tensors_equal_both_texts(tiny: TinyModels, tokenizer: Any) -> None:
    model = load(tiny, "BART")
    expected = Model.of(model, tokenizer, OWL, text2=CAT).trace()
    second = torch.cat([torch.tensor([[2]]), ids(tokenizer, CAT)], dim=1)
    inputs = {"input_ids": ids(tokenizer, OWL), "decoder_input_ids": second}
    check_equal(Model.of(model, tokenizer, inputs=inputs).trace(), expected)
    alone = Model.of(model, tokenizer, inputs={"input_ids": ids(tokenizer, OWL)}).trace()
    check_equal(alone, Model.of(model, tokenizer, OWL).trace())
    assert "reads its own generated tokens" in alone.notes[0]


def test_messages_are_read_by_the_template_of_the_tokenizer(gpt2: Any) -> None:
    tokenizer = byte_level(SENTENCES)
    chat = [{"role": "user", "content": "the owl"}]
    with pytest.raises(
        TextError, match=r"need the chat template of the tokenizer, .*: give text= instead, or set .*\.$"
    ):
        Model.of(gpt2, tokenizer, messages=chat)
    tokenizer.chat_template = TEMPLATE
    asked = Model.of(gpt2, tokenizer, messages=chat)
    assert asked.text == "<s>user the owl</s><s>assistant"
    assert asked.trace().tokens[0] == "<s>"
    check_equal(asked.trace(), Model.of(gpt2, tokenizer, asked.text).trace())
    answered = Model.of(gpt2, tokenizer, messages=[*chat, {"role": "assistant", "content": "a moon"}])
    assert answered.text == "<s>user the owl</s><s>assistant a moon</s>"
    with pytest.raises(TextError, match=r"^Messages are a list such as .*: give the roles and fields that it knows\.$"):
        Model.of(gpt2, tokenizer, messages=[{"content": 3}])


def test_long_ids_are_cut_and_large_traces_refused(gpt2: Any, tokenizer: Any) -> None:
    long = Model.of(gpt2, tokenizer, inputs={"input_ids": [5] * 100})
    with pytest.warns(
        UserWarning, match=r"the first 64 are read, the model's limit: .* \(max_tokens= can only lower it\)"
    ) as warned:
        trace = long.trace()
    assert [warning.filename for warning in warned] == [__file__]
    assert len(trace.tokens) == 64
    assert trace.notes == (
        "The text has 100 tokens; the first 64 are read, the model's limit: shorten it to see all of it.",
    )
    with pytest.raises(ConfigError, match=r"^All steps may take at most 0 MB; .* take .* MB: choose a shorter text"):
        Model.of(gpt2, tokenizer, OWL, max_bytes=1000).trace()


REFUSED: list[tuple[dict[str, Any], type[AttentionError], str]] = [
    ({}, ConfigError, "reads one of text, texts, inputs and messages; got none"),
    ({"text": OWL, "inputs": {"input_ids": [1]}}, ConfigError, "got text and inputs: give one of them"),
    ({"text": OWL, "device": "cuda"}, ConfigError, r"move it with model\.to\(device\)"),
    ({"text": "  "}, TextError, "got only blanks: type a sentence"),
    ({"texts": OWL}, ConfigError, "texts is a list with one text for each trace"),
    ({"texts": []}, ConfigError, "texts is a list with one text for each trace"),
    ({"inputs": {"input_ids": [1, 400]}}, ModelError, r"from 0 to 399; got 400: give the tokenizer that belongs to the model"),
    ({"inputs": {"input_ids": [1, -100]}}, ModelError, "from 0 to 399; got -100"),
    ({"inputs": {"attention_mask": [1]}}, ConfigError, "inputs is a dict of tensors with input_ids"),
    ({"inputs": [1, 2]}, ConfigError, "inputs is a dict of tensors with input_ids"),
    ({"inputs": {"input_ids": []}}, TextError, "at least one token; got none"),
    ({"inputs": {"input_ids": [1.5]}}, ConfigError, "one row of whole numbers"),
    ({"inputs": {"input_ids": ["owl"]}}, ConfigError, "a tensor of whole numbers; got a list"),
    ({"inputs": {"input_ids": [[1, 2], [3, 4]]}}, ConfigError, r"input_ids has 2: give the texts as texts=\[…\]"),
    ({"inputs": {"input_ids": [1, 2], "attention_mask": [0, 0]}}, TextError, "at least one token; got none"),
    ({"inputs": {"input_ids": [1, 2, 3], "attention_mask": [1, 1]}}, ConfigError, "got 2 numbers for 3 tokens"),
    ({"inputs": {"input_ids": [1, 2], "position_ids": [1, 2, 3]}}, ConfigError, "position_ids has a number for each token; got 3 for 2 tokens"),
    ({"inputs": {"input_ids": [1, 2], "position_ids": [1, 64]}}, ModelError, "position_ids of .* are from 0 to 63; got 64"),
    ({"inputs": {"input_ids": [1, 2], "inputs_embeds": [[1.0], [2.0]]}}, ConfigError, "got inputs_embeds: give the input_ids of these vectors"),
    ({"inputs": {"input_ids": [1], "decoder_input_ids": [[1, 2, 3]], "decoder_attention_mask": [1, 0, 1]}}, ConfigError, "1 hidden tokens in the middle"),
    ({"text2": CAT, "inputs": {"input_ids": [1, 2]}}, ConfigError, "text2 is the second text beside text="),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "error", "sentence"), REFUSED)
def test_unreadable_input_is_refused_in_one_sentence(
    gpt2: Any, tokenizer: Any, arguments: dict[str, Any], error: type[AttentionError], sentence: str
) -> None:
    with pytest.raises(error, match=sentence) as caught:
        Model.of(gpt2, tokenizer, **arguments).trace()
    assert str(caught.value).endswith(".")
    assert len(str(caught.value)) < 350


class Prompted(nn.Module):
    """Stands for a prompt adapter of peft."""

    class active_peft_config:  # noqa: N801  # its name in peft
        is_prompt_learning = True


def test_other_objects_than_model_and_tokenizer_are_refused(gpt2: Any, tokenizer: Any, tiny: TinyModels) -> None:
    with torch.device("meta"):
        meta = type(gpt2)(gpt2.config)
    for model, sentence in (
        ("gpt2", "reads a loaded transformers model; got 'gpt2': load it with"),
        (nn.Linear(2, 2), "got a Linear: attention.record"),
        (None, "got None: load it with"),
        (Prompted(), "got Prompted with a learned prompt, which no token stands for"),
        (meta, "are on the meta device: load them on the CPU or a GPU"),
    ):
        with pytest.raises(ModelError, match=sentence):
            Model.of(model, tokenizer, OWL)
    for wrong in (None, "gpt2", len):
        with pytest.raises(ModelError, match=r"needs the transformers tokenizer of .*; got .*: load it with"):
            Model.of(gpt2, wrong, OWL)
    larger = byte_level(SENTENCES)
    larger.add_tokens([f"owl{i}" for i in range(200)])
    with pytest.raises(ModelError, match="give the tokenizer that belongs to the model"):
        Model.of(gpt2, larger, "owl199").trace()
    with pytest.raises(ModelError, match="gives no attention weights from token to token: none"):
        Model.of(load(tiny, "Mamba"), tokenizer, OWL).trace()


def test_processor_is_read_as_its_tokenizer(gpt2: Any, tokenizer: Any) -> None:
    processor = nn.Module()
    processor.tokenizer = tokenizer
    assert Model.of(gpt2, processor, OWL).handle is Model.of(gpt2, tokenizer, OWL).handle


def test_wrong_kind_of_argument_gets_one_sentence(gpt2: Any, tokenizer: Any, tiny: TinyModels) -> None:
    name, change = str(tiny("GPT-2")), Intervention(0, 1, ablate="zero")
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: Model(gpt2, OWL), r"got a GPT2LMHeadModel: give a model that you have loaded as Model\.of\(model, tok"),
        (lambda: Model(name, [OWL, CAT]), r"^text is one text; got a value of type list: give several as Model\.of\(.*texts="),
        (lambda: Model.of(gpt2, tokenizer, [OWL, CAT]), r"^text is one text; got a value of type list"),
        (lambda: Model(name, OWL, text2=7), r"^text2 is one text; got a value of type int"),
        (lambda: Model(name, OWL, interventions=change), r"got one Intervention: write interventions=\(Intervention"),
        (lambda: Model(name, OWL, interventions=("0.1.zero",)), r"got \('0\.1\.zero',\): write interventions="),
    ]  # fmt: skip
    for make, sentence in cases:
        with pytest.raises((ConfigError, ModelError), match=sentence):
            make()
    listed = Model(name, OWL, interventions=[change])
    assert listed == Model(name, OWL, interventions=(change,))
    assert hash(listed)
    assert Model(tiny("GPT-2"), OWL).name == name  # a Path
