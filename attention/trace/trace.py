"""What every source returns and every page draws: tokens, layers, predictions, and pictures as the model saw them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from attention.base.errors import FileError, MissingError, ShapeError, TextError, check_index
from attention.base.printed import Displayed, plural
from attention.base.spans import Span, given_tokens, parse_spans, place, spans_code
from attention.base.tokens import Generated
from attention.formula.names import KEY, QUERY, SCORES, VALUE, WEIGHTS
from attention.formula.steps import find_step
from attention.trace.layer import Layer
from attention.trace.model_run import ModelRun, ModelTensors

if TYPE_CHECKING:
    import pandas as pd
    from numpy import uint8
    from numpy.typing import NDArray
    from torch import Tensor

    from attention.formula.config import AttentionConfig
    from attention.formula.override import Override


FILE_WRITERS: dict[str, Callable[[Trace, int | None, Collection[int] | None], bytes]] = {}
"""For each file extension, the function that turns a trace, or one head or some layers of it, into the bytes of a file.

`Trace.save` uses them. `attention` registers them, because they belong to a layer above this one.
"""

_tensor_readers: list[Callable[[TensorInputs], Trace]] = []


def register_tensor_reader(read: Callable[[TensorInputs], Trace]) -> None:
    """Makes `read` give the trace of `Trace.of`; it belongs to a layer above this one."""
    _tensor_readers[:] = [read]


_SHOWN_TEXT = 80  # characters of the text in a repr
_SHOWN_LAYERS = 6
_SHOWN_LAYERS_OF_HEADS = 12


@dataclass(frozen=True)
class TensorInputs:
    """The arguments of `Trace.of`, where they are explained; `tensors` are those with the name of a step or parameter."""

    output: Any
    tokens: Any
    tensors: Mapping[str, Any]
    key_tokens: Any
    mask: Any
    mask_means: str
    divisor: Any
    scaling: Any
    places: Any
    picture: Any
    batch: int | None
    tokenizer: Any
    max_bytes: int


@dataclass(frozen=True, eq=False, repr=False)
class Trace(ModelTensors, Displayed):
    """All tensors of one forward pass, from tokens to output: one sequence, no batch axis.

    It is a sequence of its layers: ``trace[0]``, ``for layer in trace``; ``trace["weights", 0]`` is a step of one, and ``trace["weights"]`` of all.

    `residual`, `logits`, `w_e`, `w_u` and `final_norm` read the model behind it when they are first read.

    Attributes:
        tokens: the tokens that attend in the first layer, by query_pos.
        layers: one `Layer` per layer of the model, from zero; a layer without tokens gets those of the trace. In a hybrid model, layers
            without attention are here too, without steps: an index is always the model's own.
        key_tokens: the tokens attended to, by key_pos; they differ from `tokens` in cross-attention.
        random: whether the projection weights are random; pages say so.
        notes: sentences that a page shows with this trace, such as that the text was truncated.
        predictions: the model's predictions at the requested positions.
        no_prediction_reason: a sentence, if the model predicts no tokens; otherwise empty.
        vectors: the last hidden states of a model that predicts no tokens, [query_pos d_model].
        embeddings: those of the tokens [query_pos d_model], the leaf of gradients; None unless the trace was made with requires_grad=True.
        input_tokens: the tokens that the model reads and predicts in: subword pieces, with special tokens.
        continuation: the tokens with which the model continues, if the text is shown without them.
        changes: a sentence for each intervention inside the model; empty without interventions.
        caption: a line to show beside the numbers, such as that the model is a 4-bit version.
        max_weight_error: of a model in memory, the largest difference, in at most 16 queries of each head, between its own attention weights, in its
            dtype, and those computed here in float32 from its Q and K; None for other sources, and where the model gives weights only.
        pictures: what the model saw of each picture that it read; the `picture` of a `Patch` is an index of it.
        model_run: the run of the model, which `attention.circuits` repeats; None if the source has no model.
        spans: named stretches of the tokens, such as the messages of a chat, in the order of the tokens; no token is in two of them.

    Raises:
        ShapeError: the number of tokens differs from the number of rows, or that of key tokens from the columns.
    """

    tokens: tuple[str, ...]
    layers: tuple[Layer, ...]
    key_tokens: tuple[str, ...] = ()
    random: bool = False
    notes: tuple[str, ...] = ()
    predictions: tuple[Prediction, ...] = ()
    no_prediction_reason: str = ""
    vectors: Tensor | None = None
    embeddings: Tensor | None = None
    input_tokens: tuple[str, ...] = ()
    continuation: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    caption: str = ""
    max_weight_error: float | None = None
    model_run: ModelRun | None = None
    pictures: tuple[SeenPicture, ...] = ()
    spans: tuple[Span, ...] = ()

    def __post_init__(self) -> None:
        if not self.key_tokens:
            object.__setattr__(self, "key_tokens", self.tokens)
        layers = tuple(
            layer if layer.tokens else replace(layer, tokens=self.tokens, key_tokens=self.key_tokens)
            for layer in self.layers
        )
        object.__setattr__(self, "layers", layers)

    @classmethod
    def of(
        cls,
        output: Any = None,
        tokens: Any = None,
        *,
        key_tokens: Any = None,
        weights: Any = None,
        scores: Any = None,
        query: Any = None,
        key: Any = None,
        value: Any = None,
        mask: Any = None,
        mask_means: str = "numbers",
        bias: Any = None,
        divisor: float | Sequence[float] | None = None,
        scaling: float | Sequence[float] | None = None,
        places: Any = None,
        picture: Any = None,
        batch: int | None = None,
        tokenizer: Any = None,
        max_bytes: int = 2**33,
        **others: Any,
    ) -> Trace:
        """The trace of tensors in memory: of weights, of queries and keys, of scores, or of what a model of transformers returned.

        Tensors, arrays, tables of pandas and nested lists are copied. They have the axes of their steps, such as weights [head query_pos key_pos],
        or less the head; before these may be an axis of layers, of a batch, or first of layers and then of a batch, and a list has one tensor for
        each layer. A first axis of length 1 is a batch. Recorded numbers are shown as they are; the formula computes the steps that are missing,
        if it reproduces those that are there. The notes say how the axes and the mask were read.

        Args:
            output: what a model returned with output_attentions=True, or `generate` with return_dict_in_generate=True as well; the attentions of
                either; a cache of TransformerLens; or the weights of one layer. The steps of a generation are joined into one map. An
                encoder-decoder model has the layers of the encoder, of the decoder, then of cross-attention.
            tokens: one for each query: texts or ids, what the tokenizer returned, whose padding is left out, or one text with blanks.
            key_tokens: one for each key, if these are of another text, such as that of the encoder; by default `tokens`.
            weights: the weights; likewise `scores` before scaling and masking, `query`, `key` and `value` [head pos width].
            mask: which keys are seen, as for `Matrices`, with `mask_means`.
            bias: added to the scaled scores.
            divisor: divides the scores instead of √d_k; a number, or one for each layer. `scaling` is its inverse.
            places: where tokens are: the rows and columns of patches, such as (14, 14), which may have [CLS] and the like before them; or one place for
                each token: (row, column), seconds or any other value, which becomes `token.place`, a token with a place, or None.
            picture: the picture under the patches: a file, an image of Pillow, or an array [row column 3] from 0 to 255.
            batch: the sequence of a batch; by default the first one, with a note if there are more. If it is given, the axis before those of a step is
                the batch, and not that of layers.
            tokenizer: turns ids and a text into tokens.
            max_bytes: the bytes that the maps of a layer may take; if all heads take more, one head at a time is computed.
            others: any other step or parameter by its name, also by that of another library, such as `pattern`; hook_q, hook_k, hook_v and hook_z
                have the axes of TransformerLens, [pos head width].

        Raises:
            MatrixError: there is nothing to show, or numbers that cannot be drawn.
            ModelError: the output has no weights.
            ShapeError: tensors, or their tokens, do not fit together.
            MissingError: there is no such step.
            TextError: tokens that are none.
        """
        tensors = {WEIGHTS: weights, SCORES: scores, QUERY: query, KEY: key, VALUE: value, "bias": bias, **others}
        return _tensor_readers[0](
            TensorInputs(
                output,
                tokens,
                tensors,
                key_tokens,
                mask,
                mask_means,
                divisor,
                scaling,
                places,
                picture,
                batch,
                tokenizer,
                max_bytes,
            )
        )

    def __repr__(self) -> str:
        text = shorten(" ".join(self.tokens), _SHOWN_TEXT, placeholder=" …")
        layers = [*map(repr, self.layers[:_SHOWN_LAYERS]), *(["…"] if len(self.layers) > _SHOWN_LAYERS else [])]
        heading = f"Trace({plural(len(self.tokens), 'token')}: {text!r}; {plural(len(self.layers), 'layer')}"
        heading += "" if self.max_weight_error is None else f"; max_weight_error {self.max_weight_error:.1e}"
        return "\n  ".join([f"{heading}:" if layers else heading, *layers]) + ")"

    def __bool__(self) -> bool:
        return True  # also without layers, as predictions are kept

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    @overload
    def __getitem__(self, place: int) -> Layer: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Layer, ...]: ...

    @overload
    def __getitem__(self, place: str | tuple[str, int]) -> Tensor: ...

    def __getitem__(self, place: int | slice | str | tuple[str, int]) -> Layer | tuple[Layer, ...] | Tensor:
        """A layer, `trace[0]`; a step of a layer, `trace["weights", 0]` or `trace["pattern", 0]`; a step of all layers, [layer …].

        Raises:
            MissingError: there is no such layer, or no such step in one of these layers.
            ShapeError: the layers have this step in different shapes.
        """
        if isinstance(place, slice):
            return self.layers[place]
        if isinstance(place, str):
            return self._of_all_layers(place)
        name, index = place if isinstance(place, tuple) and len(place) == 2 else ("", place)
        if isinstance(name, bool | int) or not hasattr(index, "__index__"):
            raise MissingError(
                f'a trace has layers, trace[0], and steps of them, trace["weights", 0]; got {place!r}: write one of these.'
            )
        number = operator.index(index)
        layer = self.layer(number + len(self.layers) if -len(self.layers) <= number < 0 else number)
        return layer[name] if name else layer

    def _of_all_layers(self, name: str) -> Tensor:
        import torch

        tensors = [layer[name] for layer in self.layers]
        shapes = list(dict.fromkeys(tuple(tensor.shape) for tensor in tensors))
        if len(shapes) > 1:
            raise ShapeError(
                f"{name} of all layers needs one shape; got {' and '.join(map(str, map(list, shapes[:3])))}: read one layer, trace[{name!r}, 0]."
            )
        return torch.stack(tensors)

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """The indices of the layers with attention: all of them, except in a hybrid model."""
        return tuple(index for index, layer in enumerate(self.layers) if layer.has_attention)

    @property
    def generated(self) -> int:
        """The number of tokens at the end of the text that the model generated."""
        return sum(isinstance(token, Generated) for token in self.input_tokens)

    @property
    def nbytes(self) -> int:
        """Bytes of the recorded tensors of all layers, of the predictions, of the vectors and of the pictures, also as files."""
        outputs = sum(prediction.nbytes for prediction in self.predictions)
        outputs += 0 if self.vectors is None else self.vectors.nbytes
        outputs += sum(picture.rgb.nbytes for picture in self.pictures)
        outputs += int(getattr(self.model_run, "nbytes", 0))
        return sum(layer.nbytes for layer in self.layers) + outputs

    def labels_of(self, axis: str) -> tuple[str, ...] | None:
        """The tokens along an axis in the first layer, or None for an axis without tokens (d_model, head, …)."""
        return {"query_pos": self.tokens, "key_pos": self.key_tokens}.get(axis)

    def layer(self, index: int) -> Layer:
        """The layer with this index, from zero.

        Raises:
            MissingError: there is no such layer.
        """
        check_index("layers", index, len(self.layers))
        return self.layers[index]

    def save(self, path: str | Path, head: int | None = None, layers: Collection[int] | None = None) -> None:
        """Writes the layers to a .npz or .safetensors file, which the Lab's source "file" and `File.open` show with the same digits.

        The file has the tokens with the places of patches, what the model saw of its pictures, the notes, and of each layer the recorded
        steps, the parameters and the formula; predictions and vectors are not in it.

        Args:
            path: the file to write; its extension selects the format.
            head: the only head to save; None for all.
            layers: the layers to save; None for all.

        Raises:
            FileError: another extension, or a file that cannot be written.
            MissingError: there is no such head or layer.
        """
        target = Path(path)
        if target.suffix.lower() not in FILE_WRITERS:
            raise FileError(
                f"A trace is saved as {' or '.join(FILE_WRITERS)}; got “{target.name}”: give the file one of these extensions."
            )
        for index in range(len(self.layers)) if layers is None else layers:
            layer = self.layer(index)
            if head is not None and layer.has_attention:
                check_index("heads", head, layer.n_heads)
        try:
            target.write_bytes(FILE_WRITERS[target.suffix.lower()](self, head, layers))
        except OSError as error:
            raise FileError(
                f"“{target}” cannot be written ({error.strerror}): give a path in a folder that exists and that you may write to."
            ) from None

    def heads(self, step: str = WEIGHTS, layer: int | None = None) -> AllHeads:
        """A step of every head, of all layers or of one, which a notebook draws as small maps.

        Raises:
            MissingError: there is no such step or layer.
        """
        return AllHeads(self, step, layer)

    def with_spans(self, spans: Mapping[str, Any] | Iterable[Any]) -> Trace:
        """The trace with names for stretches of its tokens: a dict or pairs of names with range(first, stop), or a list of these; or `Span` values.

        Raises:
            TextError: a span has tokens that the trace does not have, or is no range of tokens.
        """
        code = spans_code(spans)
        given = given_tokens(code)
        if len(given) < len(parse_spans(code)):
            raise TextError(
                f"The spans of a trace are ranges of its tokens; got {code[:60]!r}: write range(first, stop)."
            )
        return replace(self, spans=place((), "", ((0, 0),) * len(self.tokens), given))

    def with_config(self, config: AttentionConfig | Override) -> Trace:
        """The trace with the values of `config` for the knobs after the scores; its steps are recomputed on access."""
        layers = tuple(layer.with_config(config) for layer in self.layers)
        notes = config.mask_rule.notes(len(self.tokens), len(self.key_tokens))
        return replace(self, layers=layers, notes=(*self.notes, *notes))


@dataclass(frozen=True, eq=False, repr=False)
class AllHeads(Displayed):
    """One step of every head of a trace, as small maps on one colour scale.

    Attributes:
        trace: the trace.
        step: the step of each head.
        layer: the layer whose heads are shown; None for all layers.

    Raises:
        MissingError: there is no such step or layer, or no layer has the step.
    """

    trace: Trace
    step: str
    layer: int | None = None

    def __post_init__(self) -> None:
        name = find_step(self.step).name
        if self.layer is not None:
            check_index("layers", self.layer, len(self.trace.layers))
        if not self.layers:
            raise MissingError(f"no layer of this trace has {name}: choose another step.")

    @property
    def layers(self) -> tuple[int, ...]:
        """The indices of the layers that are shown."""
        chosen = range(len(self.trace.layers)) if self.layer is None else (self.layer,)
        return tuple(index for index in chosen if self.trace.layers[index].has(self.step))

    def __repr__(self) -> str:
        rows = [
            f"L{index}: heads 0 to {self.trace.layers[index].n_heads - 1}"
            for index in self.layers[:_SHOWN_LAYERS_OF_HEADS]
        ]
        rows += ["…"] if len(self.layers) > _SHOWN_LAYERS_OF_HEADS else []
        count = sum(self.trace.layers[index].n_heads for index in self.layers)
        heading = f"AllHeads({self.step} of {plural(count, 'head')} in {plural(len(self.layers), 'layer')}:"
        return "\n  ".join([heading, *rows]) + ")"


TOP_K = 10
"""The number of likeliest tokens that a prediction lists."""
MAX_NEW_TOKENS = 32
"""The maximal number of tokens that a model generates."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """The predicted distribution over the vocabulary at one position, in the order of the model's token ids.

    Attributes:
        position: the position whose hidden state predicts: the one before the next token, or that of a mask token.
        before: the token at that position.
        all_logits: the logit of every token, [vocabulary].
        ids: ids of the likeliest tokens, the likeliest first.
        tokens: these tokens as text.
        fills_mask: whether the prediction fills this position, as in masked models; otherwise it is about the next position. Also true of a class.
        classifies: whether the vocabulary is the classes of a classifier, and the prediction is about the whole input; its position is the first.
    """

    position: int
    before: str
    all_logits: Tensor
    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    fills_mask: bool = False
    classifies: bool = False

    @cached_property
    def all_log_probabilities(self) -> Tensor:
        """The logarithm of every token's probability, [vocabulary], in double precision."""
        return self.all_logits.double().log_softmax(-1)

    @property
    def logits(self) -> tuple[float, ...]:
        """Logits of the likeliest tokens."""
        return tuple(self.all_logits[list(self.ids)].tolist())

    @property
    def log_probabilities(self) -> tuple[float, ...]:
        """Natural logarithms of the probabilities of the likeliest tokens."""
        return tuple(self.all_log_probabilities[list(self.ids)].tolist())

    @property
    def probabilities(self) -> tuple[float, ...]:
        """Probabilities of the likeliest tokens: the softmax is over the whole vocabulary."""
        return tuple(self.all_log_probabilities[list(self.ids)].exp().tolist())

    def frame(self) -> pd.DataFrame:
        """A row for each of the likeliest tokens: token, id, probability, log_probability, logit; by rank, from 1."""
        import pandas as pd

        columns = {
            "token": self.tokens, "id": self.ids, "probability": self.probabilities,
            "log_probability": self.log_probabilities, "logit": self.logits,
        }  # fmt: skip
        return pd.DataFrame(columns, index=pd.RangeIndex(1, len(self.ids) + 1, name="rank"))

    @property
    def nbytes(self) -> int:
        """Bytes of the logits, and of the log-probabilities that are computed on access."""
        return int(self.all_logits.nbytes) * 3


