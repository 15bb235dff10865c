"""The registry of models: which can be loaded, and which are in memory, up to a bound and shared by all users.

The first model takes imports of three seconds and 80 MB, which an idle server can spend in advance (`import_parts`).
"""

from __future__ import annotations

import gc
import json
import pickle
import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from threading import Lock
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from attention.base import jobs
from attention.base.cache import CACHE
from attention.base.errors import ModelError
from attention.media import DeclaredInputs
from attention.models.folder import TEXT_ALONE, Folder, check_folder, declared_inputs, of_text, too_large
from attention.models.ours import ABOUT_FILE, our_folder, our_models, our_root, use_root
from attention.trace.trace import Trace

if TYPE_CHECKING:
    from attention.models.loaded import LoadedModel


_T = TypeVar("_T")

_HUB_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")
_FETCH_COMMANDS = {
    "all-MiniLM-L6-v2": "make models",
    "SmolLM2-135M-Instruct": "make models ALL=1",
    "dinov2-small": "make models ALL=1",
}
"""The models that `.ci/get_models.py` fetches, and the command for each."""

# transformers 5.23 patches torch.nn.init and its own classes while it loads; two loads at once would leave the patches in place.
_LOADING = Lock()
_IDLE_SECONDS = 60.0  # without use, after which a model may leave for something else
_LONGEST_NAME = 300  # characters
_HUB_ID = re.compile(r"\w[\w.-]{0,95}(/\w[\w.-]{0,95})?", re.ASCII)  # on the hub


def _no_shortage(_: int) -> int:
    return 0


@dataclass(frozen=True)
class Settings:
    """The models that an operator allows."""

    folder: Path = Path("models")  # contains model folders, all offered by name
    # Whether users may name any folder of this machine, and see the models of its Hugging Face cache.
    paths: bool = True
    # Whether any hub id may be downloaded; or the allowed ids, each with its revision.
    hub: bool | dict[str, str] = False
    most_mb: int = 4096  # bound of the weights of one model
    kept_mb: int = 4096  # bound of the weights of all loaded models; the least recently used is dropped first
    make_room: Callable[[int], int] = _no_shortage  # frees this number of bytes, and returns how many are still missing
    ours: Path | None = None  # in a job: where the models of ours are written
    shared: bool = False  # whether the weights are in memory that jobs share (`attention.base.jobs`)

    def for_jobs(self) -> Settings:
        """The same in a job, whose memory is limited anyway."""
        return replace(self, make_room=_no_shortage, ours=our_root(), shared=False)


