"""Source "typed text": a text and knobs, random weights, every step of attention."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from attention.errors import ConfigError, TextError
from attention.formula.config import AttentionConfig
from attention.formula.cost import Cost
from attention.formula.trace import Trace
from attention.tokens import tokenize

if TYPE_CHECKING:
    from torch import Tensor

    from attention.sources import Snippet

PAD = ""  # no typed token is empty
WHOLE_UP_TO = 1024  # tokens; of a longer text a page shows one head at a time


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if tokenize(line)]


@dataclass(frozen=True)
class TypedText:
    """A typed text run through one attention layer with seeded random weights.

    The same word has the same embedding wherever it stands; turning one knob changes only the
    matrices it must.

    Attributes:
        text: the tokens that attend, and are attended to unless there is a `text2`. Several lines are
            several sequences.
        config: the knobs.
        text2: a second text for cross-attention: queries from `text`, keys and values from this. One
            line serves every sequence; as many lines as `text` go with them one by one.
        lowercase: whether "The" and "the" are one word.
        max_tokens: longer sequences are cut there, and the trace's notes say so.
        sequence: which line is shown, from zero.
        pad: fill shorter lines with empty tokens up to the longest, and hide those keys; the mask
            "padding" does the same and hides nothing else.
        max_bytes: of all steps of all heads together, and of what makes them; more is refused before it is worked out.
        only: the one head whose query × key matrices are kept; None keeps all. See `showing`.
    """

    text: str
    config: AttentionConfig = field(default_factory=AttentionConfig)
    text2: str = ""
    lowercase: bool = True
    max_tokens: int = 512
    sequence: int = 0
    pad: bool = False
    max_bytes: int = 2**33
    only: int | None = None

    @property
    def n_sequences(self) -> int:
        """How many sequences the text holds: its lines that are not blank."""
        return len(self.sequences)

    @property
    def sequences(self) -> tuple[str, ...]:
        """The sequences as they were typed."""
        return tuple(_lines(self.text)) or (self.text,)

    def showing(self, head: int) -> TypedText:
        """The source to show one head of: itself, or one that keeps this head alone.

        That is so for more than `WHOLE_UP_TO` tokens, and where all heads together would take more than `max_bytes`.
        A head that is not there is the first.

        Raises:
            TextError, ConfigError: as for `trace`.
        """
        n_heads = self.config.sizes.n_heads
        cost = self._cost(*self._lengths(), n_heads)
        if max(cost.n_queries, cost.n_keys) <= WHOLE_UP_TO and cost.bytes <= self.max_bytes:
            return self
        return replace(self, only=head if 0 <= head < n_heads else 0)

    @property
    def needs(self) -> int:
        """The bytes that its trace takes while it is made, counted before.

        Raises:
            TextError, ConfigError: as for `trace`.
        """
        return self._needed(*self._lengths())

    @property
    def unturned(self) -> TypedText:
        """The source that has the same scores, whatever mask, scaling, temperature and dropout are."""
        config = AttentionConfig()
        turned = {
            name: getattr(config, name)
            for name in ("mask", "window", "prefix", "cells", "temperature", "scaled", "dropout")
        }
        return replace(self, config=replace(self.config, **turned), pad=self.pad or self.config.mask == "padding")

    def scores(self, first: bool = False) -> Trace:
        """The steps from embedding to scores, in float32; of the `first` head alone, where nobody asks for more, without W_O.

        Raises:
            TextError: `text` has no words or punctuation marks.
            ConfigError: the steps would take more than `max_bytes`, or there is no head `only`.
        """
        # Imported at first use: torch takes more than a second, and a page opens before that.
        from attention.formula.attend import project, scores_layer

        notes: list[str] = []
        tokens = self._tokens(self.text, "text", notes)
        crossed = bool(self.text2.strip())
        key_tokens = self._tokens(self.text2, "second text", notes) if crossed else tokens
        self._needed(len(tokens), len(key_tokens))

        config, (n_heads, d_k, d_v) = self.config, self.config.sizes
        embedding, position, x = self._input(tokens)
        memory = self._input(key_tokens)[2] if crossed else None
        x2 = x if memory is None else memory

        if config.init == "identity":
            w_q = w_k = w_v = w_o = None
            query, key, value = x[None], x2[None], x2[None]
        else:
            w_q, w_k, w_v = (
                self._heads(name, size, first) for name, size in (("w_q", d_k), ("w_k", d_k), ("w_v", d_v))
            )
            w_o = None
            if not first:
                w_o = self._drawn("w_o", n_heads * d_v, config.d_model).reshape(n_heads, d_v, config.d_model)
            query, key, value = project(x, w_q), project(x2, w_k), project(x2, w_v)

        layer = scores_layer(query, key, value, w_o=w_o, only=self.only)
        layer = replace(
            layer, embedding=embedding, position=position, input=x, memory=memory, w_q=w_q, w_k=w_k, w_v=w_v
        )
        return Trace(tokens, (layer,), key_tokens, random=True, notes=tuple(notes))

    def trace(self, scores: Trace | None = None) -> Trace:
        """Every step from embedding to output, in float32.

        Args:
            scores: the `scores` of `unturned`, if somebody has kept them.

        Raises:
            TextError: `text` has no words or punctuation marks.
            ConfigError: the steps would take more than `max_bytes`.
        """
        import torch

        from attention.formula import masks
        from attention.formula.attend import finish
        from attention.formula.seeds import generator

        config, before = self.config, scores or self.scores()
        tokens, key_tokens = before.tokens, before.key_tokens
        self._needed(len(tokens), len(key_tokens))
        real = None if PAD not in key_tokens else torch.tensor([token != PAD for token in key_tokens])
        layer = finish(
            replace(before.layers[0], real=real),
            masks.build(config, len(tokens), len(key_tokens), real),
            scaled=config.scaled,
            temperature=config.temperature,
            dropout=config.dropout,
            generator=generator(config.seed, "dropout"),
        )
        of_mask = masks.notes(config, len(tokens), len(key_tokens))
        return replace(before, layers=(layer,), notes=(*before.notes, *of_mask))

    def snippet(self, trace: Trace) -> Snippet:
        """How the Python begins that makes the trace again: the same draws from the same seeds."""
        from attention.sources import snippets

        return snippets.typed_text(self.config, trace, PAD)

    def _needed(self, n_queries: int, n_keys: int) -> int:
        n_heads = self.config.sizes.n_heads
        if self.only is not None and not 0 <= self.only < n_heads:
            raise ConfigError(f"only counts heads from 0 to {n_heads - 1}; got {self.only}: choose one of these.")
        return self._cost(n_queries, n_keys, n_heads if self.only is None else 1).within(self.max_bytes)

    def _lengths(self) -> tuple[int, int]:
        """How many queries and keys there are."""
        n_queries = len(self._tokens(self.text, "text", []))
        return n_queries, len(self._tokens(self.text2, "second text", [])) if self.text2.strip() else n_queries

    def _cost(self, n_queries: int, n_keys: int, kept: int) -> Cost:
        config, crossed = self.config, bool(self.text2.strip())
        inputs = 1 if config.positions == "none" else 3  # E, P and X, or X alone
        return Cost(
            config.sizes,
            config.d_model,
            n_queries,
            n_keys,
            kept,
            inputs,
            inputs * crossed,
            projected=config.init != "identity",
            masked=config.mask != "none" or self.pad,
            dropout=bool(config.dropout),
        )

    def _tokens(self, text: str, name: str, notes: list[str]) -> tuple[str, ...]:
        """The tokens of the chosen line, padded if asked for."""
        lines = _lines(text)
        if not lines:
            came = "only blanks" if text else "nothing"
            raise TextError(f"The {name} needs at least one word or punctuation mark; got {came}: type a sentence.")
        if len(lines) not in (1, self.n_sequences):
            raise TextError(
                f"The second text needs 1 line, or {self.n_sequences} as the first; got {len(lines)}: add or remove lines."
            )
        if not 0 <= self.sequence < self.n_sequences:
            raise ConfigError(
                f"sequence counts the lines from 0 to {self.n_sequences - 1}; got {self.sequence}: choose one of these."
            )
        all_tokens = [tokenize(line, self.lowercase) for line in lines]
        tokens = all_tokens[self.sequence if len(lines) > 1 else 0]
        if len(tokens) > self.max_tokens:
            notes.append(
                f"The {name} has {len(tokens):,} tokens; shown are the first {self.max_tokens}: shorten it to see it whole."
            )
            tokens = tokens[: self.max_tokens]
        if not (self.pad or self.config.mask == "padding"):
            return tokens
        if len(lines) == 1 and name == "text":
            notes.append(
                "There is one line only, so nothing is padding: type a second, longer line to see a padding mask."
            )
        longest = min(max(map(len, all_tokens)), self.max_tokens)
        return tokens + (PAD,) * (longest - len(tokens))

    def _input(self, tokens: tuple[str, ...]) -> tuple[Tensor, Tensor | None, Tensor]:
        """Embedding, position (None without positions) and their sum, each [query_pos d_model]."""
        import torch

        from attention.formula.attend import sinusoidal
        from attention.formula.seeds import generator

        d_model, seed = self.config.d_model, self.config.seed
        rows = {
            token: torch.randn(d_model, generator=generator(seed, "embedding", token, d_model)) for token in set(tokens)
        }
        embedding = torch.stack([rows[token] for token in tokens])
        if self.config.positions == "none":
            return embedding, None, embedding
        position = sinusoidal(len(tokens), d_model)
        return embedding, position, embedding + position

    def _heads(self, name: str, size: int, first: bool) -> Tensor:
        """A projection [head d_model size], cut from one matrix [d_model, head · size]; of the `first` head alone.

        So the number of heads changes how the matrix is cut, not what stands in it.
        """
        n_heads = self.config.sizes.n_heads
        whole = self._drawn(name, self.config.d_model, n_heads * size)
        heads = whole.reshape(-1, n_heads, size).transpose(0, 1)
        return heads[:1].clone() if first else heads

    def _drawn(self, name: str, rows: int, columns: int) -> Tensor:
        """A random matrix [rows columns] as `init` asks, from a generator of its own."""
        import torch

        from attention.formula.seeds import generator

        own = generator(self.config.seed, name)
        if self.config.init in ("scaled normal", "normal"):
            drawn = torch.randn(rows, columns, generator=own)
            return drawn / math.sqrt(rows) if self.config.init == "scaled normal" else drawn
        drawn = torch.rand(rows, columns, generator=own)
        return (drawn * 2 - 1) / math.sqrt(rows) if self.config.init == "linear" else drawn  # nn.Linear: ±1/√rows
