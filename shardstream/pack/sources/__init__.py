"""Where samples come from.

===========  ===============================================================================
``base``     the contract: ``Source``, ``Part``, ``Item``, ``Reject``; what a file becomes
``lists``    lists: tab-separated lines or csv
``folders``  folders of class folders, flat folders
``columns``  which column of a list is what, headers, labels
``lines``    where the lines of a list begin, in numpy
``keys``     keys from paths, line numbers and columns
``tars``     WebDataset's tar files
``python``   sequences and iterables of dicts
``huggingface``  what is particular to data sets of Hugging Face
``stored``   data sets of ours, to be packed again
===========  ===============================================================================
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from shardstream.errors import SourceError, UsageError
from shardstream.pack.sources.base import File, Item, Part, Reject, Source, StreamSource
from shardstream.pack.sources.columns import LabelMode
from shardstream.pack.sources.folders import FolderSource
from shardstream.pack.sources.lists import ListSource
from shardstream.pack.sources.python import python_source
from shardstream.pack.sources.tars import is_tar, tar_source
from shardstream.storage import Transport

__all__ = ["File", "FolderSource", "Item", "LabelMode", "ListSource", "Part", "Reject", "Source", "open_source"]

_UNSUPPORTED = {
    **dict.fromkeys((".zip", ".gz", ".zst"), "an archive"),
    **dict.fromkeys((".parquet", ".arrow", ".jsonl", ".json", ".rec", ".mdb", ".tfrecord"), "a file of this kind"),
    **dict.fromkeys((".jpg", ".jpeg", ".png", ".webp"), "a single image"),
}


def open_source(
    source: Any,
    *,
    key: str = "path",
    labels: LabelMode | None = None,
    source_options: Mapping[str, Any] | None = None,
    transport: Transport = "auto",
) -> Source | StreamSource:
    """The source at a path, by what lies there: a folder, or a list (csv if its name ends in ``.csv``).

    Args:
        source: A path or a ``file://`` URL.
        key: How keys are made, see `KeyRule`.
        labels: ``"int"`` or ``"name"``; ``None`` means integers for lists and names for class folders.
        source_options: ``storage_options`` of the store that the source lies in.
        transport: The library that speaks to it.

    Raises:
        SourceError: There is nothing, or nothing that can be packed.
        UsageError: Arguments that do not go with this source.
    """
    if isinstance(source, Source | StreamSource):
        return source
    if not isinstance(source, str | os.PathLike):
        return python_source(source, key=key)
    if is_tar(os.fsdecode(source)):
        return tar_source(os.fsdecode(source), options=source_options, transport=transport)
    path = _local(source)
    if os.path.isdir(path):
        if labels == "int":
            raise UsageError("labels='int' is for lists", hint="class folders are numbered in sorting order")
        return FolderSource(path, key=key)
    if not os.path.exists(path):
        raise SourceError("there is no such list or folder", url=path, hint="check the path")
    kind = _UNSUPPORTED.get(os.path.splitext(path)[1].lower())
    if kind is not None:
        raise SourceError(
            f"{kind} cannot be packed", url=path, hint="pass a list (path<TAB>label a line, or csv), or a folder"
        )
    return ListSource(path, key=key, labels=labels)


def _local(source: str | os.PathLike[str]) -> str:
    text = os.fsdecode(source)
    if "://" not in text:
        return text
    parts = urlsplit(text)
    if parts.scheme != "file":
        raise UsageError(f"{parts.scheme}:// is not supported", url=text.split("?")[0], hint="use a local path")
    return unquote(parts.path)
