"""Source "typed text": a text and knobs, random weights, every step of attention."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from attention.errors import ConfigError, TextError
from attention.formula.config import AttentionConfig
from attention.formula.cost import Cost
from attention.formula.formula import Formula
from attention.formula.layer import Layer
from attention.formula.mask import Mask
from attention.formula.names import EMBEDDING, INPUT, KEY, MEMORY, POSITION, QUERY, VALUE
from attention.formula.positions import POSITIONS
from attention.formula.scores import SCORES
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
    """

    text: str
    config: AttentionConfig = field(default_factory=AttentionConfig)
    text2: str = ""
    lowercase: bool = True
    max_tokens: int = 512
    sequence: int = 0
    pad: bool = False
    max_bytes: int = 2**33

    @property
    def n_sequences(self) -> int:
        """How many sequences the text holds: its lines that are not blank."""
        return len(self.sequences)

    @property
    def sequences(self) -> tuple[str, ...]:
        """The sequences as they were typed."""
        return tuple(_lines(self.text)) or (self.text,)

    @property
    def needs(self) -> int:
        """The bytes that its trace takes while it is made, counted before.

        Raises:
            TextError, ConfigError: as for `trace`.
        """
        return self._cost(*self._lengths()).within(self.max_bytes)

    def trace(self) -> Trace:
        """Every step from embedding to output, in float32.

        Of more than `WHOLE_UP_TO` tokens, or where all heads together would take more than `max_bytes`, the query × key
        matrices are made head by head, when they are looked at.

        Raises:
            TextError: `text` has no words or punctuation marks.
            ConfigError: the steps would take more than `max_bytes`.
        """
        # Imported at first use: torch takes more than a second, and a page opens before that.
        from attention.formula.attend import project

        notes: list[str] = []
        tokens = self._tokens(self.text, "text", notes)
        crossed = bool(self.text2.strip())
        key_tokens = self._tokens(self.text2, "second text", notes) if crossed else tokens
        cost = self._cost(len(tokens), len(key_tokens))
        _ = cost.within(self.max_bytes)

        config, (n_heads, d_k, d_v) = self.config, self.config.sizes
        embedding, position, x = self._input(tokens)
        memory = self._input(key_tokens)[2] if crossed else None
        x2 = x if memory is None else memory
        recorded = {EMBEDDING: embedding, POSITION: position, INPUT: x, MEMORY: memory}
        if config.init == "identity":
            recorded |= {QUERY: x[None], KEY: x2[None], VALUE: x2[None]}
        else:
            w_q = self._heads("w_q", n_heads, d_k)
            w_k, w_v = (self._heads(name, config.kv_heads, size) for name, size in (("w_k", d_k), ("w_v", d_v)))
            w_o = self._drawn("w_o", n_heads * d_v, config.d_model).reshape(n_heads, d_v, config.d_model)
            recorded |= {"w_q": w_q, "w_k": w_k, "w_v": w_v, "w_o": w_o}
            recorded |= {QUERY: project(x, w_q), KEY: project(x2, w_k), VALUE: project(x2, w_v)}
        way = POSITIONS[config.positions]
        if way.bias == "relative":
            recorded["bias_table"] = self._table(n_heads)
        if SCORES[config.score].parameter == "w_s":
            recorded["w_s"] = self._drawn("w_s", n_heads, d_k)
        real = tuple(token != PAD for token in key_tokens) if PAD in key_tokens else None
        formula = Formula(score=config.score, rotary=way.rotary, bias=way.bias, mask=Mask(real=real))
        there = {name: tensor for name, tensor in recorded.items() if tensor is not None}
        layer = Layer(tokens=tokens, key_tokens=key_tokens, recorded=there, formula=formula, whole=cost.kept == n_heads)
        return Trace(tokens, (layer,), key_tokens, random=True, notes=tuple(notes)).turned(config)

    @property
    def base(self) -> TypedText:
        """The source that records the same, with the knobs after the scores where they were: its trace, turned, is this one's."""
        return replace(self, config=self.config.base)

    def snippet(self, trace: Trace, layer: int = 0) -> Snippet:
        """How the Python begins that makes the trace again: the same draws from the same seeds."""
        from attention.sources import snippets

        return snippets.typed_text(self.config, trace)

    def _lengths(self) -> tuple[int, int]:
        """How many queries and keys there are."""
        n_queries = len(self._tokens(self.text, "text", []))
        return n_queries, len(self._tokens(self.text2, "second text", [])) if self.text2.strip() else n_queries

    def _cost(self, n_queries: int, n_keys: int) -> Cost:
        """That of all heads, or where they are too much or too long, of one at a time."""
        config, crossed = self.config, bool(self.text2.strip())
        added = POSITIONS[config.positions].adds
        inputs = 3 if added else 1  # E, P and X, or X alone
        maps = 3 + sum(map(bool, (config.mask != "none" or self.pad, config.dropping, config.cap)))
        cost = Cost(
            config.sizes,
            config.kv_heads,
            config.d_model,
            n_queries,
            n_keys,
            config.sizes.n_heads,
            inputs,
            inputs * crossed,
            projected=config.init != "identity",
            maps=maps + 2 * bool(POSITIONS[config.positions].bias),
            drawn=bool(config.dropping),
            rotary=bool(POSITIONS[config.positions].rotary),
            additive=config.score == "additive",
        )
        if max(n_queries, n_keys) <= WHOLE_UP_TO and cost.bytes <= self.max_bytes:
            return cost
        return replace(cost, kept=1)

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

        from attention.formula.seeds import generator

        d_model, seed = self.config.d_model, self.config.seed
        rows = {
            token: torch.randn(d_model, generator=generator(seed, EMBEDDING, token, d_model)) for token in set(tokens)
        }
        embedding = torch.stack([rows[token] for token in tokens])
        position = POSITIONS[self.config.positions].added(len(tokens), d_model, seed)
        return embedding, position, embedding if position is None else embedding + position

    def _heads(self, name: str, n_heads: int, size: int) -> Tensor:
        """A projection [head d_model size], cut from one matrix [d_model, head · size].

        So the number of heads changes how the matrix is cut, not what stands in it.
        """
        whole = self._drawn(name, self.config.d_model, n_heads * size)
        return whole.reshape(-1, n_heads, size).transpose(0, 1)

    def _table(self, n_heads: int) -> Tensor:
        """A number for every distance in every head, [bucket head]."""
        import torch

        from attention.formula.biases import BUCKETS
        from attention.formula.seeds import generator

        return torch.randn(BUCKETS, n_heads, generator=generator(self.config.seed, "bias_table"))

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
