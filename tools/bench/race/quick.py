"""The race in eight minutes: five rows, for the table of each processor in ``docs/benchmarks/processors.md``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from bench import data
from bench.data import Corpus
from bench.harness import Benchmark, Row, measure
from bench.machine import bandwidth, processor, vector_units
from bench.race import corpora, environments, lines, prepared, study
from bench.race.corpora import SMALL
from bench.race.lines import ADDRESSABLE, FFCV, LITDATA, OURS, STREAMING, TENSORS, TORCHVISION, Line
from bench.report import MISSED, Outcome, as_json, circumstances, markdown, provenance, versions

ROUNDS = 3
FORMATS = ("streaming", "litdata", "ffcv")


@dataclass(frozen=True)
class Pair:
    """A row of the table.

    Attributes:
        work: What both do.
        ours: Our line of that work.
        theirs: The peer's: for each kind of work the one that most people use, or that was fastest in the race.
        least: The ratio that we set ourselves, by the beginning of the processor's name; "" for any.
    """

    work: str
    ours: str
    theirs: str
    least: Mapping[str, float]

    def bar(self, machine: str) -> float:
        """The ratio to be reached on this processor."""
        return next((least for name, least in self.least.items() if name and name in machine), self.least[""])


TITLES = {
    "crop": "RandomResizedCrop 224 and flip, 2 workers",
    "center": "Resize 256 and CenterCrop 224, 2 workers",
    "raw": "bytes of photographs, in process",
    "tokens": "arrays of 4 KB, in process",
}
PAIRS = (
    Pair("crop", ADDRESSABLE, f"{FFCV}, the same files", {"Intel": 1.75, "": 2.5}),
    Pair("crop", ADDRESSABLE, f"{TORCHVISION}, {TENSORS}", {"": 1.8}),
    Pair("center", ADDRESSABLE, f"{STREAMING}, {TENSORS}", {"": 1.4}),
    Pair("raw", f"{OURS}, {lines.BATCHES}", LITDATA, {"": 1.4}),
    Pair("tokens", f"{OURS}, in process", FFCV, {"": 0.8}),
)


def run(document: Path, rounds: int, count: int) -> Outcome:
    """Make what is missing, run each of the ten contenders ``rounds`` times, and give this processor's section."""
    problems = environments.make("ffcv")
    where = circumstances()
    where["versions"] = {
        "python": where["versions"]["python"],
        **versions(study.PACKAGES),
        **environments.versions("ffcv"),
    }
    corpus = data.photographs(count)
    works = _works(corpus)
    data.settle(corpora.STORES, corpus.folder)
    before = bandwidth()
    rows = {}
    content: dict[str, Any] = {**where, "photographs": corpus.count, "problems": problems}
    for work, chosen in works.items():
        print(TITLES[work], flush=True)
        benchmark = Benchmark(work, TITLES[work], "", [line.contender for line in chosen])
        found = measure(benchmark, rounds, os.sync)
        content[work] = as_json(benchmark, found)
        rows.update({(work, row.contender.name): row for row in found})
    where["memory"] = content["memory"] = before, bandwidth()
    busy = mean(share for row in rows.values() for share in row.busy)
    described = f"{corpus.count:,} photographs of together {corpus.bytes / 1e6:,.0f} MB, {rounds} rounds"
    command = f"tools/bench/run race --quick --rounds {rounds} --count {corpus.count}"
    text = section(rows, processor(), vector_units(), problems, provenance(where, command, busy, described))
    failed = any(row.problem for row in rows.values() if row.contender.ours)
    return Outcome(processor(), document, text, failed or MISSED in text, content)


def _works(corpus: Corpus) -> dict[str, list[Line]]:
    """The lines of the race that are in a row, by work; ours first."""
    nowhere = dict.fromkeys((*study.FORMATS, *study.SMALL_FORMATS), Path())  # of lines that are in no row
    stores = {**nowhere, **prepared.photographs(corpus, *FORMATS)}
    small = {**nowhere, **prepared.small("tokens", SMALL, "ffcv")}
    everybody = {
        "crop": lines.of_photographs("crop", corpus, stores),
        "center": lines.of_photographs("center", corpus, stores),
        "raw": lines.of_raw(0, corpus, stores),
        "tokens": lines.of_small("tokens", SMALL, small),
    }
    wanted = {(pair.work, name) for pair in PAIRS for name in (pair.ours, pair.theirs)}
    return {
        work: [line for line in those if (work, line.contender.name) in wanted] for work, those in everybody.items()
    }


def section(
    rows: Mapping[tuple[str, str], Row],
    machine: str,
    units: Sequence[str],
    problems: Mapping[str, str],
    origin: str,
) -> str:
    """The section of a processor.

    Args:
        rows: What each contender reached, by work and name.
        machine: The processor's name.
        units: Its vector units.
        problems: Peers that could not be installed, and why.
        origin: Date, command, machine and versions.
    """
    table = markdown([["", "shardstream", "peer", "its speed", "ratio", "bar", ""], *_cells(rows, machine)])
    left_out = "".join(f"- Left out: {name} {problem}.\n" for name, problem in problems.items())
    return (
        f"## {machine}\n\n{', '.join(units) or 'No vector units that are known here'}.\n\n{table}\n{left_out}{origin}"
    )


def _cells(rows: Mapping[tuple[str, str], Row], machine: str) -> Iterator[list[str]]:
    for pair in PAIRS:
        ours, theirs = rows[pair.work, pair.ours], rows[pair.work, pair.theirs]
        least = pair.bar(machine)
        cells, bar = [TITLES[pair.work], _speed(ours), pair.theirs, _speed(theirs)], f"≥ {least:g} ×"
        if ours.problem or theirs.problem:
            yield [*cells, "", bar, "not measured"]
            continue
        found = sorted(ours.ratios(next(iter(ours.rounds[0])), theirs))
        told = f"{median(found):.2f} × ({found[0]:.2f}–{found[-1]:.2f})"
        yield [*cells, told, bar, "reached" if median(found) >= least else MISSED]


def _speed(row: Row) -> str:
    return row.problem or f"{row.median(next(iter(row.rounds[0]))):,.0f} {next(iter(row.rounds[0]))}"
