"""Models in memory: a model that the user has loaded, with its tokenizer, as a value that a source can hold.

A recorded pass prepares the model, and puts it back exactly as it was (`Attachment`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from os import PathLike, fspath
from threading import Lock
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

import torch
from torch.nn import Module

from attention.base import cache
from attention.base.errors import ModelError
from attention.media import InputReader, has_decoder, read_by, reads_text
from attention.models import recorder, running
from attention.models.attention_call import IMPLEMENTATION, SDPA_IMPLEMENTATION
from attention.models.attention_sites import find_sites, with_parameters
from attention.models.followed_pass import count_maps
from attention.models.loaded import FairLock, LoadedModel
from attention.models.loading import max_length
from attention.models.medium_inputs import no_family_error, no_text_error, unread_medium

_HANDLES: WeakValueDictionary[tuple[int, ...], ModelHandle] = WeakValueDictionary()
_GUARD = Lock()


class _Found(NamedTuple):
    """What was found in a model, without the model and its tensors: it neither keeps them alive, nor weights that the model no longer has."""

    state: object
    loaded: LoadedModel
    parameters: tuple[tuple[str, ...], ...]  # of each site, the names


# As long as the model lives, so that `Model.of` in a loop looks for its attention once.
_FOUND: WeakKeyDictionary[Module, _Found] = WeakKeyDictionary()


class ModelHandle:
    """A user's model and its tokenizer or processor, compared by identity; only sources hold it, so the model lives no longer than they do.

    Attributes:
        model: a transformers model, without the wrappers of compilation, adapters or parallelism.
        tokenizer: its transformers tokenizer; None for a model that reads no text.
        processor: the tokenizer, or the processor of a model that reads another medium; the config of a model without one.
        readers: how it reads each other medium; none for a model of texts.
    """

    def __init__(self, model: Any, tokenizer: Any, processor: Any, readers: tuple[InputReader, ...]) -> None:
        self.model, self.tokenizer, self.processor, self.readers = model, tokenizer, processor, readers
        self._attachment, self._lock = Attachment(model), FairLock()
        self._loaded: tuple[object, LoadedModel] | None = None

    def __repr__(self) -> str:
        return f"<{self.name} in memory>"

    @property
    def name(self) -> str:
        """The class of the model, and where it was loaded from, if anywhere."""
        origin = str(getattr(self.model.config, "name_or_path", "") or "").replace("\\", "/").rstrip("/")
        return type(self.model).__name__ + (f" ({origin.rpartition('/')[2]})" if origin else "")

    def load(self) -> LoadedModel:
        """The model ready to be recorded; tried anew where what `_state` reads has changed, as by training.

        Raises:
            ModelError: it cannot read text, or returns no attention.
        """
        with self._lock.hold():
            state = _state(self.model, self.processor)
            if self._loaded is None or self._loaded[0] != state:
                found = _FOUND.get(self.model)
                if found is not None and found.state == state:
                    self._loaded = state, self._restored(found)
                else:
                    loaded = self._probe()
                    sites = tuple(replace(site, parameters={}) for site in loaded.sites)
                    bare = loaded.replace(model=None, tokenizer=None, readers=(), attachment=None, sites=sites)
                    _FOUND[self.model] = _Found(state, bare, tuple(tuple(site.parameters) for site in loaded.sites))
                    self._loaded = state, loaded
            return self._loaded[1]

    def _restored(self, found: _Found) -> LoadedModel:
        model, attachment = self.model, self._attachment
        sites = with_parameters(found.loaded.sites, found.parameters, model)
        attachment.mode = "recorded" if sites else "eager"
        attachment.modules = [model.get_submodule(path) for path in dict.fromkeys(site.path for site in sites)]
        return found.loaded.replace(
            model=model, tokenizer=self.tokenizer, readers=self.readers, attachment=attachment, sites=sites,
            lock=self._lock, uid=cache.new_uid(),
        )  # fmt: skip

    def _probe(self) -> LoadedModel:
        recorder.register()
        model, attachment = self.model, self._attachment
        attachment.mode, attachment.modules = "recorded", []
        dtype = str(model.dtype).removeprefix("torch.")
        loaded = LoadedModel(
            self.name, model, self.tokenizer, (), has_decoder(model),
            None if self.tokenizer is None else max_length(model, self.tokenizer),
            sum(parameter.numel() for parameter in model.parameters()) * 4,
            lock=self._lock, attachment=attachment, readers=self.readers,
        )  # fmt: skip
        where = f"{self.name}, in memory: {dtype} on {model.device}"
        sites, left_out = find_sites(loaded)
        if sites:
            about = f"{where}, {attachment.words}{self._difference(loaded)}."
            loaded = loaded.replace(sites=sites, left_out=left_out, about=about)
            return loaded.replace(n_maps=count_maps(loaded))
        attachment.mode, attachment.modules = "eager", []
        return loaded.replace(n_maps=count_maps(loaded), about=f"{where}, {attachment.words}.")

    def _difference(self, loaded: LoadedModel) -> str:
        """How far the recorded output is from the model's own, in words; empty if it is equal to the bit, or known not to be."""
        # A few families ask for the name of their attention, and compute something else under ours.
        attachment = self._attachment
        if not attachment.is_recorded_as_is:
            return ""
        inputs = running.probe_inputs(loaded)
        recorded = running.run(loaded, inputs)
        try:
            attachment.mode = "own"
            own = running.run(loaded, inputs)
        finally:
            attachment.mode = "recorded"
        name = next(name for name in ("logits", "prediction_logits", "last_hidden_state", *own) if name in own)
        first, second = (each[name][-1] if isinstance(each[name], tuple) else each[name] for each in (recorded, own))
        difference = float((first.float() - second.float()).abs().max())
        return (
            f", recorded with an output that differs by {difference:.1e} on a short {'trial' if self.readers else 'text'}"
            if difference
            else ""
        )


