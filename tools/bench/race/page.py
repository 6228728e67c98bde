"""The race as a page, ``docs/benchmarks/race.md``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import TypeAlias

from bench.data import BATCH, WORKERS
from bench.race import bars
from bench.race.bars import Measured, Work
from bench.race.corpora import LARGE, LARGE_BATCH, SMALL
from bench.race.epochs import COOL_DOWN, WARM_UP
from bench.race.kernels import BATCHES
from bench.race.lines import ADDRESSABLE, DALI, FFCV, OURS
from bench.report import MISSED, markdown

Results: TypeAlias = Sequence[tuple[Work, Sequence[Measured]]]
CHART = "race.svg"


def section(results: Results, problems: Mapping[str, str], origin: str) -> str:
    """The section.

    Args:
        results: What each line of each work reached.
        problems: Peers that could not be installed, and why.
        origin: Date, command, machine and versions.
    """
    parts = [TEXT]
    for work, measured in results:
        table = kernels_table(measured) if work.name == "kernels" else speeds_table(work, measured)
        parts.append(f"## {work.title}\n\n{NOTES[work.name]}\n{table}")
    verdicts = [["work", "ours", "against", "bar", "reached", ""], *all_verdicts(results)]
    parts.append(f"## Bars\n\n{markdown(verdicts)}")
    if problems:
        parts.append("".join(f"- Left out: {name} {problem}.\n" for name, problem in problems.items()))
    return "\n".join([*parts, origin])


def speeds_table(work: Work, measured: Sequence[Measured]) -> str:
    """What each does, its speed, the first line as a multiple of it, and memory."""
    told = any(one.line.settings for one in measured)
    heads = ["", *(["inverse DCT · resize"] if told else []), work.unit, f"{OURS} is"]
    table = [[*heads, "private memory, MB", "all memory, MB"]]
    base = measured[0] if work.bars[0].ours == measured[0].name else bars.fastest(_ours(measured))
    for one in measured:
        cells = [f"**{one.name}**" if one.row.contender.ours else one.name, *([one.line.settings] if told else [])]
        if one.speeds:
            cells += [f"{one.speed:,.0f}", "" if base is None or one is base else _times(bars.ratios(base, one))]
            cells += [f"{one.private / 1e6:,.0f}", f"{one.row.peak / 1e6:,.0f}"]
        else:
            cells += [one.row.problem, "", "", ""]
        table.append(cells)
    return markdown(table)


def _ours(measured: Sequence[Measured]) -> list[Measured]:
    return [one for one in measured if one.line.peer == OURS]


def _times(found: Sequence[float]) -> str:
    return f"{median(found):.2f} × ({min(found):.2f}–{max(found):.2f})" if found else ""


def kernels_table(measured: Sequence[Measured]) -> str:
    """Both speeds, and the one as a share of the other."""
    table = [["", "plain loop, images/s", "data set, images/s", "share"]]
    for one in measured:
        if one.speeds:
            plain, through = one.row.median("plain loop"), one.row.median("data set")
            low, high = min(one.speeds), max(one.speeds)
            table.append(
                [f"**{one.name}**", f"{plain:,.0f}", f"{through:,.0f}", f"{one.speed:.2f} ({low:.2f}–{high:.2f})"]
            )
        else:
            table.append([f"**{one.name}**", one.row.problem, "", ""])
    return markdown(table)


def all_verdicts(results: Results) -> Iterator[list[str]]:
    """A row for each bar and each line that it is held against."""
    for work, measured in results:
        for bar in work.bars:
            for mine, other, ratio in bars.held_against(bar, measured):
                yield [work.title, mine, other, f"≥ {bar.least:g} ×", *_verdict(ratio, bar.least)]
        if work.name == "kernels":
            for one in measured:
                yield [work.title, one.name, "the plain loop", f"≥ {bars.SHARE:g}", *_verdict(one.speed, bars.SHARE)]
        if work.name == "crop":
            yield from _private(work, measured)


def _verdict(found: float | None, least: float) -> list[str]:
    if not found:
        return ["", "not measured"]
    return [f"{found:.2f}", "reached" if found >= least else MISSED]


def _private(work: Work, measured: Sequence[Measured]) -> Iterator[list[str]]:
    ours = next(one for one in measured if one.name == ADDRESSABLE)
    for other in measured:
        if other.line.peer in (FFCV, DALI) and ours.private and other.private:
            share = ours.private / other.private
            verdict = "reached" if share < bars.PRIVATE else MISSED
            yield ["Private memory", ours.name, other.name, f"< {bars.PRIVATE:g} ×", f"{share:.2f}", verdict]


TEXT = f"""\
# The race

Everybody in the best configuration known to us, with {WORKERS} worker processes or {WORKERS} threads, on the same
photographs, all in the page cache, to uint8 batches of {BATCH}. One epoch, of which the first {WARM_UP} and last
{COOL_DOWN} batches are not counted. Every epoch is checked to hold every sample once, by label, in the same shape and
type, with the same mean brightness.

*{OURS} is*: the median of the ratios inside each round, with the smallest and the largest. *Private memory* is
`Private_Dirty` of one worker process, or of the whole process where threads do the work; batches that workers share
with the training process count in *all memory*, as [everywhere](method.md).

Settings are given as *inverse DCT · resize*. Everybody reads the same JPEG files, but for *FFCV, files encoded anew*:
what FFCV's writer makes of photographs by default, quality 90, smaller. *Tensors* are torchvision's own decoder and its
transforms of tensors, which are faster than those of Pillow's images. *DALI, as we do it* has the accurate DCT and an
antialiased resize; *DALI, fastest* neither. FFCV hands out views that it overwrites some batches later.

![Speeds of all contenders](../{CHART})
"""
NOTES = {
    "crop": "A random part of each photograph, resized to 224 × 224 pixels, flipped at random; shuffled.\n",
    "center": "The evaluation pair, in stored order. FFCV has one step for both, which cuts first.\n",
    "large": f"""\
{LARGE} sheets of 64 photographs each, 4000 × 3000 pixels, as many bytes as a camera's; crops as above, batches of
{LARGE_BATCH}, of which two at both ends are not counted.
""",
    "tokens": f"""\
{SMALL:,} arrays `int32 (1024,)`, shuffled, as batches of {BATCH}, each contender in the form that it has for them.
SPDL has no form of storage. Epochs are repeated, and the middles of all but the first one are counted.
""",
    "images": f"{SMALL:,} arrays `uint8 (32, 32, 3)`, in the same way.\n",
    "raw": """\
The same photographs as bytes with their labels, shuffled, nothing decoded; checksums are verified but where it says
otherwise. Whole epochs are counted, all but the first one. Sums of lengths and labels are compared.
""",
    "raw-workers": f"""\
The same as batches of {BATCH} made by worker processes. The peers join a batch into one tensor in the worker, which is
faster than their own lists of bytes.
""",
    "kernels": f"""\
To cut, to decode and to resize, in a plain loop over files in memory, beside the same photographs, crops and pixels
through the data set, which reads, verifies, draws and makes batches. Batch by batch in turns, in one process by one
thread, {BATCHES - 1} batches each.
""",
}
