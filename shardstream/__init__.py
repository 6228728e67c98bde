"""shardstream: very large data sets, streamed into PyTorch."""

__version__ = "0.1.0"
