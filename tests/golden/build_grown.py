#!/usr/bin/env python3
"""Built the golden files of a data set that has grown, once: ``python tests/golden/build_grown.py FOLDER``.

They are never built again, and this program never changes. They are of format version 1, with what writers came to add
to it: heads with a checksum, and the head of an old version. ``expected.json`` has what went into the writer.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from shardstream.shards.fields import FieldType
from shardstream.shards.framings import writer_of
from shardstream.shards.growing import grown
from shardstream.shards.heads import MANIFEST_NAME
from shardstream.shards.manifest import Manifest
from shardstream.shards.writing import ShardSummary
from shardstream.storage import Store, open_store

TYPES = {"cls": "int16", "txt": "str"}
PATTERNS = ("shard-{:06d}.rec", "shard-r1-{:06d}.rec")
SAMPLES: list[list[tuple[str, dict[str, Any]]]] = [
    [("a", {"cls": 0, "txt": "eins"}), ("b", {"cls": 1})],
    [("é", {"cls": 2, "txt": ""})],
]
CLASSES = [["cat", "dög"], ["cat", "dög", "snow\u2028man", "\U0001f431"]]
META = [
    {"numbers": [1, -0.0, 0.1, 1e-07, 1e22, 18446744073709551616, True, None], "naïve": {"b": [], "a": {}}},
    {"checksum": "of something else", "tab\t": '"\\/'},
]


def write(store: Store, number: int) -> ShardSummary:
    """One shard."""
    with store.create(PATTERNS[number].format(0)) as out:
        shard = writer_of("record")(out)
        for key, values in SAMPLES[number]:
            kinds = {name: FieldType.parse(TYPES[name]) for name in values}
            encoded = {name: value.encode() if isinstance(value, str) else value for name, value in values.items()}
            shard.write(key, {name: (kinds[name], encoded[name]) for name in values})
        return shard.finish()


def main() -> int:
    """Build the set into a folder that does not exist."""
    if len(sys.argv) != 2 or Path(sys.argv[1]).exists():
        print("usage: build_grown.py FOLDER, which must not exist: golden files are never built again", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    store = open_store(folder)
    versions = []
    for number in range(2):
        new = Manifest.of(
            [write(store, number)],
            PATTERNS[number],
            framing="record",
            classes=CLASSES[number],
            meta=META[number],
            seed=7,
            plan=f"plan {number}",
        )
        if number:
            store.put(versions[-1].as_old.head, (folder / MANIFEST_NAME).read_bytes())
            new = grown(versions[-1], new)
        new.save(store)
        versions.append(new)
    expected = {
        "fingerprints": [one.fingerprint for one in versions],
        "types": TYPES,
        "classes": CLASSES,
        "meta": [META[0], META[0] | META[1]],
        "samples": SAMPLES,
    }
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
