"""Objects that are compressed, as a whole or in blocks, shown inflated.

================  ===================================================================
``store``         ``BlockStore``: places are those of the inflated bytes
``held``          the inflated blocks that a process keeps, so that none is made twice
``table``         ``ObjectBlocks``: where the blocks of an object lie
``codecs``        from the stored bytes of a block to its inflated ones
``compressed``    what is compressed as a whole, told by its first bytes; its blocks
``found_blocks``  ``FoundBlocks``: the blocks of an object that is compressed
``gzip_parts``    the blocks of what is compressed with gzip: parts of large files
``zstd_frames``   the blocks of what is compressed with zstd
``gzip_points``   the same of parts of gzip files
``nested``        the same of nested columns of Arrow, as JSON
``parquet/``      the same of pages of Parquet files
``hdf5_chunks``   the same of chunks of HDF5
``lzf``           the same of LZF, compiled
``json_values``   values as JSON, for codecs that write it
================  ===================================================================
"""

from shardstream.formats.blocks.store import BlockStore
from shardstream.formats.blocks.table import BlockList, ObjectBlocks

__all__ = ["BlockList", "BlockStore", "ObjectBlocks"]
