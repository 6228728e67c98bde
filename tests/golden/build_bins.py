#!/usr/bin/env python3
"""Built the golden files of a data set of bins, once: ``python tests/golden/build_bins.py FOLDER``.

They are never built again, and this program never changes. They are of format version 1, with what writers came to add
to it: bins, and the table of the documents in them. ``expected.json`` has the documents that went into ``pack``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import shardstream as ss

LENGTHS = [5, 30, 3, 8, 17, 1, 2, 6, 4, 12]
OPTIONS: dict[str, Any] = {
    "bins": ss.PackedSequences(8, min=2, pad=7, token_dtype="uint16", tokenizer_id="letters"),
    "format": "record",
    "shuffle": True,
    "seed": 3,
    "shard_size": 400,
    "workers": 0,
}


def documents() -> list[dict[str, Any]]:
    """What goes into the bins."""
    found: list[dict[str, Any]] = []
    for i, length in enumerate(LENGTHS):
        one = {"__key__": f"dök/{i}", "ids": [1000 * i + n for n in range(length)], "n": i, "score": i / 4}
        one |= {"title": f"title {i}"} if i % 2 else {}
        one |= {"loss_mask": [(i + n) % 3 % 2 for n in range(length)]} if i % 3 == 0 else {}
        found.append(one)
    return found


def main() -> int:
    """Build the set into a folder that does not exist."""
    if len(sys.argv) != 2 or Path(sys.argv[1]).exists():
        print("usage: build_bins.py FOLDER, which must not exist: golden files are never built again", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    manifest = ss.pack(documents(), folder, **OPTIONS)
    assert manifest.bins is not None
    (folder / "report.json").unlink()
    expected = {"bins": manifest.bins.entry, "documents": documents()}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
