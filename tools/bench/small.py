"""Small samples of one size, batched: blocks of tokens, and pictures that are stored decoded.

In the environment of ``tools/bench/run``: ``PYTHONPATH=tools .bench/venv/bin/python -m bench.small tokens --rounds 3``.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench import report
from bench.data import BATCH, HOME, WORKERS
from bench.harness import Benchmark, Contender, measure
from bench.peers import bare_streaming

COUNT = 64 * 8 * BATCH
EPOCHS = 4  # the first one, with its opening of files and starting of workers, is not counted
FOLDER = HOME / "small"
SHAPES = {"tokens": ("uint16", (2048,)), "pictures": ("uint8", (32, 32, 3))}
TITLES = {"tokens": "blocks of 2,048 tokens (uint16, 4 KB)", "pictures": "pictures of 32 × 32 (uint8, 3 KB)"}

TEXT = """\
{count:,} {title} in the page cache, shuffled, as batches of {batch}: in one process, and made by {workers} worker
processes. The median of {epochs} epochs after the first counts; all of it. Each sample begins with its number: that
each came once, and that nothing but its row holds it, is checked. Ours compares checksums, the others have none;
`numpy` is the bare gather of all rows from one mapped file in a random order, which nobody can pass.
"""


def benchmark(kind: str) -> Benchmark:
    """The benchmark on samples of one kind; makes the data."""
    prepare(kind)
    contenders = [
        Contender(
            f"{name}, {how}",
            f"bench.small:with_{function}",
            {"kind": kind, "workers": workers, **options},
            needs=needs,
            ours=needs is None and name.startswith("shardstream"),
        )
        for how, workers in (("in process", 0), (f"{WORKERS} workers", WORKERS))
        for name, function, needs, options in _contenders(workers)
    ]
    text = TEXT.format(count=COUNT, title=TITLES[kind], batch=BATCH, workers=WORKERS, epochs=EPOCHS - 1)
    return Benchmark(f"small-{kind}", f"Small samples: {kind}", text, contenders)


def _contenders(workers: int) -> list[tuple[str, str, str | None, dict[str, Any]]]:
    """Name, function, the package it needs, and options."""
    many: list[tuple[str, str, str | None, dict[str, Any]]] = [
        ("LitData", "litdata", "litdata", {}),
        ("WebDataset", "webdataset", "webdataset", {}),
        ("MosaicML Streaming", "streaming", "streaming", {}),
        ("shardstream, record", "shardstream", None, {"framing": "record"}),
        ("shardstream, record, unverified", "shardstream", None, {"framing": "record", "verify": False}),
        ("shardstream, tar", "shardstream", None, {"framing": "tar"}),
    ]
    return many if workers else [*many, ("numpy", "numpy", None, {})]


def sample(kind: str, number: int) -> np.ndarray[Any, Any]:
    """Its number in the first eight bytes, the rest from it."""
    dtype, shape = SHAPES[kind]
    octets = np.full(np.dtype(dtype).itemsize * int(np.prod(shape)), number % 251, np.uint8)
    octets[:8] = np.array([number], "<u8").view(np.uint8)
    return octets.view(dtype).reshape(shape)


def place(kind: str, what: str) -> str:
    """Where the samples lie in one contender's format."""
    return str(FOLDER / f"{kind}-{what}")


def prepare(kind: str) -> None:
    """Write the samples in everybody's format, where that is not done."""
    stamp = FOLDER / f"{kind}-done"
    if stamp.exists():
        return
    for what, write in (
        ("record", _write_ours),
        ("tar", _write_ours),
        ("streaming", _write_streaming),
        ("litdata", _write_litdata),
    ):
        shutil.rmtree(place(kind, what), ignore_errors=True)
        try:
            write(kind, what)
        except ModuleNotFoundError as error:
            print(f"  {what}: {error}")
    np.save(place(kind, "numpy.npy"), np.stack([sample(kind, number) for number in range(COUNT)]))
    stamp.touch()


def _write_ours(kind: str, framing: Any) -> None:
    import shardstream as ss

    dtype, shape = SHAPES[kind]
    fields = {"x": f"array:{dtype}:{','.join(map(str, shape))}"}
    with ss.ShardWriter(place(kind, framing), format=framing, shard_size="8MB", fields=fields) as writer:
        for number in range(COUNT):
            writer.write({"__key__": f"{number:08d}", "x": sample(kind, number)})


def _write_streaming(kind: str, what: str) -> None:
    bare_streaming()
    from streaming.base.format.mds.writer import MDSWriter

    dtype, shape = SHAPES[kind]
    columns = {"x": f"ndarray:{dtype}:{','.join(map(str, shape))}"}
    with MDSWriter(out=place(kind, what), columns=columns, size_limit=8 << 20) as writer:
        for number in range(COUNT):
            writer.write({"x": sample(kind, number)})


