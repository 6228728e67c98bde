"""Results as JSON, as tables, and as pages of ``docs/benchmarks/``."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import mean, median
from typing import Any

from bench.harness import Benchmark, Row
from bench.machine import DISTURBED, disturbance, processor, vector_units
from shardstream.threads import cores

DOCS = Path(__file__).resolve().parents[2] / "docs"
MISSED = "**missed**"
FOOT = "\n[How figures come about](method.md) · [All benchmarks](../benchmarks.md)\n"
PACKAGES = ("shardstream", "torch", "torchvision", "webdataset", "numpy", "pillow", "simplejpeg")


@dataclass(frozen=True)
class Outcome:
    """What a study of our own gives, which has no contenders.

    Attributes:
        name: As in the command line.
        document: The document that has a section of that name, or will have nothing else.
        text: The section.
        missed: Whether a bar was missed.
        content: All figures, for JSON.
        draw: Draws the section's plots in a folder, if it has any.
    """

    name: str
    document: Path
    text: str
    missed: bool
    content: Any
    draw: Callable[[Path], object] | None = None

    def write(self) -> None:
        """Put the section into its document, and plots beside it."""
        replace_section(self.document, self.name, self.text)
        if self.draw is not None:
            self.draw(DOCS)


def circumstances() -> dict[str, Any]:
    """Date, machine and versions."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": {
            "processor": processor(),
            "vector_units": vector_units(),
            "cores": cores(),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
            "kernel": platform.release(),
        },
        "versions": {"python": platform.python_version(), **versions()},
    }


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Versions of the packages that take part, where installed."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def as_json(benchmark: Benchmark, rows: Sequence[Row]) -> dict[str, Any]:
    """All rounds of a benchmark."""
    return {
        "name": benchmark.name,
        "rows": [
            {
                "name": row.contender.name,
                "options": dict(row.contender.options),
                "rounds": row.rounds,
                "memory_bytes": row.memory,
                "others_busy": row.busy,
                "delivered": row.delivered,
                "problem": row.problem,
            }
            for row in rows
        ],
    }


def table(rows: Sequence[Row], *, memory: bool = True) -> str:
    """A Markdown table: medians, ratios to the first row, and memory where that says something."""
    baseline = rows[0]
    figures = next((list(row.rounds[0]) for row in rows if row.rounds), [])
    heads = ["", *(head for figure in figures for head in (figure, "ratio")), *(["memory, MB"] if memory else [])]
    lines = [heads]
    for row in rows:
        cells = [f"**{row.contender.name}**" if row.contender.ours else row.contender.name]
        if row.problem:
            cells += [row.problem, *[""] * (len(heads) - 2)]
        else:
            for figure in figures:
                cells += [f"{row.median(figure):,.0f}", ratio(row, baseline, figure)]
            cells += [f"{row.peak / 1e6:,.0f}"] if memory else []
        lines.append(cells)
    return markdown(lines)


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table: heads, then rows; all columns but the first are numbers."""
    heads, *rows = lines
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (heads, rule, *rows))


def ratio(row: Row, baseline: Row, figure: str) -> str:
    """The median of the rounds' ratios with their range, as ``1.52 (1.48–1.60)``."""
    if baseline.problem:
        return "–"
    ratios = sorted(row.ratios(figure, baseline))
    middle = median(ratios)
    return f"{middle:.2f}" if row is baseline else f"{middle:.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})"


def findings(rows: Sequence[Row]) -> Iterator[str]:
    """Sentences: bars, and every peer that is faster than one of ours, figure by figure."""
    baseline = rows[0]
    for row in rows:
        bar = row.contender.bar
        if bar is not None and row.rounds and baseline.rounds:
            figure = next(iter(row.rounds[0]))
            reached = median(row.ratios(figure, baseline))
            verdict = "reached" if reached >= bar else MISSED
            yield f"Bar: {bar:g} × {baseline.contender.name}, {figure}; {row.contender.name} {reached:.2f}, {verdict}."
    for row in rows:
        if row.contender.ours and row.rounds:
            slower = [
                f"{other.contender.name} in {figure} ({median(row.ratios(figure, other)):.2f} ×)"
                for other in rows
                if not other.contender.ours and other.rounds
                for figure in row.rounds[0]
                if median(row.ratios(figure, other)) < 1
            ]
            if slower:
                yield f"Not faster: {row.contender.name} than {', '.join(slower)}."


def missed(rows: Sequence[Row]) -> bool:
    """Whether something of ours failed or missed its bar."""
    failed = any(row.contender.ours and row.problem for row in rows)
    return failed or any(MISSED in line for line in findings(rows))


def section(benchmark: Benchmark, rows: Sequence[Row], where: dict[str, Any], corpus: str, command: str) -> str:
    """A benchmark as a section of the document."""
    notes = "".join(f"- {line}\n" for line in findings(rows))
    notes += "\n" if notes else ""
    busy = mean(share for row in rows for share in row.busy)
    origin = provenance(where, command, busy, corpus)
    return f"# {benchmark.title}\n\n{benchmark.text}\n{table(rows)}\n{notes}{origin}"


def provenance(where: dict[str, Any], command: str, busy: float, corpus: str) -> str:
    """Date, command, machine and versions, in a line.

    Args:
        where: What `circumstances` gave; with ``memory`` also what `machine.bandwidth` gave before and after.
        command: What was run.
        busy: Share of the machine that other programs used.
        corpus: On which data.
    """
    machine = where["machine"]
    packages = ", ".join(f"{name} {number}" for name, number in where["versions"].items())
    units = "".join(f" ({unit})" for unit in machine["vector_units"][:1])
    return (
        f"{where['date']}, `{command}`: {corpus}; {machine['processor']}{units}, {machine['cores']} cores, "
        f"of which other programs used {busy:.0%} just before the runs, {machine['memory_gb']} GB"
        f"{_memory(*where['memory']) if 'memory' in where else ''}, "
        f"Linux {machine['kernel']}; {packages}.\n"
    )


def _memory(before: Mapping[int, float], after: Mapping[int, float]) -> str:
    told = " and ".join(
        f"{speed:.1f} GB/s before and {after[number]:.1f} GB/s after by {number} process{'es' if number > 1 else ''}"
        for number, speed in before.items()
    )
    note = ": **others disturbed this run**" if disturbance(before, after) > DISTURBED else ""
    return f" that were copied at {told}{note}"


def replace_section(document: Path, name: str, text: str) -> None:
    """Put ``text`` between the markers of section ``name``; behind all others where there are none.

    A document that is not there yet gets just that section.
    """
    begin, end = f"<!-- bench {name}: written by tools/bench/run -->\n", f"<!-- end {name} -->\n"
    written = document.read_text() if document.exists() else f"{begin}{end}{FOOT}"
    before, found_begin, rest = written.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        before, after = f"{written.rstrip()}\n\n", ""
    document.write_text(f"{before}{begin}{text}{end}{after}")
