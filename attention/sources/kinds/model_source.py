"""How the source "model" is read: its knobs, and the source that they describe."""

from __future__ import annotations

from dataclasses import replace

from attention.analysis.subwords import SPECIAL_TOKEN_MODES as SPECIALS
from attention.core.prediction import MAX_NEW_TOKENS
from attention.io.example_pictures import EXAMPLES, PREFIX
from attention.params.knob import Knob
from attention.params.ranges import Choice, Integer, NameOrText, PositionList, Real, Switch
from attention.patching.intervention import parse_codes
from attention.sources.kinds.shared_knobs import FROZEN, INTERVENTIONS, OTHER, PREFIX_LEN, TEXT, TEXT2
from attention.sources.kinds.source_kind import SourceKind
from attention.sources.layer_knobs import read_override
from attention.sources.model import Model
from attention.sources.picture_names import MOST_PICTURES, PictureNames, check_together
from attention.sources.reader import ParameterReader

NAME = "model"


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
    "image", f"{PREFIX}{next(iter(EXAMPLES))}", PictureNames(1000),
    help="The pictures of a model that reads pictures: example:NAME for one of ours, otherwise name:digest of an uploaded one; several have / between them.", sources=(NAME,), inline=True)
PREDICT = Knob(
    "predict", "", PositionList(200), help="The positions at which the model predicts a token.", sources=(NAME,), inline=True)
# fmt: on


def model_range() -> NameOrText:
    """The range of model names, with the models that this server has."""
    from attention.models.library import LIBRARY

    assert isinstance(MODEL.range, NameOrText)
    return replace(MODEL.range, options=LIBRARY.names())


def picture_names(several: bool) -> PictureNames:
    """The range of the names of pictures, for a model that reads several in its text, or one."""
    assert isinstance(IMAGE.range, PictureNames)
    return replace(IMAGE.range, most=MOST_PICTURES if several else 1)


def read(reader: ParameterReader) -> Model:
    """The model with what it reads (texts, a picture, or both), generation and interventions.

    Raises:
        AwaitedError: a picture has not been uploaded.
        FileError: the pictures are together too large.
    """
    from attention.models.library import LIBRARY

    name = reader.knob(MODEL, model_range())
    LIBRARY.allow(name)
    reads = LIBRARY.inputs(name)
    images = reader.pictures(IMAGE, picture_names(reads.several_pictures)) if reads.picture else ()
    check_together(images, reader.limits)
    image = images or None
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
