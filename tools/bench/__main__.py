"""The command: ``tools/bench/run``."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench import data, device_resize, engines, report, train
from bench.harness import Benchmark, measure
from bench.race import ours as own

BENCHMARKS = report.DOCS / "benchmarks"
SHUFFLE = report.DOCS / "shuffle.md"
ROUNDS = 5
PHOTOGRAPHS = ("engines", "train", "device-resize")
OURS = (
    "pack",
    "race",
    "foreign",
    "classic",
    "augment",
    "order",
    "stream",
    "starts",
    "tails",
    "text",
    "memory",
    "shuffle",
    "cluster",
)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tools/bench/run", description="Benchmarks and studies.")
    parser.add_argument("which", nargs="?", choices=[*PHOTOGRAPHS, *OURS, "all"], default="all")
    parser.add_argument(
        "--count",
        type=int,
        help=f"photographs (default {12 * data.UNIT}; pack, race, classic: 3072), or records of stream (61440)",
    )
    parser.add_argument(
        "--rounds", type=int, help="rounds (default 5; pack, race, foreign, classic, augment, stream, tails, text: 3)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every round's figures to this file")
    parser.add_argument("--quick", action="store_true", help="of the race: five rows, for the table of this processor")
    parser.add_argument("--no-docs", action="store_true", help="leave docs/ as it is")
    args = parser.parse_args()
    if any(value is not None and value < 1 for value in (args.rounds, args.count)):
        parser.error("--rounds and --count are at least 1")
    if args.quick and args.which != "race":
        parser.error("--quick goes with race")
    return args


def plan(wanted: tuple[str, ...], corpus: data.Corpus) -> list[tuple[Benchmark, Callable[[], None]]]:
    """The benchmarks on photographs, each with what prepares the machine for a contender."""
    chosen: list[tuple[Benchmark, Callable[[], None]]] = []
    if "engines" in wanted:

        def before_engines() -> None:
            engines.clean()
            data.settle(corpus.folder)

        chosen.append((engines.benchmark(corpus), before_engines))
    if "train" in wanted:
        theirs, ours = data.shards(corpus)
        settle = partial(data.settle, corpus.folder, theirs, ours)
        chosen.append((train.benchmark(corpus, theirs, ours), settle))
    if "device-resize" in wanted:
        names = {"addressable": "addressable", "as they were": "kept"}
        stores = {name: own.pack(corpus, data.HOME / f"shards-{kind}", kind) for name, kind in names.items()}
        settle = partial(data.settle, *stores.values())
        chosen.append((device_resize.benchmark(corpus, stores), settle))
    return chosen


def on_photographs(wanted: tuple[str, ...], args: argparse.Namespace) -> Iterator[report.Outcome]:
    """Run the benchmarks on photographs."""
    corpus, rounds = data.photographs(args.count or 12 * data.UNIT), args.rounds or ROUNDS
    described = f"{corpus.count:,} photographs of together {corpus.bytes / 1e6:,.0f} MB, {rounds} rounds"
    print(described)
    for benchmark, prepare in plan(wanted, corpus):
        print(benchmark.title, flush=True)
        where = report.circumstances()
        rows = measure(benchmark, rounds, prepare)
        print("\n".join(["", report.table(rows), *report.findings(rows), ""]), flush=True)
        command = f"tools/bench/run {benchmark.name} --rounds {rounds} --count {corpus.count}"
        content = {**where, "photographs": corpus.count, "bytes": corpus.bytes, **report.as_json(benchmark, rows)}
        text = report.section(benchmark, rows, where, described, command)
        yield report.Outcome(benchmark.name, BENCHMARKS / f"{benchmark.name}.md", text, report.missed(rows), content)
    shutil.rmtree(engines.OUT, ignore_errors=True)


def of_our_own(wanted: tuple[str, ...], args: argparse.Namespace) -> Iterator[report.Outcome]:
    """Run what has data and tables of its own."""
    # imported here: each needs packages of its own
    if "pack" in wanted:
        from bench.pack import study as packing

        yield packing.run(BENCHMARKS / "pack.md", args.rounds or packing.ROUNDS, args.count or packing.PHOTOGRAPHS)
    if "race" in wanted:
        from bench.race import corpora, quick
        from bench.race import study as race

        if args.quick:
            yield quick.run(
                BENCHMARKS / "processors.md", args.rounds or quick.ROUNDS, args.count or corpora.PHOTOGRAPHS
            )
            return
        yield race.run(BENCHMARKS / "race.md", args.rounds or race.ROUNDS, args.count or corpora.PHOTOGRAPHS)
    if "foreign" in wanted:
        from bench.foreign import study as foreign

        yield foreign.run(BENCHMARKS / "foreign.md", args.rounds or foreign.ROUNDS)
    if "augment" in wanted:
        from bench.augment import study as augmentation

        yield augmentation.run(BENCHMARKS / "augment.md", args.rounds or augmentation.ROUNDS)
    if "classic" in wanted:
        from bench.classic import study as classic

        yield classic.run(BENCHMARKS / "classic.md", args.rounds or classic.ROUNDS, args.count)
    if "order" in wanted:
        from bench.scale import study as scale

        yield scale.run(BENCHMARKS / "order.md", args.rounds or ROUNDS)
    if "stream" in wanted:
        from bench.stream import records, study

        yield study.run(BENCHMARKS / "stream.md", args.rounds or 3, args.count or records.COUNT)
    if "starts" in wanted:
        from bench.stream import starts

        yield starts.run(BENCHMARKS / "starts.md")
    if "tails" in wanted:
        from bench import tails

        yield tails.run(BENCHMARKS / "tails.md", args.rounds or tails.ROUNDS)
    if "text" in wanted:
        from bench import text

        yield text.run(BENCHMARKS / "text.md", args.rounds or text.ROUNDS)
    if "memory" in wanted:
        from bench.stream import memory

        yield memory.run(BENCHMARKS / "memory.md")
    if "shuffle" in wanted:
        from bench.shuffle import page

        yield page.run(SHUFFLE)
    if "cluster" in wanted:
        from bench.cluster import study as cluster

        yield cluster.run(SHUFFLE)


def main() -> int:
    """Run, print, write; 1 when something of ours failed or missed its bar."""
    args = arguments()
    wanted = (*PHOTOGRAPHS, *OURS) if args.which == "all" else (args.which,)
    results: list[dict[str, Any]] = []
    failed = False

    def finish(outcome: report.Outcome) -> None:
        nonlocal failed
        failed |= outcome.missed
        results.append({"name": outcome.name, "results": outcome.content})
        if not args.no_docs:
            outcome.write()

    if set(wanted) & set(PHOTOGRAPHS):
        for outcome in on_photographs(wanted, args):
            finish(outcome)
    for outcome in of_our_own(wanted, args):
        print(outcome.text, flush=True)
        finish(outcome)
    if args.json:
        args.json.write_text(json.dumps({"benchmarks": results}, indent=1) + "\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