def handle_of(model: Any, tokenizer: Any, field: str = "") -> ModelHandle:
    """The handle of a model and its tokenizer or processor; the same one while any source holds it.

    Raises:
        ModelError: they are not a model and a tokenizer or processor of transformers, or the model should read the input of this field of `Model` and its
            family is not read.
    """
    model = _unwrapped(model)
    media = read_by(model)
    if not media:
        if field and (unread := unread_medium(model, field)):
            raise no_family_error(unread, type(model).__name__, model)
        if other_input := no_text_error(type(model).__name__, model):
            raise other_input
    readers, parts = zip(*(medium.reader_of(model, tokenizer) for medium in media), strict=True) if media else ((), ())
    text_tokenizer = None if media and not reads_text(model) else _checked_tokenizer(tokenizer, model)
    with _GUARD:
        key = id(model), id(text_tokenizer), *map(id, parts)  # of living objects, which the handle holds
        handle = _HANDLES.get(key)
        if handle is None:
            processor = tokenizer or model.config if media else text_tokenizer  # numbers need no processor
            handle = _HANDLES[key] = ModelHandle(model, text_tokenizer, processor, readers)
        return handle


def _unwrapped(model: Any) -> Any:
    """The transformers model inside of torch.compile, adapters (LoRA), data parallelism, a pipeline, and what nnsight and TransformerLens wrap it in."""
    from transformers import PreTrainedModel

    outermost = model
    while not isinstance(model, PreTrainedModel):
        config = getattr(model, "active_peft_config", None)
        if getattr(config, "is_prompt_learning", False):
            raise ModelError(
                f"An adapter must be inside of the model's layers; got {type(model).__name__} with a learned prompt, "
                "which no token stands for: give the model without it."
            )
        get_base_model = getattr(model, "get_base_model", None)
        inner = get_base_model() if callable(get_base_model) else None
        names = ("_orig_mod", "module", "base_model", "original_model", "model", "_module")
        candidates = (inner, *(getattr(model, name, None) for name in names))
        inner = next((candidate for candidate in candidates if isinstance(candidate, Module)), None)
        if inner is None or inner is model:
            break
        model = inner
    if not isinstance(model, PreTrainedModel):
        raise ModelError(f"Model.of reads a loaded transformers model; got {kind_of(outermost)}: {_way_of(outermost)}.")
    if model not in _FOUND and any(parameter.is_meta for parameter in model.parameters()):
        raise ModelError(
            f"Model.of reads a model whose weights are in memory; some of {type(model).__name__} are on the meta device: "
            "load them on the CPU or a GPU, without device_map to disk and without init_empty_weights."
        )
    return model


