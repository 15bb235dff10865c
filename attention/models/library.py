"""The models of this machine: which there are, and those in memory, kept up to a bound and loaded once for all who ask."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from attention.errors import ModelError
from attention.formula.kept import KEPT
from attention.formula.trace import Trace
from attention.models import imports

if TYPE_CHECKING:
    from attention.models.checking import Folder
    from attention.models.loaded import Loaded

ABOUT = "lab.json"
"""A file in a model's folder, {"about": a line that is shown with it}."""

_HUB_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")
BROUGHT = {"all-MiniLM-L6-v2": "make models", "SmolLM2-135M-Instruct": "make models ALL=1"}
"""What `.ci/get_models.py` brings, and how it is asked to."""

# transformers 5.23 patches torch.nn.init and its own classes while it loads: two at once would leave the patches for good.
_LOADING = Lock()
_LONGEST_NAME = 300  # characters
_ID = re.compile(r"\w[\w.-]{0,95}(/\w[\w.-]{0,95})?", re.ASCII)  # of the hub


@dataclass(frozen=True)
class Settings:
    """What an operator allows.

    Attributes:
        folder: of model folders, all offered by name.
        paths: whether a visitor may name any folder of this machine, and is offered what its Hugging Face cache has.
        hub: whether any id may be downloaded; or those that may, each with its revision.
        most_mb: of the weights of one model.
        kept_mb: of the weights of all loaded models; what was asked for longest ago goes first.
        make_room: frees memory for so many bytes, and returns how many are missing even then.
    """

    folder: Path = Path("models")
    paths: bool = True
    hub: bool | dict[str, str] = False
    most_mb: int = 4096
    kept_mb: int = 4096
    make_room: Callable[[int], int] = lambda _: 0


class Library:
    """The models that can be asked for by name."""

    def __init__(self, settings: Settings) -> None:
        self._changing = Lock()
        self.hold(settings)

    def hold(self, settings: Settings) -> None:
        """Forgets what is loaded, and goes by these settings from now on."""
        with self._changing:
            self.settings = settings
            self._loaded: OrderedDict[str, Loaded] = OrderedDict()
            self._loading: dict[str, Lock] = {}

    @property
    def offers(self) -> bool:
        """Whether anybody can ask for a model here at all."""
        return bool(self.settings.hub or self.settings.paths or self.names())

    def names(self) -> tuple[str, ...]:
        """What is offered by name: the operator's folder, then the hub ids, then what the cache of this machine has."""
        found = self.settings.folder.glob("*/config.json") if self.settings.folder.is_dir() else ()
        cached = _cached() if self.settings.paths else {}
        allowed = self.settings.hub if isinstance(self.settings.hub, dict) else ()
        return tuple(dict.fromkeys([*sorted(one.parent.name for one in found), *allowed, *sorted(cached)]))

    def allow(self, name: str) -> None:
        """Checks that a visitor may ask for a model of that name; whoever calls `get` from Python may ask for any.

        Raises:
            ModelError: it is none of the list, and no other may be named.
        """
        name = name.strip()
        anywhere = self.settings.hub is True and bool(_ID.fullmatch(name)) and not Path(name).exists()
        if not (self.settings.paths or name in self.names() or anywhere):
            raise self._unknown(name)

    def get(self, name: str) -> Loaded:
        """The model of that name, loaded once as long as it is kept.

        Raises:
            ModelError: there is none, or it cannot be loaded here.
        """
        with self._changing:
            if name in self._loaded:
                self._loaded.move_to_end(name)
                return self._loaded[name]
            lock = self._loading.setdefault(name, Lock())
        with lock:  # others who ask for it wait, and who asks for another that is there does not
            with self._changing:
                if name in self._loaded:
                    return self._loaded[name]
            try:
                loaded = self._load(name)
                with self._changing:
                    self._loaded[name] = loaded
                    self._make_room()
            finally:
                with self._changing:
                    self._loading.pop(name, None)
            return loaded

    def _make_room(self) -> None:
        most = self.settings.kept_mb * 2**20
        while len(self._loaded) > 1 and sum(one.nbytes for one in self._loaded.values()) > most:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, gone = self._loaded.popitem(last=False)
        # Its traces have views of its projections, which would keep the whole in memory, counted by nobody.
        KEPT.let_go(partial(_borrows, {one.untyped_storage().data_ptr() for one in gone.model.parameters()}))

    def _check_memory(self, folder: Folder, name: str) -> None:
        """Makes room for a model before one of its weights is read; other models that are loaded give way.

        Raises:
            ModelError: it does not fit.
        """
        needs = folder.needs + imports.missing_bytes()
        while short := self.settings.make_room(needs):
            with self._changing:
                if short > sum(one.nbytes for one in self._loaded.values()):
                    break  # without all of them it would not fit either
                self._drop_oldest()
        if short:
            raise ModelError(
                f"{name} needs {needs / 2**20:,.0f} MB of memory, and this server has {max(0, needs - short) / 2**20:,.0f} MB left: "
                "choose a smaller model, come back in a minute, or give the server more memory (LAB_MEMORY_MB, or its container's)."
            )

    def _load(self, name: str) -> Loaded:
        from attention.models.checking import checked
        from attention.models.loading import load

        try:
            path = self._path(name)
            folder = checked(path, name, self.settings.most_mb)
        except (
            OSError,
            RuntimeError,
        ) as error:  # longer than a name may be, not for this server to read, of no known person
            raise ModelError(
                f"A model is a folder that this server may read; it may not read {name[:80]!r}: check its name."
            ) from error
        with _LOADING:
            self._check_memory(folder, name)
            return load(folder, name, _about(path, name))

    def _path(self, name: str) -> Path:
        """The folder that is meant by a name.

        Raises:
            ModelError: none is.
        """
        name = name.strip()
        if _far_too_long(name):
            raise ModelError(f"A model is named by a folder or one of the list; got {name[:40]!r}: choose one.")
        own = self.settings.folder / name
        if "/" not in name and "\\" not in name and name not in (".", "..") and own.is_dir():
            return own
        cached = _cached()
        if name in cached:
            return cached[name]
        path = Path(name).expanduser()
        if path.is_dir():
            return path
        hub = self.settings.hub
        if hub is True or (isinstance(hub, dict) and name in hub):
            return _download(name, hub[name] if isinstance(hub, dict) else None, self.settings.most_mb)
        raise self._unknown(name)

    def _unknown(self, name: str) -> ModelError:
        there = ", ".join(self.names()) or "none; “make models” brings one"
        how = "a folder of this machine, or " if self.settings.paths else ""
        get = f"bring it with `{BROUGHT[name]}`" if name in BROUGHT else "put it there"
        return ModelError(
            f"A model is {how}one of those that are here ({there}); there is no {name[:80]}: choose another, or {get}."
        )


