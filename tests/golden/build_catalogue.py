#!/usr/bin/env python3
"""Built the golden catalogue, once: ``python tests/golden/build_catalogue.py FOLDER``.

It is never built again, and this program never changes. It is a catalogue of version 1, beside two tar files of
WebDataset: with a label, text that one sample lacks, and checksums of all values.
"""

from __future__ import annotations

import io
import os
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np

import shardstream as ss

WRITTEN_NS = 10**18
JPEG = b"\xff\xd8\xff\xe0 no picture, but it begins as one: "


def npy(array: np.ndarray) -> bytes:
    """An array as a file of numpy."""
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def members(tar: int) -> dict[str, bytes]:
    """The files of a tar."""
    out: dict[str, bytes] = {}
    for row in range(4 - tar):
        key = f"folder/{tar}{row}é"
        out[f"{key}.jpg"] = JPEG + bytes(range(10 * row))
        out[f"{key}.cls"] = str(100 * tar + row).encode()
        if row != 1:
            out[f"{key}.txt"] = f"text {row} of {tar}".encode()
        out[f"{key}.npy"] = npy(np.arange(row + 2, dtype=np.int16))
    return out


def main() -> int:
    """Build the set into a folder that does not exist."""
    if len(sys.argv) != 2 or Path(sys.argv[1]).exists():
        print(
            "usage: build_catalogue.py FOLDER, which must not exist: golden files are never built again",
            file=sys.stderr,
        )
        return 2
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    for number in range(2):
        path = folder / f"part-{number}.tar"
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
            for name, data in members(number).items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        os.utime(path, ns=(WRITTEN_NS, WRITTEN_NS))
    with tempfile.TemporaryDirectory() as cache:
        ss.index(folder, checksums=True, beside=True, cache=cache, workers=0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
