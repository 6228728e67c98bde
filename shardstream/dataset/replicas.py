"""Places besides its own that have shards of a data set."""

from __future__ import annotations

import numpy as np

from shardstream.errors import NotFoundError
from shardstream.formats.catalog.kept import FoundCatalogue
from shardstream.shards.manifest import Manifest
from shardstream.storage import Location, open_store


class Replica:
    """Another place that has shards of a data set, known by what is in them.

    Args:
        location: Where it is.
        manifest: Of the data set.

    Raises:
        ShardStreamError: There is no data set.
    """

    def __init__(self, location: Location, manifest: Manifest) -> None:
        self.store = open_store(location)
        self._own = Manifest.read(self.store)
        self._same = self._own.fingerprint == manifest.fingerprint
        self._order = None if self._same else np.argsort(self._own.table.checksums, kind="stable")

    def find(self, name: str, size: int, checksum: int) -> str | None:
        """Its name here of the shard that is called ``name`` there; ``None`` if it is not here."""
        if self._order is not None:
            checksums = self._own.table.checksums
            at = int(np.searchsorted(checksums, np.uint64(checksum), sorter=self._order))
            if at == len(checksums) or int(checksums[self._order[at]]) != checksum:
                return None
            name = self._own.shard_name(int(self._order[at]))
        try:
            return name if self.store.size(name) == size else None
        except NotFoundError:
            return None


class ForeignReplica:
    """Another place that has objects of another library, known by their names and sizes.

    Args:
        location: Where it is.
        found: The objects.
    """

    def __init__(self, location: Location, found: FoundCatalogue) -> None:
        self._stored = open_store(location)
        self.store = found.shown(self._stored)
        self._blocks_of = found.catalogue.blocks_of

    def find(self, name: str, size: int, checksum: int) -> str | None:
        """Its name here; ``None`` if it is not here."""
        blocks = self._blocks_of(name)
        try:
            return name if self._stored.size(name) == (size if blocks is None else blocks.stored) else None
        except NotFoundError:
            return None
