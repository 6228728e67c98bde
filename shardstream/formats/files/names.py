"""Names of files: what a list may name, which keys they give, and which type a suffix means."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from shardstream.errors import UnsupportedError
from shardstream.images.formats import BY_SUFFIX
from shardstream.pack.sources.media import is_picture
from shardstream.shards.field_names import usable_field
from shardstream.shards.fields import IMAGE, FieldType, type_of_extension
from shardstream.shards.index import Column
from shardstream.text import valid_unicode

_TEXT = "txt"


class Kind(NamedTuple):
    """What files of some suffixes become: the name of a field, and its type."""

    field: str
    type: FieldType


def kind_of(suffixes: Collection[str], *, url: str) -> Kind:
    """What files of these suffixes become together.

    Raises:
        FormatError: They are of several kinds, not all of which are pictures.
    """
    if all(map(is_picture, suffixes)):
        kinds = {BY_SUFFIX[suffix].type for suffix in suffixes}
        name = kinds.pop() if len(kinds) == 1 else IMAGE
        return Kind(name, FieldType.parse(name))
    kinds = {type_of_extension(suffix).name if suffix in ("text", "mp") else suffix for suffix in suffixes}
    if len(kinds) > 1 or "" in kinds:
        told = ", ".join(f".{suffix}" if suffix else "no suffix" for suffix in sorted(suffixes)[:6])
        raise UnsupportedError(
            f"the files of one column are of several kinds ({told})", url=url, hint="give a list for each, or pack them"
        )
    suffix = kinds.pop()
    return Kind(_TEXT if type_of_extension(suffix).name == "str" else usable_field(suffix), type_of_extension(suffix))


def key_of(path: str, common: int) -> str:
    """The key of a sample: its path without extension, and without the folder of so many letters that all share."""
    key = os.path.splitext(path[common:])[0]
    return key if key.isascii() else valid_unicode(key)


def below(root: str, folder: str, path: str) -> str | None:
    """The name below a root of what a list in one of its folders names; ``None`` where it does not lie there.

    >>> below("/data", "lists", "../a/1.jpg"), below("/data", "", "/data/b.jpg"), below("/data", "", "../c.jpg")
    ('a/1.jpg', 'b.jpg', None)
    """
    if path.startswith("/") or "://" in path:
        if not path.startswith(f"{root.rstrip('/')}/"):
            return None
        path, folder = path[len(root.rstrip("/")) + 1 :], ""
    if folder:
        path = f"{folder}/{path}"
    if "//" in path or "/." in path or path.startswith(".") or path.endswith("/"):
        path = posixpath.normpath(path.lstrip("/"))
    if not path or path in (".", "..") or path.startswith("../") or "\0" in path:
        return None
    return path


def file_column(name: str, kind: FieldType, paths: Iterable[str], sizes: Sequence[int] | None = None) -> Column:
    """A column of values that are these objects."""
    encoded = [path.encode("utf-8", "surrogateescape") for path in paths]
    return Column(
        name,
        kind,
        lengths=None if sizes is None else np.array(sizes, np.uint64),
        names=np.frombuffer(b"".join(encoded), np.uint8),
        name_ends=np.cumsum([len(one) for one in encoded], dtype=np.uint64),
    )
