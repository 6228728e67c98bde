"""Parquet: files, folders of them, and repositories of Hugging Face.

===========  ==================================================================================
``format``   ``Parquet``: which objects hold samples, their blocks and their rows
``footer``   schema and row groups
``schema``   the columns of a schema as Arrow has them
``fields``   a field, and how it is read from a row group
``columns``  where the values of a column lie
``parts``    which pages are shown as they lie, and which as blocks
===========  ==================================================================================

What is in pages is read by `shardstream.formats.blocks.parquet`, which inflates blocks, too.
"""
