"""The block cache: what was read from a store stays on this machine, shared by all its processes.

==================  ====================================================================================
``spec``            ``Cache``: where blocks go, and how much room they may take
``store``           ``CachedStore``: a store whose objects come from the cache
``copies``          ``CachedBuffers``: ranges that a cache holds, copied out of it when they are used
``fill``            fetching absent blocks, each by one process of the node
``whole_objects``   objects of servers without ranges, fetched whole
``session``         what one process has open of a cache, and what it does when the cache cannot be used
``tier``            a folder of a ``Cache``, in memory or on disk: what is in it, who uses it, what may be cleared
``cached_dataset``  one data set in a tier, in use: what is found, what is admitted
``blocks``          one cached object: its blocks, and the map that says which are there
``folder``          a folder held by its descriptor: what is trusted, and all that is done with files
``ledger``          how many bytes were given out, kept by all processes together
``capacity``        what a file system, and a container's memory, can still take
``locks``           locks that end with the process that holds them
``manifests``       manifests kept for starts without the store
``maintenance``     looking at a cache from outside, verifying and clearing it
==================  ====================================================================================
"""

from shardstream.storage.cache.copies import CachedBuffers
from shardstream.storage.cache.spec import Cache
from shardstream.storage.cache.store import CachedStore, Identity

__all__ = ["Cache", "CachedBuffers", "CachedStore", "Identity"]
