"""An opened data set: its manifest at a version, where its bytes lie, its indexes, and rows by number. Knows no order.

===============  =============================================================================
``opened``       ``OpenedDataset``: one data set: where its bytes lie, and its manifest
``opening``      these, with replicas, cache and credentials -> ``OpenedDataset``
``paths``        a folder, a list, a glob, braces -> folders or URLs
``source``       ``Source``: data sets through a view
``view``         split, filter, first n: which rows of each shard
``indexes``      the shards whose index is at hand, bounded in number
``rows``         stored values by (shard, row)
``row_batch``    ``RowBatch``: what came of it
``mapped_rows``  the same over all shards of a step at once, where their files are mapped
``read_ahead``   ``ReadAhead``: bytes of coming samples, fetched before anybody waits for them
``step``         ``Step``: the samples of a step by where they lie
``shared``       small facts in anonymous shared memory
===============  =============================================================================
"""
