"""Objects that are compressed, as a whole or in blocks, shown inflated.

============  ============================================================"""

from shardstream.storage.blocks.store import BlockStore
from shardstream.storage.blocks.table import BlockList, ObjectBlocks

__all__ = ["BlockList", "BlockStore", "ObjectBlocks"]
