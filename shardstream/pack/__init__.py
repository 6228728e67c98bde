"""Writing data sets. Knows nothing of training.

================  =============================================================================
``run``           ``pack``: from a source to a data set, and its progress
``repack``        a data set again: other order, format, size of shards, a part of it
``report``        what a run did, for its caller and as ``report.json``
``rows``          ``rows.parquet``: what became of every line of the source
``plan``          ``pack_plan``: the same as independent tasks, for any engine, and their commit
``writer``        ``ShardWriter``: samples from Python, one at a time
``sources``       where samples come from: lists, class folders
``options``       what determines the bytes that are written, checked
``cut``           which sample goes where: shards cut by count, the plan's fingerprint, the tasks
``dedup``         exact copies, found by content before anything is packed
``streams``       the first pass over what can only be read in order, into temporary shards
``inference``     types of fields that nobody declared, from a sample of the source
``permute``       the write-time shuffle: a keyed bijection, computed where it is needed
``task``          one shard: read, write, report
``receipts``      what a finished task leaves beside its shard, so that nothing is done twice
``rejects``       what could not be packed, any number of it, listed and counted without being held
``threads``       threads to read and ask side by side, of which none that hangs is waited for at the end
``reading``       the files of samples in order, many on their way where that takes time
``files``         the content of a file by path or URL, or the reason why not
``sample``        from contents to encoded values: the user's transform, images
``values``        values from Python, typed and encoded
``tally``         what was done, counted, and where the time went
``images``        what becomes of image files: made addressable, smaller, stripped, or kept
``jobs``          the contract between tasks and what runs them; what all tasks do alike
``workers``       tasks in processes, or on an executor
``worker``        what runs in a worker process
``channel``       objects between the two, of any size: nobody waits for one who waits for him
``lending``       a plan in files that workers of this machine inherit, so that a task is a number
``engines``       tasks on a cluster: Dask, Ray, Spark
``commits``       finished shards on their way out, while the next is made
``export``        ``export``: out of shards again, as files, WebDataset or Parquet
``merge``         ``merge``: several data sets become one
``copies``        shards copied byte for byte
``growth``        appending: the next version of a data set
``destination``   the place of the output: what it holds, how the new replaces the old, cleaning up
``duplicates``    equal keys, in eight bytes a key
================  =============================================================================

As an attribute of the package, ``pack`` is the function; the room is imported as usual: ``from shardstream.pack import
ShardWriter``.
"""

from __future__ import annotations

from shardstream.pack.export import ExportReport, export
from shardstream.pack.merge import MergeProgress, merge
from shardstream.pack.options import PackOptions
from shardstream.pack.plan import PackPlan, pack_plan
from shardstream.pack.repack import repack
from shardstream.pack.report import PackReport
from shardstream.pack.run import PackProgress, pack, run_pack
from shardstream.pack.sources import Reject
from shardstream.pack.writer import ShardWriter

__all__ = [
    "ExportReport",
    "MergeProgress",
    "PackOptions",
    "PackPlan",
    "PackProgress",
    "PackReport",
    "Reject",
    "ShardWriter",
    "export",
    "merge",
    "pack",
    "pack_plan",
    "repack",
    "run_pack",
]
