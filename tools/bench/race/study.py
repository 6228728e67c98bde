"""What is measured in the race, and its page, ``docs/benchmarks/race.md``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from bench import data
from bench.data import WORKERS, Corpus
from bench.harness import Benchmark, measure
from bench.machine import bandwidth
from bench.race import bars, corpora, environments, lines, prepared
from bench.race.bars import Measured, Work
from bench.race.corpora import SMALL, Kind
from bench.race.page import section
from bench.report import MISSED, Outcome, as_json, circumstances, provenance, versions

ROUNDS = 3
FORMATS = ("webdataset", "streaming", "litdata", "grain", "ffcv", "ffcv-again", "lance")
SMALL_FORMATS = ("webdataset", "streaming", "litdata", "ffcv", "grain")
PEERS = ("pillow-simd", "ffcv", "spdl", "grain", "dali")  # that need environments of their own
PACKAGES = ("shardstream", "torch", "torchvision", "webdataset", "mosaicml-streaming", "litdata", "numpy", "simplejpeg")


def run(document: Path, rounds: int, count: int) -> Outcome:
    """Make environments and stores, run everybody ``rounds`` times, and give the section."""
    from bench.race.plot import draw

    problems = environments.make(*PEERS)
    where = circumstances()
    where["versions"] = {"python": where["versions"]["python"], **versions(PACKAGES), **environments.versions(*PEERS)}
    corpus = data.photographs(count)
    works = list(_works(corpus))
    data.settle(corpora.STORES, corpora.large(corpus).folder, corpus.folder)
    content: dict[str, Any] = {**where, "photographs": corpus.count, "problems": problems}
    before = bandwidth()
    results = []
    for work in works:
        print(work.title, flush=True)
        benchmark = Benchmark(work.name, work.title, "", [line.contender for line in work.lines])
        rows = measure(benchmark, rounds, os.sync)
        content[work.name] = as_json(benchmark, rows)
        results.append((work, [Measured(*pair) for pair in zip(work.lines, rows, strict=True)]))
    where["memory"] = content["memory"] = before, bandwidth()
    described = f"{corpus.count:,} photographs of together {corpus.bytes / 1e6:,.0f} MB, {rounds} rounds"
    busy = mean(share for _, measured in results for one in measured for share in one.row.busy)
    origin = provenance(where, f"tools/bench/run race --rounds {rounds} --count {corpus.count}", busy, described)
    text = section(results, problems, origin)
    failed = any(one.row.problem for _, measured in results for one in measured if one.row.contender.ours)
    return Outcome("race", document, text, failed or MISSED in text, content, lambda folder: draw(results, folder))


def _works(corpus: Corpus) -> Iterator[Work]:
    large = corpora.large(corpus)
    stores = prepared.photographs(corpus, *FORMATS)
    of_large = prepared.photographs(large, "webdataset", "ffcv")
    yield Work(
        "crop", "RandomResizedCrop 224 and flip", "images/s", lines.of_photographs("crop", corpus, stores), bars.CROP
    )
    yield Work(
        "center",
        "Resize 256 and CenterCrop 224",
        "images/s",
        lines.of_photographs("center", corpus, stores),
        bars.CENTER,
    )
    yield Work("large", "Photographs of 12 megapixels", "images/s", lines.of_large(large, of_large), bars.LARGE)
    titles: dict[Kind, str] = {"tokens": "Blocks of 4 KB", "images": "Images of 3 KB"}
    for kind, title in titles.items():
        small = prepared.small(kind, SMALL, *SMALL_FORMATS)
        yield Work(kind, title, "samples/s", lines.of_small(kind, SMALL, small), bars.SMALL)
    yield Work("raw", "Bytes, in process", "samples/s", lines.of_raw(0, corpus, stores), bars.RAW)
    workers = lines.of_raw(WORKERS, corpus, stores)
    yield Work("raw-workers", f"Bytes, {WORKERS} workers", "samples/s", workers, bars.RAW_WORKERS)
    yield Work("kernels", "The bare kernels", "images/s", lines.of_kernels(stores), ())
