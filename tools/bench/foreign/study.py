"""What is measured on data of other libraries."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from statistics import mean

from bench import data
from bench.data import WORKERS
from bench.foreign import bars, files, page, scans, stores
from bench.foreign.corpora import FOLDER, FORMATS, KINDS, PHOTOGRAPHS, VALUES, Kind, samples
from bench.foreign.measured import Measured
from bench.harness import ContenderError
from bench.race import environments
from bench.report import MISSED, Outcome, circumstances, provenance, versions

ROUNDS = 3
CROP_TURNS = 3  # epochs of seconds
PACKAGES = (
    *("shardstream", "webdataset", "mosaicml-streaming", "litdata", "tfrecord", "lmdb", "h5py"),
    *("torch", "numpy", "simplejpeg"),
)


def run(document: Path, rounds: int, counts: Mapping[Kind, int] | None = None, objects: int = scans.OBJECTS) -> Outcome:
    """Write the data where they are missing, measure, and give the section."""
    counts = counts or {"photographs": PHOTOGRAPHS, "values": VALUES}
    where = circumstances()
    os.environ["XDG_CACHE_HOME"] = str(FOLDER / "cache")
    found = Measured()
    places = _written(found, counts)
    _measure(found, places, rounds)
    _second_start(found, objects, rounds)
    _single_files(found, counts["photographs"], rounds)
    _packing(found, places, counts)
    described = (
        f"{counts['photographs']:,} photographs of together {_megabytes('photographs', counts):,.0f} MB, "
        f"{counts['values']:,} values of together {_megabytes('values', counts):,.0f} MB, {rounds} rounds"
    )
    where["versions"] = {
        "python": where["versions"]["python"],
        **versions(PACKAGES),
        **environments.versions("datasets"),
    }
    origin = provenance(where, f"tools/bench/run foreign --rounds {rounds}", mean(found.busy), described)
    text = page.section(found, origin)
    content = {
        **where,
        "cells": [
            {"what": what, "format": name, "kind": kind, "rounds": cell.rounds, "problem": cell.problem}
            for (what, name, kind), cell in found.cells.items()
        ],
    }
    failed = any(cell.problem for (what, _, _), cell in found.cells.items() if what != "theirs")
    return Outcome("foreign", document, text, failed or MISSED in text, content)


def _megabytes(kind: Kind, counts: Mapping[Kind, int]) -> float:
    return sum(len(sample.octets) for sample in samples(kind, counts[kind])) / 1e6


def _written(found: Measured, counts: Mapping[Kind, int]) -> dict[tuple[str, Kind], Path]:
    """The data in every format, and packed."""
    data.exactly(counts["photographs"])
    places = {}
    absent = environments.make(*sorted({one.peer for one in FORMATS.values() if one.peer is not None}))
    for kind in KINDS:
        for name, format in FORMATS.items():
            if format.names[kind] is None:
                continue
            try:
                if format.peer in absent:
                    raise ContenderError(f"{format.peer} {absent[format.peer]}")
                places[name, kind] = stores.make(name, kind, counts[kind])
                stores.pack(name, kind, counts[kind])
            except ContenderError as error:
                for what in ("bytes", "crop", "ours", "theirs", "scan", "catalogue", "cached"):
                    found[what, name, kind].problem = str(error)
    return places


def _measure(found: Measured, places: Mapping[tuple[str, Kind], Path], rounds: int) -> None:
    for number in range(rounds):
        print(f"round {number + 1}", flush=True)
        for (name, kind), place in places.items():
            names = FORMATS[name].names[kind]
            assert names is not None
            packed = place.with_name(f"{place.name}-packed")
            data.settle(place, packed)
            both = {"place": str(place), "packed": str(packed), "names": list(names)}
            found.run(("bytes", name, kind), "pairs:beside", {**both, "work": "bytes"})
            if kind == "photographs":
                found.run(("crop", name, kind), "pairs:beside", {**both, "work": "crop", "turns": CROP_TURNS})
            if kind in FORMATS[name].blocks:
                cache = str(FOLDER / "cached")
                found.run(("cached", name, kind), "pairs:beside", {**both, "work": "bytes", "cache": cache})
            if name in bars.READERS:
                read = {"store": str(place), "name": name, "kind": kind, "workers": WORKERS}
                for who in ("ours", "theirs") if number % 2 else ("theirs", "ours"):
                    found.run((who, name, kind), f"readers:{who}", read)
                _compare(found, name, kind)
            found.run(("scan", name, kind), "scans:scan", {"store": str(place), "name": name})
            if not number:
                found.run(("catalogue", name, kind), "scans:catalogue", {"store": str(place), "label": names[1]})


def _single_files(found: Measured, count: int, rounds: int) -> None:
    """Of photographs: on the disk, and in a store."""
    folder = data.exactly(count).folder
    with files.far(folder) as endpoint:
        for _ in range(rounds):
            for work in bars.FILES:
                turns = {"turns": CROP_TURNS} if work == "crop" else {}
                found.run(
                    (work, "files", "photographs"), "files:beside", {"folder": str(folder), "work": work, **turns}
                )
            far = {"endpoint": endpoint, "count": count}
            for who, call in (("ours", "streamed"), ("theirs", "bare")):
                found.run((who, "files", "photographs"), f"files:{call}", far)


def _packing(found: Measured, places: Mapping[tuple[str, Kind], Path], counts: Mapping[Kind, int]) -> None:
    for (name, kind), place in places.items():
        given = stores.make("files", kind, counts[kind])
        out = FOLDER / "packing"
        options = {"place": str(place), "files": str(given), "kind": kind, "out": str(out)}
        found.run(("pack", name, kind), "files:packing", options)


def _compare(found: Measured, name: str, kind: Kind) -> None:
    ours, theirs = found["ours", name, kind], found["theirs", name, kind]
    if not ours.problem and not theirs.problem and ours.delivered != theirs.delivered:
        theirs.problem = f"delivers {theirs.delivered}, but shardstream {ours.delivered}"


def _second_start(found: Measured, objects: int, rounds: int) -> None:
    folder = scans.link(FOLDER / f"objects-{objects}", objects)
    found.run(("indexed", "webdataset", "values"), "scans:indexed", {"folder": str(folder)})
    for _ in range(rounds):
        found.run(("start", "webdataset", "values"), "scans:start", {"folder": str(folder)})