class Library:
    """The models that can be loaded by name."""

    def __init__(self, settings: Settings) -> None:
        self._guard = Lock()
        self.hold(settings)

    def hold(self, settings: Settings, adopted: Mapping[str, bytes] = MappingProxyType({})) -> None:
        """Drop all loaded models, and use these settings from now on; `adopted` are the models that another process shares, as `for_jobs` gives them."""
        if settings.ours is not None:
            use_root(settings.ours)
        with self._guard:
            self.settings = settings
            self._loaded: OrderedDict[str, LoadedModel] = OrderedDict()  # by name, and device if one is named
            self._loading: dict[str, Lock] = {}
            self._pickled: dict[str, tuple[int, bytes]] = {}  # for jobs: the uid of each model, and its form
            self._adopted = adopted  # in a job: those of the process that it works for
            self._used: dict[str, float] = {}  # when each was asked for

    @property
    def offers(self) -> bool:
        """Whether any model can be loaded here."""
        return bool(self.settings.hub or self.settings.paths or self.names())

    def names(self) -> tuple[str, ...]:
        """The names on offer: the operator's folder, then the allowed hub ids, then the Hugging Face cache of this machine."""
        configs = self.settings.folder.glob("*/config.json") if self.settings.folder.is_dir() else ()
        cached = _cached() if self.settings.paths else {}
        allowed = self.settings.hub if isinstance(self.settings.hub, dict) else ()
        return tuple(dict.fromkeys([*sorted(config.parent.name for config in configs), *allowed, *sorted(cached)]))

    def allow(self, name: str) -> None:
        """Check that a user of the pages may load a model of this name; `get` from Python does not check it.

        Raises:
            ModelError: it is not in `names`, and the settings allow no others.
        """
        name = name.strip()
        on_hub = self.settings.hub is True and bool(_HUB_ID.fullmatch(name)) and not Path(name).exists()
        if not (self.settings.paths or name in self.names() or name in our_models() or on_hub):
            raise self._unknown(name)

    def get(self, name: str, device: str = "") -> LoadedModel:
        """The model of this name on a device of torch, loaded once while it stays in memory; empty: on the CPU.

        Raises:
            ModelError: there is no such model, or it cannot be loaded here.
        """
        key = f"{name} on {device}" if device else name
        with self._guard:
            if key in self._loaded:
                self._loaded.move_to_end(key)
                self._used[key] = monotonic()
                return self._loaded[key]
            lock = self._loading.setdefault(key, Lock())
        with lock:  # other callers for this model wait; callers for a loaded model do not
            with self._guard:
                if key in self._loaded:
                    return self._loaded[key]
            try:
                loaded = self._unpickled(key) or self._load(name, device)
                with self._guard:
                    self._loaded[key], self._used[key] = loaded, monotonic()
                    while len(self._loaded) > 1 and self._n_bytes() > self.settings.kept_mb * 2**20:
                        self._drop_oldest()
            finally:
                with self._guard:
                    self._loading.pop(key, None)
            return loaded

    def for_jobs(self) -> tuple[dict[str, bytes], list[LoadedModel]]:
        """The loaded models whose weights are shared, as `hold` takes them in another process; and the models, which must live until it ends."""
        with self._guard:
            loaded = dict(self._loaded) if self.settings.shared else {}
        for key, model in loaded.items():
            if key not in self._pickled or self._pickled[key][0] != model.uid:
                with suppress(Exception):  # a model of a family that cannot be pickled is loaded by each job
                    self._pickled[key] = model.uid, jobs.pickled(model)
        return {key: self._pickled[key][1] for key in loaded if key in self._pickled}, [*loaded.values()]

    def _unpickled(self, key: str) -> LoadedModel | None:
        if key not in self._adopted:
            return None
        from attention.models import recorder, running

        recorder.register()
        running.silence_warnings()
        loaded: LoadedModel = pickle.loads(self._adopted[key])
        return loaded

    def drop_idle(self) -> bool:
        """Drops the model that was used longest ago, unless that was just now; whether there was one."""
        with self._guard:
            oldest = next(iter(self._loaded), None)
            if oldest is None or monotonic() - self._used[oldest] < _IDLE_SECONDS:
                return False
            self._drop_oldest()
            return True

    def _n_bytes(self) -> int:
        return sum(loaded.nbytes for loaded in self._loaded.values())

    def _drop_oldest(self) -> None:
        key, dropped = self._loaded.popitem(last=False)
        del self._used[key]
        self._pickled.pop(key, None)
        # Cached traces have views of its projections, which would keep its storage in memory, uncounted.
        addresses = {tensor.untyped_storage().data_ptr() for tensor in dropped.model.parameters()}
        CACHE.discard_values(partial(_refers_to, dropped.uid, addresses))
        del dropped
        gc.collect()  # a model is full of reference cycles

    def _check_memory(self, folder: Folder, name: str) -> None:
        """Free memory for a model before its weights are read, by dropping other loaded models if necessary."""
        needs = folder.needs + missing_bytes()
        while missing := self.settings.make_room(needs):
            with self._guard:
                if missing > self._n_bytes():
                    break  # dropping all of them would not be enough
                self._drop_oldest()
        if missing:
            raise ModelError(
                f"{name} needs {needs / 2**20:,.0f} MB of memory, and this server has {max(0, needs - missing) / 2**20:,.0f} MB left: "
                "choose a smaller model, come back in a minute, or give the server more memory (LAB_MEMORY_MB, or its container's)."
            )

    def _load(self, name: str, device: str) -> LoadedModel:
        from attention.models.loading import load

        try:
            path = self.folder(name)
            folder = check_folder(path, name, self.settings.most_mb)
        except (OSError, RuntimeError) as error:  # too long a name, no permission, or an unknown home directory
            raise ModelError(
                f"A model is a folder that may be read here; {name[:80]!r} may not: check its name."
            ) from error
        with _LOADING:
            self._check_memory(folder, name)
            return load(folder, name, _about(path, name), device, self.settings.shared)

    def inputs(self, name: str) -> DeclaredInputs:
        """What the model of a name reads: a text, a picture or both. One that is not on this machine yet counts as a model of texts."""
        with self._guard:
            loaded = self._loaded.get(name)
        if loaded is not None:
            return _inputs_of(loaded)
        try:
            path = self._local_path(name)
        except (OSError, RuntimeError, ModelError):  # `get` says why
            path = None
        return TEXT_ALONE if path is None else declared_inputs(path)

    def folder(self, name: str) -> Path:
        """The folder of a model, by its name; downloaded where that is allowed.

        Raises:
            ModelError: there is none.
        """
        path, name = self._local_path(name), name.strip()
        if path is not None:
            return path
        hub = self.settings.hub
        if hub is True or (isinstance(hub, dict) and name in hub):
            return _download(name, hub[name] if isinstance(hub, dict) else None, self.settings.most_mb)
        raise self._unknown(name)

    def _local_path(self, name: str) -> Path | None:
        name = name.strip()
        if not name or len(name) > _LONGEST_NAME or "\0" in name:  # no folder has such a name
            raise ModelError(f"A model is named by a folder or one of the list; got {name[:40]!r}: choose one.")
        in_folder = self.settings.folder / name
        if "/" not in name and "\\" not in name and name not in (".", "..") and in_folder.is_dir():
            return in_folder
        if (path := our_folder(name) or _cached().get(name)) is not None:
            return path
        path = Path(name).expanduser()
        return path if path.is_dir() else None

    def _unknown(self, name: str) -> ModelError:
        if self.settings.paths and Path(name).is_file():
            return ModelError(
                f"A model is a folder with config.json and *.safetensors; {name[:80]} is a file: give the folder that it is in."
            )
        available = ", ".join(self.names()) or "none; “make models” fetches one"
        ours = f", or of ours ({', '.join(our_models())})" if our_models() else ""
        folder = "a folder of this machine, or " if self.settings.paths else ""
        advice = f"fetch it with `{_FETCH_COMMANDS[name]}`" if name in _FETCH_COMMANDS else "put it there"
        return ModelError(
            f"A model is {folder}one of those installed here ({available}){ours}; there is no {name[:80]}: choose another, or {advice}."
        )


