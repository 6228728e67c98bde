"""Out of shards again: files, WebDataset, Parquet, MDS. Nobody is locked in.

=============  ====================================================================================
``run``        ``export``: what is there, what is left to do, and the end of it
``task``       one shard: its samples, some at a time, into what they become
``contract``   ``Target``: what a kind of output has to do
``names``      file names of keys and fields
``files``      single files, and a list of them
``webdataset`` tar shards
``parquet``    tables
``mds``        shards of MosaicML Streaming
``mds_dtypes`` dtypes of arrays in these, for readers too
=============  ====================================================================================

It imports none of them itself: a process that reads MDS in place imports ``mds_dtypes`` alone.
"""
