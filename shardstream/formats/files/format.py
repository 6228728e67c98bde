"""``SingleFiles``: folders of class folders, flat folders of pictures, and lists of files, trained on as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from shardstream.errors import FormatError
from shardstream.formats.contract import ObjectListing, Recognized, SourceFormat, SourceObject
from shardstream.formats.files import folders, layouts, lists
from shardstream.formats.files.columns import OPTIONS
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import ScannedRows
from shardstream.pack.sources.lists.mpdataset import LIST_OF_MPDATASET
from shardstream.storage import Store


class SingleFiles(SourceFormat):
    """An object a value."""

    name = "files"
    title = "single files"
    options: ClassVar[Mapping[str, str]] = OPTIONS
    loose = True
    fallback = True
    chooses = True

    def recognize(self, listing: ObjectListing, options: Mapping[str, str]) -> Recognized | None:
        if listing.named and any(lists.is_list(one.path) for one in listing.objects):
            if len(listing.objects) > 1:
                raise FormatError(
                    "a list of files is a data set by itself", url=listing.url, hint="give one list, or join them"
                )
            (one,) = listing.objects
            free = not options and not listing.chosen
            found = layouts.layout_of_list(listing.store, one.path) if free else None
            return lists.recognised(listing, one, options) if found is None else _of_layout(listing, found)
        if lists.is_mpdataset(listing):
            one = next(one for one in listing.objects if one.path == LIST_OF_MPDATASET)
            return lists.recognised(listing, one, options)
        found = None if listing.named or listing.chosen else _layout_of(listing)
        return folders.recognised(listing) if found is None else _of_layout(listing, found)

    def open(self, store: Store, one: SourceObject) -> ObjectBytes:
        """Nothing of a run of files, whose names are known already."""
        return _Unread(store, one.path, 0) if "files" in one.about else super().open(store, one)

    def scan(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[ScannedRows]:
        return folders.scanned(about, data.url) if "files" in about else lists.scanned(data, about)


def _layout_of(listing: ObjectListing) -> layouts.Layout | None:
    return layouts.layout_of_directory(listing.store, [one.path for one in listing.objects])


def _of_layout(listing: ObjectListing, found: layouts.Layout) -> Recognized:
    objects = tuple(SourceObject(path, listing.size(path), found.about) for path in found.lists)
    return Recognized(objects, None, (found.note,))


class _Unread(ObjectBytes):
    def __init__(self, store: Store, path: str, size: int) -> None:
        self.path, self.url, self.size = path, store.locate(path), size
