"""The classes that a classifier of pictures predicts: as its family computes them, by the names of its config."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from margins import approx
from PIL import Image
from tiny_pictures import CLASSIFIERS, TinyPictureModels, noise

from attention import Model
from attention.base.errors import AttentionError, ConfigError, TextError
from attention.base.tokens import ClassName, label
from attention.circuits.sweep import sweep_heads
from attention.explanation.predictions import matching_prediction
from attention.patching.intervention import Intervention

PHOTO = Image.fromarray(noise())
NAMES = ("red circle", "blue square", "grey owl")


def source(picture_models: TinyPictureModels, family: str, image: Any = PHOTO, **options: Any) -> Model:
    return Model(picture_models(family), image=image, **options)


@pytest.mark.sample(2)
@pytest.mark.parametrize("family", CLASSIFIERS)
def test_classes_are_those_of_the_family_bit_for_bit(picture_models: TinyPictureModels, family: str) -> None:
    import transformers

    path = picture_models(family)
    network = getattr(transformers, CLASSIFIERS[family][0]).from_pretrained(path, attn_implementation="eager").eval()
    processor = transformers.AutoImageProcessor.from_pretrained(path, backend="pil")
    with torch.no_grad():
        logits = network(**processor(images=PHOTO, return_tensors="pt")).logits[0]
    for model in (source(picture_models, family), Model.of(network, processor, image=PHOTO)):
        trace = model.trace()
        (prediction,) = trace.predictions
        assert torch.equal(prediction.all_logits, logits)
        best = int(logits.argmax())
        assert (prediction.ids[0], prediction.tokens[0]) == (best, NAMES[best])
        assert set(prediction.tokens) == set(NAMES)
        assert torch.tensor(prediction.probabilities) == approx(logits.softmax(-1).sort(descending=True)[0])
        assert prediction.classifies
        assert trace.no_prediction_reason == ""
        assert (prediction.position, prediction.before) == (0, trace.tokens[0])


def test_class_is_found_by_its_name_or_number(picture_models: TinyPictureModels) -> None:
    model = source(picture_models, "ViT classes")
    assert model.find_token("Blue Square") == (1, "blue square")
    assert model.find_token("2") == (2, "grey owl")
    with pytest.raises(
        TextError, match=r"one of the 3 classes .* such as red circle, blue square, grey owl, or its number"
    ):
        model.find_token("moon")
    assert label(model.find_token("1")[1]) == "blue square"
    assert label("blue square") == "blue·square"
    assert label(ClassName("a & b")) == "a &amp; b"


def test_heads_change_the_class_and_sweeps_measure_it(picture_models: TinyPictureModels) -> None:
    model = source(picture_models, "ViT classes")
    (before,) = model.trace().predictions
    for target, distractor, what in ((None, None, "log-probability of "), (2, 0, "logit of grey owl minus logit of red circle")):  # fmt: skip
        result = list(sweep_heads(model, target=target, distractor=distractor))[-1].result
        assert result is not None
        assert what in result.quantity
        for layer, head in ((0, 1), (1, 2)):
            changed = source(
                picture_models, "ViT classes", interventions=(Intervention(layer, head, ablate="zero"),)
            ).trace()
            (after,) = changed.predictions
            assert matching_prediction(after, changed, model.trace()) is not None
            if distractor is None:
                expected = float(after.all_log_probabilities[before.ids[0]] - before.all_log_probabilities[before.ids[0]])  # fmt: skip
            else:
                expected = float((after.all_logits[2] - after.all_logits[0]) - (before.all_logits[2] - before.all_logits[0]))  # fmt: skip
            assert result.change[layer, head] == approx(expected, scale=1)
        assert np.abs(result.change).max() > 1e-3
    with pytest.raises(ConfigError, match="range from 0 to 2; got 3"):
        list(sweep_heads(model, target=3))


def test_what_needs_a_text_is_refused_for_classes(picture_models: TinyPictureModels) -> None:
    from attention.circuits import direct_effects, token_relevance
    from attention.circuits.direct_effects import find_readout

    trace = source(picture_models, "ViT classes").trace()
    assert "grey owl" in find_readout(trace, "grey owl").words
    assert trace.predictions[0].tokens[0] in find_readout(trace).words
    with pytest.raises(AttentionError, match="is computed for models of texts"):
        direct_effects.logit_parts(trace)
    with pytest.raises(AttentionError):
        token_relevance.relevance(trace)
