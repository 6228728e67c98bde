"""Data of other libraries as a page, ``docs/benchmarks/foreign.md``."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from bench.data import BATCH, WORKERS
from bench.foreign import bars, files, pairs, scans
from bench.foreign.bars import verdict
from bench.foreign.corpora import FORMATS, KINDS, VALUE_BYTES, Kind
from bench.report import markdown

if TYPE_CHECKING:
    from bench.foreign.measured import Measured

WORKS = {"bytes": "bytes", "crop": "224 crops", "cached": "bytes, second epoch with a cache"}
SIZES: dict[Kind, str] = {"photographs": "photographs", "values": "1 KB"}


def section(found: Measured, origin: str) -> str:
    """The section.

    Args:
        found: What was measured.
        origin: Date, command, machine and versions.
    """
    parts = [TEXT]
    for title, text, table in (
        ("In place, beside the same samples packed", IN_PLACE, in_place(found)),
        ("Beside their own readers", READERS, readers(found)),
        ("Single files", FILES, single_files(found)),
        ("Packing", PACKING, packing(found)),
        ("Finding the samples", SCANS, scan(found)),
        ("The catalogue", CATALOGUE, catalogue(found)),
        ("The second start", START, second_start(found)),
    ):
        parts.append(f"## {title}\n\n{text}\n{markdown(table)}")
    return "\n".join([*parts, origin])


def in_place(found: Measured) -> list[list[str]]:
    """A row a format, size and work."""
    table = [["", "", "in place, samples/s", "packed, samples/s", "ratio", "by CPU time", "bar", ""]]
    for work in WORKS:
        for kind in KINDS:
            table += [_pair(found, work, name, kind) for name in FORMATS if _is_asked(work, name, kind)]
    return table


def _is_asked(work: str, name: str, kind: Kind) -> bool:
    format = FORMATS[name]
    if work == "cached":
        return kind in format.blocks and format.names[kind] is not None
    return work == "bytes" or kind == "photographs"


def _pair(found: Measured, work: str, name: str, kind: Kind) -> list[str]:
    cell, format = found[work, name, kind], FORMATS[name]
    head = [format.title, f"{SIZES[kind]}, {WORKS[work]}"]
    if format.names[kind] is None:
        return [*head, "holds no such samples", "", "", "", "", ""]
    least = bars.CACHED if work == "cached" else bars.BLOCKS if kind in format.blocks else bars.IN_PLACE
    if cell.absent:
        return [*head, cell.absent, "", "", "", f"≥ {least:g}", "not measured"]
    ratio = cell.values(pairs.RATIO)
    speeds = [f"{median(cell.values(which)):,.0f}" for which in (pairs.IN_PLACE, pairs.PACKED)]
    both = [_spread(ratio), _spread(cell.values(pairs.CPU_RATIO))]
    return [*head, *speeds, *both, f"≥ {least:g}", verdict(ratio, least)]


def readers(found: Measured) -> list[list[str]]:
    """A row a reader and size."""
    heads = ["", "", "its reader, samples/s", "in place, samples/s", "ratio", "by CPU time", "bar", ""]
    table = [heads]
    for name, least in bars.READERS.items():
        for kind in KINDS:
            ours, theirs = found["ours", name, kind], found["theirs", name, kind]
            head = [READER[name], SIZES[kind]]
            if ours.absent or theirs.absent:
                table.append([*head, ours.absent or theirs.absent, "", "", "", f"≥ {least:g}", "not measured"])
                continue
            speeds = [f"{median(cell.values('samples/s')):,.0f}" for cell in (theirs, ours)]
            ratio = bars.ratios(found, name, kind, "samples/s")
            both = [_spread(ratio), _spread(bars.ratios(found, name, kind, "samples/CPU s"))]
            table.append([*head, *speeds, *both, f"≥ {least:g}", verdict(ratio, least)])
    return table


def single_files(found: Measured) -> list[list[str]]:
    """A row a kind of work on a disk, and one for a store."""
    table = [["", "theirs, samples/s", "in place, samples/s", "ratio", "by CPU time", "bar", ""]]
    for work, least in bars.FILES.items():
        cell, head = found[work, "files", "photographs"], f"{WORKS[work]}, `ImageFolder`"
        if cell.absent:
            table.append([head, cell.absent, "", "", "", f"≥ {least:g}", "not measured"])
            continue
        ratio = cell.values(pairs.RATIO)
        speeds = [f"{median(cell.values(which)):,.0f}" for which in (pairs.PACKED, pairs.IN_PLACE)]
        both = [_spread(ratio), _spread(cell.values(pairs.CPU_RATIO))]
        table.append([head, *speeds, *both, f"≥ {least:g}", verdict(ratio, least)])
    ours, theirs = found["ours", "files", "photographs"], found["theirs", "files", "photographs"]
    head, least = "bytes from a store at 50 ms, bare requests", bars.FAR
    if ours.absent or theirs.absent:
        table.append([head, ours.absent or theirs.absent, "", "", "", f"≥ {least:g}", "not measured"])
        return table
    speeds = [f"{median(cell.values('records/s')):,.0f}" for cell in (theirs, ours)]
    ratio = bars.ratios(found, "files", "photographs", "records/s")
    table.append([head, *speeds, _spread(ratio), "", f"≥ {least:g}", verdict(ratio, least)])
    return table


def packing(found: Measured) -> list[list[str]]:
    """A row a format and size."""
    table = [["", "", "packed, samples/s", "from files, samples/s", "ratio", "bar", ""]]
    for kind in KINDS:
        for name, format in FORMATS.items():
            if format.names[kind] is None:
                continue
            cell, head = found["pack", name, kind], [format.title, SIZES[kind]]
            least = "" if kind in format.blocks else f"≥ {bars.PACKING:g}"
            if cell.absent:
                table.append([*head, cell.absent, "", "", least, "not measured"])
                continue
            ratio = cell.values(pairs.RATIO)
            speeds = [f"{median(cell.values(which)):,.0f}" for which in (files.PACKED, files.FROM_FILES)]
            table.append([*head, *speeds, _spread(ratio), least, verdict(ratio, bars.PACKING) if least else ""])
    return table


def scan(found: Measured) -> list[list[str]]:
    """A row a format and size."""
    table = [["", "", "samples/s", *(f"× {job}" for job in scans.JOBS), "bar", ""]]
    for kind in KINDS:
        for name, format in FORMATS.items():
            cell, head = found["scan", name, kind], [format.title, SIZES[kind]]
            if format.names[kind] is None:
                continue
            if cell.absent:
                table.append([*head, cell.absent, *[""] * len(scans.JOBS), "", "not measured"])
                continue
            times = [cell.values(job) if job in cell.rounds[0] else [] for job in scans.JOBS]
            bar, reached = _scan_bar(found, name, kind)
            shown = [_spread(one) if one else "" for one in times]
            table.append([*head, f"{median(cell.values('samples/s')):,.0f}", *shown, bar, reached])
    return table


def _scan_bar(found: Measured, name: str, kind: Kind) -> tuple[str, str]:
    """Small values lie among what is scanned: only a list of members has a bar there."""
    job = bars.SCANS.get(name)
    if job is None or (kind == "values" and job != scans.MEMBERS):
        return "", ""
    return f"≥ {bars.SCAN:g} × {job}", verdict(found["scan", name, kind].values(job), bars.SCAN)


def catalogue(found: Measured) -> list[list[str]]:
    """Bytes a sample of each format and size."""
    table = [["", "", "bytes a sample", "beside keys", f"≤ {bars.CATALOGUE:g}"]]
    for kind in KINDS:
        for name, format in FORMATS.items():
            if format.names[kind] is None:
                continue
            cell = found["catalogue", name, kind]
            values = cell.values("beside keys")
            told = [cell.absent, ""] if not values else [f"{cell.values('bytes')[0]:.1f}", f"{values[0]:.1f}"]
            table.append([format.title, SIZES[kind], *told, verdict(values, bars.CATALOGUE, most=True)])
    return table


def second_start(found: Measured) -> list[list[str]]:
    """Seconds until this and that."""
    cell = found["start", "webdataset", "values"]
    table = [["second start", "seconds", "bar", ""]]
    for figure, title in scans.STARTS.items():
        values, least = cell.values(figure), f"< {bars.START:g}" if figure == scans.OPENED else ""
        reached = verdict(values, bars.START, most=True) if least else ""
        table.append([title, _spread(values) if values else cell.absent, least, reached])
    return table


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


READER = {
    "webdataset": "WebDataset",
    "streaming": "MDS, MosaicML Streaming",
    "tfrecord": "TFRecord, `tfrecord`",
    "lmdb": "LMDB, `Dataset` of ten lines",
    "arrow": "Arrow, `datasets`",
    "parquet": "Parquet, `datasets` streamed",
    "hdf5": "HDF5, h5py in a `Dataset` of ten lines",
    "zip": "zip, `Dataset` of ten lines",
    "litdata": "LitData",
}
TEXT = f"""\
# Data of other libraries

