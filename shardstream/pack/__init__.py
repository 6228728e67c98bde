"""Writing data sets. Knows nothing of training.

================  =============================================================================
``run``           ``pack``: from a list of files to a data set, and its report
``writer``        ``ShardWriter``: samples from Python, one at a time
``sources``       where samples come from: lists, class folders
``options``       what determines the bytes that are written, checked
``plan``          which sample goes where: ``PackPlan``, its fingerprint and its tasks
``permute``       the write-time shuffle: a keyed bijection, computed where it is needed
``task``          one shard: read, write, report
``sample``        files to encoded values, or the reason why not
``images``        what becomes of image files: made addressable, smaller, stripped, or kept
``workers``       tasks in processes, or on an executor
``worker``        what runs in a worker process
``commits``       finished shards on their way out, while the next is made
``destination``   the place of the output: what it holds, how the new replaces the old, cleaning up
``duplicates``    equal keys, in eight bytes a key
================  =============================================================================

As an attribute of the package, ``pack`` is the function; the room is imported as usual: ``from shardstream.pack import
ShardWriter``.
"""

from __future__ import annotations

from shardstream.pack.options import PackOptions
from shardstream.pack.run import PackProgress, PackReport, pack, run_pack
from shardstream.pack.sources import Reject
from shardstream.pack.writer import ShardWriter

__all__ = ["PackOptions", "PackProgress", "PackReport", "Reject", "ShardWriter", "pack", "run_pack"]
