"""Writing data sets. Knows nothing of training.

==============  ===================================================================
``run``         ``pack``: from a source to a data set
``dry_run``     what `pack` would do, from its plan and a probe of some samples
``repack``      a data set again: other order, format, size of shards, a part of it
``merge``       ``merge``: several data sets become one
``export/``     ``export``: out of shards again, as files, WebDataset or Parquet
``plan/``       ``pack_plan``: which sample goes where, as independent tasks
``execution/``  tasks, and what runs them
``writer``      ``ShardWriter``: samples from Python, one at a time
``options``     what determines the bytes that are written, checked
``output/``     the destination, receipts, rejects, reports
``encode/``     from files to encoded values
``sources/``    where samples come from
==============  ===================================================================

As an attribute of the package, ``pack`` is the function; the room is imported as usual: ``from shardstream.pack import
ShardWriter``.
"""

from __future__ import annotations

from shardstream.pack.export import ExportReport, export
from shardstream.pack.merge import merge
from shardstream.pack.options import PackOptions
from shardstream.pack.output.report import PackReport
from shardstream.pack.plan.pack_plan import PackPlan, pack_plan
from shardstream.pack.repack import repack
from shardstream.pack.run import pack, run_pack
from shardstream.pack.sources import Reject
from shardstream.pack.writer import ShardWriter

__all__ = [
    "ExportReport",
    "PackOptions",
    "PackPlan",
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
