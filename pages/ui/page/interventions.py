"""Interventions inside a model: a list with a switch for each, the forms that add one to the shown head, and the effect on the chosen prediction in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from attention.base.errors import AttentionError
from attention.explanation import predictions
from attention.formula.config import TEMPERATURE
from attention.formula.edit_kinds import KINDS, MASKS, InterventionKind
from attention.formula.formula import SetCell
from attention.formula.mask import RULES
from attention.formula.names import HEAD_OUTPUT, KEY, QUERY, SCORES, VALUE, WEIGHTS, Cell
from attention.formula.steps import MAP_AXES, find_step
from attention.patching import intervention
from attention.patching.intervention import MAX_INTERVENTIONS, Intervention
from attention.pictures.view import has_patches
from attention.sources import Intervenable, Source
from attention.sources.layer_knobs import INTERVENTIONS, PREFIX_LEN
from attention.sources.model import Model
from attention.trace.layer import Layer
from attention.trace.trace import Prediction, Trace
from pages.ui.features import panels
from pages.ui.server.traces import unchanged_predictions
from pages.ui.state import knob_state
from pages.ui.state.notices import plain, show_later
from pages.ui.state.session import session


def intervention_bar(source: Source | None, trace: Trace | None, cell: Cell | None) -> None:
    """Draws a switch for each intervention, the forms that add one, and the effect on the prediction.

    Draws nothing if the source is not a model.
    """
    interventions = _interventions()
    codes = [change.code for change in interventions]
    listed = list(dict.fromkeys([*codes, *session().switched_off]))
    if not isinstance(source, Intervenable) or (knob_state.is_locked() and not interventions):
        return
    line: dict[str, Any] = {"horizontal": True, "vertical_alignment": "center", "gap": "small"}
    with st.container(key="changed", **line):
        with st.container(key="changed_row", width="content", **line):
            if cell is not None and trace is not None and not knob_state.is_locked():
                _forms(cell, trace, codes, source)
            for code in listed:
                _switch(code, code in codes)
            if listed and not knob_state.is_locked():
                _frozen()
                st.button("Reset", key="changed_reset", type="tertiary", on_click=_set_interventions, args=([],), help="Removes all interventions: the model as published.")  # fmt: skip
        if trace is not None and interventions and (effect := _headline(source, trace)):
            st.markdown(f"**{plain(effect)}**", width="content")


def mark(cell: Cell) -> str:
    """A sentence about the interventions on the shown head; empty if there are none."""
    return intervention.describe_head(_interventions(), cell.layer, cell.head)


def _headline(source: Source, trace: Trace) -> str:
    """The effect of the interventions in one line; empty if there are none, or the model predicts nothing."""
    before = unchanged_predictions(source)
    if before is None:
        return ""
    if not trace.predictions:
        moved = predictions.vector_shifts(before, trace)
        return predictions.summarize_shifts(moved) if moved else ""
    prediction = shown_prediction(trace)
    return next(iter(predictions.summarize(prediction, predictions.matching_prediction(prediction, trace, before))), "")


def shown_prediction(trace: Trace) -> Prediction:
    """The prediction to show: the last one if the model continues the text, otherwise the one that the user chose.

    Without a choice it is the prediction at the chosen query, or the first.
    """
    predicted = trace.predictions
    if continues_text(trace):
        return predicted[-1]
    row, chosen = knob_state.current_value("q"), knob_state.current_value(PREFIX_LEN.key, knob_state.edited())
    if chosen is None:
        return next((prediction for prediction in predicted if prediction.position == row), predicted[0])
    return predicted[min(int(chosen), len(predicted) - 1)]


def continues_text(trace: Trace) -> bool:
    """Whether the model continues the text."""
    return bool(trace.generated or trace.continuation)


def _interventions() -> tuple[Intervention, ...]:
    try:
        return intervention.parse_codes(knob_state.current_value(INTERVENTIONS.key, knob_state.edited()) or "")
    except AttentionError:  # the knob itself reports the error
        return ()


def _switch(code: str, on: bool) -> None:
    (change,) = intervention.parse_codes(code)
    key = f"do_{code}"
    st.session_state[key] = on
    st.checkbox(plain(change.label), key=key, on_change=_toggle, args=(code,), help=plain(change.words), disabled=knob_state.is_locked(), width="content")  # fmt: skip


def _forms(cell: Cell, trace: Trace, codes: list[str], source: Intervenable) -> None:
    zero = Intervention(layer=cell.layer, head=cell.head, ablate="zero")
    st.button(
        f"Ablate (silence) L{cell.layer} H{cell.head}", key="silence", on_click=_add, args=(zero,), disabled=zero.code in codes,
        help="Zero ablation: the head's output becomes 0 before W_O, and the rest of the model is computed again.",
    )  # fmt: skip
    layer = trace.layers[cell.layer]
    is_settable = layer.wrapped is layer and find_step(cell.step).axes == MAP_AXES
    cells = [kind for kind in KINDS if "cells" in kind.fields]
    _choose(
        f"Set cell [{cell.row}, {cell.column}]" if is_settable else "Set a cell", "setting", cells, cell, source, layer, disabled=not is_settable,
        help="Sets the chosen cell of S or A to your own number. Click another cell to choose it." if is_settable
        else "First choose S or A above, shown in pieces and with special tokens, and click a cell.",
    )  # fmt: skip
    _choose("Other interventions", "changing", [kind for kind in KINDS if kind not in cells], cell, source, layer)


def _choose(
    label: str, key: str, kinds: list[InterventionKind], cell: Cell, source: Intervenable, of: Layer, **more: Any
) -> None:
    with st.popover(label, key=key, on_change="rerun", **more) as opened:
        if not opened.open:
            return
        this_head = f"Head {cell.head} of layer {cell.layer}"
        places: dict[str, dict[str, Any]] = {this_head: {"layer": cell.layer, "head": cell.head}, f"All heads of layer {cell.layer}": {"layer": cell.layer}, "All heads of all layers": {}}  # fmt: skip
        labels = {f"{kind.name} ({kind.term})": kind for kind in kinds}
        kind = labels[st.selectbox("What", tuple(labels), key=f"{key}_what")] if len(kinds) > 1 else kinds[0]
        fields = _FORMS[kind.fields[0]](cell, of)
        if fields is None:
            return
        if isinstance(source, Model) and kind.fields[0] in ("ablate", "patch"):
            places |= {words: {"layer": cell.layer, "site": site} for words, site in _SITES.items()}
        place = places[st.radio("Where", tuple(places), key=f"{key}_where")]
        if "site" in place and "patch" in fields:
            fields["patch"] = place["site"]
        of_output = kind.fields[0] == "ablate" or fields.get("patch") in (HEAD_OUTPUT, *_SITES.values())
        if of_output and st.toggle(f"Only at position {cell.row}, the chosen query", key=f"{key}_here"):
            place["positions"] = (cell.row,)
        change = Intervention(**place, **fields)
        st.caption(plain(change.words))
        other_text = (_other_text(source),) if change.patch else ()
        st.button("Apply", key=f"{key}_do", type="primary", on_click=_add, args=(change, *other_text))


_SITES = {"The output of the MLP of this layer": "mlp_output", "The residual stream after this layer": "resid_post"}
"""The places beside heads, with their names in an `Intervention`."""


def _ablation_form(_: Cell, __: Layer) -> dict[str, Any]:
    ways = {"0 (zero ablation)": "zero", "its average over positions (mean ablation)": "mean"}
    way = ways[st.radio("Its output becomes", tuple(ways), key="changing_silence")]
    strength = st.slider("Strength, from 0 (no effect) to 1", 0.0, 1.0, 1.0, 0.05, key="changing_strength")
    return {"ablate": way, "strength": strength}


def _temperature_form(_: Cell, __: Layer) -> dict[str, Any]:
    return {"temperature": st.number_input("Temperature", TEMPERATURE.low, TEMPERATURE.high, 0.2, 0.1, key="changing_temperature", help="The scores are also divided by this number. Below 1 the rows become sharper.")}  # fmt: skip


def _mask_form(cell: Cell, layer: Layer) -> dict[str, Any] | None:
    labels = {
        "first": "only the first token", "none": "all tokens (no mask)", "custom": "all but some patches",
        "patch window": "patches nearby", "causal patch window": "patches nearby, and no later token",
    }  # fmt: skip
    # With patches, a custom mask hides some of them; without, these rules have no meaning.
    of_patches = ("custom", *(name for name, rule in RULES.items() if rule.of_patches))
    names = [name for name in MASKS if has_patches(layer) or name not in of_patches]
    mask = st.selectbox("Each query attends to", sorted(names, key=lambda name: name != "first"), format_func=lambda name: labels.get(name, name), key="changing_mask")  # fmt: skip
    values: dict[str, Any] = {"mask": mask}
    if mask == "custom":
        fields = (feature.patch_field("changing_patches", "Hide the keys", layer, cell.head) for feature in panels())
        hidden = next(filter(None, fields), None)
        return None if hidden is None else values | {"hidden": hidden}
    if "window" in mask or mask == "prefix":
        name = "prefix" if mask == "prefix" else "window"
        unit = "rows and columns" if mask in of_patches else "keys"
        values[name] = st.number_input(f"How many {unit}", 0, 4096, 2, key="changing_size")
    return values


def _cell_form(cell: Cell, _: Layer) -> dict[str, Any]:
    default = int(cell.step != WEIGHTS)
    step = st.radio("The cell", (WEIGHTS, SCORES), default, key=f"changing_step_{default}", format_func={WEIGHTS: "its weight, after the softmax", SCORES: "its score, before the softmax"}.__getitem__)  # fmt: skip
    st.caption(f"Query {cell.row}, key {cell.column}. Click another cell of the map to choose it.")
    if step == SCORES:
        value, rescaled = st.number_input("Becomes", value=0.0, key="changing_score"), False
    else:
        value = st.number_input("Becomes", 0.0, 1.0, 0.0, 0.1, key="changing_weight")
        rescaled = st.toggle("Rescale the rest of the row to keep its sum", key="changing_rescaled")
    return {"cells": (SetCell(step, cell.row, cell.column, float(value), rescaled),)}


def _patch_form(_: Cell, __: Layer) -> dict[str, Any]:
    labels = {HEAD_OUTPUT: "its output (Z)", WEIGHTS: "its weights (A)", QUERY: "its queries (Q)", KEY: "its keys (K)", VALUE: "its values (V)"}  # fmt: skip
    return {"patch": st.selectbox("What to patch (copy)", tuple(labels), format_func=labels.__getitem__, key="changing_take")}  # fmt: skip


def _hide_form(cell: Cell, layer: Layer) -> dict[str, Any] | None:
    n_keys = len(layer.key_tokens)
    first = st.number_input("First key", 0, n_keys - 1, min(cell.column, n_keys - 1), key="changing_first")
    last = st.number_input("Last key", int(first), n_keys - 1, int(first), key=f"changing_last_{first}")
    return {"hide": (int(first), int(last))}


_FORMS: dict[str, Callable[[Cell, Layer], dict[str, Any] | None]] = {
    "ablate": _ablation_form, "temperature": _temperature_form, "scaled": lambda *_: {"scaled": False}, "mask": _mask_form, "cells": _cell_form, "patch": _patch_form, "hide": _hide_form,
}  # fmt: skip
"""The form of each kind of intervention, by the kind's first field; None while its input is none."""


