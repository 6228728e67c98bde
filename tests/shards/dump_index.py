"""A tiny record shard byte by byte, as it stands in ``docs/format.md``: ``python tests/shards/dump_index.py``."""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgpack

from shardstream.shards.fields import FieldType
from shardstream.shards.record import RecordShard
from shardstream.storage import open_store

JPG, CLS = FieldType.parse("jpg"), FieldType.parse("int16")
SAMPLES = [("a", {"jpg": (JPG, b"\xff\xd8\xff\xd9"), "cls": (CLS, 7)}), ("bé", {"cls": (CLS, -1)})]


def tiny_shard() -> bytes:
    """A record shard of two samples; the second has no ``jpg``."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(folder)
        with store.create("tiny.rec") as out:
            shard = RecordShard(out)
            for key, sample in SAMPLES:
                shard.write(key, sample)
            shard.finish()
        return (Path(folder) / "tiny.rec").read_bytes()


def parts(data: bytes) -> Iterator[tuple[int, str]]:
    """Where each part begins, and what it is."""
    yield 0, 'magic "SSRECORD", version 1, zero'
    yield 16, "jpg of sample 0"
    (length,) = struct.unpack_from("<Q", data, len(data) - 16)
    start = len(data) - length
    yield 20, f"zeros up to a multiple of 64; the index begins at {start}, the `end` of its map"
    yield start, 'index: magic "SSINDEX\\n"'
    (size,) = struct.unpack_from("<I", data, start + 12)
    yield start + 8, f"version 1, a map of {size} bytes"
    yield start + 16, "the map (below, as JSON)"
    yield start + 16 + size, "zeros up to a multiple of 64 from the start of the index: the arrays begin"
    base = start + -(-(16 + size) // 64) * 64
    arrays = msgpack.unpackb(data[start + 16 : start + 16 + size])["arrays"]
    for name, role, dtype, offset, count in arrays:
        yield base + offset, f"{name or 'keys'}, {role}: {count} of {dtype}, then zeros"
    yield len(data) - 32, 'trailer: magic "SSTRAIL\\n"'
    yield len(data) - 24, "version 1, zero"
    yield len(data) - 16, f"length of the index, {length}"
    yield len(data) - 8, "XXH3-64 of all bytes of the index before these 8"


def dump(data: bytes) -> str:
    """The bytes, part by part, and the map."""
    found = list(parts(data))
    ends = [start for start, _ in found[1:]] + [len(data)]
    lines = []
    for (start, text), end in zip(found, ends, strict=True):
        lines.append(f"# {text}")
        skipped = False
        for at in range(start, end, 16):
            row = data[at : min(at + 16, end)]
            if at > start and not any(data[at:end]):
                if not skipped:
                    lines.append("*")
                skipped = True
                continue
            shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
            lines.append(f"{at:04x}  {row.hex(' '):<47}  |{shown}|")
    start = next(start for start, text in found if text.startswith("index"))
    (size,) = struct.unpack_from("<I", data, start + 12)
    head = msgpack.unpackb(data[start + 16 : start + 16 + size])
    rows = {key: value for key, value in head.items() if key not in ("fields", "arrays")}
    shown = [f'  "{key}": {json.dumps(value)},' for key, value in rows.items()]
    for key in ("fields", "arrays"):
        inner = ",\n".join(f"    {json.dumps(one)}" for one in head[key])
        shown.append(f'  "{key}": [\n{inner}\n  ]{"," if key == "fields" else ""}')
    return "\n".join(lines) + "\n\n# the map\n{\n" + "\n".join(shown) + "\n}\n"


if __name__ == "__main__":
    print(dump(tiny_shard()), end="")
