"""Files in class folders, or flat: runs of them stand for the objects that other formats have."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from shardstream.errors import UnsupportedError
from shardstream.formats.contract import ObjectListing, Recognized, SourceObject
from shardstream.formats.files.names import file_column, key_of, kind_of
from shardstream.formats.scans.choosing import choose
from shardstream.formats.scans.rows import PIECE, ScannedRows
from shardstream.names.splits import refuse_splits
from shardstream.names.strays import find_stray
from shardstream.pack.sources.media import is_media, is_picture, suffix_of
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Column
from shardstream.storage.base.store import ObjectMeta
from shardstream.text import in_one_line, valid_unicode

_SHOWN = 3
_PAGES = ("html", "htm", "xhtml")  # pages that are meant to be pages
_LOOKED_AT = 64  # files beside images that may be placeholders: annotations are few
# What holds many samples, or stands for other data: a folder with one of these is never taken for one of pictures.
_CONTAINERS = frozenset((
    *("tar", "tgz", "zip", "gz", "bz2", "xz", "zst", "7z", "rar", "mds", "rec", "idx", "tfrecord", "tfrecords"),
    *("mdb", "lmdb", "parquet", "arrow", "feather", "orc", "avro", "npy", "npz", "h5", "hdf5", "beton", "bin"),
    *("lance", "zarr", "zarray", "array_record", "riegeli", "pkl", "pickle", "pt", "pth", "safetensors", "msgpack"),
    *("jsonl", "ndjson", "ffcv", "db", "sqlite", "db3"),
))  # fmt: skip


def recognised(listing: ObjectListing) -> Recognized | None:
    """The pictures of a listing; ``None`` where there is none, or anything that may hold other data.

    Raises:
        FormatError: A class folder is a link.
        PlaceholderError: A file beside the images is a Git LFS pointer or a web page.
        UsageError: There are several splits.
    """
    if not listing.named:
        _leave_out_folders(listing)
    shown = [one for one in listing.objects if not one.path.endswith("/")]
    if any(suffix_of(one.path) in _CONTAINERS or ".tfrecord" in one.path for one in shown):
        return None
    flat = listing.named
    folders = set() if flat else {one.path.partition("/")[0] for one in shown if "/" in one.path}
    if not any(is_picture(suffix_of(one.path)) for one in shown):
        return None
    if not flat:
        folders |= _empty_folders(listing)
    refuse_splits(listing.url, folders)
    taken, left = list[ObjectMeta](), list[str]()
    for one in shown:
        if is_picture(suffix_of(one.path)) and (not folders or "/" in one.path):
            taken.append(one)
        else:
            left.append(one.path)
    if not taken:
        return None
    _refuse_placeholders(listing, left)
    # By their bytes, as `pack` has them: the same in a folder and in a bucket that holds a copy of it.
    taken.sort(key=lambda one: os.fsencode(one.path))
    classes = sorted(map(valid_unicode, folders))
    numbers = {name: classes.index(valid_unicode(name)) for name in folders}
    kind = kind_of({suffix_of(one.path) for one in taken}, url=listing.url)
    # Of a fixed length: a file more changes those that come after it only.
    objects = (
        _run(taken[begin : begin + PIECE], numbers, {"type": str(kind.type), **_chosen(listing)})
        for begin in range(0, len(taken), PIECE)
    )
    return Recognized(tuple(objects), tuple(classes) or None, _notes(taken, left, folders))


def _refuse_placeholders(listing: ObjectListing, left: Sequence[str]) -> None:
    """Refuse images beside a file that stands for another one: it may be their annotations.

    Raises:
        PlaceholderError: One of the first files that are no images is such a file.
    """
    for path in [path for path in left if suffix_of(path) not in _PAGES][:_LOOKED_AT]:
        found = listing.placeholder(path)
        if found is not None:
            raise found


def _leave_out_folders(listing: ObjectListing) -> None:
    """Leave out class folders ``_name`` without an image, audio or video file."""
    inside = [(one.path.partition("/")[0], one.path) for one in listing.objects if one.path.startswith("_")]
    classes = {folder for folder, path in inside if folder != path and is_media(suffix_of(path))}
    dropped = {folder for folder, path in inside if folder != path} - classes
    if dropped:
        listing.leave_out(lambda path: folder if (folder := path.partition("/")[0]) in dropped else None)


def _empty_folders(listing: ObjectListing) -> set[str]:
    """Folders of this machine in which nothing was listed: they are classes, too.

    Raises:
        FormatError: One is a link, which listings do not follow.
    """
    root = listing.store.file_of("")
    found = set[str]()
    if root is None:
        return found
    with os.scandir(root) as entries:
        for entry in entries:
            if not entry.name.startswith("_") and find_stray(entry.name) is None and entry.is_dir():
                if entry.is_symlink():
                    raise UnsupportedError(
                        f"the class folder {in_one_line(entry.name)} is a link, and these are not followed",
                        url=listing.url,
                        hint="give the folder that holds the files, or `shardstream pack` it, which follows links",
                    )
                found.add(entry.name)
    return found


def _notes(taken: Sequence[ObjectMeta], left: Sequence[str], folders: set[str]) -> tuple[str, ...]:
    notes = []
    if left:
        kinds = Counter("beside the class folders" if is_picture(suffix_of(path)) else "no pictures" for path in left)
        told = " and ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
        names = ", ".join(in_one_line(valid_unicode(path)) for path in left[:_SHOWN])
        notes.append(f"Left out: files that are {told} ({names}{', ...' if len(left) > _SHOWN else ''}).")
    if not folders and any("/" in one.path for one in taken):
        notes.append("Without labels: files were chosen by name, not as class folders.")
    return tuple(notes)


def _chosen(listing: ObjectListing) -> dict[str, Any]:
    return {"chosen": listing.chosen} if listing.chosen else {}


def _run(files: Sequence[ObjectMeta], numbers: Mapping[str, int], known: Mapping[str, Any]) -> SourceObject:
    """Some files as what stands for an object: called as the first of them, and as large as all."""
    about: dict[str, Any] = {**known, "files": [[one.path, one.size, one.version] for one in files]}
    if numbers:
        about["labels"] = {name: numbers[name] for name in sorted({one.path.partition("/")[0] for one in files})}
    return SourceObject(files[0].path, sum(one.size for one in files), about)


def scanned(about: Mapping[str, Any], url: str) -> Iterator[ScannedRows]:
    """The rows of a run of files, which messages call so."""
    files, labels = about["files"], about.get("labels")
    paths = [path for path, _, _ in files]
    kind = FieldType.parse(about["type"])
    columns: tuple[Column, ...] = (file_column(str(kind), kind, paths, [size for _, size, _ in files]),)
    if labels is not None:
        values = np.array([labels[path.partition("/")[0]] for path in paths], np.int64)
        columns = (Column("cls", FieldType.parse("int64"), values=values), *columns)
    yield ScannedRows([key_of(path, 0) for path in paths], choose(columns, about.get("chosen", {}), url))
