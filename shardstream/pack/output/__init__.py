"""What a run leaves: shards on their way out, receipts, rejects, reports, and the data set that they become.

================  =================================================================================
``destination``   the place of the output: what it holds, how the new replaces the old, cleaning up
``places``        the storage arguments of a verb, and the places that they lead to
``shard_options`` what shards hold: compression, checksums, a table of the keys
``growth``        appending: the next version of a data set
``copies``        shards copied byte for byte
``commits``       finished shards on their way out, while the next is made
``receipts``      what a finished task leaves beside its shard, so that nothing is done twice
``rejects``       what could not be packed, any number of it, listed and counted without being held
``reject_limit``  ``SourceOptions(max_rejects=...)``: the number or share of rejected samples that ends a run
``rows``          ``rows.parquet``: what became of every line of the source
``stats``         what was done, counted, and where the time went
``report``        what a run did, for its caller and as ``report.json``
================  =================================================================================
"""
