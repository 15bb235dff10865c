"""The one function that computes a chunk of texts: every metric of every head, with the controls, as a digest.

Texts are cut to a length, sorted by it, and padded on the right; the controls are made of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from attention.base.errors import ModelError
from attention.corpus.digest import (
    DIFFERENCE,
    EXCESS,
    MAX_OFFSET,
    N_BINS,
    N_KEYS,
    TEXTS,
    UNIFORM,
    Digest,
    Examples,
    Moments,
)
from attention.explanation.derived import projected_lengths
from attention.explanation.subwords import TokenGroups
from attention.formula.names import VALUE
from attention.metrics.metric import RANDOM, SHUFFLED
from attention.metrics.patterns import Pattern, TokenTexts
from attention.models import lm_head, recorder, running
from attention.models.attention_call import in_float32
from attention.models.followed_pass import no_weights_error, run_followed
from attention.models.token_pieces import readable_tokens

if TYPE_CHECKING:
    from torch import Tensor

    from attention.corpus.run_plan import RunPlan
    from attention.metrics.metric import Metric
    from attention.models.attention_call import ModelCall
    from attention.models.loaded import LoadedModel, Site

_BATCH_TOKENS = 2048  # the tokens of a batch, with padding
_REPEATED_TOKENS = 25
"""The random tokens of a control sequence, which are repeated once. Source: Olsson et al. 2022, "repeated random tokens"."""
_WITH_OFFSETS = (TEXTS, SHUFFLED)  # the conditions whose weights are added up by offset
_TEXTS_PER_RANDOM = 16  # there is one random control sequence for this number of texts
_HIDDEN_BELOW = -1e30


@dataclass(frozen=True)
class _TokenSequence:
    """The token ids of one text or control; its number, which are special tokens that the tokenizer added, and its text, empty for a control.

    `tokens` are the readable ones where they do not follow from the ids: a word that stands elsewhere is still one word.
    """

    number: int
    ids: tuple[int, ...]
    is_special: tuple[bool, ...]
    text: str = ""
    tokens: tuple[str, ...] = ()


class Tokenizer:
    """The tokenizer of a model, for many texts at once.

    Attributes:
        loaded: the model.
        max_tokens: texts are cut to this number of tokens, with special tokens.
    """

    def __init__(self, loaded: LoadedModel, max_tokens: int) -> None:
        self.loaded = loaded
        self.max_tokens = min(max_tokens, loaded.max_length or max_tokens)

    def sequences(self, first: int, texts: Sequence[str]) -> tuple[list[_TokenSequence], int]:
        """The token ids of some texts, numbered from `first`; and the number of texts that are cut."""
        encode = self.loaded.tokenizer
        arguments = {"return_special_tokens_mask": True, "return_attention_mask": False, "verbose": False}
        encoded = encode(list(texts), truncation=True, max_length=self.max_tokens, **arguments)
        rows = zip(encoded["input_ids"], encoded["special_tokens_mask"], texts, strict=True)
        result = [
            _TokenSequence(number, tuple(ids), tuple(map(bool, special)), text)
            for number, (ids, special, text) in enumerate(rows, first)
        ]
        full = [texts[i] for i, sequence in enumerate(result) if len(sequence.ids) >= self.max_tokens]
        lengths = [len(ids) for ids in encode(full, truncation=False, **arguments)["input_ids"]] if full else []
        return result, sum(length > self.max_tokens for length in lengths)

    def tokens(self, sequence: _TokenSequence) -> tuple[str, ...]:
        """The readable tokens of a sequence."""
        texts = [sequence.text] if sequence.text else []
        return sequence.tokens or readable_tokens(self.loaded.tokenizer, sequence.ids, texts)

    def shuffled(self, sequence: _TokenSequence, seed: int) -> _TokenSequence:
        """The same text with its words in random order; special tokens stay, and the pieces of a word stay together.

        An order that gives the same ids is rotated, so that the ids are the same only where no order changes them: one word, or equal words.
        """
        tokens = self.tokens(sequence)
        words = TokenGroups.of(tokens, sequence.is_special, words=True, hide=False).spans
        movable = [span for span in words if not sequence.is_special[span[0]]]
        order = sorted(movable, key=lambda span: _hash(seed, sequence.number, span[0]))
        for _ in order[:4]:  # one rotation is enough, but for words such as "ab a b"
            following = iter(order)
            spans = [span if sequence.is_special[span[0]] else next(following) for span in words]
            places = [place for span in spans for place in range(*span)]
            ids = tuple(sequence.ids[place] for place in places)
            if ids != sequence.ids:
                return _TokenSequence(
                    sequence.number, ids, sequence.is_special, tokens=tuple(tokens[i] for i in places)
                )
            order = [*order[1:], order[0]]
        return sequence

    def repeated(self, number: int, seed: int) -> _TokenSequence:
        """Random tokens, twice, between the special tokens that the tokenizer adds.

        Source: Olsson et al. 2022, "In-context Learning and Induction Heads".
        """
        before, after, ordinary = self._frame
        length = min(_REPEATED_TOKENS, (self.max_tokens - len(before) - len(after)) // 2)
        length, chosen, draw = min(length, len(ordinary)), list[int](), 0
        while len(chosen) < length:
            token_id = ordinary[int.from_bytes(_hash(seed, number, draw)) % len(ordinary)]
            chosen += [token_id] * (token_id not in chosen)
            draw += 1
        ids = (*before, *chosen, *chosen, *after)
        special = [True] * len(before) + [False] * 2 * len(chosen) + [True] * len(after)
        return _TokenSequence(number, ids, tuple(special))

    @cached_property
    def special_tokens(self) -> frozenset[str]:
        """The special tokens of the tokenizer."""
        return frozenset(self.loaded.tokenizer.all_special_tokens)

    @cached_property
    def _frame(self) -> tuple[list[int], list[int], Any]:
        """The special tokens before and after a text, and all ids that are not special."""
        encoded = self.loaded.tokenizer("a", return_special_tokens_mask=True)
        ids, special = encoded["input_ids"], encoded["special_tokens_mask"]
        first = special.index(0) if 0 in special else len(ids)
        last = len(special) - special[::-1].index(0) if 0 in special else len(ids)
        rows = len(self.loaded.model.get_input_embeddings().weight)
        excluded = set(self.loaded.tokenizer.all_special_ids)
        ordinary = [i for i in range(min(rows, len(self.loaded.tokenizer))) if i not in excluded]
        return ids[:first], ids[last:], ordinary


def _batches(sequences: Sequence[_TokenSequence]) -> Iterator[list[_TokenSequence]]:
    """The sequences in batches of about equal lengths, the shortest first, with at most `_BATCH_TOKENS` tokens unless one alone has more."""
    batch: list[_TokenSequence] = []
    for sequence in sorted(sequences, key=lambda each: (len(each.ids), each.number)):
        if batch and len(sequence.ids) * (len(batch) + 1) > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(sequence)
    if batch:
        yield batch


def _padded(batch: Sequence[_TokenSequence], pad_id: int) -> tuple[Tensor, Tensor]:
    """The ids of a batch [text pos], and whether each is a token and not padding."""
    longest = max(len(sequence.ids) for sequence in batch)
    ids = torch.full((len(batch), longest), pad_id)
    for row, sequence in enumerate(batch):
        ids[row, : len(sequence.ids)] = torch.tensor(sequence.ids)
    lengths = torch.tensor([len(sequence.ids) for sequence in batch])
    return ids, torch.arange(longest) < lengths[:, None]


def _hash(*numbers: int) -> bytes:
    """Bytes that look random, and are the same everywhere."""
    return blake2b(repr(numbers).encode(), digest_size=8).digest()


@dataclass(frozen=True)
class Chunk:
    """Consecutive texts; `first` is the number of the first."""

    index: int
    first: int
    texts: tuple[str, ...]


def compute_chunk(loaded: LoadedModel, plan: RunPlan, chunk: Chunk) -> Digest:
    """The digest of a chunk; the same bytes on every machine with the same processor and packages.

    Raises:
        ModelError: the model gives no attention weights, or does not read such texts.
    """
    tokenizer = Tokenizer(loaded, plan.max_tokens)
    sequences, n_cut = tokenizer.sequences(chunk.first, chunk.texts)
    sums = _Sums(reader_of(loaded), plan, chunk, tokenizer)
    sums.add(TEXTS, sequences)
    n_shuffled = n_random = 0
    if SHUFFLED in plan.controls:
        pairs = ((sequence, tokenizer.shuffled(sequence, plan.seed)) for sequence in sequences)
        shuffled = [other for sequence, other in pairs if other.ids != sequence.ids]  # the same order is no control
        n_shuffled = len(shuffled)
        sums.add(SHUFFLED, shuffled)
    if RANDOM in plan.controls:
        numbers = [n for n in range(chunk.first, chunk.first + len(sequences)) if n % _TEXTS_PER_RANDOM == 0]
        n_random = len(numbers)
        sums.add(RANDOM, [tokenizer.repeated(number, plan.seed) for number in numbers])
    n_tokens = sum(len(sequence.ids) for sequence in sequences)
    read = {"texts": len(sequences), "tokens": n_tokens, "cut": n_cut, "random": n_random, "shuffled": n_shuffled}
    return sums.digest(read, sequences)


class _TextSite(NamedTuple):
    """One place of a model where a text attends to itself: its layer in the trace, and its site; None in a family of which only weights are known."""

    layer: int
    n_heads: int
    site: Site | None


def reader_of(loaded: LoadedModel) -> LoadedModel:
    """The model that reads a text alone: the encoder of an encoder-decoder model, otherwise the model itself."""
    return loaded.replace(model=loaded.model.get_encoder()) if loaded.is_encoder_decoder else loaded


def text_sites(reader: LoadedModel) -> tuple[_TextSite, ...]:
    """The sites that attend within a text, in the order of their calls.

    Raises:
        ModelError: the model gives no attention weights.
    """
    if reader.sites:
        pairs = zip(reader.layer_indices, reader.sites, strict=True)
        return tuple(
            _TextSite(index, site.n_heads, site)
            for index, site in pairs
            if not site.name.startswith(("decoder", "cross"))
        )
    _, followed = run_followed(reader, {"input_ids": torch.tensor([reader.tokenizer("a b c")["input_ids"]])})
    sites = [_TextSite(i, each.weights.shape[1], None) for i, each in enumerate(followed) if each.weights is not None]
    if not sites:
        raise no_weights_error(reader, {each.name: each.instead for each in followed})
    return tuple(sites)


class _Sums:
    """What is added up over the batches of a chunk."""

    def __init__(self, loaded: LoadedModel, plan: RunPlan, chunk: Chunk, tokenizer: Tokenizer) -> None:
        self.loaded, self.plan, self.chunk, self.tokenizer = loaded, plan, chunk, tokenizer
        self.sites = text_sites(loaded)
        self.order = sorted(range(len(self.sites)), key=lambda call: self.sites[call].layer)  # calls by layer
        self.n_heads = tuple(self.sites[call].n_heads for call in self.order)
        starts = np.cumsum([0, *self.n_heads])
        self.heads = {call: slice(*starts[place : place + 2]) for place, call in enumerate(self.order)}
        self.places = {call: place for place, call in enumerate(self.order)}
        shape = len(chunk.texts), sum(self.n_heads), len(plan.metrics)
        conditions = (TEXTS, UNIFORM, EXCESS, *plan.controls)
        sizes = {UNIFORM: (shape[0], len(self.sites), shape[2])}
        self.values = {name: np.full(sizes.get(name, shape), np.nan) for name in conditions}
        self.queries = np.zeros(shape[1:], np.int64)
        self.query_sums = np.zeros(shape[1:])
        self.examples = {call: Examples.none(site.n_heads, shape[2]) for call, site in enumerate(self.sites)}
        n, n_offsets = plan.map_length, 2 * MAX_OFFSET + 1
        with_maps = [name for name in conditions if name in _WITH_OFFSETS]
        self.offset_sums = {name: torch.zeros(shape[1], n_offsets, dtype=torch.float64) for name in with_maps}
        self.offset_counts = {name: np.zeros((len(self.sites), n_offsets), np.int64) for name in with_maps}
        self.map_sums = torch.zeros(shape[1], n, n, dtype=torch.float64)
        self.n_maps = 0

    def add(self, condition: str, sequences: Sequence[_TokenSequence]) -> None:
        for batch in _batches(sequences):
            _BatchRun(self, condition, batch).run()

    def digest(self, read: dict[str, int], sequences: Sequence[_TokenSequence]) -> Digest:
        by_layer = [self.examples[call] for call in self.order]
        examples = Examples(
            *(np.concatenate([getattr(each, name) for each in by_layer]) for name in Examples.__annotations__)
        )
        numbers = {int(number) for number in np.unique(examples.number)}
        texts = {s.number: (s.text, self.tokenizer.tokens(s)) for s in sequences if s.number in numbers}
        values = self.values[TEXTS]
        if SHUFFLED in self.values:
            self.values[DIFFERENCE] = values - self.values[SHUFFLED]
        return Digest(
            tuple(self.sites[call].layer for call in self.order),
            self.n_heads,
            {name: Moments.of(each) for name, each in self.values.items()},
            self.queries,
            self.query_sums,
            np.stack(
                [_histogram(values[..., m], *self.plan.limits(metric)) for m, metric in enumerate(self.plan.metrics)], 1
            ),
            examples,
            {name: sums.numpy() for name, sums in self.offset_sums.items()},
            self.offset_counts,
            self.map_sums.numpy(),
            self.n_maps,
            read,
            texts,
        )


@dataclass(eq=False)
class _BatchRun:
    """The run of one batch, whose attention calls are measured one after the other."""

    sums: _Sums
    condition: str
    batch: Sequence[_TokenSequence]
    n_calls: int = 0
    visible: dict[int, tuple[Any, Tensor]] = field(default_factory=dict)  # by the id of the mask, which stays alive

    def run(self) -> None:
        sums, loaded = self.sums, self.sums.loaded
        pad_id = loaded.tokenizer.pad_token_id
        ids, self.is_token = _padded(self.batch, 0 if pad_id is None else pad_id)
        # Padding is never measured, so any token will do; equal numbers are equal tokens.
        self.ids = torch.where(self.is_token, ids, -1)[:, None]
        texts = tuple(sums.tokenizer.tokens(sequence) for sequence in self.batch)
        self.tokens = TokenTexts(texts, sums.tokenizer.special_tokens, ids.shape[1])
        mask = self.is_token.long().to(loaded.device)
        inputs = {"input_ids": ids}
        if any(site.site for site in sums.sites):
            with recorder.wrapping_attention(self._measure), lm_head.logits_at(()):
                running.run(loaded, inputs, attention_mask=mask)
            if self.n_calls < len(sums.sites):  # somebody has set another attention implementation since it was loaded
                raise ModelError(
                    f"{loaded.name} should call its attention {len(sums.sites)} times, and did so {self.n_calls} times: load it again."
                )
            return
        with lm_head.logits_at(()):
            _, followed = run_followed(loaded, inputs, attention_mask=mask)
        for index, site in enumerate(sums.sites):
            weights = followed[site.layer].weights
            if weights is None:
                raise no_weights_error(loaded, {each.name: each.instead for each in followed})
            self._add(index, weights, self._inferred_visible(weights))

    def _measure(self, call: ModelCall) -> tuple[Tensor, Tensor | None]:
        output, weights = call.run(keep_weights=True)
        index, self.n_calls = self.n_calls, self.n_calls + 1
        if weights is None:
            raise ModelError(f"{self.sums.loaded.name} gives no weights with its attention: choose another model.")
        if index < len(self.sums.sites):
            site = self.sums.sites[index].site
            w_o = site.parameters.get("w_o") if site and VALUE in site.pure_projections else None
            lengths = None if w_o is None else projected_lengths(in_float32(call.value), w_o)
            self._add(index, in_float32(weights), self._visible(call), lengths)
        return output, weights

    def _add(self, index: int, weights: Tensor, visible: Tensor, lengths: Tensor | None = None) -> None:
        """Adds what a layer did: its weights [text head query_pos key_pos]."""
        sums, plan = self.sums, self.sums.plan
        heads, place = sums.heads[index], sums.places[index]
        queries, ids = torch.arange(weights.shape[-2]), (self.ids, self.ids)
        pattern = Pattern(weights, visible, queries, ids, self.is_token[:, None], False, lengths, self.tokens)
        rows = [sequence.number - sums.chunk.first for sequence in self.batch]  # of the values of the chunk
        is_text = self.condition == TEXTS
        uniform = pattern.under_uniform_attention if is_text else None
        found = []
        for m, metric in enumerate(plan.metrics):
            assert metric.compute is not None
            of_queries = metric.compute(pattern)
            counts = (~of_queries.isnan()).sum(-1)
            values = (of_queries.nansum(-1) / counts).numpy()  # NaN where no query has a value
            sums.values[self.condition][rows, heads, m] = values
            if uniform is not None:
                sums.queries[heads, m] += counts.sum(0).numpy()
                sums.query_sums[heads, m] += of_queries.nansum((0, -1)).numpy()
                sums.values[UNIFORM][rows, place, m] = metric.compute(uniform).nanmean(-1)[:, 0].numpy()
                # Rounded, so that a head that is its own null has none, and not the last digits of a kernel.
                by_chance = metric.under_null(pattern).nanmean(-1).numpy()
                sums.values[EXCESS][rows, heads, m] = np.round(values - by_chance, 6)
                found.append(self._examples(metric, pattern, of_queries, values))
        if is_text:
            batch_examples = Examples(*(np.stack(parts, 1) for parts in zip(*found, strict=True)))
            sums.examples[index] = sums.examples[index].merge(batch_examples, plan.top)
            self._add_map(pattern, heads, place)
        if self.condition in sums.offset_sums:
            self._add_offsets(pattern, heads, place)

    def _visible(self, call: ModelCall) -> Tensor:
        """The keys that each query may look at, [text head query_pos key_pos]; the head axis usually has length 1."""
        mask = call.masks.eager(call.attention, call.query, call.key).mask
        if id(mask) not in self.visible:
            visible = self._real_keys()
            if mask is not None:
                cells = mask[..., : visible.shape[-1]].detach().to("cpu")
                cells = cells if cells.dtype == torch.bool else cells > max(_HIDDEN_BELOW, torch.finfo(cells.dtype).min)
                visible = visible & cells
            self.visible[id(mask)] = mask, visible
        return self.visible[id(mask)][1]

    def _inferred_visible(self, weights: Tensor) -> Tensor:
        """The visible keys of a family that returns its weights and no mask: all earlier ones if no weight is on a later one."""
        visible = self._real_keys()
        real = weights * self.is_token[:, None, :, None]
        return visible if bool(real.triu(1).any()) else visible.tril()

    def _real_keys(self) -> Tensor:
        return self.is_token[:, None, None, :].expand(-1, 1, self.is_token.shape[1], -1)

    def _examples(self, metric: Metric, pattern: Pattern, of_queries: Tensor, values: Any) -> tuple[Any, ...]:
        """The example of each text of the batch for each head: the fields of `Examples`, [head text …]."""
        best = of_queries.nan_to_num(-math.inf).argmax(-1)  # [text head]; the first of equal ones
        chosen = best[..., None, None].expand(-1, -1, 1, pattern.weights.shape[-1])
        row = pattern.weights.gather(2, chosen)[..., 0, :]
        n_keys = min(N_KEYS, row.shape[-1])
        own = row.masked_fill(~self.is_token[:, None], -1)  # padding comes last
        keys = own.argsort(dim=-1, descending=True, stable=True)[..., :n_keys]  # of equal weights the first
        weights = own.gather(-1, keys)
        cells = row
        if metric.cells is not None:
            picked = metric.cells(pattern).expand(pattern.weights.shape).gather(2, chosen)
            cells = row.masked_fill(~picked[..., 0, :], -1)
        numbers = np.array([sequence.number for sequence in self.batch])
        missing = N_KEYS - n_keys
        return (
            values.T,
            np.broadcast_to(numbers, values.T.shape),
            best.T.numpy().astype(np.int32),
            cells.argmax(-1).T.numpy().astype(np.int32),
            np.pad(keys.transpose(0, 1).numpy().astype(np.int32), ((0, 0), (0, 0), (0, missing))),
            np.pad(weights.transpose(0, 1).numpy(), ((0, 0), (0, 0), (0, missing))),
        )

    def _add_offsets(self, pattern: Pattern, heads: slice, place: int) -> None:
        sums, weights, offsets = self.sums, pattern.weights, pattern.offsets
        near = offsets.abs() <= MAX_OFFSET
        bins = (offsets + MAX_OFFSET)[near]
        usable = (pattern.visible & self.is_token[:, None, :, None])[..., near]
        counted = usable.any(1).sum(0).numpy()
        counts = np.bincount(bins.numpy(), counted, 2 * MAX_OFFSET + 1).astype(np.int64)
        sums.offset_counts[self.condition][place] += counts
        of_cells = (weights[..., near] * usable).sum(0, dtype=torch.float64)
        sums.offset_sums[self.condition][heads].index_add_(1, bins, of_cells)

    def _add_map(self, pattern: Pattern, heads: slice, place: int) -> None:
        """Adds the maps of the texts with the length of the plan."""
        sums, weights, n = self.sums, pattern.weights, self.sums.plan.map_length
        equal = [row for row, sequence in enumerate(self.batch) if len(sequence.ids) == n]
        if equal:
            sums.map_sums[heads] += weights[equal][..., :n, :n].sum(0, dtype=torch.float64)
            sums.n_maps += len(equal) if place == 0 else 0


def _histogram(values: Any, low: float, high: float) -> Any:
    """The number of texts in each bin, [head bin], of values [text head]."""
    bins = np.clip(np.nan_to_num((values - low) / (high - low) * N_BINS), 0, N_BINS - 1).astype(np.int64)
    result = np.zeros((values.shape[1], N_BINS), np.int64)
    heads = np.broadcast_to(np.arange(values.shape[1]), values.shape)
    defined = ~np.isnan(values)
    np.add.at(result, (heads[defined], bins[defined]), 1)
    return result
