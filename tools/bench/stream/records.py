"""The data: records of one size, in each contender's own format, on the server and nowhere else.

Every record begins with its number, so that what was delivered can be checked; the rest is random.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import shardstream
from bench.data import BATCH, HOME
from bench.peers import bare_streaming
from bench.stream.servers import BUCKET, options
from shardstream import rng

RECORD = 55_000  # bytes
PER_SHARD = 10 * BATCH  # of all contenders, so that shards are 70 MB and workers' shares equal
COUNT = 48 * PER_SHARD
EPOCHS = 1  # that are counted, of those that keep nothing; from a cache or a disk, twice as many
LOCAL = HOME / "stream"
_STORED = {"tar": RECORD + 808, "record": RECORD}  # what a record takes there
_POOL = 64 << 20


@cache
def _pool() -> memoryview:
    return memoryview(rng.words((_POOL + RECORD) // 8, seed=3, domain=rng.Domain.PACK).tobytes())


def record(number: int) -> bytes:
    """Its number as 8 bytes, then random ones."""
    start = number * 7919 % _POOL
    return number.to_bytes(8, "little") + bytes(_pool()[start : start + RECORD - 8])


def numbered(count: int) -> Iterator[dict[str, Any]]:
    """All records as samples."""
    for number in range(count):
        yield {"__key__": f"{number:08d}", "x": record(number)}


def write_ours(folder: Path, count: int, framing: Any = "tar") -> None:
    """Shards of ours. As tars they are WebDataset's, too: both read the same objects."""
    with shardstream.ShardWriter(folder, format=framing, shard_size=PER_SHARD * _STORED[framing]) as writer:
        for sample in numbered(count):
            writer.write(sample)


def write_streaming(folder: Path, count: int) -> None:
    """Shards of MosaicML Streaming."""
    bare_streaming()
    from streaming.base.format.mds.writer import MDSWriter

    with MDSWriter(out=str(folder), columns={"x": "bytes"}, size_limit=PER_SHARD * (RECORD + 12)) as writer:
        for sample in numbered(count):
            writer.write({"x": sample["x"]})


def write_litdata(folder: Path, count: int) -> None:
    """Chunks of LitData."""
    import litdata

    litdata.optimize(
        fn=_litdata_sample,
        inputs=list(range(count)),
        output_dir=str(folder),
        chunk_size=PER_SHARD,
        num_workers=1,
        reorder_files=False,
        verbose=False,
    )


def write_lance(folder: Path, count: int) -> None:
    """A Lance data set."""
    import lance
    import pyarrow  # type: ignore[import-untyped]

    schema = pyarrow.schema([("x", pyarrow.binary())])
    batches = (
        pyarrow.RecordBatch.from_arrays([pyarrow.array(list(map(record, part)), pyarrow.binary())], schema=schema)
        for part in (range(first, min(first + BATCH, count)) for first in range(0, count, BATCH))
    )
    lance.write_dataset(batches, str(folder), schema=schema, max_rows_per_file=PER_SHARD)


def _litdata_sample(number: int) -> dict[str, Any]:
    return {"x": record(number)}


def prepare(endpoint: str, count: int, kinds: tuple[str, ...]) -> Path:
    """Bring the data to the server in the formats ``kinds``: "tar", "record", "streaming", "litdata", "lance".

    Returns:
        The folder in which ours stays as well, for comparisons with local shards.
    """
    shutil.rmtree(LOCAL, ignore_errors=True)
    LOCAL.mkdir(parents=True)
    for kind in kinds:
        folder = LOCAL / kind
        if kind in ("tar", "record"):
            write_ours(folder, count, kind)
        elif kind == "streaming":
            write_streaming(folder, count)
        elif kind == "lance":
            write_lance(folder, count)
        else:
            write_litdata(folder, count)
        send(folder, endpoint, kind)
        if kind != kinds[0]:
            shutil.rmtree(folder)
    os.sync()
    return LOCAL / kinds[0]


def send(folder: Path, endpoint: str, prefix: str, *, at_once: int = 4) -> None:
    """Upload a folder, without listing or looking."""
    import obstore

    store = bucket(endpoint)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda path: obstore.put(store, f"{prefix}/{path.relative_to(folder)}", path), files))


def bucket(endpoint: str) -> Any:
    """The bucket, to obstore."""
    from obstore.store import S3Store

    config: Any = options(endpoint)
    return S3Store(BUCKET, config=config, client_options={"allow_http": True, "timeout": "600s"})


class Tally:
    """What a loader delivered."""

    def __init__(self) -> None:
        self.count = self.total = self.squares = self.bytes = 0

    def add(self, batch: Any) -> None:
        """A batch of ours, or a peer's as values and offsets."""
        if isinstance(batch, dict):
            batch = batch["x"].values, batch["x"].offsets
        values, offsets = batch[0].numpy(), batch[1].numpy()
        numbers = values[offsets[:-1, None] + np.arange(8)].reshape(-1).view("<u8")
        self.count += len(numbers)
        self.total += int(numbers.sum())
        self.squares += int((numbers * numbers).sum())
        self.bytes += int(offsets[-1] - offsets[0])

    def delivered(self) -> dict[str, int]:
        """For comparison: sums of numbers and of their squares say that each came once."""
        return {"records": self.count, "bytes": self.bytes, "numbers": self.total, "squares": self.squares}
