"""The checksums that formats keep of their objects themselves, compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardstream.dataset.opened import DatasetAddress, Differences
from shardstream.errors import FormatError, NotFoundError
from shardstream.formats.catalog.catalog import Catalogue
from shardstream.formats.catalog.selected import list_selected
from shardstream.formats.contract import ObjectListing, SourceFormat, SourceObject, shown
from shardstream.formats.registry import recognize
from shardstream.storage import open_store


def compare_own(catalogue: Catalogue, address: DatasetAddress) -> Differences:
    """What the checksums say that the format of a dataset keeps of its objects; raises as `recognize`."""
    reading = catalogue.reading
    listing = list_selected(address.selection, open_store(address.location))
    found = recognize(listing, reading.source, dict(reading.options))
    objects = () if found is None else found[1].objects
    # What is lost of damaged objects is known already.
    objects = tuple(one for one in objects if one.path not in catalogue.lost)
    kinds = {one.path: reading.format.checksums(one) for one in objects}
    kept = [one for one in objects if kinds[one.path]]
    said = tuple(dict.fromkeys(kinds[one.path] for one in kept))
    complete = reading.checked or (bool(kept) and len(kept) == len(objects))
    return Differences(said, complete, _differences(reading.format, listing, kept))


def _differences(
    format: SourceFormat, listing: ObjectListing, objects: Sequence[SourceObject]
) -> Iterator[tuple[str, FormatError | NotFoundError]]:
    for one in objects:
        try:
            _, data, _ = shown(format, listing.store, one)
            for error in format.differences(data, one.about):
                yield one.path, error
        except (FormatError, NotFoundError) as error:
            yield one.path, error
