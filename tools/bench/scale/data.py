"""The data sets that are measured."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import shardstream
from bench.data import HOME, settle
from shardstream import rng
from shardstream.shards.fields import FieldType
from shardstream.shards.layout import FORMAT_VERSION
from shardstream.shards.manifest import Manifest
from shardstream.shards.table import NamedShards, ShardTable
from shardstream.storage import open_store

SHARDS = 1_000_000
SHARD_SAMPLES = 10_000  # on average: 10**10 samples in all
SHARD_BYTES = 256_000_000
MEAN_BYTES = SHARD_BYTES / SHARD_SAMPLES
FEW = 10_000  # samples of the data set that memory is compared with
RECORDS, RECORD_BYTES = 16_384, 55_000
SMALL_SAMPLES, SMALL_BYTES, SMALL_SHARDS = 10_000_000, 16, 1_000


def counts(samples: int) -> NDArray[np.int64]:
    """Samples of each shard: between 9,000 and 11,000 each, or ten equal shards for `FEW`."""
    if samples == FEW:
        return np.full(10, FEW // 10, np.int64)
    words = rng.words(samples // SHARD_SAMPLES, seed=0, domain=rng.Domain.PACK)
    return SHARD_SAMPLES - 1000 + rng.below(words, 2001).astype(np.int64)


def manifest_only(samples: int) -> Path:
    """A data set of which only the manifest exists: what a process holds before it reads a sample."""
    folder = HOME / f"manifest-{samples}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    of_shard = counts(samples)
    table = ShardTable(
        of_shard.astype("<u4"),
        np.full(len(of_shard), SHARD_BYTES, "<u8"),
        rng.words(len(of_shard), seed=1, domain=rng.Domain.PACK),
    )
    fields = {"x": FieldType.parse("bytes"), "cls": FieldType.parse("int32")}
    naming = (NamedShards("shard-{:07d}.ssr", len(of_shard)),)
    Manifest(framing="record", fields=fields, naming=naming, table=table).save(open_store(folder))
    return folder


def records() -> Path:
    """Record shards of `RECORDS` samples of `RECORD_BYTES` random bytes; fresh, by the code as it is now."""
    folder = HOME / "records"
    shutil.rmtree(folder, ignore_errors=True)
    words = rng.words(RECORDS * RECORD_BYTES // 8, seed=2, domain=rng.Domain.PACK)
    payload = words.tobytes()
    with shardstream.ShardWriter(folder, format="record", shard_size="32MB") as writer:
        for i in range(RECORDS):
            x = payload[i * RECORD_BYTES : (i + 1) * RECORD_BYTES]
            writer.write({"__key__": f"{i:06d}", "x": x, "cls": i % 1000})
    settle(folder)
    return folder


def small_samples() -> Path:
    """`SMALL_SAMPLES` samples of `SMALL_BYTES` bytes; kept from run to run, since writing them takes minutes."""
    folder = HOME / f"small-v{FORMAT_VERSION}-{SMALL_SAMPLES}-{SMALL_BYTES}"
    if not (folder / "dataset.json").exists():
        print(f"  writing {SMALL_SAMPLES:,} samples of {SMALL_BYTES} bytes, once", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        size = SMALL_SAMPLES // SMALL_SHARDS * SMALL_BYTES
        with shardstream.ShardWriter(folder, format="record", shard_size=size) as writer:
            for i in range(SMALL_SAMPLES):
                writer.write({"__key__": str(i), "x": i.to_bytes(SMALL_BYTES, "little")})
    settle(folder)
    return folder
