"""A predicate, called once for each sample of a dataset.

====================  ====================================================================
``find_rows``         ``find_rows``: the samples for which it is true
``evaluation``        ``Evaluation``: calls it, in any process
``rows_output``       ``out=``: the file that grows shard by shard
``code_digest``       what tells a predicate from another one
====================  ====================================================================
"""
