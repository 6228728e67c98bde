"""Bytes from anywhere. Knows nothing of samples or torch.

==================  =======================================================================================
``base``            the contract: ``Store``, ``ObjectWriter``, ``ObjectMeta``, ``Request``
``buffers``         ``Buffers``: what was read, addressed by object and byte range; vectorised gather
``local``           folders of the local file system: mapped for reads, temporary name + rename for writes
``behind``          writing a file in a thread, and bringing it to the disk as it grows
``ranges``          which reads serve which ranges: neighbours joined, long ones split; pure
``readahead``       many reads on their way at once, those needed first first
``ranged``          bytes read by range, as a file for other libraries
``listing``         a listing of any length, page by page
``sorting``         names in order, any number of them in bounded memory
``heap``            a heap that suits a process whose work is to read
``mapping``         a file as read-only memory that holds no file descriptor
``client``          one attempt at one request, whatever library speaks to the store: ``Client``, ``Fault``
``loop``            the event loop of this process on which all transfers run
``counters``        what transfers did, counted
``retry``           when to try again, as arithmetic
``pace``            how fast a store has answered lately; pure
``transfer``        one range, whatever the network does: attempts, resumption, second attempts, checks
``remote``          ``RemoteStore``: stores behind a network, over a client made where it is used
``upload``          objects being written to a remote store
``address``         what a URL says, and which part of it is a secret; pure text
``access``          ``Location``: a URL that was looked at, with options that nobody sees
``options``         ``storage_options`` of every ecosystem, as obstore takes them
``aws``             S3's credentials, endpoint and region
``region``          in which region a bucket lies
``azure``           Azure's account, credentials and endpoint
``gcs``             Google's credentials
``web``             plain web servers
``own_obstore``     the obstore of this process, also after a fork
``answers``         what obstore's errors mean, without what they quote; pure
``obstore_client``  S3, Azure, GCS and web servers through obstore
``fsspec_options``  the same options, as fsspec's file systems take them
``fsspec_answers``  what the errors of its file systems mean; pure
``fsspec_client``   every other store, and on request these, through fsspec
``urls``            URL -> store
``cache/``          the block cache between a store and all processes of a machine
==================  =======================================================================================
"""

from shardstream.storage.access import Location, Transport, locate
from shardstream.storage.base import AsyncStore, ObjectMeta, ObjectWriter, Request, Store
from shardstream.storage.buffers import Buffers, FetchedBuffers, MappedBuffers
from shardstream.storage.counters import counters
from shardstream.storage.readahead import Read, ReadQueue, fetch
from shardstream.storage.urls import open_object, open_store

__all__ = [
    "AsyncStore",
    "Buffers",
    "FetchedBuffers",
    "Location",
    "MappedBuffers",
    "ObjectMeta",
    "ObjectWriter",
    "Read",
    "ReadQueue",
    "Request",
    "Store",
    "Transport",
    "counters",
    "fetch",
    "locate",
    "open_object",
    "open_store",
]
