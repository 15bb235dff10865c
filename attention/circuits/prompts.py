"""Sets of prompts, read from CSV: clean and corrupted texts, each with a target token and a distractor; and the numbers of each head over a set."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, fields, replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from attention.base import cache
from attention.base.errors import AttentionError, ConfigError, FileError
from attention.circuits import sweep
from attention.circuits.own_metric import Metric, check_metric, metric_name, parameters
from attention.circuits.sweep import STEP_WORDS, HeadEstimates, HeadSweep, Progress, chosen_heads, rank_correlation
from attention.formula.edit_kinds import PATCH_CODES
from attention.formula.names import HEAD_OUTPUT
from attention.sources.model import Model
from attention.sources.state import COMPARE, EQUAL, differences

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from attention.circuits.batched_heads import Heads

MAX_ROWS = 100
MAX_BYTES = 200_000
_MAX_CHARACTERS = 2_000  # of a text
_MAX_SECONDS = 600.0  # of a set with exact sweeps

ABLATION, PATCH = "change when ablated", "change when patched"
ESTIMATE, DIRECT = "estimate of the patch", "direct effect"
"""The numbers of a head for each prompt."""
_ARROWS = {"noising": "corrupted → clean", "denoising": "clean → corrupted"}


@dataclass(frozen=True)
class Prompt:
    """One question to a model, and a text in which the answer differs.

    Attributes:
        clean: the text that the model continues.
        corrupted: the text to patch from, usually with as many tokens.
        target: the token that answers the clean text.
        distractor: the token that answers the corrupted text; empty: the log-probability of the target is measured alone.
    """

    clean: str
    corrupted: str
    target: str
    distractor: str = ""

    def address(self, model: str, lab: str = "") -> str:
        """The address in the Lab that compares the clean text, as A, with the corrupted text, as B.

        Args:
            model: the name of the model in the Lab.
            lab: the address of the Lab, such as http://localhost:8501; empty: relative to another page of it.
        """
        target, distractor = (token.replace(" ", "·") for token in (self.target, self.distractor))
        state = {"source": "model", "model": model, "text": self.clean, "target": target, "against": distractor}
        state = {key: text for key, text in state.items() if text}
        other = differences(state, state | {"text": self.corrupted})
        return f"{lab.rstrip('/') or '.'}/?{urlencode({**state, COMPARE: other or EQUAL})}"


COLUMNS = tuple(field.name for field in fields(Prompt))
"""The columns of the CSV, in their order without a header."""


@dataclass(frozen=True)
class PromptSet:
    """Prompts that ask the same question with different words.

    Attributes:
        problems: a sentence for each row that is no prompt; such rows are left out.
    """

    prompts: tuple[Prompt, ...]
    problems: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.prompts)

    @classmethod
    def from_text(cls, text: str) -> PromptSet:
        """The prompts of a CSV text with the columns clean, corrupted, target, distractor; a header may name them in another order.

        Raises:
            ConfigError: there are too many rows or bytes, or no prompt at all.
        """
        if (nbytes := len(text.encode(errors="replace"))) > MAX_BYTES:
            raise ConfigError(
                f"A prompt set has at most {MAX_BYTES:,} bytes; got {nbytes:,}: split it into several sets."
            )
        if any(char == "\ufffd" or "\ud800" <= char <= "\udfff" for char in text):
            raise ConfigError(
                "A prompt set is text in UTF-8; got characters of another encoding: save the file as UTF-8."
            )
        lines = StringIO(text.removeprefix("\ufeff"), newline=None)  # with the line ends of any system
        try:
            rows = [row for row in csv.reader(lines) if any(map(str.strip, row))]
        except csv.Error as error:
            raise ConfigError(
                f"A prompt set is CSV text; this is not ({error}): put texts with commas in quotes."
            ) from error
        names = [name.strip().lower() for name in rows[0]] if rows else []
        if "clean" in names and "corrupted" in names:
            if not {*COLUMNS[:3]} <= {*names} <= {*COLUMNS} or len({*names}) < len(names):
                raise ConfigError(
                    f"The columns of a prompt set are {', '.join(COLUMNS)}, each once (the last may be absent); got "
                    f"{', '.join(names)[:200]}: rename, add or remove columns."
                )
            return cls.from_rows([dict(zip(names, row, strict=False)) for row in rows[1:]])
        return cls.from_rows(rows)

    @classmethod
    def from_file(cls, path: str | Path) -> PromptSet:
        """The prompts of a CSV file in UTF-8, as for `from_text`.

        Raises:
            FileError: the file cannot be read as text.
            ConfigError: as for `from_text`.
        """
        try:
            with Path(path).open("rb") as file:
                text = file.read(MAX_BYTES + 4).decode("utf-8-sig", errors="strict")
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(
                f"A prompt set is a CSV file in UTF-8; {path} cannot be read ({error}): save it as one."
            ) from error
        return cls.from_text(text)

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[str] | Mapping[str, str] | Prompt]) -> PromptSet:
        """The prompts of rows: sequences in the order of `COLUMNS`, mappings with these keys, or prompts.

        Raises:
            ConfigError: there are too many rows, or no prompt at all.
        """
        prompts: list[Prompt] = []
        problems: list[str] = []
        listed = list(rows)
        if len(listed) > MAX_ROWS:
            raise ConfigError(
                f"A prompt set has at most {MAX_ROWS} rows; got {len(listed):,}: split it into several sets."
            )
        for number, row in enumerate(listed, 1):
            cells = astuple(row) if isinstance(row, Prompt) else row
            if isinstance(cells, Mapping):
                cells = [cells.get(name, "") for name in COLUMNS]
            problem = _problem(cells)
            if problem:
                problems.append(f"Row {number}: {problem}")
            else:
                prompts.append(Prompt(*cells))
        if not prompts:
            expected = f"A prompt set has rows of {', '.join(COLUMNS)}"
            raise ConfigError(
                f"{expected}; {problems[0] if problems else 'got none: write one row for each pair of texts.'}"
            )
        return cls(tuple(prompts), tuple(problems))

    def to_csv(self) -> str:
        """The prompts as CSV text with a header."""
        file = StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(map(astuple, self.prompts))
        return file.getvalue()


def _problem(cells: Sequence[str]) -> str:
    """Why a row is no prompt, in a sentence; empty if it is one."""
    if not 3 <= len(cells) <= len(COLUMNS):
        return f"expected {', '.join(COLUMNS)} (the last may be absent); got {len(cells)} cells: put texts with commas in quotes."
    for name, cell in zip(COLUMNS, cells, strict=False):
        if not isinstance(cell, str) or (not cell.strip() and name != "distractor"):
            return f"{name} is a text; got {str(cell)[:40]!r}: fill it in."
        if len(cell) > _MAX_CHARACTERS:
            return f"{name} has at most {_MAX_CHARACTERS:,} characters; got {len(cell):,}: shorten it."
    return ""


def _names(first: str, second: str, place: str, thing: str) -> Prompt:
    beginning = f"When {first} and {second} went to the {place},"
    return Prompt(
        f"{beginning} {second} gave a {thing} to", f"{beginning} {first} gave a {thing} to", f" {first}", f" {second}"
    )


EXAMPLES = PromptSet(
    (
        _names("Mary", "John", "store", "drink"),
        _names("John", "Mary", "park", "ball"),
        _names("Tom", "Anna", "school", "book"),
        _names("Anna", "Tom", "garden", "flower"),
        _names("James", "Sarah", "office", "letter"),
        _names("Sarah", "James", "station", "ticket"),
        _names("David", "Emma", "house", "pen"),
        _names("Emma", "David", "hospital", "cup"),
    )
)
"""Eight prompts that ask for the indirect object (Wang et al. 2022, "Interpretability in the Wild"): the name that is not repeated."""


@dataclass(frozen=True, eq=False)
class PromptSweep:
    """Numbers of each head over a set of prompts.

    Attributes:
        problems: a sentence for each prompt that was left out, and for each that has no direct effects.
        clean: the measured value of each prompt's clean text: the logit of the target minus that of the distractor; without a
            distractor the log-probability of the target; or your own metric.
        corrupted: the same value for the corrupted text.
        numbers: by name, such as "change when patched": [prompt layer head]; NaN where a layer has fewer heads, or the number is unknown.
        n_heads: the number of heads in each layer.
        heads: the heads of the sweep as (layer, head), in order; of the others all numbers are NaN.
        ablation: the ablation, "zero" or "mean".
        patch: the step that is patched.
        direction: "noising", from the corrupted text into the clean one, or "denoising", from the clean text into the corrupted one.
        alignments: for each prompt, which tokens were patched; empty if both texts have as many tokens.
        metric: the name of your own metric; empty if tokens are measured.
    """

    model: str
    prompts: tuple[Prompt, ...]
    problems: tuple[str, ...]
    clean: tuple[float, ...]
    corrupted: tuple[float, ...]
    numbers: Mapping[str, NDArray[np.float64]]
    n_heads: tuple[int, ...]
    heads: Heads
    ablation: str
    patch: str
    alignments: tuple[str, ...]
    metric: str = ""
    direction: str = "noising"

    @property
    def nbytes(self) -> int:
        """The memory of the arrays, in bytes."""
        return sum(int(numbers.nbytes) for numbers in self.numbers.values())

    @property
    def quantity(self) -> str:
        """The measured quantity in words."""
        if self.metric:
            return self.metric
        contrasts = sum(bool(prompt.distractor) for prompt in self.prompts)
        if contrasts == len(self.prompts):
            return "logit of the target minus logit of the distractor"
        return (
            "log-probability of the target" if not contrasts else "log-probability, or logit difference, of the target"
        )

    def means(self, name: str) -> NDArray[np.float64]:
        """The mean of a number over the prompts that have it, [layer head]."""
        import numpy as np

        numbers = self.numbers[name]
        count = self.counts(name)
        return np.where(count > 0, np.nansum(numbers, axis=0) / np.maximum(count, 1), np.nan)

    def spreads(self, name: str) -> NDArray[np.float64]:
        """The standard deviation of a number over the prompts that have it (n − 1), [layer head]; NaN for fewer than two prompts."""
        import numpy as np

        count, mean = self.counts(name), self.means(name)
        squares = np.nansum((self.numbers[name] - mean) ** 2, axis=0)
        return np.where(count > 1, np.sqrt(squares / np.maximum(count - 1, 1)), np.nan)

    def counts(self, name: str) -> NDArray[np.float64]:
        """The number of prompts that have a number, [layer head]."""
        import numpy as np

        counts: NDArray[np.float64] = np.isfinite(self.numbers[name]).sum(axis=0).astype(np.float64)
        return counts

    @property
    def rank_correlation(self) -> float:
        """Spearman's rank correlation over heads between the mean estimate and the mean exact change of the patch; NaN if unknown."""
        return rank_correlation(self.means(PATCH), self.means(ESTIMATE)) if PATCH in self.numbers else float("nan")

    def column(self, name: str) -> str:
        """The heading of a number in a table: its name, of a patch with its direction."""
        return f"{name} ({self.direction}: {_ARROWS[self.direction]})" if name in (PATCH, ESTIMATE) else name

    def by_effect(self, name: str) -> Heads:
        """All heads, by decreasing size of the mean of a number."""
        mean = self.means(name)
        return tuple(sorted(self.heads, key=lambda pair: -abs(float(mean[pair]))))

    def frame(self, name: str = "") -> pd.DataFrame:
        """A row for each head, by decreasing size of the mean of `name` (by default the first number): mean, sd and n of every number."""
        import pandas as pd

        columns: dict[str, list[float]] = {}
        order = self.by_effect(name or next(iter(self.numbers)))
        for number in self.numbers:
            for kind, values in (
                ("mean", self.means(number)),
                ("sd", self.spreads(number)),
                ("n", self.counts(number)),
            ):
                columns[f"{self.column(number)}, {kind}"] = [float(values[head]) for head in order]
        places = {"layer": [layer for layer, _ in order], "head": [head for _, head in order]}
        return pd.DataFrame({**places, **columns})

    def prompt_frame(self, lab: str = "", head: tuple[int, int] | None = None) -> pd.DataFrame:
        """A row for each prompt: its tokens, the measured values, the numbers of a head, which tokens were patched, its texts, and its address in the Lab.

        Args:
            lab: the address of a Lab; empty: relative to one of its pages.
            head: the head, as (layer, head); None: no numbers of heads.
        """
        import pandas as pd

        rows = [
            {
                "target": prompt.target, "distractor": prompt.distractor, "value on clean": self.clean[i], "value on corrupted": self.corrupted[i],
                **({} if head is None else {f"{self.column(name)} of L{head[0]} H{head[1]}": float(numbers[i][head]) for name, numbers in self.numbers.items()}),
                "alignment": self.alignments[i], "clean": prompt.clean, "corrupted": prompt.corrupted, "link": prompt.address(self.model, lab),
            }
            for i, prompt in enumerate(self.prompts)
        ]  # fmt: skip
        return pd.DataFrame(rows)


