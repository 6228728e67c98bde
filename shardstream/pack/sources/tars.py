"""WebDataset's tar files: members that follow one another and share their name up to its first dot are a sample.

Each tar is read in order, once, compressed or not, from a disk or a store. Values are files by their extensions; a
``cls`` that is an integer in digits becomes one, as WebDataset writes it; another is text, or the name of a class where
these are given.
"""

from __future__ import annotations

import glob
import io
import lzma
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import xxhash

from shardstream.dataset.lists.decompression import MAGIC_BYTES, compression_of
from shardstream.errors import FormatError, NotFoundError, ShardStreamError, SourceError
from shardstream.faults import REST_IS_LOST, fault_kind
from shardstream.names.braces import without_braces
from shardstream.names.globs import local_matches, split_glob
from shardstream.names.missing import instead_of
from shardstream.names.strays import Strays, find_stray
from shardstream.pack.sources.base import LABEL, Item, Reject, SourcePart, StreamSource
from shardstream.pack.sources.keys import check_mode
from shardstream.pack.sources.lists.labels import Classes, not_listed
from shardstream.storage import Location, open_object, open_store
from shardstream.storage.base.placeholders import placeholder_in
from shardstream.storage.base.ranged import RangedFile
from shardstream.text import valid_unicode
from shardstream.threads import each

COMPRESSED_TARS = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".tar.lz4")
_REQUESTS = 16  # sizes asked of a store at once
_BLOCK = 8 << 20  # read at once from a store
_OWN = "__"  # members of WebDataset's and ours that are not samples lie in folders that begin so


@dataclass(frozen=True, slots=True)
class TarStream(SourcePart):
    """The samples of one tar file, in its order.

    Attributes:
        location: Where it lies.
        size: Its size when it was listed.
        classes: What a label that is a name is looked up in; ``None`` leaves it a name.
    """

    location: Location
    size: int
    classes: Classes | None = None

    def __iter__(self) -> Iterator[Item | Reject]:
        store, name = open_object(self.location)
        if store.size(name) != self.size:
            url = store.locate(name)
            raise SourceError("the tar file changed while it was being packed", url=url, hint="pack it again")
        number = 0
        try:
            with (
                io.BufferedReader(RangedFile(self.size, partial(store.get, name)), _BLOCK) as file,
                tarfile.open(fileobj=file, mode="r|*") as archive,
            ):
                strays = Strays()
                for item in _samples(archive, name, strays):
                    number = item.line
                    yield self._labelled(item)
                strays.log(store.locate(name))
        except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error, lzma.LZMAError) as error:
            if isinstance(error, ShardStreamError):
                raise
            placeholder = None if number else placeholder_in(store, name, self.size)
            found = placeholder or FormatError(f"the tar file is damaged from here on: {error}")
            what = f"{found.what}; {REST_IS_LOST}"
            yield Reject(number + 1, valid_unicode(name), what, None, fault_kind(found))

    def _labelled(self, item: Item | Reject) -> Item | Reject:
        """The sample, with the number of its class where it has a name."""
        label = item.values.get(LABEL) if isinstance(item, Item) else None
        if self.classes is None or not isinstance(item, Item) or not isinstance(label, str):
            return item
        number = self.classes.number(label, url=self.location.url, key=item.key)
        if number is None:
            return Reject(item.line, valid_unicode(item.path), not_listed("label", label))
        return item._replace(values={**item.values, LABEL: number})


def _samples(archive: tarfile.TarFile, name: str, strays: Strays) -> Iterator[Item | Reject]:
    """Samples in order, and a count of what is not data; the last one of a file that breaks off is left out."""
    number = 0
    key, values = "", dict[str, Any]()
    for member in archive:
        if member.isdir():
            continue
        if (stray := find_stray(member.name)) is not None:
            strays.add(stray)
            continue
        if member.name.split("/")[0].startswith(_OWN):
            continue
        stem, extension = _split(member.name)
        if key != stem and values:
            number += 1
            yield Item(number, f"{name}/{key}", valid_unicode(key), values)
            values = {}
        key = stem
        file = archive.extractfile(member) if member.isreg() else None
        fault = None
        if file is None:
            fault = "it is not a regular file"
        elif not extension:
            fault = "the file name has no extension, from which the field takes its name"
        elif extension in values:
            fault = f"the sample has two members of this extension, {extension!r}"
        if fault is not None:
            yield Reject(number + 1, valid_unicode(f"{name}/{member.name}"), fault)
            continue
        assert file is not None
        values[extension] = _value(extension, file.read())
    if values:
        yield Item(number + 1, f"{name}/{key}", valid_unicode(key), values)


