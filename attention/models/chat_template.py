"""A chat as the text that its model reads, by the template of the tokenizer, and which part of that text each message is.

A template is a program, so nothing is assumed about it. A message is found by asking: a character that no message has is put into it, and
where the rendered text has that character, and is otherwise equal to the letter, there the message stands. So blanks that a template
strips, a system prompt that it adds or moves into another message, and words that it leaves out, are seen as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from attention.base.errors import TextError
from attention.base.spans import Stretch

_BESIDE = ("role", "name", "tool_call_id", "type", "id")
"""The fields of a message that are no part of what it says."""


def render(tokenizer: Any, name: str, chat: str) -> tuple[str, tuple[Stretch, ...], tuple[str, ...]]:
    """The text of a chat, the stretch of each message in it, named by its role, and a note on each message that the text does not have.

    What the template adds, such as special tokens, names of roles and a default system prompt, belongs to no message. After a message that is not
    the assistant's, its turn begins. Tools that the model may call are the stretch "tools".

    Args:
        tokenizer: the tokenizer of a transformers model.
        name: the name of the model, for errors.
        chat: a list of messages as JSON, or an object with "messages" and "tools".

    Raises:
        TextError: the tokenizer has no template, or the template refuses the messages.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise TextError(
            f"Messages need the chat template of the tokenizer, and that of {name} has none: give text= instead, or set "
            "tokenizer.chat_template."
        )
    read = json.loads(chat)
    document: dict[str, Any] = read if isinstance(read, dict) else {"messages": read}

    def rendered(chat: Any) -> str:
        messages = chat["messages"]
        text: str = tokenizer.apply_chat_template(
            messages, tools=chat.get("tools"), tokenize=False, add_generation_prompt=messages[-1]["role"] != "assistant"
        )
        return text

    try:
        text = rendered(document)
    except Exception as error:  # a template is a program, and can raise anything
        message = " ".join(str(error).split())[:150]
        raise TextError(
            f'Messages are a list such as [{{"role": "user", "content": "…"}}]; the chat template fails with “{message}”: '
            "give the roles and fields that it knows."
        ) from error
    parts = [("messages", i, str(message.get("role", "message"))) for i, message in enumerate(document["messages"])]
    parts += [("tools", i, "tools") for i in range(len(document.get("tools") or ()))]
    stretches, notes = list[Stretch](), list[str]()
    for field, index, role in parts:
        found = _find(rendered, text, document, field, index)
        if found:
            stretches.append(Stretch(role, *found))
        elif field == "messages" and any(_texts(document[field][index])):
            notes.append(f"The chat template leaves out message {index} ({role}).")
    of_tools = [stretch for stretch in stretches if stretch.name == "tools"]
    others = [stretch for stretch in stretches if stretch.name != "tools"]
    if of_tools:
        others.append(Stretch("tools", min(each.start for each in of_tools), max(each.stop for each in of_tools)))
    return text, tuple(sorted(others, key=lambda stretch: stretch.start)), tuple(notes)


def _find(rendered: Callable[[Any], str], text: str, document: Any, field: str, index: int) -> tuple[int, int] | None:
    """Where the rendered text has what a message, or a tool, says: from its first character to its last one; None where it does not have it."""
    message = document[field][index]
    mark = next(chr(code) for code in range(0xE000, 0xF8FF) if chr(code) not in text + str(document))
    edges = list[tuple[int, int]]()
    for path, said in _texts(message):
        start = len(said) - len(said.lstrip())
        stop = len(said.rstrip())
        # Just within the text: a template may strip its blanks, or ask how it begins.
        for at in dict.fromkeys((stop - 1, start + 1, (start + stop) // 2)):
            items = list(document[field])
            items[index] = _replaced(message, path, said[:at] + mark + said[at:])
            try:
                changed = rendered({**document, field: items})
            except Exception:  # the template refuses such a text
                continue
            found = changed.find(mark)
            if found < 0 or changed.replace(mark, "") != text:
                continue
            before, after = said[:at][::-1], said[at:]
            edges.append((found - _n_equal(text[:found][::-1], before), found + _n_equal(text[found:], after)))
            if stop - start <= edges[-1][1] - edges[-1][0]:
                break
    if not edges:
        return None
    return min(start for start, _ in edges), max(stop for _, stop in edges)


def _n_equal(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _texts(said: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Every text in a message with the keys that lead to it."""
    if isinstance(said, str):
        if said.strip():
            yield path, said
        return
    items = said.items() if isinstance(said, dict) else enumerate(said) if isinstance(said, list) else ()
    in_function = bool(path) and path[-1] == "function"
    for key, value in items:
        if key not in _BESIDE or (in_function and key == "name"):
            yield from _texts(value, (*path, key))


def _replaced(said: Any, path: tuple[Any, ...], text: str) -> Any:
    """A message with another text at the end of a path of keys."""
    if not path:
        return text
    copy = said.copy()
    copy[path[0]] = _replaced(said[path[0]], path[1:], text)
    return copy
