"""A run over many texts: its plan, its chunks, one part for each in a folder, and the table of all."""

from __future__ import annotations

import json
import os
import re
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from attention.base.errors import ConfigError, FileError, ModelError
from attention.corpus.run_plan import RunPlan

if TYPE_CHECKING:
    from attention.corpus.chunk import Chunk
    from attention.corpus.digest import Digest
    from attention.models.loaded import LoadedModel

PLAN, _INFO, TABLE = "plan.json", "corpus.json", "heads.parquet"
_SAMPLE = 2000  # texts that the plan cuts into tokens
_MAP_LENGTHS = range(8, 25)  # tokens of the texts whose mean map is computed
_PARTS = "parts"
_PACKAGES = ("attention", "torch", "transformers", "tokenizers", "numpy")


class PartsFolder:
    """The folder of a run, on this machine or anywhere that fsspec reaches: each part appears whole or not at all.

    Attributes:
        url: a path of this machine, or a URL such as s3://bucket/heads.
    """

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        self.url = url
        try:
            self._files, self._root = url_to_fs(url)
        except (ValueError, ImportError, OSError) as error:
            raise FileError(
                f"A folder is a path, or a URL that fsspec opens, such as s3://bucket/heads; {url[:80]!r} is neither here (“{error}”): "
                "check it, or install what it needs."
            ) from error
        protocols = self._files.protocol  # one, or a tuple of its names
        self._is_local = "file" in ((protocols,) if isinstance(protocols, str) else protocols)
        self._errors = (OSError,) if self._is_local else (Exception,)  # each object store has errors of its own

    @property
    def absolute_url(self) -> str:
        """The URL that another process understands, whatever its current folder is."""
        return self._root if self._is_local else self.url

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""
        self._files.invalidate_cache()
        return bool(self._files.isfile(self._path(name)))

    def read(self, name: str) -> bytes:
        """The content of a file.

        Raises:
            FileError: it cannot be read.
        """
        try:
            return bytes(self._files.cat_file(self._path(name)))
        except self._errors as error:
            raise FileError(
                f"{self._path(name)} cannot be read ({getattr(error, 'strerror', None) or error}): run the command again."
            ) from error

    def write(self, name: str, content: bytes, is_new: bool = False) -> None:
        """Write a file, so that a reader sees all of it or nothing, whatever happens meanwhile.

        Args:
            is_new: on this machine, keep a file that another process has written meanwhile.

        Raises:
            FileError: it cannot be written.
        """
        try:
            if self._is_local:
                _write_and_rename(Path(self._path(name)), content, is_new)
            else:  # object stores show an object when it is complete
                self._files.pipe_file(self._path(name), content)
        except self._errors as error:
            raise FileError(
                f"{self._path(name)} cannot be written ({getattr(error, 'strerror', None) or error}): free some space, or choose another folder."
            ) from error

    def present(self) -> frozenset[int]:
        """The indices of the parts that are there."""
        self._files.invalidate_cache()
        folder = self._path(_PARTS)
        if not self._files.isdir(folder):
            return frozenset()
        names = (str(name).rsplit("/", 1)[-1] for name in self._files.ls(folder, detail=False))
        return frozenset(int(name[:-4]) for name in names if name.endswith(".npz") and name[:-4].isdigit())

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"


def part_name(index: int) -> str:
    """The name of the part of a chunk."""
    return f"{_PARTS}/{index:06}.npz"


