"""``ExternalDataset``: a dataset in another library's format, read where it lies through its catalog."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from shardstream.dataset.opened import DatasetAddress, Differences, OpenedDataset
from shardstream.dataset.shard import IndexBytes, OpenShard, Replica, Shard
from shardstream.errors import NotFoundError, UsageError
from shardstream.formats.blocks.held import keep_blocks
from shardstream.formats.catalog.kept import FoundCatalogue
from shardstream.formats.catalog.make import find_or_make
from shardstream.formats.catalog.own_checksums import compare_own
from shardstream.formats.catalog.places import with_files
from shardstream.formats.catalog.plan import Making
from shardstream.formats.catalog.selected import tell_remembered
from shardstream.formats.scans.rows import told_losses
from shardstream.shards.framing import Tail
from shardstream.storage import Location, Store, open_store
from shardstream.storage.base.verified import settled
from shardstream.storage.cache import Identity
from shardstream.text import in_one_line

logger = logging.getLogger(__name__)


def find_dataset(address: DatasetAddress) -> ExternalDataset:
    """Open the dataset in another format that lies at an address.

    Raises:
        NotFoundError, DataError, FieldError, StorageError: As `find_or_make`.
        UsageError: As `find_or_make`, or a version is asked for.
    """
    location, selection = with_files(address.location, address.selection)
    address = replace(address, location=location, selection=selection)
    catalog = find_or_make(location, selection, address.cache, Making())
    catalogue = catalog.catalogue
    if address.version not in (None, 1):
        raise UsageError("data of another library have no versions", url=catalogue.url, hint="leave version out")
    if text := tell_remembered(address.selection, catalogue):
        logger.info("%s is read with %s, as it was indexed", in_one_line(catalogue.url), text)
    for name, lost in catalogue.lost.items():
        logger.warning("what is lost of %s is left out: %s", in_one_line(name), in_one_line(told_losses(lost)))
    for text in catalogue.warnings:
        logger.warning("values of %s: %s", in_one_line(catalogue.url), in_one_line(text))
    return ExternalDataset(address, catalog)


class ExternalDataset(OpenedDataset):
    """A dataset in another library's format whose catalog is at hand.

    Its pickle has addresses, and the catalog in shared memory.

    Args:
        address: Where the dataset lies, and what else it is read with.
        catalog: Its catalog.
    """

    def __init__(self, address: DatasetAddress, catalog: FoundCatalogue) -> None:
        self._catalog = catalog
        super().__init__(address, catalog.catalogue)

    def __reduce__(self) -> tuple[type[ExternalDataset], tuple[Any, ...]]:
        return ExternalDataset, (self.address, self._catalog)

    def index_bytes(self, number: int, shard: Shard) -> IndexBytes:
        return self._catalog.index_bytes(number, self._main)

    def prepare(self, workers: int) -> None:
        if self.manifest.largest_block:
            keep_blocks(workers)

    def differences(self) -> Differences:
        return compare_own(self._catalog.catalogue, self.address)

    def _end(self, number: int, shard: Shard, tail: Callable[[], memoryview] | None) -> Tail:
        if shard.store is self._main:
            self._catalog.check_unchanged(number, self.store)
        place = self.index_bytes(number, shard)
        try:
            data = settled((tail or place.get)(), mapped=place.store.mapped)[0]
        except NotFoundError as error:
            raise self._catalog.removed() from error
        return data, shard.size

    def _shown(self, store: Store) -> Store:
        return self._catalog.shown(store.of_versions(self._catalog.catalogue.version_of))

    def _identify(self, name: str) -> Identity | None:
        return self._catalog.identify(name)

    @property
    def _values_since(self) -> int | None:
        return self._catalog.values_since

    def _replica(self, location: Location) -> Replica:
        return ObjectReplica(location, self._catalog)

    def _files(self, number: int, shard: Shard) -> list[tuple[Store, str]]:
        place = self.index_bytes(number, shard)
        return [*super()._files(number, shard), (place.store, place.request.path)]

    def _tells_changes(self, opened: OpenShard, *, verify: bool) -> bool:
        return True  # an object that was written again is noticed by its version


class ObjectReplica(Replica):
    """Another place that has objects of another library, known by their names and sizes.

    Args:
        location: Where it is.
        catalog: Of the objects.
    """

    def __init__(self, location: Location, catalog: FoundCatalogue) -> None:
        self._stored = open_store(location)
        self.store = catalog.shown(self._stored)
        self._blocks_of = catalog.catalogue.blocks_of

    def find(self, name: str, size: int, checksum: int) -> str | None:
        blocks = self._blocks_of(name)
        try:
            return name if self._stored.size(name) == (size if blocks is None else blocks.stored) else None
        except NotFoundError:
            return None
