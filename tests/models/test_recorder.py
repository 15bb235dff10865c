"""The hook into attention: one wrapper at a time, for one thread, and gone after an exception."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from test_model import OWL
from tiny_models import TinyModels
from torch import Tensor

from attention import ConfigError
from attention.models import recorder, running
from attention.models.attention_call import Call, ModelCall
from attention.models.library import LIBRARY, Settings
from attention.models.loaded import LoadedModel


@pytest.fixture
def llama(tiny: TinyModels) -> Iterator[LoadedModel]:
    tiny("Llama")
    LIBRARY.hold(Settings(tiny.folder))
    yield LIBRARY.get("Llama")
    LIBRARY.hold(Settings())


def logits(loaded: LoadedModel) -> Tensor:
    result: Tensor = running.run(loaded, running.tokenize_inputs(loaded, OWL, "", 64)[0])["logits"]
    return result


def zero(call: ModelCall) -> tuple[Tensor, Tensor | None]:
    output, weights = call.run()
    return torch.zeros_like(output), weights


def test_wrapper_replaces_the_output_until_an_exception(llama: LoadedModel) -> None:
    plain = logits(llama)
    with recorder.wrapping_attention(zero):
        assert not torch.equal(logits(llama), plain)

    def fail(_: ModelCall) -> Any:
        raise ConfigError("refused")

    with pytest.raises(ConfigError, match="refused"), recorder.wrapping_attention(fail):
        logits(llama)
    assert torch.equal(logits(llama), plain)


def test_inner_context_applies_and_the_outer_one_returns(llama: LoadedModel) -> None:
    plain, calls = logits(llama), list[Call]()
    with recorder.wrapping_attention(zero):
        changed = logits(llama)
        with recorder.recording(calls.append):
            assert torch.equal(logits(llama), plain)
        assert torch.equal(logits(llama), changed)
    assert [call.input is not None for call in calls] == [True, True]


def test_other_threads_have_no_wrapper(llama: LoadedModel) -> None:
    plain, found = logits(llama), list[Tensor]()
    with recorder.wrapping_attention(zero):
        thread = threading.Thread(target=lambda: found.append(logits(llama)))
        thread.start()
        thread.join()
    assert torch.equal(found[0], plain)