def number_words(name: str, result: PromptSweep) -> str:
    """What a number is, in words."""
    step = STEP_WORDS[result.patch]
    source, into = ("corrupted text (B)", "clean text (A)")[:: 1 if result.direction == "noising" else -1]
    ablated = "set to 0" if result.ablation == "zero" else "replaced by its mean over positions"
    return {
        ABLATION: f"The change when the output of the head is {ablated}.",
        PATCH: f"The change when the head takes its {step} from the {source}, in the run of the {into} ({result.direction}).",
        ESTIMATE: f"The change when the head takes its {step} from the {source}, in the run of the {into} ({result.direction}), as attribution patching estimates it from one backward pass.",
        DIRECT: f"What the head adds to the logit itself, with the later norms frozen, in the run of the {into.partition(' (')[0]}.",
    }[name]


def over_prompts(
    model: Model,
    prompt_set: PromptSet,
    patch: str = HEAD_OUTPUT,
    ablation: str = "zero",
    exact: bool = True,
    *,
    metric: Metric | None = None,
    heads: Iterable[tuple[int, int]] | None = None,
    direction: str = "noising",
) -> PromptSweep:
    """The numbers of each head for every prompt, with their mean and spread.

    For each prompt the clean text is run, each head is ablated, and each head is patched from the run of the corrupted text (noising), or
    each head of the corrupted text from the clean run (denoising). Where the
    two texts have different numbers of tokens, corresponding tokens are patched (see `patch_aligned`).

    Args:
        model: the model; its text and interventions do not count.
        patch: the step of each head that is patched: query, key, value, weights or head_output.
        ablation: "zero" or "mean".
        exact: whether heads are ablated and patched one at a time. Otherwise there are only the estimates and the direct effects,
            which take three passes a prompt.
        metric: a function as for `which`, measured instead of the tokens; a parameter called `prompt` receives the `Prompt`.
        heads: the heads that are changed, each as (layer, head); None for all.
        direction: of the patch: "noising" (corrupted → clean) or "denoising" (clean → corrupted), measured in the run that is patched.

    Raises:
        ConfigError: no prompt can be run, or all would take too long.
        AttentionError: as for `Model.trace`.
    """
    *_, last = sweep_prompts(model, prompt_set, patch, ablation, exact, metric=metric, heads=heads, direction=direction)
    assert last.result is not None
    return last.result


