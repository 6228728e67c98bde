"""Files of other libraries among the places that a user names: those of one place are one data set."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from shardstream.errors import UsageError
from shardstream.storage import PathOrUrl

_GLOB = frozenset("*?[")
# A name that is surely one of a file: a store over a network is not asked what each of ten thousand names is.
_FILE = re.compile(
    r".*(\.(tar|mds|rec|mdb|lmdb|zip|npy|npz|bin|idx|beton|parquet|arrow|feather|h5|hdf5|gz|zst|bz2|xz|tsv|csv|txt|lst)"
    r"|\.tfrecords?|\.tfrecords?-[0-9-]+(-of-[0-9]+)?|-[0-9]{5}-of-[0-9]{5})",
    re.IGNORECASE,
)


def is_file(path: str) -> bool:
    """Whether a path or URL names files, and not a folder: what is there says so, else its name."""
    if "://" not in path and os.path.exists(path):
        return os.path.isfile(path)
    return bool(_GLOB & set(path.rpartition("/")[2].partition("?sv=")[0])) or _FILE.fullmatch(path) is not None


def grouped(paths: Sequence[PathOrUrl]) -> list[tuple[PathOrUrl, tuple[str, ...]]]:
    """Roots with the names of files below them; a place that is no file is a root by itself.

    >>> grouped(["s3://bucket/a/x-0.tar", "s3://bucket/b/x-1.tar", "s3://bucket/ours"])
    [('s3://bucket', ('a/x-0.tar', 'b/x-1.tar')), ('s3://bucket/ours', ())]
    """
    files = [os.fspath(path) for path in paths if isinstance(path, str | os.PathLike) and is_file(os.fspath(path))]
    if not files:
        return [(path, ()) for path in paths]
    files = [path if "://" in path else os.path.abspath(path) for path in files]
    root = _root(files)
    out: list[tuple[PathOrUrl, tuple[str, ...]]] = []
    for path in paths:
        if not isinstance(path, str | os.PathLike) or not is_file(os.fspath(path)):
            out.append((path, ()))
        elif not any(names for _, names in out):
            out.append((root or "/", tuple(path[len(root) :].lstrip("/") for path in files)))
    return out


def _root(files: Sequence[str]) -> str:
    """The folder that all are below."""
    parts = [path.split("/")[:-1] for path in files]
    common = parts[0]
    for other in parts[1:]:
        length = next((i for i, (one, two) in enumerate(zip(common, other, strict=False)) if one != two), None)
        common = common[: min(len(common), len(other)) if length is None else length]
    root = "/".join(common)
    if ("://" in files[0] and len(common) < 3) or any(("://" in path) != ("://" in files[0]) for path in files):
        raise UsageError(
            "files of several stores cannot be one data set",
            url=files[0],
            hint="open them one by one, and give the list",
        )
    return root
