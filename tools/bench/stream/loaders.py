"""Epochs in a fresh process, streamed by two workers: ours and the peers'.

The first epoch counts from the making of the data set, after the imports, with no copy of anything to begin with. Those
that keep nothing, WebDataset and ours, go on with further epochs by workers that stay. Local copies of the others are
in memory (``/dev/shm``), so that no disk takes part.
"""

from __future__ import annotations

import os
import shutil
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
