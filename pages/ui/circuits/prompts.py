"""A set of prompts: the same question of many pairs of texts, with the mean and the spread of each head's numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import streamlit as st

from attention import AttentionError, Model, circuits
from attention.base.knobs import Choice, Knob, Switch
from attention.base.printed import format_number
from attention.circuits import prompts
from attention.circuits.prompts import ABLATION, DIRECT, ESTIMATE, PATCH, PromptSweep, number_words
from attention.circuits.sweep import SATURATION_CAVEAT, STEP_WORDS, Progress
from attention.formula.edit_kinds import PATCH_CODES
from attention.formula.names import HEAD_OUTPUT
from attention.pictures.charts import HeadQuantity, head_map_json
from pages.ui.exports.links import small_download
from pages.ui.page import long_run, show
from pages.ui.page.start import Page
from pages.ui.server import uploads
from pages.ui.state import knob_state
from pages.ui.state.knob_state import is_locked
from pages.ui.state.notices import plain, show_error
from pages.ui.state.session import session
from pages.ui.state.widgets import Knobs

_STEPS = (HEAD_OUTPUT, *(step for step in PATCH_CODES if step != HEAD_OUTPUT))
_TAKEN = Knob("prompts_patch", HEAD_OUTPUT, Choice(_STEPS, tuple(STEP_WORDS[step] for step in _STEPS)), "Patched from B", "The step of each head that the run of the clean text (A) takes from the run of the corrupted text (B).")  # fmt: skip
_EXACT = Knob("prompts_exact", False, Switch(), "Exact", "On: each head is ablated and patched in each prompt, which takes long. Off: only the estimates from gradients, and the direct effects.")  # fmt: skip
_NUMBER = Knob("prompts_number", ESTIMATE, Choice((ESTIMATE, PATCH, ABLATION, DIRECT)), "Map", "The number of each head whose mean is drawn.")  # fmt: skip
_TEXT = "prompts_csv"  # the key of the field
_FILE = "prompts_file"
_MB = 1
_NAME = "prompts"  # of the request


@dataclass
class _Typed:
    """The CSV text of a tab's prompts; empty for the examples."""

    csv: str = ""


def prompt_set_section(page: Page, knobs: Knobs) -> None:
    """Draws the folded section: the prompts, what is measured, and the result once the user has requested it; nothing without a model."""
    if not isinstance(page.source, Model):
        return
    with st.expander("Many prompts: the mean and spread of every head", key="prompts", on_change="rerun") as unfolded:
        if not unfolded.open:
            return
        st.caption(
            "The same question with other words: each row is a clean text (A), a corrupted text (B), the target and the distractor. "
            "The logit of the target minus that of the distractor is measured at the end of A. Means show what heads do in general; "
            "a head that matters in one prompt only has a large spread."
        )
        if reason := page.trace.no_prediction_reason:
            st.caption(plain(reason))
            return
        try:
            _draw_section(page, page.source, knobs)
        except AttentionError as error:
            show_error(str(error))


def _draw_section(page: Page, model: Model, knobs: Knobs) -> None:
    ours = session().of(_Typed)  # the field forgets its text on another page
    st.session_state.setdefault(_TEXT, ours.csv or circuits.EXAMPLES.to_csv())
    if not is_locked():
        st.text_area(
            f"CSV: {', '.join(prompts.COLUMNS)}", key=_TEXT, height=150, max_chars=prompts.MAX_BYTES,
            help=f"A header may name the columns in another order. At most {prompts.MAX_ROWS} rows. A blank before a token is part of it.",
        )  # fmt: skip
        st.file_uploader("Or upload a CSV file", type=["csv", "txt"], key=_FILE, on_change=_uploaded, max_upload_size=_MB)  # fmt: skip
    ours.csv = st.session_state[_TEXT]
    prompt_set = prompts.PromptSet.from_text(ours.csv)
    with st.container(horizontal=True, width=560, vertical_alignment="bottom"):
        plain_model, patch, exact = _plain(model), knobs.value(_TAKEN), knobs.value(_EXACT)
    request = plain_model, prompt_set, patch, "zero", exact  # the arguments of `sweep_prompts`
    seconds = prompts.estimated_seconds(plain_model, prompt_set, exact)
    place = st.empty()
    verb = "Ablate and patch" if exact else "Estimate"
    words = f"{verb} all heads in {len(prompt_set)} prompts (about {seconds:.0f} s)"
    if not long_run.is_requested(place, _NAME, request, words):
        for problem in prompt_set.problems:
            st.caption(plain(problem))
        return

    def label(progress: Progress[PromptSweep]) -> str:
        return f"Prompt {progress.prompt} of {len(prompt_set)}"

    last = long_run.finish(place, label, _NAME, "prompts_stop", circuits.sweep_prompts, *request)
    if last is not None and last.result is not None:
        _draw(page, last.result, knobs)


