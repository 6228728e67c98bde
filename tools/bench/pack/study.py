"""What is measured in packing, and its page, ``docs/benchmarks/pack.md``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from bench import data
from bench.data import Corpus, list_of
from bench.harness import Benchmark, Contender, measure
from bench.pack import bars, corpus
from bench.pack.bars import WORKERS, Bar
from bench.pack.timing import DISK, MEMORY, PLACE, SHARD_MB
from bench.race import environments
from bench.report import MISSED, Outcome, as_json, circumstances, provenance, table, versions

ROUNDS = 3
PHOTOGRAPHS = 3072
PEERS = ("img2dataset",)  # that need environments of their own
PACKAGES = ("shardstream", "webdataset", "mosaicml-streaming", "litdata", "numpy", "simplejpeg")

TEXT = f"""\
# Packing

Photographs to shards of {SHARD_MB} MB (`tar`: one file), shuffled by all but `tar`. They are held in the page cache,
each of them in several copies; MB are those of the photographs. Earlier output is removed and what is dirty written
back before each run, and the time is that of the call alone, without starting Python, but with starting workers.
"""
RAW = """\
`ImageOptions(jpeg="keep")`. *Until on disk* adds an `fsync` of every file written: shardstream does that anyway, shard
by shard, so its two figures differ by little. `tar` stores no labels, no index and no checksums, and checks nothing.
"""
IN_MEMORY = """\
The same into a file system in memory (`/dev/shm`), where no disk sets the pace and nobody has to wait for it.
"""
TRANSCODED = """\
The default: every JPEG file is rewritten so that crops decode alone. The bare transcoder has files in memory, some
of the photographs, and drops what it makes; by two processes at once, it says what two cores of this machine give.
"""
FETCHED = f"""\
A list of URLs of a web server on this machine, which takes a part of its two cores, and files as they come: shardstream
with `ImageOptions(jpeg="keep")`, img2dataset with `disable_all_reencoding`, without hashes, in tars of {SHARD_MB} MB.
"""


@dataclass(frozen=True)
class Work:
    """One job that several do.

    Attributes:
        benchmark: Who does it.
        corpus: Its photographs.
        bars: What ours have to reach.
        out: Where to they pack.
    """

    benchmark: Benchmark
    corpus: Corpus
    bars: tuple[Bar, ...]
    out: Path = DISK


def run(document: Path, rounds: int, count: int) -> Outcome:
    """Make environment and photographs, run everybody ``rounds`` times, and give the section."""
    problems = environments.make(*PEERS)
    where = circumstances()
    where["versions"] = {"python": where["versions"]["python"], **versions(PACKAGES), **environments.versions(*PEERS)}
    made = corpus.make(count)
    pins = data.pinned(path for path, _ in made.raw.entries)  # the other works take some of them
    content: dict[str, Any] = {**where, "photographs": count, "problems": problems}
    parts, busy, failed = [TEXT], [], False
    with _served(corpus.FOLDER) as root:
        for work in _works(made, root):
            print(work.benchmark.title, flush=True)
            os.environ[PLACE] = str(work.out)
            rows = measure(work.benchmark, rounds, partial(_prepare, work.out))
            shutil.rmtree(work.out, ignore_errors=True)
            found = list(bars.findings(work.bars, rows))
            print("\n".join(["", table(rows), *found, ""]), flush=True)
            content[work.benchmark.name] = as_json(work.benchmark, rows)
            busy += [share for row in rows for share in row.busy]
            failed |= any(row.problem for row in rows if row.contender.ours) or any(MISSED in line for line in found)
            described = f"{work.corpus.count:,} files, {work.corpus.bytes / 1e6:,.0f} MB.\n{work.benchmark.text}"
            lines = "".join(f"- {line}\n" for line in found)
            parts.append(f"## {work.benchmark.title}\n\n{described}\n{table(rows)}\n{lines}")
    del pins
    described = f"{count:,} photographs, {rounds} rounds"
    parts.append(provenance(where, f"tools/bench/run pack --rounds {rounds} --count {count}", mean(busy), described))
    return Outcome("pack", document, "\n".join(parts), failed, content)


def _works(made: corpus.Corpora, root: str) -> Iterator[Work]:
    told = {"folder": str(made.raw.folder), "octets": made.raw.bytes}
    peers = [
        Contender(bars.TAR, "bench.pack.peers:tar", told),
        Contender(bars.WEBDATASET, "bench.pack.peers:webdataset", told, needs="webdataset"),
        Contender(bars.STREAMING, "bench.pack.peers:streaming", told, needs="streaming"),
        Contender(bars.LITDATA, "bench.pack.peers:litdata", {**told, "workers": WORKERS}, needs="litdata"),
    ]
    mine = [
        Contender(
            bars.ours(workers, framing),
            "bench.pack.ours:raw",
            {**told, "framing": framing, "workers": workers},
            ours=True,
        )
        for framing in ("tar", "record")
        for workers in (1, WORKERS)
    ]
    everybody = [*peers, *mine]
    yield Work(Benchmark("raw", "Files as they are", RAW, everybody), made.raw, bars.RAW)
    in_memory = Benchmark("raw_in_memory", "Files as they are, into memory", IN_MEMORY, everybody)
    yield Work(in_memory, made.raw, bars.RAW, MEMORY)
    folder = {"folder": str(made.transcoded.folder)}
    kernels = {bars.ONE_KERNEL: 1, bars.ALL_KERNELS: WORKERS}
    jobs = [
        *(
            Contender(bars.ours(n), "bench.pack.ours:transcoded", {**folder, "workers": n}, ours=True)
            for n in (1, WORKERS)
        ),
        *(Contender(name, "bench.pack.ours:kernel", {**folder, "processes": n}) for name, n in kernels.items()),
    ]
    yield Work(Benchmark("transcoded", "Made addressable", TRANSCODED, jobs), made.transcoded, bars.TRANSCODED)
    yield Work(
        Benchmark("fetched", "From a web server", FETCHED, list(_of_urls(made.fetched, root))),
        made.fetched,
        bars.FETCHED,
    )


def _of_urls(fetched: Corpus, root: str) -> Iterator[Contender]:
    entries = [(f"{root}/{path.relative_to(corpus.FOLDER)}", label) for path, label in fetched.entries]
    lists = {}
    for kind, comma in (("tsv", "\t"), ("csv", ",")):
        lists[kind] = list_of(fetched.folder).with_name(f"urls.{kind}")
        rows = (f"{url}{comma}{label}\n" for url, label in entries)
        lists[kind].write_text(f"url{comma}label\n" + "".join(rows))
    told = {"octets": fetched.bytes, "workers": WORKERS}
    yield Contender(
        bars.IMG2DATASET,
        "bench.pack.peers:img2dataset",
        {**told, "urls": str(lists["csv"]), "count": fetched.count},
        needs="img2dataset",
        python=environments.python("img2dataset"),
    )
    yield Contender(bars.ours(WORKERS), "bench.pack.ours:fetched", {**told, "urls": str(lists["tsv"])}, ours=True)


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """The URL of a folder."""
    command: Sequence[str] = [sys.executable, "-m", "bench.pack.webserver", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.kill()
        server.wait()


def _prepare(out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    data.settle()
