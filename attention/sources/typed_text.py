"""Source "typed text": a text and knobs, random weights, and every step of attention; its knobs, and how it is read."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from attention.base.errors import ConfigError, TextError
from attention.base.knobs import Knob, Switch
from attention.base.tokens import tokenize
from attention.formula.config import AttentionConfig
from attention.formula.formula import Formula
from attention.formula.mask import Mask
from attention.formula.names import EMBEDDING, INPUT, KEY, MEMORY, POSITION, QUERY, VALUE
from attention.formula.positions import POSITIONS
from attention.formula.scores import BUCKETS, SCORES
from attention.sources import Source
from attention.sources.layer_knobs import TEXT, TEXT2, read_config, read_sequence
from attention.sources.reader import Reader, SourceKind
from attention.trace.cost import Cost
from attention.trace.layer import Layer
from attention.trace.trace import Trace

if TYPE_CHECKING:
    from torch import Tensor

    from attention.program.literals import Snippet


_PAD_TOKEN = ""  # a typed token is never empty
_MAX_TOKENS_ALL_HEADS = 1024  # for a longer text, one head at a time is computed


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if tokenize(line)]


@dataclass(frozen=True)
class TypedText(Source):
    """A typed text run through one attention layer with seeded random weights.

    A word has the same embedding at every position. A knob changes only the matrices that depend on it.

    Attributes:
        text: the tokens of the queries, and of the keys unless there is a `text2`. Each line is a separate sequence.
        config: the knobs.
        text2: a second text for cross-attention: queries from `text`, keys and values from this one. One line serves every sequence;
            several lines are paired with those of `text`.
        lowercase: treat "The" and "the" as one word.
        max_tokens: longer sequences are cut there, and the trace notes it.
        sequence: the index of the line to show.
        pad: pad shorter lines with empty tokens to the longest one, and hide those keys; the mask "padding" does the same and hides
            nothing else.
        max_bytes: memory of all steps of all heads, and of their computation; more is refused before anything is computed.
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
    def sequences(self) -> tuple[str, ...]:
        """The sequences as typed: the lines that are not blank."""
        return tuple(_lines(self.text)) or (self.text,)

    def memory_bytes(self) -> int:
        """The bytes that the trace takes while it is computed, counted in advance."""
        n_queries = len(self._tokens(self.text, "text", []))
        n_keys = len(self._tokens(self.text2, "second text", [])) if self.text2.strip() else n_queries
        return self._cost(n_queries, n_keys).check(self.max_bytes)

    def trace(self) -> Trace:
        """Every step from embedding to output, in float32.

        For more than `_MAX_TOKENS_ALL_HEADS` tokens, or if all heads would take more than `max_bytes`, the query × key matrices are computed
        lazily, one head at a time.

        Raises:
            TextError: `text` has no words or punctuation marks.
            ConfigError: the steps would take more than `max_bytes`.
        """
        # Imported lazily: importing torch takes more than a second.
        from attention.formula.functions import generator, normal, project

        notes: list[str] = []
        tokens = self._tokens(self.text, "text", notes)
        is_cross = bool(self.text2.strip())
        key_tokens = self._tokens(self.text2, "second text", notes) if is_cross else tokens
        cost = self._cost(len(tokens), len(key_tokens))
        _ = cost.check(self.max_bytes)

        config, (n_heads, d_k, d_v) = self.config, self.config.sizes
        embedding, position, x = self._input(tokens)
        memory = self._input(key_tokens)[2] if is_cross else None
        key_input = x if memory is None else memory
        recorded = {EMBEDDING: embedding, POSITION: position, INPUT: x, MEMORY: memory}
        if config.init == "identity":
            recorded |= {QUERY: x[None], KEY: key_input[None], VALUE: key_input[None]}
        else:
            w_q = self._draw_projection("w_q", n_heads, d_k)
            w_k, w_v = (
                self._draw_projection(name, config.kv_heads, size) for name, size in (("w_k", d_k), ("w_v", d_v))
            )
            w_o = self._draw_matrix("w_o", n_heads * d_v, config.d_model).reshape(n_heads, d_v, config.d_model)
            recorded |= {"w_q": w_q, "w_k": w_k, "w_v": w_v, "w_o": w_o}
            recorded |= {QUERY: project(x, w_q), KEY: project(key_input, w_k), VALUE: project(key_input, w_v)}
        positions = POSITIONS[config.positions]
        if positions.bias == "relative":
            recorded["bias_table"] = normal((BUCKETS, n_heads), generator(config.seed, "bias_table"))
        if SCORES[config.score].parameter == "w_s":
            recorded["w_s"] = self._draw_matrix("w_s", n_heads, d_k)
        is_real_key = tuple(token != _PAD_TOKEN for token in key_tokens) if _PAD_TOKEN in key_tokens else None
        formula = Formula(score=config.score, rotary=positions.rotary, bias=positions.bias, mask=Mask(real=is_real_key))
        present = {name: tensor for name, tensor in recorded.items() if tensor is not None}
        layer = Layer(
            tokens=tokens,
            key_tokens=key_tokens,
            recorded=present,
            formula=formula,
            materialize_all_heads=cost.cached_heads == n_heads,
        )
        return Trace(tokens, (layer,), key_tokens, random=True, notes=tuple(notes)).with_config(config)

    def snippet(self, trace: Trace, layer: int = 0) -> Snippet:
        """The beginning of a Python program that computes the trace: the same draws from the same seeds."""
        from attention.program import random_weights

        return random_weights.typed_text(self.config, trace)

    def _cost(self, n_queries: int, n_keys: int) -> Cost:
        """The cost of all heads or, if that is too much, of one head at a time."""
        config, is_cross = self.config, bool(self.text2.strip())
        has_positions = POSITIONS[config.positions].is_added
        n_inputs = 3 if has_positions else 1  # E, P and X, or X alone
        n_maps = 3 + sum(map(bool, (config.mask != "none" or self.pad, config.dropping, config.cap)))
        cost = Cost(
            config.sizes,
            config.kv_heads,
            config.d_model,
            n_queries,
            n_keys,
            config.sizes.n_heads,
            n_inputs,
            n_inputs * is_cross,
            projected=config.init != "identity",
            maps=n_maps + 2 * bool(POSITIONS[config.positions].bias),
            has_dropout=bool(config.dropping),
            rotary=bool(POSITIONS[config.positions].rotary),
            additive=config.score == "additive",
        )
        if max(n_queries, n_keys) <= _MAX_TOKENS_ALL_HEADS and cost.nbytes <= self.max_bytes:
            return cost
        return replace(cost, cached_heads=1)

    def _tokens(self, text: str, name: str, notes: list[str]) -> tuple[str, ...]:
        lines, n_sequences = _lines(text), len(self.sequences)
        if not lines:
            got = "only blanks" if text else "nothing"
            raise TextError(f"The {name} needs at least one word or punctuation mark; got {got}: type a sentence.")
        if len(lines) not in (1, n_sequences):
            raise TextError(
                f"The second text needs 1 line, or {n_sequences} like the first text; got {len(lines)}: add or remove lines."
            )
        if not 0 <= self.sequence < n_sequences:
            raise ConfigError(
                f"sequence is the index of a line, from 0 to {n_sequences - 1}; got {self.sequence}: choose one of these."
            )
        all_tokens = [tokenize(line, self.lowercase) for line in lines]
        tokens = all_tokens[self.sequence if len(lines) > 1 else 0]
        if len(tokens) > self.max_tokens:
            notes.append(
                f"The {name} has {len(tokens):,} tokens; only the first {self.max_tokens} are shown: shorten it to see all of it."
            )
            tokens = tokens[: self.max_tokens]
        if not (self.pad or self.config.mask == "padding"):
            return tokens
        if len(lines) == 1 and name == "text":
            notes.append("A single line needs no padding: type a second, longer line to see a padding mask.")
        longest = min(max(map(len, all_tokens)), self.max_tokens)
        return tokens + (_PAD_TOKEN,) * (longest - len(tokens))

    def _input(self, tokens: tuple[str, ...]) -> tuple[Tensor, Tensor | None, Tensor]:
        """Embedding, position (None without positions) and their sum, each [query_pos d_model]."""
        import torch

        from attention.formula.functions import generator, normal

        d_model, seed = self.config.d_model, self.config.seed
        rows = {token: normal((d_model,), generator(seed, EMBEDDING, token, d_model)) for token in set(tokens)}
        embedding = torch.stack([rows[token] for token in tokens])
        position = POSITIONS[self.config.positions].encoding(len(tokens), d_model, seed)
        return embedding, position, embedding if position is None else embedding + position

    def _draw_projection(self, name: str, n_heads: int, size: int) -> Tensor:
        """A projection [head d_model size], cut from one matrix [d_model, head · size].

        The number of heads therefore changes how the matrix is split, not its values.
        """
        matrix = self._draw_matrix(name, self.config.d_model, n_heads * size)
        return matrix.reshape(-1, n_heads, size).transpose(0, 1)

    def _draw_matrix(self, name: str, rows: int, columns: int) -> Tensor:
        """A random matrix [rows columns], initialized as `init` says, from its own generator."""
        import torch

        from attention.formula.functions import generator, normal

        rng = generator(self.config.seed, name)
        if self.config.init in ("scaled normal", "normal"):
            values = normal((rows, columns), rng)
            return values / math.sqrt(rows) if self.config.init == "scaled normal" else values
        values = torch.rand(rows, columns, generator=rng)
        return (values * 2 - 1) / math.sqrt(rows) if self.config.init == "linear" else values  # nn.Linear: ±1/√rows


NAME = "typed text"
# fmt: off
LOWERCASE = Knob(
    "lowercase", True, Switch(), "Ignore upper case", "On: “The” and “the” are one word, with one embedding.",
    (NAME,), section="More knobs", order=110)
PAD = Knob(
    "pad", False, Switch(), "Pad to the same length", "Pad shorter lines with empty tokens ∅, which are hidden from every query.",
    (NAME,), section="More knobs", order=120)
# fmt: on


def read(reader: Reader) -> TypedText:
    """The text with its config."""
    text = reader.knob(TEXT)
    sequence = read_sequence(reader, TypedText(text).sequences)
    config = read_config(reader, KIND)
    text2, lowercase, pad = (reader.knob(knob) for knob in (TEXT2, LOWERCASE, PAD))
    return TypedText(text, config, text2, lowercase, reader.limits.tokens, sequence, pad, reader.limits.trace_bytes)


KIND = SourceKind(NAME, read, text=TEXT.key)
