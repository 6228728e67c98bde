"""Packs and decodes every file of a folder, each in a process with little memory; see ``tools/drills/pictures``."""

from __future__ import annotations

import io
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import shardstream as ss
from shardstream.images.formats import FORMATS
from shardstream.images.opening import is_deep
from shardstream.pack.options import PackOptions
from shardstream.pack.run import run_pack
from shardstream.testing.pictures import photo, save

MEMORY = 1 << 30  # bytes that a process may take, beyond what it begins with
SECONDS = 60
Image.init()
KNOWN = [name for name in Image.ID if name in {one.pillow for one in FORMATS}]  # in the order in which Pillow asks
DECODES = "(Pillow decodes it) "
FINE = ("as by Pillow", "neither decodes", "rejected")


def main(folder: str) -> int:
    """Print the table and what is wrong; 1 where something is."""
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    begun = time.monotonic()
    if files:
        judge(files[0])  # which imports what all processes need
    found: list[tuple[str, str]] = []
    wrong = 0
    for path in files:
        outcome, kind, said = judged(path)
        found.append((outcome, kind))
        if outcome not in FINE or said.startswith(DECODES):
            wrong += outcome not in FINE
            word = "note " if outcome in FINE else "WRONG"
            print(f"{word} {path.relative_to(folder)}: {outcome}: {said}", flush=True)
    report(found)
    print(f"{len(files):,} files in {time.monotonic() - begun:.0f} s, {wrong} wrong")
    return int(bool(wrong) or not files)


def report(found: list[tuple[str, str]]) -> None:
    """The outcomes by kind of file."""
    counts, totals = Counter(found), Counter(outcome for outcome, _ in found)
    outcomes = sorted(totals, key=lambda one: (one not in FINE, one))
    width = max(map(len, outcomes), default=0) + 2
    print(f"{'kind':<10}" + "".join(f"{one:>{width}}" for one in outcomes))
    for kind in sorted({kind for _, kind in counts}):
        print(f"{kind:<10}" + "".join(f"{counts[one, kind]:>{width}}" for one in outcomes))
    print(f"{'all':<10}" + "".join(f"{totals[one]:>{width}}" for one in outcomes))


def judged(path: Path) -> tuple[str, str, str]:
    """Outcome, kind and what was said of a file, by a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        try:
            limit = _size_now() + MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            warnings.simplefilter("ignore")
            answer = judge(path)
        except BaseException as error:  # the process would end without a word
            answer = ("raised", "?", f"{type(error).__name__}: {error}"[:200])
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    try:
        if not select.select([reading], [], [], SECONDS)[0]:
            os.kill(child, signal.SIGKILL)
            return "took too long", "?", f"more than {SECONDS} s"
        data = os.read(reading, 1 << 16)
    finally:
        os.close(reading)
        _, status = os.waitpid(child, 0)
    if not data:
        return "crashed", "?", f"status {os.waitstatus_to_exitcode(status)}"
    outcome, kind, said = json.loads(data)
    return outcome, kind, said


def judge(path: Path) -> tuple[str, str, str]:
    """What becomes of a file that is packed beside a good one."""
    with tempfile.TemporaryDirectory() as folder:
        good = Path(folder) / "good.png"
        good.write_bytes(save(photo(8, 8), "PNG"))
        source = Path(folder) / "list.jsonl"
        source.write_text("".join(json.dumps({"at": str(one)}) + "\n" for one in (good, path)))
        options = PackOptions(
            fields={"image": "at:file"}, key="line", images=ss.ImageOptions(jpeg="keep"), shuffle=False
        )
        packed = run_pack(source, f"{folder}/out", options, workers=0)
        if packed.rejects:
            assert packed.first_reject is not None
            reason = packed.first_reject.reason
            known = not isinstance(by_pillow(path.read_bytes()), str)
            assert packed.first_reject.path == str(path), reason
            assert reason, "a reject without a reason"
            return "rejected", path.suffix[1:].lower() or "none", DECODES * known + reason
        assert str(packed.manifest.fields["image"]) == "image", f"stored as {packed.manifest.fields['image']}"
        data = path.read_bytes()
        theirs = by_pillow(data)
        try:
            ours = ss.Reader(f"{folder}/out", fields=["image"])[1]["image"]
        except ss.errors.DecodeError as error:
            same = isinstance(theirs, str)
            return "neither decodes" if same else "Pillow decodes", name_of(data), error.what
    if isinstance(theirs, str):
        return "Pillow does not decode", name_of(data), theirs
    return "as by Pillow" if np.array_equal(ours, theirs) else "other pixels", name_of(data), str(ours.shape)


def name_of(data: bytes) -> str:
    """What kind of file it is, by content."""
    return ss.images.header.probe(data).kind


def by_pillow(data: bytes) -> NDArray[Any] | str:
    """The first frame, decoded by Pillow; why it does not. Grey of 16 bits is the high byte, as everywhere here."""
    try:
        with Image.open(io.BytesIO(data), formats=KNOWN) as image:
            image.load()
            if is_deep(image):
                values = np.asarray(image).clip(0, 0xFFFF) >> 8
                return np.repeat(values.astype(np.uint8)[..., None], 3, axis=2)
            return np.asarray(image.convert("RGB"))
    except Exception as error:  # whatever a damaged file makes Pillow raise
        return f"{type(error).__name__}: {error}"[:200]


def _size_now() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