def _way_of(value: Any) -> str:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    if isinstance(value, PreTrainedTokenizerBase):
        return "give the model first, then its tokenizer"
    if isinstance(value, str | PathLike):
        return f"load it with AutoModel.from_pretrained(…), or write Model({str(fspath(value))[:80]!r}, text) for a folder or a name"
    if isinstance(value, type):
        return f"load one with {value.__name__}.from_pretrained(…), or make one with {value.__name__}(config)"
    if isinstance(value, Module):
        inner = ((path, module) for path, module in value.named_modules() if isinstance(module, PreTrainedModel))
        for path, module in inner:
            return f"give the {type(module).__name__} inside of it, model.get_submodule({path!r})"
        return "attention.record(net, x, tokens=words) shows the attention of any PyTorch module; it runs net(x) once"
    return "load it with AutoModel.from_pretrained(…), give what another library computed to Trace.of(weights=…), or run PyTorch code in attention.record(…)"


def _checked_tokenizer(tokenizer: Any, model: Any) -> Any:
    """The tokenizer, also of a processor that has one."""
    from transformers import PreTrainedTokenizerBase

    for candidate in (tokenizer, getattr(tokenizer, "tokenizer", None)):
        if isinstance(candidate, PreTrainedTokenizerBase):
            return candidate
    raise ModelError(
        f"Model.of needs the transformers tokenizer of {type(model).__name__}, which names the tokens; got {kind_of(tokenizer)}: "
        f"{'wrap it as PreTrainedTokenizerFast(tokenizer_object=…)' if type(tokenizer).__module__ == 'tokenizers' else 'load it with AutoTokenizer.from_pretrained(…)'}."
    )


def kind_of(value: Any) -> str:
    """A value in words, such as "a BertTokenizer" or "the class BertModel"."""
    if value is None or isinstance(value, str):
        return repr(value)[:60]
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"{'an' if type(value).__name__[0] in 'AEIOU' else 'a'} {type(value).__name__}"


def _state(model: Any, processor: Any) -> object:
    """What could change the answer of a probe, as a value that keeps nothing alive.

    The modules themselves, since an adapter (LoRA), quantization and surgery replace some; their methods `forward`, which other libraries
    replace; their hooks, which may change what they give; their tensors, by place and version, which an optimizer's step, another device and
    another dtype change; the configs, with the name of the attention; and the tokenizer or processor, which made the input of the probe.
    """
    state = list[object]()
    for module in _modules(model):
        own = vars(module)
        tensors = [each for each in (*own["_parameters"].values(), *own["_buffers"].values()) if each is not None]
        versions = [(each.data_ptr(), 0 if each.is_inference() else each._version) for each in tensors]
        hooks = *own["_forward_pre_hooks"], *own["_forward_hooks"]  # their numbers, of which torch gives none twice
        state.append((ref(module), type(module).forward, id(own.get("forward")), hooks, versions))
    return state, [(_implementation(config), config.to_dict()) for config in _configs(model)], ref(processor)


def _modules(model: Module) -> list[Module]:
    """Every module of a model, once: five times as fast as `modules()`, which also names them."""
    found, waiting = dict[Module, None](), [model]
    while waiting:
        module = waiting.pop()
        if module not in found:
            found[module] = None
            waiting += module.children()
    return [*found]


