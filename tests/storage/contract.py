"""Conformance of the stores of the project, which lie behind real servers, see `places`."""

from __future__ import annotations

import pytest

from shardstream.storage import Store, open_store
from shardstream.storage.base.location import Transport
from shardstream.testing import ReadOnlyStoreConformance, StoreConformance

from .places import Place


class ReadingPlace(ReadOnlyStoreConformance):
    """A store at a place; the subclass gives the fixture ``place``."""

    transport: Transport = "auto"

    @pytest.fixture(autouse=True)
    def _at(self, place: Place) -> None:
        self.place = place

    def make_store(self) -> Store:
        return open_store(self.place.url(), storage_options=self.place.options, transport=self.transport)

    def plant(self, path: str, data: bytes) -> None:
        self.place.plant(path, data)


class WritingPlace(ReadingPlace, StoreConformance):
    """The same for one that can be written to."""

    def dig(self, path: str) -> bytes | None:
        return self.place.dig(path)
