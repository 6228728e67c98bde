"""Samples that ``find_rows`` chose.

=============  ====================================================================
``rows``       ``Rows``: about a bit per sample, for ``where=``
``rows_file``  the bytes of the files they are kept in
=============  ====================================================================
"""