def _inputs_of(loaded: LoadedModel) -> DeclaredInputs:
    reader = loaded.reader
    if reader is None:
        from attention.models.token_pieces import residues_of

        return of_text(residues_of(loaded.tokenizer))
    in_text, decodes = reader.token_id is not None, loaded.decodes_text
    instead = tuple(each.medium for each in loaded.readers[1:])
    return DeclaredInputs(reader.reads_text and not decodes, reader.medium, in_text or decodes, in_text, instead)


def _refers_to(uid: int, addresses: set[int], cached: Any) -> bool:
    """Whether a cached object is a run of the model with this uid, or a trace with tensors in one of its storages."""
    if getattr(cached, "model_uid", None) == uid:
        return True
    layers = cached.layers if isinstance(cached, Trace) else ()
    return any(
        layer.recorded[name].untyped_storage().data_ptr() in addresses
        for layer in layers
        for name in layer.shared_with_model
    )


def _download(name: str, revision: str | None, most_mb: int) -> Path:
    from huggingface_hub import model_info, snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError

    try:
        files = model_info(name, revision=revision, files_metadata=True).siblings or ()
        size = sum(file.size or 0 for file in files if file.rfilename.endswith(".safetensors"))
        if size <= most_mb * 2**20:
            return Path(snapshot_download(name, revision=revision, allow_patterns=list(_HUB_FILES)))
    except GatedRepoError as error:
        raise ModelError(
            f"{name} is gated, so its terms must be accepted: accept them on its page, and set HF_TOKEN for this server."
        ) from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise ModelError(
            f"{name} could not be fetched from the Hugging Face hub: check its name and this server's connection, or put its folder here."
        ) from error
    raise too_large(name, size, most_mb)


@cache
def _cached() -> dict[str, Path]:
    """The complete models in the Hugging Face cache of this machine, folder by id; scanned once."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repos = scan_cache_dir().repos
    except (CacheNotFound, OSError, ValueError):
        return {}
    folders = {}
    for repo in repos:
        for revision in sorted(repo.revisions, key=lambda revision: revision.last_modified):
            names = {file.file_name for file in revision.files}
            has_weights = any(name.endswith(".safetensors") for name in names)
            if repo.repo_type == "model" and "config.json" in names and has_weights:
                folders[repo.repo_id] = revision.snapshot_path
    return folders


def _about(path: Path, name: str) -> str:
    if path.parent.name == "snapshots":  # in the Hugging Face cache, each revision has a folder
        return f"{name} at revision {path.name[:12]}."
    try:
        about = json.loads((path / ABOUT_FILE).read_text(encoding="utf-8"))["about"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return str(about)[:300]


LIBRARY = Library(Settings())
"""Process-wide model registry."""


def in_job(
    settings: Settings, models: dict[str, bytes], function: Callable[..., Iterator[_T]], *args: Any
) -> Iterator[_T]:
    """What a function yields that may use the models of another process: its settings, and the models of `Library.for_jobs`."""
    LIBRARY.hold(settings, models)
    yield from function(*args)


PARTS = (  # each takes at most a second
    "transformers",
    "sympy",
    "torch._dynamo",
    "transformers.modeling_utils",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "attention.models.loading",
    "attention.models.forward_pass",
)
"""The modules that models need, which take seconds to import."""
_LAST_LARGE = "transformers.modeling_utils"


def missing_bytes() -> int:
    """The bytes of memory that the missing imports will take."""
    return 0 if _LAST_LARGE in sys.modules else 80 * 2**20


def import_parts() -> Iterator[str]:
    """Import the modules that models need, one by one; yields the name of each before its import."""
    for name in PARTS:
        yield name
        import_module(name)
