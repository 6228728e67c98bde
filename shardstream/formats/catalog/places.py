"""Files of other libraries among the places that a user names: those of one place are one data set."""

from __future__ import annotations

import itertools
import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shardstream.errors import UsageError
from shardstream.formats.catalog.spec import GLOB
from shardstream.formats.scans.names import folder_of_data
from shardstream.pack.sources.lists.mpdataset import LIST_OF_MPDATASET
from shardstream.storage import PathOrUrl, locate
from shardstream.storage.base.address import absolute

# A name that is surely one of a file: a store over a network is not asked what each of ten thousand names is.
_FILE = re.compile(
    r".*(\.(tar|mds|rec|mdb|lmdb|zip|npy|npz|bin|idx|beton|parquet|arrow|feather|h5|hdf5|gz|zst|bz2|xz"
    r"|tsv|csv|txt|lst|json|jsonl|ndjson|yaml|yml)"
    r"|\.tfrecords?|\.tfrecords?-[0-9-]+(-of-[0-9]+)?|-[0-9]{5}-of-[0-9]{5})",
    re.IGNORECASE,
)


def is_file(path: str) -> bool:
    """Whether a path or URL names files, and not a folder: what is there says so, else its name."""
    if "://" not in path and os.path.exists(path):
        return os.path.isfile(path)
    path, _ = _cut(path)
    return bool(GLOB & set(path.rpartition("/")[2])) or _FILE.fullmatch(path) is not None


def grouped(paths: Sequence[PathOrUrl]) -> list[tuple[PathOrUrl, tuple[str, ...]]]:
    """Roots with the names of files below them; a place that is not a file is a root by itself.

    A URL's query stays with the root: it may be a key, and names are written down.

    >>> grouped(["s3://bucket/a/x-0.tar", "s3://bucket/b/x-1.tar", "s3://bucket/ours"])
    [('s3://bucket', ('a/x-0.tar', 'b/x-1.tar')), ('s3://bucket/ours', ())]
    """
    texts = [os.fspath(path) if isinstance(path, str | os.PathLike) else None for path in paths]
    are_files = [text is not None and is_file(text) for text in texts]
    files = [_cut(text) for text, one in zip(texts, are_files, strict=True) if text is not None and one]
    if not files:
        return [(path, ()) for path in paths]
    names = [name if "://" in name else absolute(name) for name, _ in files]
    root, query = _root(names), files[0][1]
    if any(other != query for _, other in files):
        raise UsageError(
            "files whose URLs have different signatures cannot be one data set",
            url=locate(names[0]).url,
            hint="sign their folder, or give credentials by storage_options",
        )
    out: list[tuple[PathOrUrl, tuple[str, ...]]] = []
    below = tuple(name[len(root) :].lstrip("/") for name in names)
    for path, one in zip(paths, are_files, strict=True):
        if not one:
            out.append((path, ()))
        elif below:
            out.append(((root or "/") + query, below))
            below = ()
    return out


class Rooted(NamedTuple):
    """Files of another library, and how they are read.

    Attributes:
        place: The folder or URL that all lie below.
        names: Their names there.
        options: Of reading them.
    """

    place: PathOrUrl
    names: tuple[str, ...]
    options: Mapping[str, str] | None


def rooted(place: PathOrUrl, names: tuple[str, ...], options: Mapping[str, str] | None) -> Rooted:
    """The same below a folder that also holds the ``root`` of the options, which names in a list are taken from.

    The root is then one of that folder; a user writes it as a path or URL, or as it lies from the folder of the list.

    >>> rooted("/lists", ("train.csv",), {"root": "../images/a"})
    Rooted(place='/', names=('lists/train.csv',), options={'root': 'images/a'})

    Raises:
        UsageError: It lies in another store.
    """
    if not options or "root" not in options or not isinstance(place, str | os.PathLike):
        return Rooted(place, names, options)
    base, query = _cut(os.fspath(place))
    remote = "://" in base
    folder = (base if remote else absolute(base)).rstrip("/").split("/")
    names = names or (LIST_OF_MPDATASET,)  # of a folder that is no list itself
    text = options["root"]
    if remote:
        host, path = folder[:3], folder[3:]
        parts = text.rstrip("/").split("/") if "://" in text else [*host, *_normal([*path, text])]
    else:
        parts = os.path.normpath(os.path.join("/".join(folder) or "/", text)).rstrip("/").split("/")
    common = _common(folder, parts)
    if len(common) < (3 if remote else 1):
        raise UsageError(
            f"root={text!r} lies in another store", url=locate(base).url, hint="give one of the same store"
        )
    below = "/".join(folder[len(common) :])
    moved = tuple(f"{below}/{name}" if below else name for name in names)
    return Rooted(("/".join(common) or "/") + query, moved, {**options, "root": "/".join(parts[len(common) :]) or "."})


def _normal(parts: Sequence[str]) -> list[str]:
    """The parts of the path of a URL, without ``..``."""
    return [part for part in posixpath.normpath(f"/{'/'.join(parts)}").split("/") if part]


def _common(first: Sequence[str], last: Sequence[str]) -> list[str]:
    """The parts that both begin with."""
    pairs = zip(first, last, strict=False)
    return [one for one, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)]


def _cut(path: str) -> tuple[str, str]:
    """A URL without its query, and the query; a path as it is."""
    base, mark, query = path.partition("?") if "://" in path else (path, "", "")
    return base, mark + query


def _root(files: Sequence[str]) -> str:
    """The folder that all are below."""
    parts = [folder_of_data(path).split("/") for path in files]
    common = _common(min(parts), max(parts))
    # With "://" the host is the third part; without, a first part that is empty.
    if ("://" in files[0] and len(common) < 3) or not common:
        raise UsageError(
            "files of several stores cannot be one data set",
            url=locate(files[0]).url,
            hint="open them one by one, and give the list",
        )
    return "/".join(common)
