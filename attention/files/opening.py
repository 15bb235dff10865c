"""A file from an untrusted source is opened by its extension: a text as a table or an alignment, everything else as an archive of arrays."""

from __future__ import annotations

from pathlib import PurePath

from attention.base.errors import FileError
from attention.files import archives, labelled
from attention.files.archives import Archive, quote

EXTENSIONS = (*archives.EXTENSIONS, ".csv", ".tsv", ".txt")
"""The extensions of files that are opened."""
# Libraries that are not installed read these.
_CONVERSIONS = {
    ".mat": "numpy.savez('attention.npz', weights=scipy.io.loadmat(path)['weights'])",
    ".h5": "numpy.savez('attention.npz', weights=h5py.File(path)['weights'][()])",
}
_CONVERSIONS[".hdf5"] = _CONVERSIONS[".h5"]


def open_file(name: str, content: bytes) -> Archive:
    """The contents of a file.

    Raises:
        FileError: another extension, or a damaged file.
    """
    ending = PurePath(name).suffix.lower()
    if ending not in EXTENSIONS:
        advice = (
            f"in Python, {_CONVERSIONS[ending]} makes one of these, with the name of your array in place of the second “weights”"
            if ending in _CONVERSIONS
            else "save it as one of these"
        )
        raise FileError(
            f"A file with attention ends in {', '.join(EXTENSIONS[:-1])} or {EXTENSIONS[-1]}; got {quote(name)}: {advice}."
        )
    if ending not in archives.EXTENSIONS:
        return labelled.read_table(quote(name), name, content)
    return (labelled.read_json(content) if ending == ".json" else None) or archives.open_archive(name, content)
