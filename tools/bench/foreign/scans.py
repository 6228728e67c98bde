"""What finding the samples costs: the scan, the size of a catalogue, and the second start of a large data set."""

from __future__ import annotations

import io
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench.data import BATCH
from bench.foreign.corpora import FORMATS

TURNS = 7
AT_LEAST = 0.05  # seconds of a turn
OBJECTS, FILES, ROWS = 100_000, 20, 4  # of the second start; a file has at most 65,000 links
JOBS = MEMBERS, INTO, WHOLE = "`tarfile.getmembers`", "`read()` into 1 MB", "`read_bytes()`"
OPENED = "opened, s"
STARTS = {OPENED: "opened", "CPU s": "opened, processor time", "batch, s": "first batch"}


def scan(store: str, name: str) -> dict[str, Any]:
    """Samples a second of the scan, and as a multiple of something that reads the same objects.

    Of tars that is ``tarfile``'s list of members; of others, to read the files whole: into one buffer of 1 MB that is
    used again and again, or each into bytes of its own. All take turns; objects are opened anew in each.
    """
    from shardstream.formats.contract import ObjectListing, shown
    from shardstream.formats.registry import format_named
    from shardstream.storage.local.store import LocalStore

    reader = format_named(FORMATS[name].source)
    place = LocalStore(Path(store))
    found = reader.recognize(ObjectListing(place, list(place.list())), {})
    assert found is not None
    paths = [Path(store) / one.path for one in found.objects]

    def scanned() -> int:
        count = 0
        for one in found.objects:
            _, data, _ = shown(reader, place, one)
            count += sum(len(rows.keys) for rows in reader.scan(data, one.about))
        return count

    jobs: dict[str, Callable[[], object]] = {"scan": scanned}
    if name == "webdataset":
        jobs[MEMBERS] = lambda: [_members(path) for path in paths]
    jobs[INTO], jobs[WHOLE] = lambda: [_into(path) for path in paths], lambda: [path.read_bytes() for path in paths]
    samples = scanned()
    seconds: dict[str, list[float]] = {job: [] for job in jobs}
    for turn in range(TURNS + 1):
        for job in list(jobs)[:: 1 if turn % 2 else -1]:
            lasted = _seconds(jobs[job])
            if turn:
                seconds[job].append(lasted)
    figures = {"samples/s": samples / median(seconds["scan"])}
    for job in list(jobs)[1:]:
        figures[job] = median(theirs / ours for theirs, ours in zip(seconds[job], seconds["scan"], strict=True))
    return {"figures": figures, "delivered": {"samples": samples}}


def _seconds(job: Callable[[], object]) -> float:
    """Processor seconds of a job, the mean of some calls: what others do to the clock on the wall does not count."""
    calls, start = 0, time.process_time()
    while True:
        job()
        calls += 1
        if (used := time.process_time() - start) >= AT_LEAST:
            return used / calls


def _members(path: Path) -> int:
    with tarfile.open(path) as file:
        return len(file.getmembers())


_BUFFER = bytearray(1 << 20)


def _into(path: Path) -> int:
    total = 0
    with path.open("rb", buffering=0) as file:
        while length := file.readinto(_BUFFER):
            total += length
    return total


def catalogue(store: str, label: str) -> dict[str, Any]:
    """Bytes of a catalogue a sample: all of it, and without the text of its keys."""
    import shardstream as ss

    reader = ss.Reader(store, fields=[label])
    manifest: Any = reader.manifest
    total = manifest.indexes_bytes + len(manifest.objects.pack()) + len(manifest.head())
    keys = sum(len(sample["__key__"].encode()) for sample in reader)
    figures = {"bytes": total / manifest.samples, "beside keys": (total - keys) / manifest.samples}
    return {"figures": figures, "delivered": {"samples": manifest.samples}}


def link(folder: Path, objects: int) -> Path:
    """So many tars of some samples each, hard links of a few files, made if they are not there."""
    if not folder.exists():
        aside = folder.with_name(f"making-{folder.name}")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        for number in range(objects):
            path = aside / f"{number:06d}.tar"
            if number < FILES:
                _tiny(path)
            else:
                path.hardlink_to(aside / f"{number % FILES:06d}.tar")
        aside.rename(folder)
    return folder


def _tiny(path: Path) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as file:
        for row in range(ROWS):
            for extension, data in (("bin", bytes(100)), ("cls", b"%d" % row)):
                member = tarfile.TarInfo(f"{path.stem}-{row}.{extension}")
                member.size = len(data)
                file.addfile(member, io.BytesIO(data))


def indexed(folder: str) -> dict[str, Any]:
    """The first start, which makes the catalogue."""
    import shardstream as ss

    report = ss.index(folder)
    return {"figures": {"objects/s": report.objects / report.seconds}, "delivered": {"samples": report.samples}}


def start(folder: str) -> dict[str, Any]:
    """Seconds until a data set with a catalogue is open, and until its first batch, in a process that has imported."""
    import shardstream as ss

    make = ss.ShardDataset  # which imports the rest
    used, begun = time.process_time(), time.perf_counter()
    dataset = make(folder, fields={"bin": "bytes", "cls": None}, shuffle=True, batch_size=BATCH)
    opened, cpu = time.perf_counter() - begun, time.process_time() - used
    next(iter(dataset))
    batch = time.perf_counter() - begun
    figures = dict(zip(STARTS, (opened, cpu, batch), strict=True))
    return {"figures": figures, "delivered": {"samples": dataset.manifest.samples}}
