"""The command: ``tools/bench/run``."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench import data, pack, raw, report, train
from bench.harness import Benchmark, measure

DOCUMENT = data.ROOT / "docs" / "benchmarks.md"
NAMES = ("pack", "train", "raw")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tools/bench/run", description="Benchmarks against peers.")
    parser.add_argument("which", nargs="?", choices=[*NAMES, "all"], default="all")
    parser.add_argument("--count", type=int, default=12 * data.UNIT, help="photographs (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every round's figures to this file")
    parser.add_argument("--no-docs", action="store_true", help="leave docs/benchmarks.md as it is")
    args = parser.parse_args()
    if args.rounds < 1 or args.count < 1:
        parser.error("--rounds and --count are at least 1")
    return args


def plan(which: str, corpus: data.Corpus) -> list[tuple[Benchmark, Callable[[], None]]]:
    """The benchmarks, each with what prepares the machine for a contender."""
    wanted = NAMES if which == "all" else (which,)
    chosen: list[tuple[Benchmark, Callable[[], None]]] = []
    if "pack" in wanted:

        def before_packing() -> None:
            pack.clean()
            data.settle(corpus.folder)

        chosen.append((pack.benchmark(corpus), before_packing))
    if "train" in wanted or "raw" in wanted:
        theirs, ours = data.shards(corpus)
        settle = partial(data.settle, corpus.folder, theirs, ours)
        if "train" in wanted:
            chosen.append((train.benchmark(corpus, theirs, ours), settle))
        if "raw" in wanted:
            chosen.append((raw.benchmark(theirs, ours), settle))
    return chosen


def main() -> int:
    """Run, print, write; 1 when something of ours failed or missed its bar."""
    args = arguments()
    corpus = data.photographs(args.count)
    described = f"{corpus.count:,} photographs of together {corpus.bytes / 1e6:,.0f} MB, {args.rounds} rounds"
    print(described)
    results = []
    failed = False
    for benchmark, prepare in plan(args.which, corpus):
        print(benchmark.title, flush=True)
        where = report.circumstances()
        rows = measure(benchmark, args.rounds, prepare)
        print("\n".join(["", report.table(rows), *report.findings(rows), ""]), flush=True)
        failed |= report.missed(rows)
        results.append({**where, **report.as_json(benchmark, rows)})
        if not args.no_docs:
            command = f"tools/bench/run {benchmark.name} --rounds {args.rounds} --count {corpus.count}"
            report.replace_section(DOCUMENT, benchmark.name, report.section(benchmark, rows, where, described, command))
    if args.json:
        content = {"photographs": corpus.count, "bytes": corpus.bytes, "benchmarks": results}
        args.json.write_text(json.dumps(content, indent=1) + "\n")
    shutil.rmtree(pack.OUT, ignore_errors=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
