"""Pages of Parquet files: what compression, dictionaries and levels hide, as pure functions from bytes.

=============  =======================================================================
``thrift``     the structs of footers and page headers
``pages``      headers of pages, their bytes without compression, their levels
``encodings``  runs, packed bits, differences, split bytes, lengths
``values``     the values of a page, as arrays or as where they lie
``columns``    the values of several pages: elements of lists, bytes of their own
``rows``       columns of lists and structs put together to rows, as JSON or msgpack
``block``      ``inflated_block``: the codec of blocks, which are runs of pages
=============  =======================================================================

What is wrong with them is a `DecodeError`; whoever knows the object adds the place.
"""
