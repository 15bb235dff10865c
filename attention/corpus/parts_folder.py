"""A folder of parts, on this machine or anywhere that fsspec reaches: each part appears whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from uuid import uuid4

from attention.base.errors import FileError

_PARTS = "parts"


class PartsFolder:
    """The folder of a run.

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
        self._is_local = "file" in _protocols(self._files)
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
            name: of the file.
            content: of the file.
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


def _write_and_rename(path: Path, content: bytes, is_new: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # before the new name, so that a pulled plug leaves no empty part
        if is_new and _linked(aside, path):
            return
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def _linked(aside: Path, path: Path) -> bool:
    """Whether a file has a second name now, or another file had it before; false where the file system has no such names."""
    try:
        path.hardlink_to(aside)
    except FileExistsError:
        return True
    except OSError:
        return False
    return True


def _protocols(files: Any) -> tuple[str, ...]:
    return (files.protocol,) if isinstance(files.protocol, str) else tuple(files.protocol)
