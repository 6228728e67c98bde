"""Data sets to look at, and bytes to damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from shardstream.pack.writer import ShardWriter


def make(dest: Path, count: int = 20, **options: Any) -> Path:
    """Some samples of every kind of field, in shards of ten or so."""
    fields = {"fix": "array:float32:4", "f16": "float16"}
    with ShardWriter(
        dest, shard_size="70kB" if options.get("format", "tar") == "tar" else "18kB", fields=fields, **options
    ) as writer:
        for i in range(count):
            sample = {"__key__": f"a.b/{i}", "raw": bytes([i]) * 1500, "cls": i, "yes": i % 2 == 0, "f": i / 3}
            sample |= {"fix": np.full(4, i, np.float32), "f16": 0.1, "txt": "é" if i % 3 else None}
            writer.write(sample)
    return dest


def flip(path: Path, offset: int) -> None:
    """Change one byte."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)
