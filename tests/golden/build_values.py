#!/usr/bin/env python3
"""Built the golden files of rows of values, once: ``python tests/golden/build_values.py FOLDER``.

They are never built again, and this program never changes. They are of format version 1, with what writers came to add
to it: ``"as": "values:DTYPE"`` beside the stored type ``bytes``, in ``dataset.json`` and in every index.
``expected.json`` has what went into the writer.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from shardstream.shards.fields import FieldType
from shardstream.shards.framings import framing_of, writer_of
from shardstream.shards.manifest import Manifest
from shardstream.shards.writing import ShardSummary
from shardstream.storage import Store, open_store

TYPES = {
    "cls": "int16",
    "flags": "values:bool",
    "ids": "values:uint64",
    "raw": "bytes",
    "tokens": "values:uint16",
    "wave": "values:float32",
}
SHARDS: list[list[tuple[str, dict[str, Any]]]] = [
    [
        ("a", {"cls": 0, "tokens": [1, 2, 65535], "wave": [0.5, -1.25, 3.0e38], "flags": [True, False, True]}),
        ("b", {"cls": 1, "tokens": [], "wave": []}),
    ],
    [
        ("é", {"cls": -1, "tokens": [513], "ids": [0, 18446744073709551615], "raw": "01 02 03"}),
        ("d", {"tokens": [7, 7, 7, 7, 7], "ids": []}),
    ],
]


def encoded(kind: FieldType, value: Any) -> Any:
    """What is stored, without the code that is under test."""
    if kind.name == "bytes":
        return bytes.fromhex(value)
    if kind.name == "int16":
        return value
    dtype = np.dtype(kind.name.removeprefix("values:")).newbyteorder("<")
    return np.array(value, dtype).tobytes()


def write(store: Store, framing: str, pattern: str, number: int) -> ShardSummary:
    """One shard."""
    with store.create(pattern.format(number)) as out:
        shard = writer_of(framing)(out)
        for key, values in SHARDS[number]:
            kinds = {name: FieldType.parse(TYPES[name]) for name in values}
            shard.write(key, {name: (kinds[name], encoded(kinds[name], value)) for name, value in values.items()})
        return shard.finish()


def main() -> int:
    """Build the sets into a folder that does not exist."""
    if len(sys.argv) != 2 or Path(sys.argv[1]).exists():
        print(
            "usage: build_values.py FOLDER, which must not exist: golden files are never built again", file=sys.stderr
        )
        return 2
    root = Path(sys.argv[1])
    for framing in ("record", "tar"):
        store = open_store(root / framing)
        pattern = f"shard-{{:03d}}{framing_of(framing).suffix}"
        summaries = [write(store, framing, pattern, number) for number in range(len(SHARDS))]
        Manifest.of(summaries, pattern, framing=framing).save(store)
    expected = {"types": TYPES, "shards": SHARDS}
    (root / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
