"""Objects that are compressed, as a whole or in blocks, shown inflated.

===============  ===================================================================
``store``        ``BlockStore``: places are those of the inflated bytes
``held``         the inflated blocks that a process keeps, so that none is made twice
``table``        ``ObjectBlocks``: where the blocks of an object lie
``codecs``       from the stored bytes of a block to its inflated ones
``gzip_points``  the same of parts of gzip files
``nested``       the same of nested columns of Arrow, as JSON
``parquet/``     the same of pages of Parquet files
``hdf5_chunks``  the same of chunks of HDF5
``lzf``          the same of LZF, compiled
``json_values``  values as JSON, for codecs that write it
===============  ===================================================================
"""

from shardstream.storage.blocks.store import BlockStore
from shardstream.storage.blocks.table import BlockList, ObjectBlocks

__all__ = ["BlockList", "BlockStore", "ObjectBlocks"]
