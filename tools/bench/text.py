"""Tokens out of bins beside loops over a mapped file and peers, and texts into tokens beside the bare tokenizer."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from bench.data import HOME, WORKERS
from bench.harness import Contender, measure_alone
from bench.peers import bare_streaming
from bench.race.stores import write_litdata, write_streaming
from bench.report import MISSED, Outcome, circumstances, markdown, provenance
from bench.stream.records import send
from bench.stream.servers import BUCKET, options, s3, slowed
from bench.stream.study import BARE

ROUNDS = 3
SIZE, BINS, VOCABULARY = 8192, 2000, 50_000
ROWS = (8, 2)  # bins a batch
TIMES = 5  # in which ways take turns
OUTPUTS = ("ids", "labels", "position_ids", "segment_ids", "cu_seqlens", "max_seqlen")
LOOP, GATHER, INDEX = "mapped file, all outputs", "nanoGPT's get_batch", "mapped file, one fancy index"
VOCABULARY_OF_TEXTS, TEXTS_BYTES = 16_384, 120_000_000
END = "<|end|>"

Way: TypeAlias = Callable[[int], int]
"""Reads all rows in batches of so many; how many batches."""


class Bar(NamedTuple):
    """What is asked of one of ours.

    Attributes:
        ours: Who.
        other: Beside whom.
        least: How many times as fast.
        rows: At which batch.
    """

    ours: str
    other: str
    least: float
    rows: int


BARS = (
    Bar("ours, all outputs", LOOP, 1.0, 8),
    Bar("ours, all outputs, unverified", LOOP, 1.0, 8),
    Bar("ours, all outputs", LOOP, 0.5, 2),
    Bar("ours, ids and labels", GATHER, 1.0, 8),
    Bar("ours, ids and labels", INDEX, 0.3, 8),
    Bar("ours, ids and labels", "LitData's TokensLoader", 2.0, 8),
    Bar("ours, ids and labels", "MDS", 2.0, 8),
)
LEAST_OF_TOKENIZER = 0.85
STREAMED = 1 << 16  # bins, of 16 kB
LATENCY = 50  # milliseconds
LEAST_OF_GET = 0.9


def run(document: Path, rounds: int) -> Outcome:
    """Make the data, measure, and give the page."""
    where = circumstances()
    place = str(prepared())
    contenders = [Contender(f"{rows}", "bench.text:reading", {"place": place, "rows": rows}) for rows in ROWS]
    if find_spec("tokenizers") is not None:
        contenders.append(Contender("texts", "bench.text:tokenizing", {}))
    with s3() as url, slowed(url, 1e-3 * LATENCY) as slow:
        send(_stored_bins(), url, "bins")
        to = {"endpoint": slow.url, "count": STREAMED}
        for size, at_once in BARE:
            reads = {**to, "size": size << 20, "at_once": at_once, "prefix": "bins/", "suffix": ".rec"}
            contenders.append(Contender(f"bare {size} {at_once}", "bench.stream.bare:get", reads))
        contenders.append(Contender("streamed", "bench.text:streaming", to))
        figures, busy = measure_alone(contenders, rounds)
    lines, missed = _lines(figures)
    origin = provenance(
        where, f"tools/bench/run text --rounds {rounds}", busy, f"some {BINS:,} bins of {SIZE:,} tokens"
    )
    text = "\n".join([TEXT, markdown(lines), "", _streamed(figures), _texts(figures), "", origin])
    return Outcome("text", document, text, missed, {**where, "rounds": figures})


def _lines(figures: dict[str, list[dict[str, float]]]) -> tuple[list[list[str]], bool]:
    lines = [["tokens a batch", "who", "M tokens/s", "beside the loop", "bars"]]
    missed = False
    for rows in ROWS:
        found = figures[str(rows)]
        for who in found[0]:
            bars = []
            for bar in BARS:
                if (bar.ours, bar.rows) == (who, rows) and bar.other in found[0]:
                    reached = median(one[who] / one[bar.other] for one in found)
                    missed |= reached < bar.least
                    verdict = "" if reached >= bar.least else f"; {MISSED}"
                    bars.append(f"{reached:.2f} × {bar.other} ({bar.least:g}{verdict})")
            beside = median(one[who] / one[LOOP] for one in found)
            rate = median(one[who] for one in found)
            lines.append([f"{rows * SIZE:,}", who, f"{rate:,.0f}", f"{beside:.2f} ×", "; ".join(bars)])
    return lines, missed


def _streamed(figures: dict[str, list[dict[str, float]]]) -> str:
    bare = max(
        (figures[f"bare {size} {at_once}"] for size, at_once in BARE),
        key=lambda found: median(one["MB/s"] for one in found),
    )
    share = median(one["MB/s"] / other["MB/s"] for one, other in zip(figures["streamed"], bare, strict=True))
    rate = median(one["MB/s"] for one in figures["streamed"])
    reached = "" if share >= LEAST_OF_GET else f"; {MISSED}"
    return (
        f"- From S3 at {LATENCY} ms, {WORKERS} workers, {STREAMED:,} bins: {rate:,.0f} MB/s, {share:.2f} × a bare GET "
        f"of the same objects in as many processes (bar {LEAST_OF_GET:g}{reached})."
    )


def _texts(figures: dict[str, list[dict[str, float]]]) -> str:
    if "texts" not in figures:
        return ""
    share = median(one["pack"] / one["bare"] for one in figures["texts"])
    rate = median(one["pack"] for one in figures["texts"])
    reached = "" if share >= LEAST_OF_TOKENIZER else f"; {MISSED}"
    return (
        f"- {TEXTS_BYTES // 10**6} MB of Python into bins, {WORKERS} workers: {rate:.1f} MB/s, {share:.2f} × what "
        "`encode_batch_fast` of `tokenizers` makes of them in as many processes, as lists "
        f"(bar {LEAST_OF_TOKENIZER:g}{reached})."
    )


def prepared() -> Path:
    """Documents of log-normal lengths: in bins, and the same rows as a file, and for peers; made if not there."""
    place = HOME / "text"
    if not (place / "done").exists():
        shutil.rmtree(place, ignore_errors=True)
        _make(place)
        (place / "done").touch()
    for name, make in (("litdata", _for_litdata), ("mds", _for_mds)):  # peers may be installed later
        if not (place / f"{name}.done").exists():
            shutil.rmtree(place / name, ignore_errors=True)
            with suppress(ImportError):
                make(place)
                (place / f"{name}.done").touch()
    return place


def _make(place: Path) -> None:
    import shardstream as ss

    draws = np.random.default_rng(0)
    lengths = np.maximum(np.exp(draws.normal(np.log(490), 1.2, BINS * SIZE // 1000)), 1).astype(int)
    documents = [{"ids": draws.integers(0, VOCABULARY, length, dtype=np.uint16)} for length in lengths]
    ss.pack(documents, place / "bins", bins=ss.PackedSequences(SIZE, token_dtype="uint16"), format="record")  # noqa: S106
    rows = list(ss.Reader(place / "bins"))
    np.concatenate([row["ids"] for row in rows]).tofile(place / "tokens.bin")
    np.savez(place / "lengths.npz", *(row["ids.lengths"] for row in rows))


def _for_litdata(place: Path) -> None:
    from litdata import TokensLoader

    arguments = {"chunk_size": 256 * SIZE, "item_loader": TokensLoader(block_size=SIZE)}
    write_litdata(str(place / "litdata"), partial(_tensor, place), list(range(len(_rows(place)))), **arguments)


def _tensor(place: Path, number: int) -> Any:
    import torch

    return torch.from_numpy(np.array(_rows(place)[number]))


def _for_mds(place: Path) -> None:
    columns = {"ids": f"ndarray:uint16:{SIZE}"}
    write_streaming(str(place / "mds"), columns, ({"ids": np.array(row)} for row in _rows(place)))


def _rows(place: Path) -> Any:
    """The rows of all bins, mapped."""
    return np.memmap(place / "tokens.bin", np.uint16, "r").reshape(-1, SIZE)


def reading(place: str, rows: int) -> dict[str, Any]:
    """Millions of tokens a second of processor time, of all ways in turns, in this process."""
    import torch

    torch.set_num_threads(1)
    ways = dict(_ways(Path(place)))
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(TIMES):
        for name, way in ways.items():
            begun = time.process_time()
            batches = way(rows)
            found[name].append(batches * rows * SIZE / (time.process_time() - begun) / 1e6)
    return {"figures": {name: median(rates) for name, rates in found.items()}, "delivered": {}}


def _ways(place: Path) -> Iterator[tuple[str, Way]]:
    tokens = np.memmap(place / "tokens.bin", np.uint16, "r")
    with np.load(place / "lengths.npz") as stored:
        lengths = [stored[name].astype(np.int64) for name in stored.files]
    yield LOOP, lambda rows: _loop(tokens.reshape(-1, SIZE), lengths, rows)
    yield GATHER, lambda rows: _get_batch(tokens, rows)
    yield (
        INDEX,
        lambda rows: sum(1 for chosen in _shuffled(len(lengths), rows) if len(tokens.reshape(-1, SIZE)[chosen])),
    )
    for told, outputs in (("all outputs", OUTPUTS), ("ids and labels", OUTPUTS[:2])):
        yield f"ours, {told}", partial(_ours, place / "bins", outputs, True)
        yield f"ours, {told}, unverified", partial(_ours, place / "bins", outputs, False)
    if (place / "litdata").exists():
        yield "LitData's TokensLoader", partial(_litdata, place / "litdata")
    if (place / "mds").exists():
        yield "MDS", partial(_mds, place / "mds")


def _shuffled(count: int, rows: int) -> Iterator[Any]:
    order = np.random.default_rng(1).permutation(count)
    return (order[start : start + rows] for start in range(0, count // rows * rows, rows))


def _loop(tokens: Any, lengths: list[Any], rows: int) -> int:
    """What one would write: whole rows of a mapped file, and all outputs into buffers that are used again."""
    ids, labels, places = (np.empty((rows, SIZE), np.int64) for _ in range(3))
    segments, counted, batches = np.empty((rows, SIZE), np.int32), np.arange(rows * SIZE), 0
    for chosen in _shuffled(len(lengths), rows):
        ids[:] = tokens[chosen]
        signed = np.concatenate([lengths[row] for row in chosen])
        sizes, filled = np.abs(signed), signed > 0
        ends = np.cumsum(sizes)
        begins = ends - sizes
        labels[:] = ids
        flat = labels.reshape(-1)
        flat[begins] = -100
        for begin, size in zip(begins[~filled], sizes[~filled], strict=True):
            flat[begin : begin + size] = -100
        np.subtract(counted, np.repeat(begins, sizes), out=places.reshape(-1))
        numbers, row = np.cumsum(filled), begins // SIZE
        first = np.searchsorted(row, row)
        inside = np.where(filled, numbers - (numbers - filled)[first], 0).astype(np.int32)
        segments.reshape(-1)[:] = np.repeat(inside, sizes)
        _ = np.concatenate(([0], ends)).astype(np.int32), int(sizes.max())
        batches += 1
    return batches


def _get_batch(tokens: Any, rows: int) -> int:
    """As nanoGPT has it: random places, ids and labels."""
    import torch

    draws, batches = np.random.default_rng(1), len(tokens) // SIZE // rows
    for _ in range(batches):
        places = draws.integers(0, len(tokens) - SIZE - 1, rows)
        for shift in (0, 1):
            torch.stack([torch.from_numpy(tokens[at + shift : at + shift + SIZE].astype(np.int64)) for at in places])
    return batches


def _ours(place: Path, outputs: tuple[str, ...], verify: bool, rows: int) -> int:
    import shardstream as ss

    fields = {"text": ss.decode.Packed(outputs=outputs)}
    return sum(
        1
        for _ in ss.ShardDataset(
            place, fields=fields, batch_size=rows, shuffle=True, reads=ss.ReadOptions(verify=verify)
        )
    )


def _litdata(place: Path, rows: int) -> int:
    from litdata import StreamingDataLoader, StreamingDataset, TokensLoader

    dataset = StreamingDataset(str(place), item_loader=TokensLoader(SIZE), shuffle=True, drop_last=True)
    return sum(1 for _ in StreamingDataLoader(dataset, batch_size=rows))


def _mds(place: Path, rows: int) -> int:
    bare_streaming()
    from streaming.base.dataset import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory
    from torch.utils.data import DataLoader

    clean_stale_shared_memory()
    dataset = StreamingDataset(local=str(place), shuffle=True, batch_size=rows, num_canonical_nodes=1)
    return sum(1 for _ in DataLoader(dataset, batch_size=rows, drop_last=True))


def _stored_bins() -> Path:
    """Bins for a store, a document each, in shards of 67 MB."""
    import shardstream as ss

    folder = HOME / "text" / "streamed"
    if not (folder / "dataset.json").exists():
        tokens = np.random.default_rng(2).integers(0, VOCABULARY, 2 * SIZE, dtype=np.uint16)
        documents = ({"ids": tokens[number % SIZE :][:SIZE]} for number in range(STREAMED))
        bins = ss.PackedSequences(SIZE, token_dtype="uint16")  # noqa: S106
        ss.pack(documents, folder, bins=bins, format="record", shard_size=67_000_000, workers=0)
    return folder


def streaming(endpoint: str, count: int) -> dict[str, Any]:
    """Megabytes of tokens a second of an epoch from a store, by workers that have read one before."""
    import shardstream as ss

    fields = {"text": ss.decode.Packed(outputs=OUTPUTS[:2])}
    url, access = f"s3://{BUCKET}/bins", options(endpoint)
    dataset = ss.ShardDataset(url, storage_options=access, fields=fields, batch_size=ROWS[0], shuffle=True)
    loader = ss.Loader(dataset, num_workers=WORKERS)
    for _ in range(2):
        begun = time.perf_counter()
        rows = sum(len(batch["ids"]) for batch in loader)
    if rows != count:
        raise ValueError(f"{rows} bins were delivered")
    return {"figures": {"MB/s": rows * SIZE * 2 / 1e6 / (time.perf_counter() - begun)}, "delivered": {}}


def tokenizing() -> dict[str, Any]:
    """Megabytes of text a second, of packing and of the tokenizer alone, in as many processes."""
    import shardstream as ss

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    texts, tokenizer = _texts_and_tokenizer()
    size = sum(len(text.encode()) for text in texts)
    rows, out = HOME / "text" / "texts.jsonl", HOME / "text" / "tokenized"
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    shutil.rmtree(out, ignore_errors=True)
    begun = time.perf_counter()
    bins = ss.PackedSequences(2048, tokenizer=tokenizer, eos=END)
    ss.pack(rows, out, bins=bins, format="record", shard_size="1MB", workers=WORKERS)
    packed = time.perf_counter() - begun
    parts = [(tokenizer, texts[number::WORKERS]) for number in range(WORKERS)]
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        pool.map(_bare, [(tokenizer, ["warm"])] * WORKERS)
        begun = time.perf_counter()
        pool.map(_bare, parts, chunksize=1)
        bare = time.perf_counter() - begun
    return {"figures": {"pack": size / packed / 1e6, "bare": size / bare / 1e6}, "delivered": {}}


def _bare(part: tuple[str, list[str]]) -> int:
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(part[0])
    batches = (part[1][start : start + 1000] for start in range(0, len(part[1]), 1000))
    return sum(len(one.ids) for texts in batches for one in tokenizer.encode_batch_fast(texts))


def _texts_and_tokenizer() -> tuple[list[str], str]:
    """Python's own library in a shuffled order, and a tokenizer that was trained on some of it."""
    import tokenizers

    texts, size = [], 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        text = path.read_text(errors="replace")
        if text and size < TEXTS_BYTES:
            texts.append(text)
            size += len(text)
    np.random.default_rng(0).shuffle(texts)
    path = HOME / "text" / "tokenizer.json"
    if not path.exists():
        made = tokenizers.ByteLevelBPETokenizer()
        made.train_from_iterator(texts[:400], VOCABULARY_OF_TEXTS, special_tokens=[END], show_progress=False)
        made.save(str(path))
    return texts, str(path)


TEXT = f"""\
# Text

Some {BINS:,} bins of {SIZE:,} tokens, of documents of log-normal lengths, to tokens, labels, positions, segments and
bounds, in one process, all in memory; processor time. *The loop* maps a file that holds the same rows, shuffles them,
and makes all the same outputs in buffers that it uses again; ours are new tensors, which may be kept. Ours compare a
checksum of every bin, but for *unverified*. LitData and MDS give rows of tokens as they are stored, and nothing that
tells documents apart.
"""
