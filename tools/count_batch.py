#!/usr/bin/env python3
"""Count what a batch passes: files and functions of the package, how deep they call each other, and Python calls.

    python tools/count_batch.py            a table
    python tools/count_batch.py --check    exits with 1 when a bound is passed; `BOUNDS` grow for measured time alone
    python tools/count_batch.py --list     the functions of a usual batch too, in the order in which they are called

Two recipes, both of 32 samples through ``ss.Loader(num_workers=0)``, shuffled, one decoding thread, with labels:
``bytes`` takes the files as they are, ``crops`` takes ``RandomResizedCrop(64, flip=True)``. The JPEG files are made on
the fly; a few shards on the local disk hold them. What is counted are steady batches: number 4 to 39 of the first
epoch, but for those that open a file or look at the open ones (these are not steady). Their ``usual`` one is the median
of each column. The ``most`` come from the few batches that also work out the order of the coming ones (7, 15, 31).

A call is one that ``sys.setprofile`` reports of a Python function of the package, generators' resumptions included; one
function is one qualified name in one file. Python 3.12 and newer inline comprehensions, and so count fewer. To count
another checkout's: ``PYTHONPATH=CHECKOUT python tools/count_batch.py``.
"""

from __future__ import annotations

import argparse
import gc
import io
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median_low
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

import shardstream as ss

PACKAGE = f"{Path(ss.__file__).parent}{os.sep}"
BATCH = 32
WARM_UP = 4
_LOOK = ("dataset/rows.py", "RowReader._look")  # once a second
BATCHES = 40  # of an epoch of which none is short of samples


class Count(NamedTuple):
    """Of one batch, or the bounds of one."""

    files: int
    functions: int
    calls: int
    depth: int = 0


# Crops call one function more a sample since what comes before pixels is done for 16 pictures in turn: 8 % less time.
# Batches call five more and pass one file more since bytes are copied where they are verified: a quarter to a third
# less time for those. And one function more since a key's begin and end are read together: a third less time for keys,
# and one since windows are found for several steps at once: a tenth less time for small batches from afar. One file
# more since columns, of which several steps are read at once, have their own: half the time for rows of tokens.
BOUNDS = {
    ("bytes", "usual"): Count(files=17, functions=53, calls=68),
    ("bytes", "most"): Count(files=26, functions=82, calls=176),
    ("crops", "usual"): Count(files=27, functions=111, calls=2693),
    ("crops", "most"): Count(files=36, functions=140, calls=2800),
}


class Trace:
    """The calls of the package's functions while it is entered, and whether a file was opened meanwhile."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []  # file and qualified name
        self.depth = 0  # of package functions that call each other
        self._within = 0
        self.opens = False
        self._entered = False
        sys.addaudithook(self._audit)

    def __enter__(self) -> Trace:
        self.calls, self.depth, self._within, self.opens, self._entered = [], 0, 0, False, True
        gc.disable()  # what it would call now has nothing to do with the batch
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        gc.enable()
        self._entered = False

    @property
    def count(self) -> Count:
        """What was passed."""
        functions = set(self.calls)
        return Count(len({file for file, _ in functions}), len(functions), len(self.calls), self.depth)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            self.calls.append((code.co_filename.removeprefix(PACKAGE), code.co_qualname))
            self._within += 1
            self.depth = max(self.depth, self._within)
        elif event == "return" and code.co_filename.startswith(PACKAGE):
            self._within -= 1

    def _audit(self, event: str, _: object) -> None:
        self.opens |= self._entered and event == "open"


def write_shards(folder: Path) -> None:
    """A few shards of small pictures, upright and not, with labels."""
    noise = np.random.default_rng(0)
    files = []
    for number in range(8):
        pixels = noise.integers(0, 256, (30, 40, 3), np.uint8)
        picture = Image.fromarray(pixels).resize((400, 300) if number % 2 else (300, 400))
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=85)
        files.append(file.getvalue())
    with ss.ShardWriter(folder, shard_size="4MB") as writer:
        for number in range(BATCH * BATCHES):
            writer.write({"__key__": f"{number:06}", "jpg": files[number % len(files)], "cls": number % 10})


def steady(folder: Path, field: Any) -> Iterator[tuple[Count, list[tuple[str, str]]]]:
    """Counts and calls of the steady batches of a recipe."""
    fields = {"jpg": field, "cls": None}
    dataset = ss.ShardDataset(
        str(folder), fields=fields, batch_size=BATCH, shuffle=True, reads=ss.ReadOptions(threads=1)
    )
    batches = iter(ss.Loader(dataset, num_workers=0))
    for _ in range(WARM_UP):
        next(batches)
    trace = Trace()
    for _ in range(WARM_UP, BATCHES):
        with trace:
            next(batches)
        if not trace.opens and _LOOK not in trace.calls:
            yield trace.count, trace.calls


def summary(counts: Sequence[Count]) -> dict[str, Count]:
    """The usual batch and the most that one passes, column by column."""
    columns = [*zip(*counts, strict=True)]
    return {"usual": Count(*map(median_low, columns)), "most": Count(*map(max, columns))}


def passed(recipe: str, found: Mapping[str, Count]) -> Iterator[str]:
    """The bounds of a recipe that do not hold."""
    for which, count in found.items():
        for name in ("files", "functions", "calls"):
            value, bound = getattr(count, name), getattr(BOUNDS[recipe, which], name)
            if value > bound:
                yield f"{recipe}, {which} batch: {value} {name}, at most {bound}; --list shows what a batch passes"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what was counted; 1 when a bound is to be kept and is not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bound is passed")
    parser.add_argument("--list", action="store_true", help="print the functions of a usual batch, as they are called")
    options = parser.parse_args(arguments)
    wrong = []
    print(f"{'':16}{'files':>10}{'functions':>10}{'calls':>10}{'deep':>10}")
    with tempfile.TemporaryDirectory() as folder:
        write_shards(Path(folder))
        for recipe, field in (("bytes", "bytes"), ("crops", ss.decode.RandomResizedCrop(64, flip=True))):
            batches = [*steady(Path(folder), field)]
            found = summary([count for count, _ in batches])
            for which, count in found.items():
                print(f"{recipe:8}{which:8}" + "".join(f"{number:10,}" for number in count))
            if len(batches) < (BATCHES - WARM_UP) // 2:
                wrong.append(f"{recipe}: only {len(batches)} steady batches; all others open files")
            wrong += passed(recipe, found)
            if options.list:
                calls = min(batches, key=lambda batch: abs(batch[0].calls - found["usual"].calls))[1]
                print(*(f"  {file}: {name}" for file, name in dict.fromkeys(calls)), sep="\n")
    if options.check:
        print(*wrong, sep="\n", end="\n" if wrong else "")
    return int(options.check and bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
