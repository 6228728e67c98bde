"""Some rows of each shard: those that a condition or ``find_rows`` chose.

=============  ====================================================================
``row_set``    ``RowSet``: some rows of each shard, a bit a row
``rows``       ``Rows``: about a bit per sample, for ``where=``
``rows_file``  the bytes of the files they are kept in
=============  ====================================================================
"""