The same photographs, and values of {VALUE_BYTES:,} bytes, each with a label, in the formats of other libraries, which
[are read where they lie](../foreign.md). Tars, MDS, LitData, TFRecord, LMDB, Arrow, HDF5, zip and npz were written by
the libraries themselves, RecordIO and beton by writers of a few lines. LMDB is laid out as for text recognition, so its
labels are text. Everything is shuffled, made into batches of {BATCH} by {WORKERS} worker processes and delivered to the
parent process, from the page cache.

*By CPU time*: the same ratio of samples in a second of processor time, of the process and all its workers: what others
do on the machine disturbs it less.
"""
IN_PLACE = """\
Shards of ours of the same samples, in the same order, *without checksums*; JPEG files are untouched in both. Both data
sets take turns in one process, epochs of at least half a second each; the ratio is the median over the turns, and the
table has the median of the rounds, with the smallest and the largest. Parquet with snappy (`datasets`
writes it so, but for pictures) and `.jsonl.gz` have values that are compressed together: their bar is lower, and their
second epoch with a cache is measured, too.
"""
READERS = """\
Each reader in a process of its own, whole epochs, the first one not counted. The peers join a batch into one tensor of
bytes in the worker, which is faster than their own lists of bytes. Sums of lengths and labels are compared. WebDataset
and `tfrecord` shuffle a buffer of 1,000 samples, all others the whole epoch.
"""
FILES = """\
A folder of class folders. `ImageFolder` reads each file with `read()`, and crops with Pillow and torchvision; both
start new workers each epoch. In the store (SeaweedFS on this machine, through a proxy that keeps every answer for 50
ms) the bare requests are those of two processes, each with 128 of obstore's on their way, which drop what comes; ours
are whole batches of epochs after the first, without a cache.
"""
PACKING = """\
One worker, what it takes to begin with included, and JPEG files kept as they are; the same samples as single files
with a list are packed in turns with it.
"""
SCANS = """\
The scan alone, in one process: from objects to columns of places, beside what reads the same files, in processor time:
`tarfile.getmembers`, `read()` of the whole files into one buffer of 1 MB, and `read_bytes()`. Small values lie among
the headers that are scanned, so there is nothing to skip, and no bar but that of tar.
"""
CATALOGUE = """\
All of it: head, table of objects and indexes; without keys, which are text that the data have themselves.
"""
START = f"""\
`ShardDataset` of a folder of {scans.OBJECTS:,} tars of {scans.ROWS} samples each that has a catalogue, after all
imports: one listing, compared with the catalogue; then the first batch of {BATCH}, shuffled.
"""
