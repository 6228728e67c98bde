"""An opened data set: its manifest at a version, where its bytes lie, its indexes, and rows by number. Knows no order.

Every verb reads through this room: `open_dataset` opens, `DatasetRows` reads rows, and `OpenedDataset.open` a shard.

================= ============================================================================
``opened``        ``OpenedDataset``: one data set: where its bytes lie, and its manifest
``opening``       a folder or URL, a list, a glob, braces -> ``OpenedDataset``
``formats``       the door to other formats: what is asked of them, and the package that reads them
``shard``         ``Shard``: where the bytes of one are read, ``Replica``: elsewhere; ``OpenShard``: with its index
``numbering``     ``Numbering``: which shard a row lies in, which data set a shard
``source``        ``DatasetSource``: data sets through a view
``joined``        the same laid end to end: samples of each shard, fields, identity
``view``          split, filter, first n: which rows of each shard
``conditions``    what ``where=`` says: values, comparisons, callables, keys
``weights``       weights of samples as integers
``costs``         batches of samples that cost about the same together
``drawn_rows``    ``DrawnRows``: the rows of a shard that draws by weight find
``indexes``       ``OpenShards``: the shards whose index is at hand, bounded in number
``rows``          ``RowReader``: stored values by (shard, row) -> ``RowBatch``
``dataset_rows``  ``DatasetRows``: the same of one data set, by number or shard by shard
``keys``          ``KeyFinder``: the number of a sample by its key; documents that lie in bins
``image_field``   the virtual field ``image``: which stored fields it stands for
``lists``         lists of keys and samples as files: remote, piped, compressed
``gathered_rows`` the same over all shards of a step at once, where their bytes lie in memory
``read_ahead``    ``ReadAhead``: bytes of coming samples, fetched before anybody waits
``step``          ``Step``: the samples of a step by where they lie
``shared``        small facts in anonymous shared memory
================= ============================================================================
"""