def _far_too_long(name: str) -> bool:
    """Whether it is nothing that a folder could be called."""
    return not name or len(name) > _LONGEST_NAME or "\0" in name


def _borrows(numbers: set[int], kept: Any) -> bool:
    """Whether something kept is a trace that has numbers of a model, by where these lie."""
    layers = kept.layers if isinstance(kept, Trace) else ()
    return any(layer.recorded[name].untyped_storage().data_ptr() in numbers for layer in layers for name in layer.lent)


def _download(name: str, revision: str | None, most_mb: int) -> Path:
    """The folder of a model of the hub, fetched unless its weights are too large already as a file."""
    from huggingface_hub import model_info, snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError

    from attention.models.checking import too_large

    try:
        files = model_info(name, revision=revision, files_metadata=True).siblings or ()
        size = sum(one.size or 0 for one in files if one.rfilename.endswith(".safetensors"))
        if size <= most_mb * 2**20:
            return Path(snapshot_download(name, revision=revision, allow_patterns=list(_HUB_FILES)))
    except GatedRepoError as error:
        raise ModelError(
            f"{name} is only given to those who have agreed to its terms: agree on its page, and set HF_TOKEN for this server."
        ) from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise ModelError(
            f"{name} could not be fetched from the Hugging Face hub: check its name and this server's connection, or put its folder here."
        ) from error
    raise too_large(name, size, most_mb)


@cache
def _cached() -> dict[str, Path]:
    """The models in the Hugging Face cache of this machine that have what is needed, by their ids; looked up once."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repos = scan_cache_dir().repos
    except (CacheNotFound, OSError, ValueError):
        return {}
    found = {}
    for repo in repos:
        for revision in sorted(repo.revisions, key=lambda one: one.last_modified):
            names = {file.file_name for file in revision.files}
            if (
                repo.repo_type == "model"
                and "config.json" in names
                and any(name.endswith(".safetensors") for name in names)
            ):
                found[repo.repo_id] = revision.snapshot_path
    return found


def _about(path: Path, name: str) -> str:
    if path.parent.name == "snapshots":  # of the hub's cache, where each revision has a folder
        return f"{name} as of its revision {path.name[:12]}."
    try:
        said = json.loads((path / ABOUT).read_text(encoding="utf-8"))["about"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return str(said)[:300]


LIBRARY = Library(Settings())
"""The one that everybody asks."""