def _plain(model: Model) -> Model:
    """The model without what does not count, so that another chosen text asks for nothing new."""
    return replace(model.without_interventions.base, text=" ".join(prompts.COLUMNS), text2="", predict=(), generate=0, prefix_len=None)  # fmt: skip


def _uploaded() -> None:
    file = st.session_state[_FILE]
    if file is None:
        return
    try:
        content = uploads.content(file)[: prompts.MAX_BYTES + 4]  # a longer one is refused
    except AttentionError as error:
        show_error(str(error))
        return
    st.session_state[_TEXT] = content.decode("utf-8-sig", errors="replace")


def _draw(page: Page, sweep: PromptSweep, knobs: Knobs) -> None:
    with st.container(width=280):
        within = Choice(tuple(name for name in (ESTIMATE, PATCH, ABLATION, DIRECT) if name in sweep.numbers))
        name = knobs.value(_NUMBER, within)
    chosen = (page.cell.layer, page.cell.head)
    mean, spread, count = sweep.means(name), sweep.spreads(name), sweep.counts(name)

    def click(_: str, x: int, y: int) -> None:
        if (y, x) in sweep.heads:
            knob_state.apply_controls({"layer": y, "head": x})

    largest = sweep.by_effect(name)[0]
    for head in dict.fromkeys((largest, chosen)):
        if head in sweep.heads:
            st.markdown(plain(f"L{head[0]} H{head[1]}: {name}, mean {format_number(float(mean[head]))}, standard deviation {format_number(float(spread[head]))}, over {int(count[head])} prompts."))  # fmt: skip
    description = f"mean over {len(sweep.prompts)} prompts: {name}"
    of_mean = HeadQuantity(f"Mean {name}", "mean", description, "prompts")
    of_spread = HeadQuantity("Standard deviation over the prompts", "spread", f"standard deviation: {name}", "prompts")
    maps = [head_map_json(mean, of_mean, chosen, spread), head_map_json(spread, of_spread, chosen, is_signed=False)]
    show.figures(maps, "prompts_map", click)
    st.caption(plain(f"{number_words(name, sweep)} Measured: {sweep.quantity}."))
    correlation = f" Rank correlation of the mean estimate with the mean exact change (Spearman): {format_number(sweep.rank_correlation)}." if PATCH in sweep.numbers else ""  # fmt: skip
    st.caption(plain(f"{SATURATION_CAVEAT.replace('It is', 'The estimate by attribution patching is')}{correlation}"))
    for problem in sweep.problems:
        st.caption(plain(problem))
    show.chart_table(sweep.frame(name), "prompts-heads", "Every head as a table: mean, standard deviation, number of prompts")  # fmt: skip
    _prompts_table(sweep, chosen)


def _prompts_table(sweep: PromptSweep, chosen: tuple[int, int]) -> None:
    head = chosen if chosen in sweep.heads else None
    rows = sweep.prompt_frame(head=head)
    st.markdown("**The prompts**, each with a link that opens its clean text as A and its corrupted text as B")
    link = st.column_config.LinkColumn("link", display_text="Open", width="small")
    st.dataframe(rows, hide_index=True, column_config={"link": link}, column_order=["link", *rows.columns[:-1]])
    small_download("Download CSV", rows.to_csv(index=False), "prompts.csv", "text/csv", "prompts_csv_file")
    if aligned := [f"Prompt {i}: {text}" for i, text in enumerate(sweep.alignments, 1) if text]:
        st.caption(plain(" ".join(aligned[:3]) + (f" The same in {len(aligned) - 3} more." if len(aligned) > 3 else "")))  # fmt: skip
