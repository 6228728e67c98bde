"""The race: decoding and cropping beside every peer, each in its best configuration: ``tools/bench/run race``."""