def _write_litdata(kind: str, what: str) -> None:
    import functools

    import litdata

    tokens = kind == "tokens"
    limit = {"chunk_size": 2048 * 2048, "item_loader": _tokens_loader()} if tokens else {"chunk_bytes": "8MB"}
    litdata.optimize(
        fn=functools.partial(_litdata_sample, kind),
        inputs=list(range(COUNT)),
        output_dir=place(kind, what),
        num_workers=1,
        reorder_files=False,
        verbose=False,
        **limit,
    )


def _tokens_loader() -> Any:
    from litdata.streaming.item_loader import TokensLoader

    return TokensLoader(block_size=2048)


def _litdata_sample(kind: str, number: int) -> Any:
    import torch

    return torch.from_numpy(sample(kind, number))


def with_shardstream(kind: str, workers: int, framing: str, verify: bool = True) -> dict[str, Any]:
    """Ours."""
    import shardstream as ss

    dataset = ss.ShardDataset(place(kind, framing), fields=["x"], shuffle=True, batch_size=BATCH, verify=verify)
    loader = ss.Loader(dataset.to_tuple("x"), num_workers=workers)
    return timed(loader, lambda batch: batch[0])


def with_litdata(kind: str, workers: int) -> dict[str, Any]:
    """LitData; for tokens by its loader of blocks."""
    import litdata

    extra = {"item_loader": _tokens_loader()} if kind == "tokens" else {}
    dataset = litdata.StreamingDataset(place(kind, "litdata"), shuffle=True, **extra)
    loader = litdata.StreamingDataLoader(
        dataset, batch_size=BATCH, num_workers=workers, persistent_workers=bool(workers)
    )
    return timed(loader, lambda batch: batch)


def with_streaming(kind: str, workers: int) -> dict[str, Any]:
    """MosaicML Streaming."""
    bare_streaming()
    from streaming.base.dataset import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory
    from torch.utils.data import DataLoader

    clean_stale_shared_memory()
    dataset = StreamingDataset(local=place(kind, "streaming"), shuffle=True, batch_size=BATCH, num_canonical_nodes=1)
    loader: Any = DataLoader(dataset, BATCH, num_workers=workers, persistent_workers=bool(workers))
    return timed(loader, lambda batch: batch["x"])


def with_webdataset(kind: str, workers: int) -> dict[str, Any]:
    """WebDataset on the same tars as ours, without parsing NPY headers."""
    import webdataset

    urls = sorted(str(path) for path in Path(place(kind, "tar")).glob("*.tar"))
    dataset = (
        webdataset.WebDataset(urls, shardshuffle=100, seed=1)
        .shuffle(1000)
        .to_tuple("x")
        .batched(BATCH, partial=False, collation_fn=_Joined(kind))
    )
    loader = webdataset.WebLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=bool(workers))
    return timed(loader, lambda batch: batch)


class _Joined:
    """NPY files of one shape as one tensor, the quickest way there is in Python."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, samples: list[tuple[bytes]]) -> Any:
        import torch

        dtype, shape = SHAPES[self.kind]
        whole = np.frombuffer(bytearray().join(one for (one,) in samples), np.uint8).reshape(len(samples), -1)
        size = np.dtype(dtype).itemsize * int(np.prod(shape))
        values = np.ascontiguousarray(whole[:, -size:]).view(dtype).reshape(-1, *shape)
        return torch.from_numpy(values)


def with_numpy(kind: str, workers: int) -> dict[str, Any]:
    """One fancy index a batch."""
    import torch

    rows = np.load(place(kind, "numpy.npy"), mmap_mode="r")

    class Batches:
        def __iter__(self) -> Iterator[Any]:
            order = np.random.default_rng().permutation(COUNT)
            return (torch.from_numpy(rows[order[at : at + BATCH]]) for at in range(0, COUNT, BATCH))

    return timed(Batches(), lambda batch: batch)


def timed(loader: Iterable[Any], values: Callable[[Any], Any]) -> dict[str, Any]:
    """Samples a second, and what an epoch delivered."""
    speeds = []
    for _ in range(EPOCHS):
        batches = total = squares = wrong = 0
        seconds = 0.0
        start = time.perf_counter()
        for batch in loader:
            seconds += time.perf_counter() - start
            octets = values(batch).numpy().reshape(BATCH, -1).view(np.uint8)
            numbers = octets[:, :8].copy().view("<u8")[:, 0].astype(np.int64)
            batches += 1
            total += int(numbers.sum())
            squares += int((numbers * numbers).sum())
            wrong += int((octets[:, -1] != numbers % 251).sum())
            start = time.perf_counter()
        seconds += time.perf_counter() - start
        speeds.append(batches * BATCH / seconds)
    return {
        "figures": {"samples/s": float(np.median(speeds[1:]))},
        "delivered": {"samples": batches * BATCH, "numbers": total, "squares": squares, "wrong": wrong},
    }


def main() -> None:
    """Run one kind and print its table."""
    parser = argparse.ArgumentParser(prog="bench.small")
    parser.add_argument("kind", choices=list(SHAPES))
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    chosen = benchmark(args.kind)
    rows = measure(chosen, args.rounds, lambda: None)
    print("\n".join(["", chosen.text, report.table(rows), *report.findings(rows)]))


if __name__ == "__main__":
    main()
