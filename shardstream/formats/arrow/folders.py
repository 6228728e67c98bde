"""Which objects of a listing are Arrow's, in the folders that ``datasets`` saves and keeps, and in others.

``save_to_disk`` writes ``state.json``, which names the data files, and ``dataset_dict.json`` above several splits. Its
cache has ``dataset_info.json`` beside ``NAME-SPLIT.arrow``, and ``cache-HASH.arrow`` for results of ``map`` and others.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from shardstream.errors import FormatError, UnsupportedError, UsageError
from shardstream.formats.arrow.messages import MAGIC, read_table
from shardstream.formats.arrow.rows import chosen_rows
from shardstream.formats.chunks.index_files import IndexEntry, check_names, is_below, json_object, shown
from shardstream.formats.contract import ObjectListing, SourceObject
from shardstream.formats.scans.names import accompanies
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.names.splits import several_splits
from shardstream.storage.base.store import ObjectMeta

SUFFIXES = (".arrow", ".arrows", ".feather")
STATE, INFO, DICT = "state.json", "dataset_info.json", "dataset_dict.json"
_RESULT = re.compile(r"(.*/)?(cache-[^/]*|tmp[a-z0-9_]{8}|indices)\.arrow")
_SPLITS = ("train", "training", "validation", "val", "valid", "dev", "test", "testing", "eval")
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Found:
    """The objects of a data set, in its own order, and what a user should know of it."""

    objects: tuple[SourceObject, ...]
    notes: tuple[str, ...] = ()


def find_objects(listing: ObjectListing, indices: str | None) -> Found | None:
    """The objects that hold rows; ``None`` where the listing is of another format.

    Args:
        listing: What there is.
        indices: The name of a file that says which rows are meant, if a user gave one.

    Raises:
        FormatError: What ``datasets`` wrote beside them is damaged, or of a kind that cannot be read.
        UsageError: There are several data sets or splits; lists their URLs.
        StorageError: They cannot be read.
    """
    if listing.named:
        found = [one for one in listing.objects if _is_arrow(listing, one)]
        return _with_rows(listing, found, indices) if found and len(found) == len(listing.objects) else None
    if DICT in listing:
        raise several_splits(listing.url, {name: name for name in _folders(listing, STATE)})
    if STATE in listing:
        return _saved(listing, indices)
    found = listing.only(*SUFFIXES, beside=lambda path: accompanies(path) or path.endswith(".lock"))
    if not found:
        return None
    folders = sorted({*_folders(listing, STATE), *_folders(listing, INFO)})
    if folders:
        raise _several(listing, folders, "there is no data set of datasets here, but in folders")
    kept = [one for one in found if not _RESULT.fullmatch(one.path) and one.path != indices]
    if not kept:
        raise UsageError(
            "there are only results of map, filter and shuffle of datasets here",
            url=listing.url,
            hint=f"name the file that is meant, such as {listing.store.locate(found[0].path)}",
        )
    _check_splits(listing, kept)
    left = [one.path for one in found if one not in kept and one.path != indices]
    return _with_rows(listing, kept, indices, _left_out(left))


def _is_arrow(listing: ObjectListing, one: ObjectMeta) -> bool:
    return one.path.lower().endswith(SUFFIXES) or listing.start(one.path, len(MAGIC)) == MAGIC


def _folders(listing: ObjectListing, base: str) -> list[str]:
    """Folders below the root that have an object of this name."""
    return [one.path.rpartition("/")[0] for one in listing.objects if one.path.endswith(f"/{base}")]


def _several(listing: ObjectListing, folders: Sequence[str], what: str) -> UsageError:
    urls = ", ".join(listing.store.locate(one) for one in folders[:_SHOWN])
    more = f" and {len(folders) - _SHOWN} more" if len(folders) > _SHOWN else ""
    return UsageError(f"{what}: {len(folders)}", url=listing.url, hint=f"give the URL of one: {urls}{more}")


def _left_out(paths: Sequence[str]) -> tuple[str, ...]:
    if not paths:
        return ()
    return (f"left out are files that datasets keeps results in: {len(paths)}, the first of them {paths[0]}",)


def _check_splits(listing: ObjectListing, found: Sequence[ObjectMeta]) -> None:
    """Refuse files of several splits, which the names of the cache tell."""
    info = json_object(listing.read(INFO)) if INFO in listing else None
    told = info.get("splits") if info else None
    names = [re.escape(one) for one in told] if isinstance(told, dict) and told else _SPLITS
    pattern = re.compile(rf"(?P<before>.*-)(?P<split>{'|'.join(names)})(-[0-9]{{5}}-of-[0-9]{{5}})?\.arrow")
    splits: dict[str, str] = {}
    for match in (pattern.fullmatch(one.path) for one in found):
        if match is not None:
            splits.setdefault(match["split"], f"{match['before']}{match['split']}*.arrow")
    if len(splits) > 1:
        raise several_splits(listing.url, splits)


# ------------------------------------------------------------------------------------------------------- save_to_disk


def _saved(listing: ObjectListing, indices: str | None) -> Found | None:
    """What ``state.json`` lists; ``None`` where it is that of something else."""
    url = listing.store.locate(STATE)
    found = json_object(listing.read(STATE))
    if found is None or "_data_files" not in found:
        if INFO not in listing and not listing.ending(*SUFFIXES):
            return None
        hint = "save the data set again, or name its files"
        raise FormatError(f"the {STATE} of datasets lists no data files", url=url, hint=hint)
    files = _listed(listing, found["_data_files"], url)
    if not files:
        raise FormatError("no data files are listed", url=url, hint="save the data set again")
    chosen = _listed(listing, found.get("_indices_data_files") or [], url)
    if len(chosen) > 1:
        raise UnsupportedError(
            f"there are {len(chosen)} files of indices", url=url, hint="save it again with flatten_indices()"
        )
    taken = {one.path for one in (*files, *chosen)}
    left = [one.path for one in listing.ending(*SUFFIXES) if one.path not in taken and one.path != indices]
    return _with_rows(listing, files, chosen[0].path if chosen else indices, _left_out(left))


def _listed(listing: ObjectListing, entries: object, url: str) -> list[ObjectMeta]:
    """The objects that a list in ``state.json`` names."""
    if not isinstance(entries, list):
        raise FormatError(f"its data files are {shown(entries)}, not a list", url=url, hint="save the data set again")
    there = {one.path: one for one in listing.objects}
    found = []
    for number, one in enumerate(entries):
        entry = IndexEntry(one, f"data file {number}", url)
        name = entry.get("filename")
        if not isinstance(name, str) or not is_below(name):
            entry.refuse(
                f"data file {number} is called {shown(name)}, which is not a path below the folder of {STATE}",
                hint="paths are relative, with '/', without '..'; correct the file if you trust it",
            )
        if entry.get("skip") or entry.get("take"):
            what = f"only a part of data file {number} is meant (skip, take)"
            entry.refuse_unsupported(what, hint="save the data set again")
        if name not in there:
            what = f"{STATE} lists a data file that is not here"
            raise FormatError(what, url=listing.store.locate(name), hint="fetch the whole folder, or save it again")
        found.append(there[name])
    check_names([one.path for one in found], url)
    return found


# -------------------------------------------------------------------------------------------------------------- rows


def _with_rows(
    listing: ObjectListing, found: Sequence[ObjectMeta], indices: str | None, notes: Collection[str] = ()
) -> Found:
    """The objects; with indices, which of their rows are meant."""
    if indices is None:
        return Found(tuple(SourceObject(one.path, one.size) for one in found), tuple(notes))
    if not is_below(indices) or not listing.store.exists(indices):
        hint = "give its name below the folder of the data"
        raise UsageError(f"there is no file of indices {indices!r}", url=listing.url, hint=hint)
    size = listing.store.size(indices)
    objects, first = [], 0
    for one in found:
        table = read_table(ObjectBytes(listing.store, one.path, one.size, window=64 << 10), inflated=False)
        count = sum(batch.head.rows for batch in table.batches)
        objects.append(SourceObject(one.path, one.size, {"rows": chosen_rows(indices, size, first, count)}))
        first += count
    order = ("the rows of each file are in the order of the indices, the files one after another",) if first else ()
    return Found(tuple(objects), (*notes, *(order if len(found) > 1 else ())))
