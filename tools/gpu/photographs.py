"""The photographs several times over: an epoch of a few hundred is mostly its begin and its end."""

from __future__ import annotations

from pathlib import Path

import shardstream as ss
from gpu.setting import Setting

EPOCH = 6000


def repeated(setting: Setting) -> str:
    """A data set of so many samples, in the part's scratch folder."""
    samples = list(ss.ShardDataset(setting.shards, fields={"jpg": "bytes", "cls": None}))
    shards = Path(setting.scratch) / "repeated"
    with ss.ShardWriter(shards, format="tar") as writer:
        for number in range(len(samples) * 2 if setting.quick else EPOCH):
            writer.write(samples[number % len(samples)] | {"__key__": f"{number:06d}"})
    return str(shards)
