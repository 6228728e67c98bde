"""Bytes from anywhere. Knows nothing of samples or torch.

=============  ==================================================================================
``base``       the contract: ``Store``, ``ObjectWriter``, ``ObjectMeta``, ``Request``
``buffers``    ``Buffers``: what was read, addressed by object and byte range; vectorised gather
``local``      folders of the local file system: mapped for reads, temporary name + rename for writes
``flush``      bringing a growing file to the disk while more is being written
``mapping``    a file as read-only memory that holds no file descriptor
``urls``       URL -> store
=============  ==================================================================================
"""

from shardstream.storage.base import ObjectMeta, ObjectWriter, Request, Store
from shardstream.storage.buffers import Buffers, FetchedBuffers, MappedBuffers, fetch
from shardstream.storage.urls import open_object, open_store

__all__ = [
    "Buffers",
    "FetchedBuffers",
    "MappedBuffers",
    "ObjectMeta",
    "ObjectWriter",
    "Request",
    "Store",
    "fetch",
    "open_object",
    "open_store",
]
