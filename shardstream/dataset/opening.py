"""From what people write for a dataset, or several, to opened ones. Names alone tell which of them are files."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypedDict, Unpack

from shardstream.dataset.formats import Rooted, Selection, formats
from shardstream.dataset.opened import DatasetAddress, OpenedDataset
from shardstream.errors import DataError, NotFoundError, UsageError
from shardstream.names.braces import without_braces
from shardstream.names.globs import WILDCARDS, local_matches
from shardstream.options import SourceOptions, takes_flat
from shardstream.shards.heads import FINGERPRINT, MANIFEST_NAME
from shardstream.shards.manifest import Manifest
from shardstream.sizes import plural
from shardstream.storage import Location, PathOrUrl, locate
from shardstream.storage.base.address import absolute
from shardstream.storage.base.location import flat_transport
from shardstream.storage.cache import Cache

Versions: TypeAlias = "int | Sequence[int | None] | None"
Fingerprints: TypeAlias = "str | Sequence[str | None] | None"

# A name that is surely one of a file: a store over a network is not asked what each of ten thousand names is.
_FILE = re.compile(
    r".*(\.(tar|mds|rec|mdb|lmdb|zip|npy|npz|bin|idx|beton|parquet|arrow|feather|h5|hdf5|gz|zst|bz2|xz"
    r"|tsv|csv|txt|lst|json|jsonl|ndjson|yaml|yml)"
    r"|\.tfrecords?|\.tfrecords?-[0-9-]+(-of-[0-9]+)?|-[0-9]{5}-of-[0-9]{5})",
    re.IGNORECASE,
)


class _Place(TypedDict, total=False):
    """What says where and how to read."""

    version: int | None
    cache: str | os.PathLike[str] | Cache | None
    replicas: Sequence[PathOrUrl]
    storage_options: Mapping[str, Any] | None
    reading: SourceOptions | None


class Opening(_Place, total=False):
    """What every verb that reads a data set takes beside its URL, see `open_dataset`."""

    fingerprint: str | None


takes_opening = takes_flat(flat_transport("url", "replicas"), Opening.__annotations__, reading=SourceOptions)
"""Decorates functions that take `Opening`, with ``url`` before: flat names are taken for one more version."""


@takes_flat(flat_transport("url", "replicas"), reading=SourceOptions)
def open_datasets(
    url: PathOrUrl | Sequence[PathOrUrl],
    *,
    replicas: Sequence[PathOrUrl] = (),
    cache: str | os.PathLike[str] | Cache | None = None,
    version: Versions = None,
    storage_options: Mapping[str, Any] | None = None,
    reading: SourceOptions | None = None,
) -> list[OpenedDataset]:
    """The data sets that ``url`` names; see `ShardDataset` for the arguments.

    Raises:
        UsageError: One of the arguments cannot work.
        NotFoundError: There is no data set.
        StorageError: It cannot be read.
    """
    reading = reading or SourceOptions()
    places = [_rooted(path, names, reading.options) for path, names in find_places(url)]
    locations = [locate(one.place, storage_options=storage_options) for one in places]
    others = [locate(path, storage_options=storage_options) for path in find_replicas(replicas)]
    refuse_unused(storage_options, [*locations, *others])
    spec = None if cache is None else Cache.of(cache)
    return [
        DatasetAddress(location, one, tuple(others), spec, Selection.of(names, reading.format, options)).open()
        for location, (_, names, options), one in zip(
            locations, places, versions_of(version, len(locations)), strict=True
        )
    ]


@takes_opening
def open_dataset(url: PathOrUrl, *, fingerprint: str | None = None, **opening: Unpack[_Place]) -> OpenedDataset:
    """The one data set of this URL.

    Args:
        url: Folder or URL of the data set, a store, or a `Location`. Of data of another library also one file, or files
            by braces or a glob.
        fingerprint: The fingerprint that it has to have, 32 hexadecimal digits. Default: any.
        version: Which version of a data set that grew. Default: the newest.
        cache: Folder of a cache for what comes over a network, or a `Cache`. Default: none.
        replicas: Places that have its shards too, or some of them; asked first, in this order.
        storage_options: Credentials and settings by name, of all these places. Default: the environment's.
        reading: Format and options of data of another library, see `SourceOptions`. Default: as it is recognized.

    Raises:
        UsageError: One of the arguments cannot work, or there is no such version.
        NotFoundError: There is no data set.
        DataError: Its manifest is damaged, or it has another fingerprint.
        StorageError: It cannot be read.
    """
    reading = opening.get("reading") or SourceOptions()
    if not place_of(url)[1] and "root" not in (reading.options or {}):
        url = locate(url, storage_options=opening.get("storage_options"))
    dataset = open_datasets(url, **opening)[0]
    check_fingerprints([dataset.manifest], fingerprint)
    return dataset


def _rooted(place: PathOrUrl, names: tuple[str, ...], options: Mapping[str, str] | None) -> Rooted:
    """The same, below the directory that the ``root`` of the options takes, which only other formats have."""
    return formats().rooted(place, names, options) if options and "root" in options else Rooted(place, names, options)


def place_of(url: PathOrUrl) -> tuple[PathOrUrl, tuple[str, ...]]:
    """Where the one data set of this URL lies: itself, or the folder of files of another library, with their names."""
    if isinstance(url, str | os.PathLike) and ("://" in os.fspath(url) or not os.path.isdir(url)):
        with suppress(UsageError, NotFoundError):
            places = find_places(url)
            if len(places) == 1 and places[0][1]:
                return places[0]
    return url, ()


def find_places(url: PathOrUrl | Sequence[PathOrUrl]) -> list[tuple[PathOrUrl, tuple[str, ...]]]:
    """What ``url`` names: folders, and files of other libraries, those of one place together; raises as `find_paths`.

    Returns:
        Roots, each with the names of files below it; with none where all of it is meant.
    """
    return group_files(find_paths(url))


def refuse_unused(
    options: Mapping[str, Any] | None, locations: Iterable[Location], *, name: str = "storage_options"
) -> None:
    """Refuse options that no place can use.

    Args:
        options: What a user gave.
        locations: The places that they are for.
        name: What the argument is called.

    Raises:
        UsageError: All of the places are local; names the options.
    """
    if options and all(location.local for location in locations):
        raise UsageError(
            f"no place that is read or written takes {name}: {', '.join(map(repr, options))}",
            hint=f"leave {name} out: local folders need none",
        )


def find_replicas(replicas: Sequence[PathOrUrl]) -> list[PathOrUrl]:
    """The folders and URLs that ``replicas`` name; UsageError where that is not a list."""
    if isinstance(replicas, str) or not isinstance(replicas, Iterable):
        one: Any = replicas
        # A URL is shown without its query, which may be a key; stores and locations have theirs so.
        shown = locate(one).url if isinstance(one, str | os.PathLike) else getattr(one, "url", one)
        raise UsageError(f"replicas must be a list of places, got {shown!r}", hint="replicas=[...], also for one place")
    return [path for replica in replicas for path in find_paths(replica)]


def versions_of(version: Versions, count: int) -> Sequence[int | None]:
    """A version, or ``None`` for the newest, for each of so many data sets; UsageError."""
    if version is None:
        return [None] * count
    found: Sequence[int | None] = version if isinstance(version, Sequence) else [version]
    if len(found) != count:
        raise UsageError(
            f"version={version!r} for {count} data sets", hint="a list with a version, or None, for each of them"
        )
    return found


def check_fingerprints(manifests: Sequence[Manifest], fingerprint: Fingerprints) -> None:
    """Refuse datasets that do not have these fingerprints.

    Args:
        manifests: Of the datasets that were opened.
        fingerprint: What one dataset has to have, or a list for several; ``None`` is any.

    Raises:
        UsageError: They are no fingerprints, or more or fewer than datasets.
        DataError: A dataset has another one.
    """
    if fingerprint is None:
        return
    expected = [fingerprint] if isinstance(fingerprint, str) else list(fingerprint)
    if len(expected) != len(manifests):
        raise UsageError(
            f"fingerprint= has {plural(len(expected), 'entry', 'entries')} for {plural(len(manifests), 'dataset')}",
            hint="pass a list with a fingerprint, or None, for each of them",
        )
    for manifest, one in zip(manifests, expected, strict=True):
        if one is None or one == manifest.fingerprint:
            continue
        if not FINGERPRINT.fullmatch(str(one)):
            raise UsageError(
                f"fingerprint={one!r} is not 32 hexadecimal digits",
                hint="`shardstream info` shows the fingerprint of a dataset",
            )
        hint = "look at where it came from; if the change is meant, pass the new fingerprint"
        for old in manifest.history:
            if old.fingerprint == one:
                hint = f"it has grown since: version={old.version} opens the one of this fingerprint"
        raise DataError(
            f"the dataset has the fingerprint {manifest.fingerprint}, and not {one}", url=manifest.url, hint=hint
        )


def find_paths(url: PathOrUrl | Sequence[PathOrUrl]) -> list[PathOrUrl]:
    """The folders that ``url`` names, in order: of a list its own, of braces as written, of a glob sorted by name.

    Braces are ``{a,b}`` or ``{000..011}``, as many as wanted. A glob matches folders that hold a data set of ours, else
    files, else folders; in a URL only files, by the last part of their names, which are found later. What exists is
    taken by its name, whatever characters are in it; a store is taken as it is.

    Raises:
        UsageError: An empty list, braces that cannot be read, or a glob in a URL that is of folders.
        NotFoundError: A glob that matches no data set.

        >>> find_paths("data/part-{08..10}")
        ['data/part-08', 'data/part-09', 'data/part-10']
    """
    if isinstance(url, str) or not isinstance(url, Iterable):
        return list(_expand(url))
    paths = [path for one in url for path in _expand(one)]
    if not paths:
        raise UsageError("an empty list names no data set", hint="pass at least one folder")
    return paths


def _expand(url: PathOrUrl) -> Iterator[PathOrUrl]:
    if not isinstance(url, str | os.PathLike):
        yield url
        return
    text = os.fspath(url)
    if "://" not in text and os.path.exists(text):
        yield text
        return
    for path in without_braces(text):
        if "://" in path:
            _refuse_glob(path)
            yield path
        elif not any(character in path for character in "*?[") or os.path.exists(path):
            yield path
        else:
            yield from _matching(path)


def _refuse_glob(url: str) -> None:
    shown = locate(url).url  # without the query, which may be a key, and may have any character
    folder = shown.partition("://")[2].rpartition("/")[0]
    if "*" in folder or "[" in folder.partition("/")[2]:
        raise UsageError("a glob of folders needs a local path", url=shown, hint="list the data sets, or use braces")


def _matching(pattern: str) -> list[str]:
    there = local_matches(pattern)
    found = [path for path in there if os.path.exists(os.path.join(path, MANIFEST_NAME))]
    found = found or [path for path in there if os.path.isfile(path)] or there  # folders of other libraries
    if not found:
        raise NotFoundError(
            "no data set matches",
            url=pattern,
            hint=f"a data set is a folder with a {MANIFEST_NAME}, as pack makes it, or files of another library",
        )
    return found


def _is_file(path: str) -> bool:
    """Whether a path or URL names files, and not a folder: what is there says so, else its name."""
    if "://" not in path and os.path.exists(path):
        return os.path.isfile(path)
    path, _ = split_query(path)
    return bool(WILDCARDS & set(path.rpartition("/")[2])) or _FILE.fullmatch(path) is not None


def group_files(paths: Sequence[PathOrUrl]) -> list[tuple[PathOrUrl, tuple[str, ...]]]:
    """Roots with the names of files below them; a place that is not surely a file is a root by itself.

    A URL's query stays with the root: it may be a key, and names are written down.

    >>> group_files(["s3://bucket/a/x-0.tar", "s3://bucket/b/x-1.tar", "s3://bucket/ours"])
    [('s3://bucket', ('a/x-0.tar', 'b/x-1.tar')), ('s3://bucket/ours', ())]
    """
    texts = [os.fspath(path) if isinstance(path, str | os.PathLike) else None for path in paths]
    are_files = [text is not None and _is_file(text) for text in texts]
    files = [split_query(text) for text, one in zip(texts, are_files, strict=True) if text is not None and one]
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


def split_query(path: str) -> tuple[str, str]:
    """A URL without its query, and the query; a path as it is."""
    base, mark, query = path.partition("?") if "://" in path else (path, "", "")
    return base, mark + query


def _root(files: Sequence[str]) -> str:
    """The folder that all are below."""
    parts = [folder_of_data(path).split("/") for path in files]
    common = common_parts(min(parts), max(parts))
    # With "://" the host is the third part; without, a first part that is empty.
    if ("://" in files[0] and len(common) < 3) or not common:
        raise UsageError(
            "files of several stores cannot be one data set",
            url=locate(files[0]).url,
            hint="open them one by one, and give the list",
        )
    return "/".join(common)


def common_parts(first: Sequence[str], last: Sequence[str]) -> list[str]:
    """The parts that both begin with."""
    pairs = zip(first, last, strict=False)
    return [one for one, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)]


def folder_of_data(path: str) -> str:
    """The folder that a file of a data set lies in, or the one above: COCO's annotations have a folder of their own.

    >>> folder_of_data("coco/annotations/instances_val2017.json"), folder_of_data("tars/0.tar")
    ('coco', 'tars')
    """
    folder, _, name = path.rpartition("/")
    above, slash, last = folder.rpartition("/")
    return above if slash and last == "annotations" and name.endswith(".json") else folder