def _split(path: str) -> tuple[str, str]:
    """Key and field of a member, as WebDataset splits them: at the first dot of the last part."""
    folder, slash, base = path.removeprefix("./").rpartition("/")
    stem, _, extension = base.partition(".")
    extension = extension.lower()
    return f"{folder}{slash}{stem}".lstrip("/"), {"jpeg": "jpg"}.get(extension, extension)


def _value(field: str, data: bytes) -> bytes | int | str:
    if field != LABEL:
        return data
    text = data.decode("utf-8", "replace").strip()
    try:
        return int(text)
    except ValueError:
        return text


class TarSource(StreamSource):
    """A set of tar files.

    Args:
        url: What they are called together, for messages.
        locations: Each of them.
        key: As of `StreamSource`.
        classes: The classes that labels are looked up in where they are names.

    Raises:
        SourceError: There are none, or one is missing.
        UsageError: ``key`` names a column.
    """

    def __init__(
        self, url: str, locations: Sequence[Location], *, key: str = "path", classes: Classes | None = None
    ) -> None:
        check_mode(key, "tar files have no columns")
        if not locations:
            raise SourceError("there is no such tar file", url=url, hint=instead_of(url))
        self.url = url
        self.key = key
        stores = {folder: open_store(folder) for folder in {location.parent() for location in locations}}

        def stream(location: Location) -> TarStream:
            store, name = stores[location.parent()], location.url.rpartition("/")[2]
            try:
                return TarStream(location, store.size(name), classes)
            except NotFoundError as error:
                hint = instead_of(location.url) if location.local else "write the URL of a tar file that is there"
                raise SourceError("there is no such tar file", url=store.locate(name), hint=hint) from error

        streams = list(each(stream, locations, at_once=_REQUESTS, what=f"the size of a tar file of {url}"))
        names = "".join(f"{one.location.url.rpartition('/')[2]}\n{one.size}\n" for one in streams)
        self.streams = streams
        if classes is not None:
            names += repr((classes.names, classes.unknown))
        self._fingerprint = f"tars {xxhash.xxh3_128_hexdigest(os.fsencode(names))}"

    @property
    def fingerprint(self) -> str:
        return self._fingerprint


def tar_paths(source: str) -> list[str]:
    """The tar files of a path or URL, of a list in braces (``data-{000..099}.tar``), or of a local glob.

    Raises:
        UsageError: Braces that cannot be read.
    """
    found: list[str] = []
    for path in without_braces(source):
        if "://" in path or not glob.has_magic(path) or os.path.exists(path):
            found.append(path)
        else:
            found += local_matches(path)
    return found


def is_tar(path: str) -> bool:
    """Whether a path, list in braces, or glob is called like tar files, compressed or not."""
    return path.lower().rstrip("*?.").endswith((".tar", *COMPRESSED_TARS))


def is_streamed(paths: Sequence[str], at: Callable[[str], Location]) -> bool:
    """Whether tar files can only be read in order: those that are compressed, or come through a pipe."""
    if any(path.partition("?")[0].lower().endswith(COMPRESSED_TARS) for path in paths):
        return True
    first = paths[0] if paths else ""
    if not first or ("://" in first and split_glob(first) is not None):
        return False
    if "://" not in first and not os.path.isfile(first):
        return os.path.exists(first)
    try:
        store, name = open_object(at(first))
        return compression_of(store.get(name, 0, min(MAGIC_BYTES, store.size(name)))) is not None
    except NotFoundError:
        return False  # whoever opens it says so
