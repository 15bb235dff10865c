"""The spans of a chat are its messages, whatever the template does with them: templates of six families, as their tokenizer_config has them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from test_model_in_memory import load
from tiny_models import SENTENCES, TOKENIZERS, TinyModels, byte_level

from attention import ConfigError, File, Model, TextError, Trace
from attention.base.spans import Span
from attention.models import chat_template

TEMPLATES = {
    # Qwen 2.5 without tools: a default system prompt.
    "ChatML": "{%- if messages[0]['role'] == 'system' %}{{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}{%- else %}"
    "{{- '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n' }}{%- endif %}"
    "{%- for message in messages %}{%- if (message.role == 'user') or (message.role == 'system' and not loop.first) or (message.role == 'assistant' and not message.tool_calls) %}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}",
    # Llama 3: contents are trimmed.
    "Llama 3": "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    # Mistral 7B v0.3 without tools: the system prompt moves into the last user message.
    "Mistral": "{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}{%- set loop_messages = messages[1:] %}{%- else %}{%- set loop_messages = messages %}{%- endif %}"
    "{{- bos_token }}{%- for message in loop_messages %}{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{%- endif %}"
    "{%- if message['role'] == 'user' %}{%- if loop.last and system_message is defined %}{{- '[INST] ' + system_message + '\n\n' + message['content'] + '[/INST]' }}{%- else %}{{- '[INST] ' + message['content'] + '[/INST]' }}{%- endif %}"
    "{%- else %}{{- ' ' + message['content'] + eos_token}}{%- endif %}{%- endfor %}",
    # Gemma 2: no system prompt, another name of the assistant, contents are trimmed.
    "Gemma": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}",
    "SmolLM2": "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
}  # fmt: skip
# Qwen 3: earlier turns lose their thoughts; a tool's answers are a user's turn; a text that begins and ends as a tool's answer is none of the user.
QWEN3 = """{%- if tools %}{{- '<|im_start|>system\\n' }}{{- "# Tools\\n<tools>" }}{%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}{{- "\\n</tools><|im_end|>\\n" }}{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "user" %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning_content) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls or [] %}
            {{- '<tool_call>\\n{"name": "' }}{{- tool_call.function.name }}{{- '", "arguments": ' }}{{- tool_call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {{- '<|im_start|>user\\n<tool_response>\\n' }}{{- content }}{{- '\\n</tool_response><|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""
# Of Llama 3.1: the answer of a tool is written as JSON.
LLAMA31 = """{{- bos_token }}{%- for message in messages %}{%- if message.role == "tool" %}{{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
{%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}{%- else %}{{- message.content }}{%- endif %}{{- "<|eot_id|>" }}
{%- else %}{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}{%- endif %}{%- endfor %}"""

ASK = [
    {"role": "user", "content": "the owl asked"},
    {"role": "assistant", "content": "a moon "},
    {"role": "user", "content": " the cat sat\non the mat"},
]
SYSTEM = [{"role": "system", "content": "keys and queries meet"}, *ASK]


def tokenizer_of(kind: str, template: str) -> Any:
    tokenizer = TOKENIZERS[kind](SENTENCES)
    tokenizer.add_special_tokens(
        {
            "additional_special_tokens": [
                "<|im_start|>",
                "<|im_end|>",
                "<|eot_id|>",
                "[INST]",
                "[/INST]",
                "<end_of_turn>",
            ]
        }
    )
    tokenizer.chat_template = template
    return tokenizer


def said_by(text: str, stretches: Any) -> list[tuple[str, str]]:
    return [(name, text[start:stop].strip()) for name, start, stop in stretches]


@pytest.mark.parametrize("chat", [ASK, SYSTEM, ASK[:1], ASK[:2]], ids=["asked", "system", "one", "answered"])
@pytest.mark.parametrize("family", TEMPLATES)
def test_each_message_is_found_where_the_template_has_it(family: str, chat: list[dict[str, str]]) -> None:
    tokenizer = tokenizer_of("byte-level", TEMPLATES[family])
    if family == "Gemma" and chat is SYSTEM:
        with pytest.raises(TextError, match="the chat template fails with “System role not supported”"):
            chat_template.render(tokenizer, "tiny", json.dumps(chat))
        return
    text, stretches, notes = chat_template.render(tokenizer, "tiny", json.dumps(chat))
    assert text == tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=chat[-1]["role"] == "user")
    expected = [(message["role"], message["content"].strip()) for message in chat]
    if family == "Mistral" and chat is SYSTEM:  # the system prompt stands in the last turn
        expected = [*expected[1:3], expected[0], expected[3]]
    assert said_by(text, stretches) == expected
    assert notes == ()


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["byte-level", "sentence-piece"])
@pytest.mark.parametrize("family", TEMPLATES)
def test_tokens_of_a_message_are_its_content(family: str, kind: str, tiny: TinyModels) -> None:
    tokenizer, model = tokenizer_of(kind, TEMPLATES[family]), load(tiny, "Llama")
    model.resize_token_embeddings(len(tokenizer))
    model.config.max_position_embeddings = 500  # positions are rotations
    trace = Model.of(model, tokenizer, messages=ASK, max_tokens=500).trace()
    encoded = tokenizer.apply_chat_template(ASK, tokenize=True, add_generation_prompt=True, return_dict=True)[
        "input_ids"
    ]
    assert trace.tokens == Model.of(model, tokenizer, inputs={"input_ids": encoded}, max_tokens=500).trace().tokens
    assert [span.name for span in trace.spans] == ["user 1", "assistant", "user 2"]
    for span, message in zip(trace.spans, ASK, strict=True):
        assert tokenizer.decode(encoded[span.first : span.last + 1]).split() == message["content"].split()
        # No special token and no word of the template is in a message.
        assert not {*encoded[span.first : span.last + 1]} & {*tokenizer.all_special_ids}


def test_qwen3_thoughts_tools_and_odd_texts() -> None:
    call = {"type": "function", "function": {"name": "get_moon", "arguments": {"place": "harbor"}}}
    chat = [
        {"role": "user", "content": "Is there a moon?"},
        {"role": "assistant", "content": "<think>\nAsk the tool.\n</think>\n\nI look.", "tool_calls": [call]},
        {"role": "tool", "content": '{"moon": "copper"}'},
        {"role": "assistant", "content": "<think>\nCopper.\n</think>\n\nYes."},
        {"role": "user", "content": "<tool_response> x </tool_response> y"},
    ]
    tools = [
        {
            "type": "function",
            "function": {
                "name": "get_moon",
                "description": "The moon over a place.",
                "parameters": {"type": "object", "properties": {}},
            },
        }
    ]
    tokenizer = tokenizer_of("byte-level", QWEN3)
    text, stretches, notes = chat_template.render(tokenizer, "tiny", json.dumps({"messages": chat, "tools": tools}))
    found = said_by(text, stretches)
    assert [name for name, _ in found] == ["tools", "user", "assistant", "tool", "assistant", "user"]
    assert found[0][1].startswith('get_moon", "description": "The moon over a place.')
    # The thoughts of earlier turns are not in the text; what the tool is called with is.
    assert found[2][1] == 'I look.<tool_call>\n{"name": "get_moon", "arguments": {"place": "harbor'
    assert [part for _, part in found[3:]] == ['{"moon": "copper"}', "Yes.", "<tool_response> x </tool_response> y"]
    assert notes == ()
    # At the end of the chat, the thoughts are in the text, which has a blank line after them that the message has, too.
    text, stretches, _ = chat_template.render(tokenizer, "tiny", json.dumps(chat[:4]))
    assert said_by(text, stretches)[-1] == ("assistant", "<think>\nCopper.\n</think>\n\nYes.")


def test_a_tool_whose_answer_is_written_as_json_is_found_whole() -> None:
    tokenizer = tokenizer_of("byte-level", LLAMA31)
    chat = [ASK[0], {"role": "tool", "content": 'It is "copper".\nOr not.'}]
    text, stretches, _ = chat_template.render(tokenizer, "tiny", json.dumps(chat))
    assert said_by(text, stretches)[1] == ("tool", 'It is \\"copper\\".\\nOr not.')


def test_a_message_that_the_template_leaves_out_is_a_note() -> None:
    tokenizer = tokenizer_of(
        "byte-level",
        "{% for m in messages %}{% if m['role'] == 'user' %}[INST]{{ m['content'] }}{% endif %}{% endfor %}",
    )
    text, stretches, notes = chat_template.render(tokenizer, "tiny", json.dumps(SYSTEM))
    assert said_by(text, stretches) == [("user", "the owl asked"), ("user", "the cat sat\non the mat")]
    assert notes == (
        "The chat template leaves out message 0 (system).",
        "The chat template leaves out message 2 (assistant).",
    )


def test_parts_of_a_content_and_equal_messages() -> None:
    tokenizer = tokenizer_of(
        "byte-level",
        "{% for m in messages %}<s>{% for part in m['content'] %}{{ part['text'] }}{% endfor %}{% endfor %}",
    )
    chat = [{"role": "user", "content": [{"type": "text", "text": "a moon"}]}] * 2
    text, stretches, _ = chat_template.render(tokenizer, "tiny", json.dumps(chat))
    assert (text, said_by(text, stretches)) == ("<s>a moon<s>a moon", [("user", "a moon")] * 2)
    assert [stretch.start for stretch in stretches] == [3, 12]


@pytest.fixture(scope="module")
def gpt2(tiny: TinyModels) -> Any:
    return load(tiny, "GPT-2")


def spans(trace: Trace) -> dict[str, str]:
    return {
        span.name: "".join(trace.tokens[span.first : span.last + 1]).replace("·", " ").strip() for span in trace.spans
    }


def test_spans_of_a_text(gpt2: Any, tokenizer: Any) -> None:
    text = "the owl asked the moon. the cat sat"
    for wanted in (
        {"bird": "the owl", "cat": "the cat sat"},
        {"bird": slice(0, 7), "cat": slice(24, 35)},
        "bird@0-7;cat@24-35",
    ):
        assert spans(Model.of(gpt2, tokenizer, text, spans=wanted).trace()) == {"bird": "the owl", "cat": "the cat sat"}
    assert Model.of(gpt2, tokenizer, text, spans={"bird": range(2)}).trace().spans == (Span("bird", 0, 1),)
    marked = Model.of(gpt2, tokenizer, "[[bird]] the owl asked [[cat]] the cat sat", spans="marks").trace()
    assert spans(marked) == {"bird": "the owl asked", "cat": "the cat sat"}
    assert marked.tokens == Model.of(gpt2, tokenizer, "the owl asked the cat sat").trace().tokens
    assert [*spans(Model.of(gpt2, tokenizer, text, spans="sentences").trace())] == [
        "sentence"
    ]  # no capital letter begins another
    assert Model.of(gpt2, tokenizer, text).trace().spans == ()
    with pytest.raises(
        TextError, match="The span “x” is “dog”, which the text of 35 characters does not have: give words"
    ):
        Model.of(gpt2, tokenizer, text, spans={"x": "dog"}).trace()
    with pytest.raises(ConfigError, match=r"^Spans of token ids are given by their tokens; got 'x=dog'"):
        Model.of(gpt2, tokenizer, inputs={"input_ids": [5] * 9}, spans={"x": "dog"}).trace()
    assert Model.of(gpt2, tokenizer, inputs={"input_ids": [5] * 9}, spans={"x": range(2, 4)}).trace().spans == (
        Span("x", 2, 3),
    )


def test_a_text_with_marks_is_a_chat(gpt2: Any) -> None:
    tokenizer = tokenizer_of("byte-level", TEMPLATES["Mistral"])
    tokenizer.bos_token = "<s>"
    model = Model.of(gpt2, tokenizer, "[[user]] the owl [[assistant]] a moon [[user]] the cat", spans="chat")
    chat = [
        {"role": "user", "content": "the owl"},
        {"role": "assistant", "content": "a moon"},
        {"role": "user", "content": "the cat"},
    ]
    gpt2.resize_token_embeddings(len(tokenizer))
    assert model.trace().tokens == Model.of(gpt2, tokenizer, messages=chat).trace().tokens
    assert spans(model.trace()) == {"user 1": "the owl", "assistant": "a moon", "user 2": "the cat"}
    # Documents within a message divide it.
    divided = Model.of(gpt2, tokenizer, messages=chat[:1], spans={"bird": "owl"}).trace()
    assert spans(divided) == {"user": "the", "bird": "owl"}
    with pytest.raises(TextError, match=r"^A chat has a mark such as \[\[user\]\] before each message; got none"):
        Model.of(gpt2, tokenizer, "the owl", spans="chat").trace()


def test_generated_tokens_are_the_answer_and_words_keep_their_span(gpt2: Any, tokenizer: Any) -> None:
    model = Model.of(gpt2, tokenizer, "[[bird]] the owl asked the moon", spans="marks", generate=3)
    pieces = model.trace()
    assert pieces.spans[-1] == Span("answer", len(pieces.tokens) - 3, len(pieces.tokens) - 1)
    words = Model.of(gpt2, tokenizer, "[[bird]] the blinked [[cat]] the cat", spans="marks", words=True).trace()
    assert spans(words) == {"bird": "the blinked", "cat": "the cat"}


def test_a_file_keeps_the_spans(gpt2: Any, tokenizer: Any, tmp_path: Any) -> None:
    trace = Model.of(gpt2, tokenizer, "the owl asked", spans={"bird [1]"[:4]: "the owl"}).trace()
    for name in ("trace.npz", "trace.safetensors"):
        trace.save(tmp_path / name)
        assert File.open(tmp_path / name).trace().spans == trace.spans == (Span("bird", 0, trace.spans[0].last),)
    named = trace.with_spans([("a", range(1)), ("a", range(1, 2))])
    assert [span.name for span in named.spans] == ["a 1", "a 2"]
    with pytest.raises(TextError, match=r"^The spans of a trace are ranges of its tokens; got 'a=owl'"):
        trace.with_spans({"a": "owl"})


def test_bytes_of_one_letter_belong_together(gpt2: Any) -> None:
    tokenizer = byte_level(SENTENCES)
    trace = Model.of(gpt2, tokenizer, "é 👍 the", spans={"thumb": "👍"}).trace()
    (span,) = trace.spans
    ids = tokenizer("é 👍 the")["input_ids"]
    assert tokenizer.decode(ids[span.first : span.last + 1]).strip() == "👍"
