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

As an attribute of the package, ``pack`` is the function; of the room, modules are imported: ``from
shardstream.pack.writer import ShardWriter``. It imports none itself, since each worker process imports it.
"""