def _other_text(source: Intervenable) -> str:
    if not source.input_text:  # a model that reads a picture alone
        st.caption("From another picture: patch B of a comparison, which takes it from A.")
        return ""
    return st.text_area(
        "From the same model run on this text", str(knob_state.current_value("other", knob_state.edited()) or source.input_text), key="changing_other",
        help="Another text with the same number of tokens. If it is empty in a comparison, the patch comes from the first state.",
    )  # fmt: skip


def _frozen() -> None:
    st.session_state["frozen_switch"] = bool(knob_state.current_value("frozen", knob_state.edited()))
    st.checkbox(
        "Freeze the attention of later layers", key="frozen_switch", width="content",
        on_change=lambda: knob_state.apply_controls({"frozen": bool(st.session_state["frozen_switch"])}),
        help="Off: later layers compute new attention weights. On: they keep the weights of the unchanged model, and only the values change.",
    )  # fmt: skip


def _add(new: Intervention, other: str = "") -> None:
    """Adds an intervention; it replaces one of the same kind at the same place. `other` is the text to patch from."""
    if other:
        knob_state.apply_controls({"other": other})

    def target(change: Intervention) -> tuple[object, ...]:
        return (
            change.layer,
            change.head,
            change.site,
            change.positions,
            change.kinds,
            [cell[:3] for cell in change.cells],
        )

    remaining = [old for old in _interventions() if target(old) != target(new)]
    if len(remaining) >= MAX_INTERVENTIONS:
        show_later(f"At most {MAX_INTERVENTIONS} interventions can act at once: remove some first.")
        return
    _set_interventions([*remaining, new])


def _toggle(code: str) -> None:
    codes, off = [change.code for change in _interventions()], session().switched_off
    if code in codes:
        off.append(code)
        codes.remove(code)
    else:
        codes.append(code)
    knob_state.apply_controls({INTERVENTIONS.key: ";".join(codes)})


def _set_interventions(interventions: list[Intervention]) -> None:
    session().switched_off = [] if not interventions else session().switched_off
    knob_state.apply_controls({INTERVENTIONS.key: intervention.format_codes(tuple(interventions))})
