"""Bytes from anywhere. Knows nothing of samples or torch.

=============  ==============================================================
``opening``    URL -> store
``clients/``   the libraries that speak to stores, and their credentials
``cache/``     the block cache between a store and all processes of a machine
``transfer/``  requests over a network: tried again, hedged, many at once
``local/``     folders of this machine
``base/``      the contract; locations, ranges, buffers
=============  ==============================================================
"""

from shardstream.storage.base.buffers import Buffers, FetchedBuffers, MappedBuffers
from shardstream.storage.base.counters import counters
from shardstream.storage.base.location import Location, PathOrUrl, is_place, locate
from shardstream.storage.base.policy import RetryPolicy
from shardstream.storage.base.store import Head, ObjectMeta, ObjectWriter, Request, Store
from shardstream.storage.base.wrapper import WrapperStore
from shardstream.storage.opening import open_object, open_store
from shardstream.storage.transfer.readahead import Read, ReadQueue, fetch

__all__ = [
    "Buffers",
    "FetchedBuffers",
    "Head",
    "Location",
    "MappedBuffers",
    "ObjectMeta",
    "ObjectWriter",
    "PathOrUrl",
    "Read",
    "ReadQueue",
    "Request",
    "RetryPolicy",
    "Store",
    "WrapperStore",
    "counters",
    "fetch",
    "is_place",
    "locate",
    "open_object",
    "open_store",
]


def __dir__() -> list[str]:
    return sorted(__all__)
