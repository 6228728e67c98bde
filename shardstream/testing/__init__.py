"""For your own tests: conformance classes, a store in memory with faults, small data sets. Needs no pytest.

=============  ====================================================================================================
``store``      ``ReadOnlyStoreConformance``, ``StoreConformance``: what a `Store` has to hold
``framing``    ``FramingConformance``: what a format of shards has to hold
``backend``    ``BackendConformance``: what a decoder of images has to hold
``format``     ``FormatConformance``: what a format of another library has to hold
``source``     ``SourceConformance``: what can be packed
``memory``     ``MemoryStore``: a store in memory that fails when it is told to
``faults``     the faults by name, and what a reader makes of each
``dataset``    ``make_dataset``: small data sets of any fields
``asserting``  what the classes assert with: messages under any test runner
``pictures``   pictures that look like photographs, for what decodes
=============  ====================================================================================================

A conformance class is subclassed in a test file; pytest then collects its methods::

    import shardstream.testing

    class TestMyStore(shardstream.testing.StoreConformance):
        def make_store(self):
            return MyStore(...)

``docs/testing.md`` goes through all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardstream.attributes import imported_attribute

if TYPE_CHECKING:
    from shardstream.testing.backend import BackendConformance
    from shardstream.testing.dataset import make_dataset
    from shardstream.testing.format import FormatConformance
    from shardstream.testing.framing import FramingConformance
    from shardstream.testing.memory import MemoryStore
    from shardstream.testing.source import SourceConformance
    from shardstream.testing.store import ReadOnlyStoreConformance, StoreConformance

__all__ = [
    "BackendConformance",
    "FormatConformance",
    "FramingConformance",
    "MemoryStore",
    "ReadOnlyStoreConformance",
    "SourceConformance",
    "StoreConformance",
    "make_dataset",
]

_LAZY = {
    "BackendConformance": "shardstream.testing.backend",
    "FormatConformance": "shardstream.testing.format",
    "FramingConformance": "shardstream.testing.framing",
    "MemoryStore": "shardstream.testing.memory",
    "ReadOnlyStoreConformance": "shardstream.testing.store",
    "SourceConformance": "shardstream.testing.source",
    "StoreConformance": "shardstream.testing.store",
    "make_dataset": "shardstream.testing.dataset",
}


if not TYPE_CHECKING:  # type checkers find misspelt names themselves

    def __getattr__(name: str) -> Any:
        return imported_attribute(__name__, name, _LAZY, __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
