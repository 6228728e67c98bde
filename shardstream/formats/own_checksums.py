"""The checksums that formats of other libraries keep of their objects, compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from shardstream.dataset.opened import OpenedDataset
from shardstream.errors import FormatError, NotFoundError
from shardstream.formats.catalog.catalog import Catalogue
from shardstream.formats.contract import ForeignFormat, ForeignObject, ObjectListing, shown
from shardstream.formats.registry import recognise
from shardstream.storage import open_store


class OwnChecksums(NamedTuple):
    """What a format keeps of the objects of a data set.

    Attributes:
        format: The format.
        listing: What there is.
        objects: Those of which it keeps checksums.
        kinds: Which ones, such as ``("CRC-32 of members",)``.
        complete: Whether it keeps them of all objects.
    """

    format: ForeignFormat
    listing: ObjectListing
    objects: tuple[ForeignObject, ...]
    kinds: tuple[str, ...]
    complete: bool

    def differences(self) -> Iterator[tuple[str, FormatError | NotFoundError]]:
        """Each object that differs, by name, and where; `NotFoundError` of one that is gone.

        Raises:
            StorageError: The store cannot be read.
        """
        for one in self.objects:
            try:
                _, data, _ = shown(self.format, self.listing.store, one)
                for error in self.format.differences(data, one.about):
                    yield one.path, error
            except (FormatError, NotFoundError) as error:
                yield one.path, error


def own_checksums(dataset: OpenedDataset, catalogue: Catalogue) -> OwnChecksums:
    """What the format of a data set keeps of its objects; raises as `recognise`."""
    reading, address = catalogue.reading, dataset.address
    listing = address.foreign.listing(open_store(address.location))
    found = recognise(listing, reading.source, dict(reading.options))
    objects = () if found is None else found[1].objects
    # What is lost of damaged objects is known already.
    objects = tuple(one for one in objects if one.path not in catalogue.lost)
    kinds = {one.path: reading.format.checksums(one) for one in objects}
    kept = tuple(one for one in objects if kinds[one.path])
    said = tuple(dict.fromkeys(kinds[one.path] for one in kept))
    return OwnChecksums(reading.format, listing, kept, said, bool(kept) and len(kept) == len(objects))
