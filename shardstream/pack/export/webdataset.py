"""Tar shards as the webdataset package writes them: members ``KEY.FIELD``, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shardstream.pack.export.contract import Sample, Target
from shardstream.pack.export.names import extensions
from shardstream.shards.arrays import npy_bytes
from shardstream.shards.fields import FieldType, ValuesType
from shardstream.shards.manifest import Manifest
from shardstream.shards.tar import TarShard
from shardstream.storage import ObjectWriter, Store

_NPY = FieldType.parse("array")


class WebDatasetTarget(Target):
    """A tar of each shard. In names, dots of keys are escaped, as WebDataset ends a key at the first."""

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._names = extensions(manifest.fields)

    def object_name(self, shard: int) -> str:
        return f"shard-{shard:06d}.tar"

    def write(self, store: Store, out: ObjectWriter, samples: Iterator[Sequence[Sample]], *, again: bool) -> bytes:
        shard = TarShard(out, checksums=False)
        for part in samples:
            for sample in part:
                values = {
                    self._names.get(name, name): _member(self.fields[name], value)
                    for name, value in sample.values.items()
                }
                shard.write(sample.key, values)
        shard.end()
        return b""


def _member(kind: FieldType, value: Any) -> tuple[FieldType, Any]:
    if isinstance(kind, ValuesType):
        return _NPY, npy_bytes(value)
    return kind, value
