"""How the source "model" is read: its knobs, and the source that they describe."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from attention.analysis.subwords import SPECIAL_TOKEN_MODES as SPECIALS
from attention.core.prediction import MAX_NEW_TOKENS
from attention.errors import AwaitedError
from attention.io.arrays import quote
from attention.io.example_pictures import EXAMPLES, PREFIX, example_picture
from attention.io.picture import Picture
from attention.params.knob import Knob
from attention.params.ranges import Choice, EncodedText, Integer, NameOrText, PositionList, Real, Switch
from attention.patching.intervention import parse_codes
from attention.sources.kinds.shared_knobs import FROZEN, INTERVENTIONS, OTHER, PREFIX_LEN, TEXT, TEXT2
from attention.sources.kinds.source_kind import SourceKind
from attention.sources.layer_knobs import read_override
from attention.sources.model import Model
from attention.sources.reader import ParameterReader

NAME = "model"


@dataclass(frozen=True)
class PictureName(EncodedText):
    """The value of `image`: the name of a picture of ours, or the name and the digest of an uploaded one."""

    expected = (
        f"one of {', '.join(PREFIX + name for name in EXAMPLES)}, or the name of an uploaded picture with its digest"
    )
    replacement_words = "the first is used"

    def accepts(self, value: object) -> bool:
        """Whether it is one of ours, or a name and 32 digits in hexadecimal."""
        names_example = isinstance(value, str) and value.removeprefix(PREFIX) in EXAMPLES and value.startswith(PREFIX)
        return super().accepts(value) and (names_example or _UPLOADED.fullmatch(str(value)) is not None)


_UPLOADED = re.compile(r".+:[0-9a-f]{32}", re.DOTALL)
# fmt: off
MODEL = Knob(
    "model", "all-MiniLM-L6-v2", NameOrText(300), "Model",
    "A model on this server; or, if its operator allows it, a folder with config.json and *.safetensors.", (NAME,))
WORDS = Knob(
    "words", False, Switch(), "Pieces as words",
    "Merge the subword tokens of a word into one row and one column: weights are summed over keys and averaged over queries, so rows still sum to 1.",
    (NAME,))
SPECIAL = Knob(
    "special", "show", Choice(SPECIALS), "Special tokens",
    "Such as [CLS]. Hide: rows no longer sum to 1, and their sums are shown beside the map. Renormalise: each row is divided by its remaining sum.",
    (NAME,))
GENERATE = Knob(
    "generate", 0, Integer(0, MAX_NEW_TOKENS), "Tokens to generate",
    "The model continues the text, token by token; ▸ marks generated tokens. 0: no generation.", (NAME,), section="Let it write")
GENERATE_TEMPERATURE = Knob(
    "generate_temperature", 0.0, Real(0, 5, end_meanings=("always the most likely token", "nearly at random")), "Temperature of the draw",
    "0: always the most likely token (greedy). Otherwise tokens are sampled from the softmax of the logits divided by the temperature.", (NAME,), section="Let it write")
GENERATE_SEED = Knob(
    "generate_seed", 0, Integer(0, 2**31 - 1), "Seed of the draw", "The same seed generates the same text.", (NAME,), section="Let it write")
IMAGE = Knob(
    "image", f"{PREFIX}{next(iter(EXAMPLES))}", PictureName(300),
    help="The picture of a model that reads pictures: example:NAME for one of ours, otherwise name:digest of an uploaded one.", sources=(NAME,), inline=True)
PREDICT = Knob(
    "predict", "", PositionList(200), help="The positions at which the model predicts a token.", sources=(NAME,), inline=True)
# fmt: on


def model_range() -> NameOrText:
    """The range of model names, with the models that this server has."""
    from attention.models.library import LIBRARY

    assert isinstance(MODEL.range, NameOrText)
    return replace(MODEL.range, options=LIBRARY.names())


def read(reader: ParameterReader) -> Model:
    """The model with what it reads (texts, a picture, or both), generation and interventions.

    Raises:
        AwaitedError: the picture has not been uploaded.
    """
    from attention.models.library import LIBRARY

    name = reader.knob(MODEL, model_range())
    LIBRARY.allow(name)
    reads = LIBRARY.inputs(name)
    image = reader.picture(IMAGE) if reads.picture else None
    text = reader.knob(TEXT) if reads.text else ""
    text2 = "" if reads.picture else reader.knob(TEXT2)
    words, special = reader.knob(WORDS) if reads.text else WORDS.default, reader.knob(SPECIAL)
    other_text = reader.knob(OTHER) if reads.text else ""
    generate, temperature, seed = (
        reader.knob(knob) if reads.continues else knob.default
        for knob in (GENERATE, GENERATE_TEMPERATURE, GENERATE_SEED)
    )
    max_tokens, max_bytes = reader.limits.tokens, reader.limits.trace_bytes
    return Model(
        name,
        text,
        text2,
        read_override(reader, NAME),
        words,
        special,
        max_tokens,
        max_bytes,
        generate=generate,
        generate_temperature=temperature,
        generate_seed=seed,
        prefix_len=reader.knob(PREFIX_LEN),
        predict=PositionList.of(reader.knob(PREDICT)),
        interventions=parse_codes(reader.knob(INTERVENTIONS)),
        frozen=reader.knob(FROZEN),
        other=Model(name, other_text, text2, max_tokens=max_tokens, max_bytes=max_bytes, image=image)
        if other_text.strip()
        else None,
        image=image,
    )


KIND = SourceKind(NAME, read)


def example_of(image: str) -> Picture | None:
    """The picture of ours that a value of `image` names; None if it names an upload."""
    return example_picture(image.removeprefix(PREFIX)) if image.startswith(PREFIX) else None


def missing_picture_error(image: str) -> AwaitedError:
    """The error for an `image` (name:digest) that has not been uploaded."""
    name, _, digest = image.rpartition(":")
    return AwaitedError(
        f"The link shows the picture {quote(name)} (digest {digest[:8]}…), which is not on this server: upload it to open the link."
    )