def _write_and_rename(path: Path, content: bytes, is_new: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # before the new name, so that a pulled plug leaves no empty part
        if is_new:
            try:
                path.hardlink_to(aside)  # a second name, unless another file had it before
                return
            except FileExistsError:
                return
            except OSError:
                pass  # the file system has no such names
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def make_plan(loaded: LoadedModel, texts: Iterable[str], **options: Any) -> tuple[RunPlan, int]:
    """The plan of a run over some texts, and the estimated number of tokens; the texts are read once.

    Args:
        texts: as `TextFiles`.
        options: fields of `RunPlan`, such as `max_tokens`, `controls` and `finds`.

    Raises:
        ConfigError: an option is out of its range, or there is no text.
        ModelError: the model reads pictures, or its files cannot be read.
    """
    from attention.corpus.chunk import Tokenizer
    from attention.models.library import LIBRARY
    from attention.models.token_pieces import word_rule

    if loaded.reader is not None:
        raise ModelError(
            f"A run measures heads over texts; {loaded.name} reads {loaded.reader.medium.name}: choose a model of texts, or open it with {loaded.reader.medium.one} on the page Heads."
        )

    digest, sample, n_texts = sha256(), _Sample(_SAMPLE), 0
    for text in texts:
        digest.update(_with_length(text))
        sample.add(text)
        n_texts += 1
    if not n_texts:
        raise ConfigError("A run needs at least one text that is not empty; got none: check the files and the column.")
    folder = LIBRARY.folder(loaded.name)
    checked = RunPlan(
        loaded.name,
        _model_digest(folder),
        folder.name if folder.parent.name == "snapshots" and re.fullmatch("[0-9a-f]{40}", folder.name) else "",
        "float32",
        n_texts,
        digest.hexdigest(),
        0,
        versions=dict(versions()),
        words=word_rule(loaded.tokenizer).meaning,
        **options,
    )
    tokenizer = Tokenizer(loaded, checked.max_tokens)
    sequences, _ = tokenizer.sequences(0, sample.texts)
    lengths = Counter(len(sequence.ids) for sequence in sequences)
    shown = [length for length in lengths if length in _MAP_LENGTHS]
    map_length = max(shown, key=lambda length: (lengths[length], length), default=0)
    n_tokens = round(sum(length * count for length, count in lengths.items()) / len(sequences) * n_texts)
    return RunPlan(**{**checked.__dict__, "map_length": map_length}), n_tokens


def hold_plan(folder: PartsFolder, plan: RunPlan) -> None:
    """Write the plan into a new folder, or check that the folder has the parts of this plan.

    Raises:
        FileError: the folder belongs to another run.
    """
    if not folder.exists(PLAN):
        folder.write(PLAN, plan.to_json().encode(), is_new=True)
    theirs = _read_plan(folder)  # also of a process that began at the same time
    if difference := plan.difference(theirs):
        raise FileError(
            f"{folder.url} has the parts of another run: {difference}. Choose another folder with -o, or delete this one."
        )


def _read_plan(folder: PartsFolder) -> RunPlan:
    """The plan of a folder.

    Raises:
        FileError: it has none.
    """
    if not folder.exists(PLAN):
        raise FileError(f"{folder.url} should be the folder of a run, with {PLAN}; there is none: check its name.")
    return RunPlan.from_json(folder.read(PLAN).decode("utf-8", "replace"), f"{folder.url}/{PLAN}")


def _chunks(plan: RunPlan, texts: Iterable[str]) -> Iterator[Chunk]:
    """The chunks of a run, in order.

    Raises:
        FileError: the texts are not those of the plan: a file was changed.
    """
    from attention.corpus.chunk import Chunk

    digest, batch, index = sha256(), list[str](), 0
    for text in texts:
        digest.update(_with_length(text))
        batch.append(text)
        if len(batch) == plan.chunk_size:
            yield Chunk(index, index * plan.chunk_size, tuple(batch))
            batch, index = [], index + 1
    if batch:
        yield Chunk(index, index * plan.chunk_size, tuple(batch))
    if digest.hexdigest() != plan.texts_digest:
        raise FileError(
            "The texts have changed since the run was planned: delete the folder, and run the command again."
        )


def missing_chunks(
    folder: PartsFolder, plan: RunPlan, texts: Iterable[str], shard: tuple[int, int], report: Callable[[int], None]
) -> Iterator[Chunk]:
    """The chunks of a shard that have no part yet, in order; the others are reported.

    Raises:
        FileError: as for `chunks`.
    """
    present = folder.present()  # one list instead of a question for each
    for chunk in _chunks(plan, texts):
        if chunk.index % shard[1] == shard[0]:
            if chunk.index not in present:
                yield chunk
            else:
                report(len(chunk.texts))


def scan_part(url: str, plan: RunPlan, chunk: Chunk, device: str = "") -> None:
    """Compute a chunk and write its part, unless the part is there: the function that all processes and machines run.

    Raises:
        ModelError: the model is missing here, or is another one than in the plan.
        FileError: the part cannot be written.
    """
    from attention.corpus.chunk import compute_chunk

    folder = PartsFolder(url)
    if folder.exists(part_name(chunk.index)):
        return
    with one_thread():
        digest = compute_chunk(_model(plan.model, plan.model_digest, device), plan, chunk)
    folder.write(part_name(chunk.index), digest.to_bytes())


def scan(
    plan: RunPlan,
    texts: Iterable[str],
    url: str,
    shard: tuple[int, int] = (0, 1),
    report: Callable[[int], None] = lambda _: None,
    device: str = "",
) -> None:
    """Compute the missing parts of a run, one after the other.

    Args:
        texts: of the plan, from the start.
        url: the folder of the run.
        shard: (i, n): only the chunks i, i + n, i + 2 n, …
        report: receives the number of texts of each chunk that is done.
        device: of torch; the CPU if empty.

    Raises:
        FileError: as for `hold_plan` and `chunks`.
        ModelError: as for `scan_part`.
    """
    folder = PartsFolder(url)
    hold_plan(folder, plan)
    for chunk in missing_chunks(folder, plan, texts, shard, report):
        scan_part(url, plan, chunk, device)
        report(len(chunk.texts))


def merge(url: str) -> dict[str, Any]:
    """Merge the parts of a folder in their order into heads.parquet, and write corpus.json; the content of the latter.

    Raises:
        FileError: parts are missing or damaged.
    """
    from attention.corpus import heads_table

    folder = PartsFolder(url)
    plan = _read_plan(folder)
    present = folder.present()
    missing = [index for index in range(plan.n_chunks) if index not in present]
    if missing:
        raise FileError(
            f"{len(missing):,} of {plan.n_chunks:,} parts are missing in {url}, the first is {part_name(missing[0])}: run the command again."
        )
    total: Digest | None = None
    for part in _parts(folder, plan):
        total = part if total is None else total.merge(part, plan.top)
    assert total is not None  # a plan has a text
    info = heads_table.info(plan, total)
    folder.write(TABLE, heads_table.parquet(plan, total, info))
    folder.write(_INFO, json.dumps(info, indent=1, sort_keys=True).encode())
    return info


def _parts(folder: PartsFolder, plan: RunPlan) -> Iterator[Digest]:
    """The parts in their order; the next two are read meanwhile.

    They are unpacked in this thread: NumPy parses the header of an array with `ast`, whose depth counter two threads of Python 3.11 share.
    """
    from attention.corpus.digest import Digest

    waiting = deque[Future[bytes]]()
    with ThreadPoolExecutor(2) as pool:
        for index in range(plan.n_chunks + 2):
            if index < plan.n_chunks:
                waiting.append(pool.submit(folder.read, part_name(index)))
            if index >= 2 and waiting:
                yield Digest.from_bytes(waiting.popleft().result(), f"{folder.url}/{part_name(index - 2)}")


@lru_cache(maxsize=8)
def _model_digest(folder: Path) -> str:
    """SHA-256 of the files of a model: its weights, its config, and its tokenizer.

    Raises:
        ModelError: a file cannot be read.
    """
    digest = sha256()
    files = [file for suffix in ("safetensors", "json", "model", "txt") for file in folder.glob(f"*.{suffix}")]
    for file in sorted(filter(Path.is_file, files), key=lambda file: file.name):
        digest.update(struct.pack("<QQ", len(file.name.encode()), file.stat().st_size) + file.name.encode())
        try:
            with file.open("rb") as stream:
                while block := stream.read(2**22):
                    digest.update(block)
        except OSError as error:
            raise ModelError(f"{file} cannot be read ({error.strerror}): check its permissions.") from error
    return digest.hexdigest()


@contextmanager
def one_thread() -> Iterator[None]:
    """A context in which torch computes on one thread of this process: more would compete, and could change the last digits."""
    import torch

    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def _model(name: str, digest: str, device: str) -> LoadedModel:
    """The model of the plan, loaded once in each process."""
    from attention.models.library import LIBRARY

    if _model_digest(LIBRARY.folder(name)) != digest:
        raise ModelError(f"The files of {name} on this machine are not those of the plan: copy the same folder here.")
    return LIBRARY.get(name, device)


@cache
def versions() -> dict[str, str]:
    """The versions of the packages that decide the numbers, here."""
    from importlib.metadata import version

    from attention import __version__

    return {name: __version__ if name == "attention" else version(name) for name in _PACKAGES}


def _with_length(text: str) -> bytes:
    content = text.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(content)) + content


class _Sample:
    """At most `size` texts, evenly spread over an unknown number."""

    def __init__(self, size: int) -> None:
        self.texts: list[str] = []
        self._size, self._step, self._seen = size, 1, 0

    def add(self, text: str) -> None:
        if self._seen % self._step == 0:
            self.texts.append(text)
            if len(self.texts) > self._size:
                self.texts, self._step = self.texts[::2], 2 * self._step
        self._seen += 1
