"""Lists as files: text with one sample or key per line, wherever it lies.

=================  =================================================================
``list_file``      lists as files read by range, also those that lie elsewhere
``compressed``     what gzip, bzip2, xz and zstd files hold, a piece at a time
``decompression``  compressed text, read once from its beginning to its end
=================  =================================================================
"""
