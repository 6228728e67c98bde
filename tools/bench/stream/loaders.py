"""Epochs in a fresh process, streamed by two workers: ours and the peers'.

The first epoch counts from the making of the data set, after the imports, with no copy of anything to begin with. Those
that keep nothing, WebDataset and ours, go on with further epochs by workers that stay. Local copies of the others are
in memory (``/dev/shm``), so that no disk takes part.
"""

from __future__ import annotations

import os
import random
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from bench.data import BATCH, WORKERS
from bench.peers import bare_streaming
from bench.stream.records import EPOCHS, PER_SHARD, Tally
from bench.stream.servers import BUCKET, environment, options


def with_shardstream(endpoint: str, count: int, prefix: str = "tar", prefetch: str | None = None) -> dict[str, Any]:
    """Ours, without a cache."""
    _import_ours()
    return _epochs(lambda: _ours(endpoint, prefix=prefix, prefetch=prefetch), count, EPOCHS)


def with_webdataset(endpoint: str, count: int) -> dict[str, Any]:
    """WebDataset, by the URLs of the same shards on the same server; it runs curl for them."""
    import webdataset

    urls = [f"{endpoint}/{BUCKET}/tar/shard-{number:06d}.tar" for number in range(-(-count // PER_SHARD))]

    def loader() -> Iterable[Any]:
        dataset = webdataset.WebDataset(urls, shardshuffle=100, seed=1)
        batches = dataset.shuffle(1000).to_tuple("x").batched(BATCH, partial=True, collation_fn=_joined)
        return webdataset.WebLoader(  # type: ignore[no-any-return]
            batches, batch_size=None, num_workers=WORKERS, persistent_workers=True
        )

    return _epochs(loader, count, EPOCHS)


def with_streaming(endpoint: str, count: int) -> dict[str, Any]:
    """MosaicML Streaming."""
    os.environ |= environment(endpoint)
    bare_streaming()
    from streaming.base.dataset import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory
    from torch.utils.data import DataLoader

    clean_stale_shared_memory()
    with _in_memory() as folder:

        def loader() -> Iterable[Any]:
            dataset = StreamingDataset(
                remote=f"s3://{BUCKET}/streaming", local=folder, shuffle=True, batch_size=BATCH, num_canonical_nodes=1
            )
            for stream in dataset.streams:
                # Forked workers would share the connection over which this process read the index, and take each
                # other's answers: 60 s are lost until its client tries again.
                stream._downloader.clean_up()
            return DataLoader(dataset, batch_size=BATCH, num_workers=WORKERS, collate_fn=_joined)

        return _epochs(loader, count)


def with_litdata(endpoint: str, count: int) -> dict[str, Any]:
    """LitData."""
    import litdata
    from litdata.streaming import downloader

    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # none of its arguments can say so
    storage_options = {
        "endpoint_url": endpoint,
        "aws_access_key_id": options(endpoint)["access_key_id"],
        "aws_secret_access_key": options(endpoint)["secret_access_key"],
        "region_name": "us-east-1",
    }
    with _in_memory() as folder:

        def loader() -> Iterable[Any]:
            dataset = litdata.StreamingDataset(
                f"s3://{BUCKET}/litdata", cache_dir=folder, shuffle=True, storage_options=storage_options
            )
            return litdata.StreamingDataLoader(  # type: ignore[no-any-return]
                dataset, batch_size=BATCH, num_workers=WORKERS, collate_fn=_joined
            )

        return _epochs(loader, count)


def with_s3torchconnector(endpoint: str, count: int) -> dict[str, Any]:
    """The same tar shards by AWS's connector, whose users read what is in them by the standard library."""
    from torch.utils.data import DataLoader

    os.environ |= environment(endpoint)
    names = [f"s3://{BUCKET}/tar/shard-{number:06d}.tar" for number in range(-(-count // PER_SHARD))]

    def loader() -> Iterable[Any]:
        return DataLoader(ConnectedTars(endpoint, names), batch_size=None, num_workers=WORKERS, persistent_workers=True)

    return _epochs(loader, count, EPOCHS)


class ConnectedTars(torch.utils.data.IterableDataset[Any]):
    """Records of tar files in batches, those of each worker shuffled in a buffer of 1,000."""

    def __init__(self, endpoint: str, names: list[str]) -> None:
        self._endpoint = endpoint
        self._names = names
        self._epochs = 0

    def __iter__(self) -> Iterator[Any]:
        from s3torchconnector import S3ClientConfig, S3IterableDataset

        self._epochs += 1  # the same in each worker, so that they share out one order
        tars = S3IterableDataset.from_objects(
            random.Random(self._epochs).sample(self._names, len(self._names)),
            region="us-east-1",
            endpoint=self._endpoint,
            enable_sharding=True,
            s3client_config=S3ClientConfig(force_path_style=True),
        )
        batch: list[Any] = []
        for one in _shuffled(record for reader in tars for record in _members(reader)):
            batch.append((one,))
            if len(batch) == BATCH:
                yield _joined(batch)
                batch = []
        if batch:
            yield _joined(batch)


def _members(reader: Any) -> Iterator[bytes]:
    with tarfile.open(fileobj=reader, mode="r|") as tar:
        for member in tar:
            file = tar.extractfile(member) if member.name.endswith(".x") else None
            if file is not None:
                yield file.read()


def _shuffled(records: Iterable[bytes], size: int = 1000) -> Iterator[bytes]:
    held: list[bytes] = []
    for one in records:
        if len(held) < size:
            held.append(one)
            continue
        place = random.randrange(size)
        held[place], one = one, held[place]
        yield one
    random.shuffle(held)
    yield from held


def with_lance(endpoint: str, count: int) -> dict[str, Any]:
    """Rows by their numbers, a batch at a time, by Lance's own threads in this process."""
    import lance

    told = options(endpoint)
    storage_options = {
        "aws_access_key_id": told["access_key_id"],
        "aws_secret_access_key": told["secret_access_key"],
        "aws_endpoint": endpoint,
        "aws_region": told["region"],
        "allow_http": "true",
    }

    def loader() -> Iterable[Any]:
        return TakenRows(lance.dataset(f"s3://{BUCKET}/lance", storage_options=storage_options))

    return _epochs(loader, count, EPOCHS)


class TakenRows:
    """All rows of a Lance data set, in another order each time."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __iter__(self) -> Iterator[Any]:
        count = self._table.count_rows()
        numbers = random.sample(range(count), count)
        for first in range(0, count, BATCH):
            rows = self._table.take(numbers[first : first + BATCH], columns=["x"])["x"].combine_chunks()
            _, offsets, values = rows.buffers()
            yield (
                torch.frombuffer(bytearray(values), dtype=torch.uint8),
                torch.frombuffer(bytearray(offsets), dtype=torch.int32)[: len(rows) + 1],
            )


def cached(endpoint: str, count: int) -> dict[str, Any]:
    """Ours, epochs from the cache that the first one filled."""
    with _in_memory() as cache:
        _import_ours()
        return _epochs(lambda: _ours(endpoint, cache=cache), count, 2 * EPOCHS)


def local(folder: str, count: int) -> dict[str, Any]:
    """Ours, the same shards in a local folder."""
    with _in_memory() as home:
        shutil.copytree(folder, f"{home}/shards")
        return _epochs(lambda: _ours(None, f"{home}/shards"), count, 2 * EPOCHS)


def first_batch(endpoint: str) -> dict[str, Any]:
    """Milliseconds from nothing but imports to the first batch."""
    _import_ours()
    start = time.perf_counter()
    batches = iter(_ours(endpoint))  # held, or the time would be that of ending the workers as well
    batch = next(batches)
    milliseconds = 1e3 * (time.perf_counter() - start)
    tally = Tally()
    tally.add(batch)
    if tally.count != BATCH:
        raise ValueError(f"the first batch has {tally.count} records")
    return {"figures": {"ms": milliseconds}, "delivered": {}}


def _import_ours() -> None:
    """What is imported only when used."""
    import obstore  # noqa: F401

    import shardstream

    _ = shardstream.Loader


def _ours(endpoint: str | None, url: str | None = None, *, prefix: str = "tar", **arguments: Any) -> Any:
    from shardstream import Loader, ShardDataset

    dataset = ShardDataset(
        url or f"s3://{BUCKET}/{prefix}",
        storage_options=None if endpoint is None else options(endpoint),
        fields={"x": "bytes"},
        batch_size=BATCH,
        shuffle=True,
        **arguments,
    )
    return Loader(dataset, num_workers=WORKERS)


def _joined(samples: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """The peers' batches: one tensor of bytes with offsets, which shared memory brings from the worker.

    Lists of bytes, which their own batching makes, would be copied through a pipe.
    """
    payloads = [sample["x"] if isinstance(sample, dict) else sample[0] for sample in samples]
    offsets = torch.tensor([0, *map(len, payloads)]).cumsum(0)
    return torch.frombuffer(bytearray().join(payloads), dtype=torch.uint8), offsets


def _epochs(make: Callable[[], Any], count: int, later: int = 0) -> dict[str, Any]:
    """Records a second in the first epoch and in those after it, and seconds to the first batch."""
    begun = first = 0.0
    before = 0
    start = time.perf_counter()
    loader = make()
    for epoch in range(1 + later):
        tally = Tally()
        for batch in loader:
            first = first or time.perf_counter() - start
            tally.add(batch)
        _check(tally, count)
        if epoch == 0:
            begun, before = time.perf_counter(), _fetched(loader)
    figures = {"first epoch": count / (begun - start), "first s": first}
    if later:
        figures["later epoch"] = later * count / (time.perf_counter() - begun)
        figures["fetched"] = _fetched(loader) - before
    return {"figures": figures, "delivered": tally.delivered()}


def _fetched(loader: Any) -> int:
    stats = getattr(loader, "stats", None)
    return 0 if stats is None else stats.transfers.get("bytes", 0)


def _check(tally: Tally, count: int) -> None:
    numbers = range(count)
    if (tally.count, tally.total, tally.squares) != (count, sum(numbers), sum(n * n for n in numbers)):
        raise ValueError(f"{count} records were to be delivered once each, but it was {tally.delivered()}")


@contextmanager
def _in_memory() -> Iterator[str]:
    """An empty folder."""
    root = Path("/dev/shm")  # noqa: S108 - this very folder is meant
    with tempfile.TemporaryDirectory(dir=root if root.is_dir() else None) as folder:
        yield folder