def sweep_prompts(
    model: Model,
    prompt_set: PromptSet,
    patch: str = HEAD_OUTPUT,
    ablation: str = "zero",
    exact: bool = True,
    *,
    metric: Metric | None = None,
    heads: Iterable[tuple[int, int]] | None = None,
    direction: str = "noising",
) -> Iterator[Progress[PromptSweep]]:
    """The same as `over_prompts`, step by step; stop iterating to cancel.

    Yields:
        The progress; the last item has the result.

    Raises:
        ConfigError: no prompt can be run, or all would take too long.
    """
    import numpy as np

    if patch not in PATCH_CODES:
        raise ConfigError(
            f"The patched step is one of {', '.join(PATCH_CODES)}; got {patch[:40]!r}: choose one of these."
        )
    check_metric(metric)
    loaded, _ = _source(model, prompt_set.prompts[0]).load_inputs()
    chosen = chosen_heads(loaded.heads_by_layer, heads)
    share = len(chosen) / max(1, sum(loaded.heads_by_layer)) if exact else 1.0
    seconds = estimated_seconds(model, prompt_set, exact, share)
    text2 = _source(model, prompt_set.prompts[0]).text2
    key = ("prompts", loaded.uid, text2, prompt_set, patch, ablation, exact, chosen, direction)
    n_runs = len(chosen) * (2 if exact else 1)
    total = n_runs * len(prompt_set)
    n_prompts = len(prompt_set)
    if metric is None and (cached := cache.CACHE.get(key)) is not None:
        yield Progress(total, total, 0, cached, n_prompts)
        return
    yield Progress(0, total, seconds)
    found: list[tuple[Prompt, list[float], HeadSweep | HeadEstimates, dict[str, NDArray[np.float64]]]] = []
    problems = list(prompt_set.problems)
    for i, prompt in enumerate(prompt_set.prompts):
        done, left = i * n_runs, seconds * (n_prompts - i - 1) / n_prompts
        try:
            source = _source(model, prompt)
            measured: dict[str, Any] = {"target": prompt.target, "distractor": prompt.distractor or None}
            if metric is not None:
                measured = {"metric": partial(metric, prompt=prompt) if "prompt" in parameters(metric) else metric}
            last: HeadSweep | HeadEstimates | None = None
            maps: dict[str, NDArray[np.float64]] = {}
            if exact:
                for name, kind in ((ABLATION, ablation), (PATCH, patch)):
                    for progress in sweep.sweep_heads(source, kind=kind, heads=chosen, direction=direction, **measured):
                        at = done + len(maps) * n_runs // 2 + progress.done
                        more = progress.seconds + (0 if maps else seconds / n_prompts / 2)
                        yield Progress(at, total, more + left, prompt=i + 1)
                        if progress.result is not None:
                            last, maps[name] = progress.result, progress.result.change
            else:
                last = sweep.attribution(source, patch=patch, heads=chosen, direction=direction, **measured)
                yield Progress(done + n_runs, total, left, prompt=i + 1)
            assert last is not None
            maps |= {ESTIMATE: last.estimate, DIRECT: last.direct}
            values = [last.baseline, sweep.measure(sweep.directed(source, direction).other or source, **measured)]
            found.append((prompt, values[:: 1 if direction == "noising" else -1], last, maps))
        except AttentionError as error:
            problems.append(f"Prompt {i + 1}, “{prompt.clean[:40]}”: {error}")
    if not found:
        raise ConfigError(f"None of the {n_prompts} prompts can be run. {problems[0]}")
    prompts, measured_values, sweeps, numbers = zip(*found, strict=True)
    result = PromptSweep(
        model.name, prompts, tuple(problems), tuple(clean for clean, _ in measured_values), tuple(corrupted for _, corrupted in measured_values),
        {name: np.stack([maps[name] for maps in numbers]) for name in numbers[0]}, sweeps[-1].n_heads, chosen, ablation, patch,
        tuple(" ".join(each.alignment) for each in sweeps), metric_name(metric) if metric is not None else "", direction,
    )  # fmt: skip
    if metric is None:
        result = cache.CACHE.get_or_compute(key, lambda: result)
    yield Progress(total, total, 0, result, n_prompts)