_RECORDED = {"sdpa": SDPA_IMPLEMENTATION}
"""The recorded twin of each attention implementation; others are recorded with eager attention."""
_IMPLEMENTATION = "_attn_implementation_internal"  # where a config of transformers keeps the name of its implementation


class Attachment:
    """What a recorded pass changes in a model, and how it is put back.

    Attributes:
        model: a transformers model, which may be in use.
        mode: which attention runs: "recorded", by the recorder; "eager", for a family that does not call the recorder but returns
            its weights; "own", as the user runs it.
        modules: the attention modules, whose inputs are recorded.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.mode: Literal["recorded", "eager", "own"] = "recorded"
        self.modules: list[Module] = []
        self._is_open = False
        self._own_implementation = ""

    @property
    def implementation(self) -> str:
        """The attention implementation that the user chose."""
        return self._own_implementation if self._is_open else _implementation(self.model.config)

    @property
    def words(self) -> str:
        """The attention implementation of the user, and that of a recorded pass if it is another."""
        recorded = "" if self.is_recorded_as_is else ", recorded with eager attention"
        return f"{self.implementation} attention{recorded}"

    @property
    def is_recorded_as_is(self) -> bool:
        """Whether a recorded pass computes with the attention implementation of the user."""
        own = self.implementation
        return own == "eager" or (own in _RECORDED and self.mode == "recorded")

    @contextmanager
    def attached(self) -> Iterator[None]:
        """A context in which the model can be recorded; afterwards all is as before, after any exception too.

        Only one thread may be in it, and no other code may run the model: hold the lock of the model. Nested, it does nothing.
        """
        if self._is_open:
            yield
            return
        with ExitStack() as stack:
            self._own_implementation = self.implementation
            _replace(stack, vars(self), "_is_open", True)
            _keep_process_state(stack, self.model)
            modules = _modules(self.model)
            for module in modules:
                # `eval()` may do more than this: some adapters merge their weights into the model's.
                _replace(stack, vars(module), "training", False)
                if vars(module).get("_compiled_call_impl") is not None:
                    _replace(stack, vars(module), "_compiled_call_impl", None)
            if any("_orig_mod" in vars(module)["_modules"] for module in modules):
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            for config in _configs(self.model):
                own = _implementation(config)
                names = {"own": own, "eager": "eager", "recorded": _RECORDED.get(own, IMPLEMENTATION)}
                _replace(stack, vars(config), _IMPLEMENTATION, names[self.mode])
            for module in self.modules:
                stack.callback(recorder.record_inputs(module).remove)
            yield


def _implementation(config: Any) -> str:
    return str(getattr(config, _IMPLEMENTATION, None) or "eager")


def _replace(stack: ExitStack, attributes: dict[str, Any], name: str, value: Any) -> None:
    """Replaces an attribute until the stack closes. The dict is written directly: setters of modules and configs do more."""
    if name in attributes:
        stack.callback(attributes.__setitem__, name, attributes[name])
    else:
        stack.callback(attributes.pop, name, None)
    attributes[name] = value


def _keep_process_state(stack: ExitStack, model: Any) -> None:
    """Puts back, when the stack closes, the random numbers of torch, the filters of warnings, and the log level of transformers."""
    from transformers.utils import logging

    devices = sorted({parameter.device.index or 0 for parameter in model.parameters() if parameter.is_cuda})
    stack.enter_context(torch.random.fork_rng(devices))
    stack.callback(logging.set_verbosity, logging.get_verbosity())
    stack.enter_context(warnings.catch_warnings())


def _configs(model: Any) -> list[Any]:
    """Every config of a model and of its parts, once; an encoder may have a config of its own."""
    from transformers import PreTrainedConfig

    waiting = [vars(module).get("config") for module in _modules(model)]
    configs: dict[int, Any] = {}
    while waiting:
        config = waiting.pop()
        if isinstance(config, PreTrainedConfig) and id(config) not in configs:
            configs[id(config)] = config
            waiting += [getattr(config, name, None) for name in config.sub_configs]
    return list(configs.values())
