"""Which heads matter for a prediction: each ablated or patched in turn, several at once, estimated from gradients, or all over many prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from attention.base import cache
from attention.base.errors import AttentionError, ConfigError
from attention.circuits import sweep
from attention.circuits.head_importance import GroupAblation, HeadEstimates, HeadSweep
from attention.circuits.prompts import ABLATION, DIRECT, ESTIMATE, PATCH, Prompt, PromptSet, PromptSweep
from attention.formula.edit_kinds import PATCH_CODES
from attention.formula.names import HEAD_OUTPUT
from attention.sources.model import Model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Token = int | str
"""A token as its id, or as text, such as " copper"."""

MAX_SECONDS = 600.0
"""The largest estimated time of a set with exact sweeps."""


def which(
    model: Model,
    position: int | None = None,
    target: Token | None = None,
    distractor: Token | None = None,
    ablation: str = "zero",
    patch: str = "",
) -> HeadSweep:
    """The effect of each head on a prediction: every head is ablated, or patched from the model's other run, one at a time.

    `attention.circuits.sweep.sweep_heads` does the same step by step, with its progress.

    Args:
        model: a model with a text, as `Model(folder, text)` or `Model.of(model, tokenizer, text)`; its interventions stay active.
        position: the position of the prediction; None: the end of the text. Without a language-model head, the position whose vector is
            compared by cosine, None: the mean over all tokens.
        target: the predicted token; None: the most likely one.
        distractor: a second token; the logit difference is measured then, and otherwise the log-probability of the target.
        ablation: "zero" or "mean": what the output of a head becomes.
        patch: the step of each head that is taken from `model.other` instead: query, key, value, weights or head_output.

    Raises:
        ConfigError: there is no other run to patch from, the values are not allowed, or the sweep would take too long.
        TextError: a target is not one token of the model.
        AttentionError: as for `Model.trace`.
    """
    ids = _token_id(model, target), _token_id(model, distractor)
    *_, last = sweep.sweep_heads(model, position, *ids, kind=patch or ablation)
    assert last.result is not None
    return last.result


def together(
    model: Model,
    heads: Sequence[tuple[int, int]],
    position: int | None = None,
    target: Token | None = None,
    distractor: Token | None = None,
    ablation: str = "zero",
) -> GroupAblation:
    """The effect of ablating several heads at once, each alone, and random groups of other heads of the same layers.

    Args:
        model: as for `which`, like the other arguments.
        heads: the heads, as (layer, head).

    Raises:
        ConfigError: there are no heads, or none of that index, or it would take too long.
        TextError: a target is not one token of the model.
    """
    groups = tuple((int(layer), int(head)) for layer, head in heads)
    if not groups:
        raise ConfigError("Heads are given as (layer, head), such as [(18, 6), (20, 2)]; got none: give at least one.")
    ids = _token_id(model, target), _token_id(model, distractor)
    return sweep.ablate_group(model, groups, position, *ids, ablation)


def attribution(
    model: Model,
    position: int | None = None,
    target: Token | None = None,
    distractor: Token | None = None,
    ablation: str = "zero",
    patch: str = "",
) -> HeadEstimates:
    """The estimated effect of each head, by attribution patching: two forward passes and one backward pass for all heads.

    The arguments are those of `which`, whose result has the same estimates beside the exact changes. The estimate is the first-order
    term of the exact change; where a softmax is saturated, it is too small.

    Source: Nanda 2023, "Attribution Patching: Activation Patching At Industrial Scale"; Syed et al. 2023, equation 2.

    Raises:
        ConfigError: there is no estimate for this model, or it takes too much memory.
        TextError: a target is not one token of the model.
    """
    ids = _token_id(model, target), _token_id(model, distractor)
    return sweep.estimate(model, position, *ids, kind=patch or ablation)


def patch_aligned(model: Model, other: Model | str) -> Model:
    """The model with another run to patch from, whose text may have another number of tokens.

    Tokens that correspond, as Compare aligns the two texts, are patched; all others keep the values of their own run. The trace says
    in `changes` which these are, and a sweep in `alignment`. Weights need texts of the same number of tokens.

    Args:
        model: the run that is patched, by its `interventions` or by `which(…, patch=…)`.
        other: the run to patch from, or its text.
    """
    if isinstance(other, str):
        other = replace(model, text=other, interventions=(), frozen=False, other=None, input_ids=(), align=False)
    return replace(model, other=other, align=True)


def _token_id(model: Model, token: Token | None) -> int | None:
    return model.find_token(token)[0] if isinstance(token, str) else token


def over_prompts(
    model: Model, prompt_set: PromptSet, patch: str = HEAD_OUTPUT, ablation: str = "zero", exact: bool = True
) -> PromptSweep:
    """The numbers of each head for every prompt, with their mean and spread.

    For each prompt the clean text is run, each head is ablated, and each head is patched from the run of the corrupted text. Where the
    two texts have different numbers of tokens, corresponding tokens are patched (see `patch_aligned`).

    Args:
        model: the model; its text and interventions do not count.
        prompt_set: the prompts.
        patch: the step of each head that is patched: query, key, value, weights or head_output.
        ablation: "zero" or "mean".
        exact: whether heads are ablated and patched one at a time. Otherwise there are only the estimates and the direct effects,
            which take three passes a prompt.

    Raises:
        ConfigError: no prompt can be run, or all would take too long.
        AttentionError: as for `Model.trace`.
    """
    *_, last = sweep_prompts(model, prompt_set, patch, ablation, exact)
    assert last.result is not None
    return last.result


def sweep_prompts(
    model: Model, prompt_set: PromptSet, patch: str = HEAD_OUTPUT, ablation: str = "zero", exact: bool = True
) -> Iterator[PromptProgress]:
    """The same as `over_prompts`, step by step; stop iterating to cancel.

    Yields:
        The progress; the last item has the result.

    Raises:
        ConfigError: no prompt can be run, or all would take too long.
    """
    if patch not in PATCH_CODES:
        raise ConfigError(
            f"The patched step is one of {', '.join(PATCH_CODES)}; got {patch[:40]!r}: choose one of these."
        )
    seconds = estimated_seconds(model, prompt_set, exact)
    loaded, _ = _source(model, prompt_set.prompts[0]).load_inputs()
    key = ("prompts", loaded.uid, _source(model, prompt_set.prompts[0]).text2, prompt_set, patch, ablation, exact)
    n_runs = sum(site.n_heads for site in loaded.sites) * (2 if exact else 1)
    total = n_runs * len(prompt_set)
    if (cached := cache.CACHE.get(key)) is not None:
        yield PromptProgress(total, total, 0, len(prompt_set), cached)
        return
    yield PromptProgress(0, total, seconds, 1)
    gathered, problems = _Gathered(), list(prompt_set.problems)
    for i, prompt in enumerate(prompt_set.prompts):
        done, left = i * n_runs, seconds * (len(prompt_set) - i - 1) / len(prompt_set)
        try:
            source = _source(model, prompt)
            tokens = [source.find_token(token)[0] for token in (prompt.target, prompt.distractor) if token]
            found: list[HeadSweep | HeadEstimates] = []
            if exact:
                for kind in (ablation, patch):
                    for progress in sweep.sweep_heads(source, None, *_pair(tokens), kind=kind):
                        at = done + len(found) * n_runs // 2 + progress.done
                        more = progress.seconds + (seconds / len(prompt_set) / 2 if not found else 0)
                        yield PromptProgress(at, total, more + left, i + 1)
                        if progress.result is not None:
                            found.append(progress.result)
            else:
                found.append(sweep.estimate(source, None, *_pair(tokens), kind=patch))
                yield PromptProgress(done + n_runs, total, left, i + 1)
            other = source.other
            assert isinstance(other, Model)
            gathered.add(prompt, found, sweep.measure(other, *_pair(tokens)))
        except AttentionError as error:
            problems.append(f"Prompt {i + 1}, “{prompt.clean[:40]}”: {error}")
    if not gathered.prompts:
        raise ConfigError(f"None of the {len(prompt_set)} prompts can be run. {problems[0]}")
    result = gathered.result(model.name, tuple(problems), ablation, patch)
    yield PromptProgress(total, total, 0, len(prompt_set), cache.CACHE.get_or_compute(key, lambda: result))


def estimated_seconds(model: Model, prompt_set: PromptSet, exact: bool = True) -> float:
    """The estimated seconds of `over_prompts`.

    Raises:
        ConfigError: it would take too long.
        AttentionError: as for `Model.trace`.
    """
    needed, n_heads = 0.0, 1
    for source in (_source(model, prompt) for prompt in prompt_set.prompts):
        n_heads = sum(site.n_heads for site in source.load_inputs()[0].sites) or 1
        with suppress(ConfigError):  # a text that is too long alone is left out later, and named
            needed += sweep.estimated_seconds(source, HEAD_OUTPUT)
    needed *= 2 if exact else 6 / n_heads
    if needed > MAX_SECONDS and model.handle is None:
        raise ConfigError(
            f"These {len(prompt_set)} prompts would take about {needed:,.0f} s; at most {MAX_SECONDS:,.0f} s are allowed: "
            "choose fewer or shorter prompts, or only the estimates."
        )
    return needed


@dataclass(frozen=True)
class PromptProgress:
    """The progress over a set of prompts.

    Attributes:
        done: the finished runs, of `total`; a run is one head changed for one prompt.
        seconds: the estimated remaining time.
        prompt: the number of the current prompt, from 1.
        result: the result, in the last report only.
    """

    done: int
    total: int
    seconds: float
    prompt: int
    result: PromptSweep | None = None


class _Gathered:
    """The numbers of the prompts so far."""

    def __init__(self) -> None:
        self.prompts: list[Prompt] = []
        self.values: list[tuple[float, float]] = []
        self.numbers: dict[str, list[NDArray[np.float64]]] = {}
        self.alignments: list[str] = []
        self.n_heads: tuple[int, ...] = ()

    def add(self, prompt: Prompt, found: list[HeadSweep | HeadEstimates], corrupted: float) -> None:
        """Adds the sweeps of a prompt; the last of them is that of the patch."""
        last = found[-1]
        exact = [item.change for item in found if isinstance(item, HeadSweep)]
        maps = dict(zip((ABLATION, PATCH), exact, strict=False)) | {ESTIMATE: last.estimate, DIRECT: last.direct}
        for name, numbers in maps.items():
            self.numbers.setdefault(name, []).append(numbers)
        self.prompts.append(prompt)
        self.values.append((last.baseline, corrupted))
        self.alignments.append(" ".join(last.alignment))
        self.n_heads = last.n_heads

    def result(self, model: str, problems: tuple[str, ...], ablation: str, patch: str) -> PromptSweep:
        """Everything as one result."""
        import numpy as np

        numbers = {name: np.stack(maps) for name, maps in self.numbers.items()}
        clean, corrupted = (tuple(column) for column in zip(*self.values, strict=True))
        return PromptSweep(
            model, tuple(self.prompts), problems, clean, corrupted, numbers, self.n_heads, ablation, patch, tuple(self.alignments)
        )  # fmt: skip


def _source(model: Model, prompt: Prompt) -> Model:
    """The model with the clean text, and the corrupted text as its other run."""
    plain = replace(model.without_interventions.base, input_ids=(), predict=(), generate=0, prefix_len=None, note="")
    plain = replace(plain, words=False, special="show")
    return replace(plain, text=prompt.clean, other=replace(plain, text=prompt.corrupted), align=True)


def _pair(tokens: list[int]) -> tuple[int, int | None]:
    return tokens[0], tokens[1] if len(tokens) > 1 else None
