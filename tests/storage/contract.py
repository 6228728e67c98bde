"""Conformance of the stores of the project, which lie behind real servers, see `places`."""

from __future__ import annotations

import pytest

from shardstream.storage import Store, open_store
from shardstream.storage.base.location import with_transport
from shardstream.testing import ReadOnlyStoreConformance, StoreConformance

from .places import Place


class ReadingPlace(ReadOnlyStoreConformance):
    """A store at a place; the subclass gives the fixture ``place``."""

    transport: str = "auto"

    @pytest.fixture(autouse=True)
    def _at(self, place: Place) -> None:
        self.place = place

    def make_store(self) -> Store:
        return open_store(with_transport(self.place.url(), self.transport), storage_options=self.place.options)

    def plant(self, path: str, data: bytes) -> None:
        self.place.plant(path, data)


class WritingPlace(ReadingPlace, StoreConformance):
    """The same for one that can be written to."""

    def dig(self, path: str) -> bytes | None:
        return self.place.dig(path)
