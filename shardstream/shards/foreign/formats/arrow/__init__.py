"""Apache Arrow: IPC files and streams, Feather, and the folders of Hugging Face's ``datasets``.

=============  =============================================================================
``schema``     ``ArrowField``: the types of columns, of Arrow's own or of pyarrow's schema
``columns``    which of our fields the columns of a schema become; Parquet's too
=============  =============================================================================
"""
