"""The first screen on Explore: what it says about the source, what typing into its sentence changes, and what was changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from attention import Cell, Trace
from attention.base.knobs import Choice, to_text
from attention.pictures.first_screen import About, first_screen
from attention.pictures.message_contract import Change, Live, Screen, Sentence
from attention.pictures.view import KEY, QUERY, SHOW
from attention.sources.layer_knobs import SEQUENCE, inline_knobs
from attention.sources.reader import Field
from attention.sources.registry import SOURCE, source_kinds
from attention.sources.state import State, Texts
from pages.ui.server.limits import MODELS
from pages.ui.state import knob_state
from pages.ui.state.knob_table import KNOBS
from pages.ui.state.session import session

if TYPE_CHECKING:
    from pages.ui.page.start import Page

TOGGLED = "toggled"
"""What a click on the map names instead of its step, while the mask is edited."""
_PATIENCE = 1.0  # seconds in which the sentence is answered while one types
_BEGINNING = 40  # characters of a sequence by which one chooses it


def screen(
    trace: Trace,
    cell: Cell,
    source: str,
    live: Live | None = None,
    pair: tuple[int, int] | None = None,
    of: State | None = None,
    fields: Mapping[str, Field] | None = None,
) -> Screen:
    """The first screen of a trace of a class of source, as the state describes it.

    Args:
        live: what the page computes itself.
        pair: the query and the key, where they are others than those of the state.
        of: the state that the trace is of, if it is another one, such as B; `fields` are its knobs as they were read.
    """
    state = of or session().state
    show, kind = knob_state.current_value(SHOW.key), source_kinds()[knob_state.current_value(SOURCE.key, of)]
    locked, ours = knob_state.is_locked(), session()
    fields = fields or {key: field for key, field in ours.fields.items() if key in ours.read}
    reads_text = SOURCE.key in _typed("", state.texts) or kind.text in fields
    sentence = _sentence(trace, state, source, fields) if reads_text and not locked else None
    pair = pair or (int(knob_state.current_value(QUERY.key)), int(knob_state.current_value(KEY.key)))
    computable = live["computable"] if live else ()
    shown = screen_of(trace, cell, state.texts, pair, show if show >= 0 else None, sentence, computable)
    values = {knob: knob_state.current_value(knob.key, of) for knob in inline_knobs(kind)}
    changed = {knob: value for knob, value in values.items() if value != knob.default}
    shown["changes"] = [change(knob.label, knob.default, now) for knob, now in changed.items()]
    shown["reset"] = {knob.key: knob.default for knob in changed}
    shown["locked"] = locked
    if SEQUENCE.key in fields and isinstance(within := fields[SEQUENCE.key].within, Choice):
        shown["sequences"] = [name[:_BEGINNING] for name in within.names]
        shown["sequence"] = knob_state.current_value(SEQUENCE.key, of)
    return shown


def screen_of(
    trace: Trace,
    cell: Cell,
    texts: Texts,
    pair: tuple[int, int],
    show: float | None = None,
    sentence: Sentence | None = None,
    computable: Sequence[str] = (),
) -> Screen:
    """The first screen of a trace, without the state of a tab."""
    kind, layer = source_kinds()[texts.get(SOURCE.key, SOURCE.default)], trace.layers[cell.layer]
    opening = kind.opening(texts) if kind.opening else {}
    is_opening = bool(opening) and {"head": str(cell.head), "q": str(pair[0]), "k": str(pair[1])} == opening
    name = "random weights" if trace.random else kind.model(texts)["model"] if kind.model else kind.label
    where = name if trace.random or not layer.name else f"{name} · {layer.name}"
    why = kind.why(texts) if kind.why and is_opening else ""
    shown = first_screen(trace, cell, pair, About(where, why, sentence), show, computable)
    if not trace.random:
        sizes = {"d_model": "d_model", "heads": "head", "d_k": "d_k"}
        shown["fixed"] = {name: layer.sizes[axis] for name, axis in sizes.items() if axis in layer.sizes}
    return shown


def change(label: str, before: Any, after: Any) -> Change:
    """A changed knob, in words."""
    return {"label": label, "before": to_text(before), "after": to_text(after)}


def _sentence(trace: Trace, state: State, source: str, fields: Mapping[str, Field]) -> Sentence:
    goes_to = _typed("", state.texts)
    kind = source_kinds()[goes_to.get(SOURCE.key, knob_state.current_value(SOURCE.key, state))]
    stays = SOURCE.key not in goes_to
    # Without a text in the link, some models read another example than the knob's.
    known = kind.text in fields and kind.text not in state.texts
    own = fields[kind.text].value if known else knob_state.current_value(kind.text, state) if stays else ""
    text = own if stays else " ".join(trace.tokens).replace("·", "")
    reads = (
        kind.model(goes_to)["model"] if kind.model else "random weights" if kind.name == SOURCE.default else kind.label
    )
    return {
        "text": str(text),
        "goes_to": "" if stays else reads,
        "slow": stays and session().seconds[source] > _PATIENCE,
    }


def _typed(text: str, texts: Texts, random: bool = False) -> Mapping[str, Any]:
    """The knobs that a typed sentence sets: the source's own text; or the same head of the model that it comes from, if that is here; or random weights."""
    kind = source_kinds()[texts.get(SOURCE.key, SOURCE.default)]
    if random:
        return {SOURCE.key: SOURCE.default} | ({source_kinds()[SOURCE.default].text: text} if text else {})
    if kind.text:
        return {kind.text: text}
    if kind.model and (MODELS / (values := kind.model(texts))["model"]).is_dir():
        return {
            SOURCE.key: "model",
            **{key: KNOBS[key].read(value, KNOBS[key].range, None)[0] for key, value in values.items()},
            "text": text,
        }
    return {SOURCE.key: SOURCE.default, source_kinds()[SOURCE.default].text: text}


def apply(values: Mapping[str, Any], to: Literal["A", "B", "both"] = "A") -> None:
    """Applies what the user did on the first screen: knobs, or a sentence; `to`: of which state, see `attention.sources.state.Set`."""
    if isinstance(text := values.get("typed"), str) and not knob_state.is_locked():
        state = session().state.other if to == "B" else session().state
        knob_state.hold(_typed(text, state.texts, bool(values.get("random"))), to)
    elif SEQUENCE.key in values and not knob_state.is_locked():
        knob_state.hold({SEQUENCE.key: int(values[SEQUENCE.key])}, to)
    else:
        knob_state.apply_controls(values)


def toggle_mask(page: Page, query: int, key: int) -> None:
    """Hides a cell of the chosen head, or shows it, and chooses its pair."""
    layer = page.layer
    if knob_state.is_locked() or not (0 <= query < len(layer.tokens) and 0 <= key < len(layer.key_tokens)):
        return
    knob_state.set_custom_mask(layer.toggle_cell(page.cell.head, query, key))
    knob_state.hold({QUERY.key: query, KEY.key: key})
