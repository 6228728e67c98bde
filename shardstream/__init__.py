"""shardstream: very large data sets, streamed into PyTorch."""

from shardstream import decode, errors
from shardstream.load import Loader
from shardstream.shards.manifest import Manifest
from shardstream.stream import Ragged, Reader, ShardDataset
__version__ = "0.1.0"