PICTURE = "picture"
"""The `noun` of a `SeenPicture` that is nothing else."""


class Axis(NamedTuple):
    """What the columns or the rows of pixels of a `SeenPicture` stand for, if it is more than a picture.

    Attributes:
        unit: such as "s" or "Hz"; empty where names stand.
        start: the number at the left end of all pixels, or at their top.
        stop: the number at the right end, or at their bottom.
        names: one for each row of the grid of patches, such as those of the columns of a series; empty: numbers.
    """

    unit: str
    start: float
    stop: float
    names: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class SeenPicture:
    """The picture that entered a model, or what it saw of another medium drawn as one, such as the spectrogram of a sound.

    Pixels at the right and at the bottom that fill no whole patch are in `rgb`, but in no patch.

    Attributes:
        rgb: red, green and blue as the model saw them, before they were normalized, [row column 3] from 0 to 255.
        rows: number of rows of the grid of patches.
        columns: number of its columns.
        patch_size: height and width of a patch in pixels.
        words: what the model's processor did, such as "resized to 341 × 256, cropped to 224 × 224 at the centre"; sizes are width × height.
        digest: of the picture file.
        noun: what it is, the `noun` of its medium.
        x: what the columns of pixels stand for; None in a picture.
        y: what the rows of pixels stand for; None in a picture.
        time: when it is seen, from the first of its frames until the next picture: the names are the numbers of its frames; None for one without frames.
    """

    rgb: NDArray[uint8]
    rows: int
    columns: int
    patch_size: tuple[int, int]
    words: str
    digest: str
    noun: str = PICTURE
    x: Axis | None = None
    y: Axis | None = None
    time: Axis | None = None

    @property
    def sentence(self) -> str:
        """What the model's processor did to the picture, and into which patches it was cut."""
        height, width = self.patch_size
        if self.noun != PICTURE:
            return f"The {self.noun} as the model saw it: {self.words}."
        return f"The picture as the model saw it: {self.words}; {self.rows} × {self.columns} patches (rows × columns) of {width} × {height} pixels."

    def __repr__(self) -> str:
        height, width = self.rgb.shape[:2]
        return f"SeenPicture({width} × {height} pixels, {self.words}; {self.rows} rows and {self.columns} columns of patches)"