def estimated_seconds(model: Model, prompt_set: PromptSet, exact: bool = True, share: float = 1.0) -> float:
    """The estimated seconds of `over_prompts`, for a share of all heads.

    Raises:
        ConfigError: it would take too long.
        AttentionError: as for `Model.trace`.
    """
    needed, n_heads = 0.0, 1
    for source in (_source(model, prompt) for prompt in prompt_set.prompts):
        n_heads = sum(site.n_heads for site in source.load_inputs()[0].sites) or 1
        with suppress(ConfigError):  # a text that is too long alone is left out later, and named
            needed += sweep.estimated_seconds(source, HEAD_OUTPUT)
    needed *= 2 * share if exact else 6 / n_heads
    if needed > _MAX_SECONDS and model.handle is None:
        raise ConfigError(
            f"These {len(prompt_set)} prompts would take about {needed:,.0f} s; at most {_MAX_SECONDS:,.0f} s are allowed: "
            "choose fewer or shorter prompts, or only the estimates."
        )
    return needed


def _source(model: Model, prompt: Prompt) -> Model:
    """The model with the clean text, and the corrupted text as its other run."""
    plain = replace(model.without_interventions.base, input_ids=(), predict=(), generate=0, prefix_len=None, note="")
    plain = replace(plain, words=False, special="show")
    return replace(plain, text=prompt.clean, other=replace(plain, text=prompt.corrupted), align=True)
