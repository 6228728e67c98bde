"""A reader of version 1 written from ``docs/format.md`` alone: the proof that the page is enough.

It imports nothing of shardstream. It believes what it reads: it shows where things are, not how to defend a reader.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import xxhash

AFTER_INDEX = {"tar": 1024, "record": 0, "foreign": 0}
PAYLOADS = ("jpg", "png", "webp", "bytes", "str", "json", "msgpack", "array", "tensor")
SAFETENSORS = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "BOOL": "|b1", "U8": "|u1", "I64": "<i8"}


def read_dataset(
    folder: Path, name: str = "dataset.json"
) -> tuple[dict[str, Any], Iterator[tuple[str, dict[str, Any]]]]:
    """The manifest of this name, and (key, values) of every sample."""
    head = json.loads((folder / name).read_text(encoding="utf-8"))
    assert (head["format"], head["format_version"]) == ("shardstream", 1)
    if "checksum" in head:
        others = {key: value for key, value in head.items() if key != "checksum"}
        assert xxhash.xxh3_128_hexdigest(json.dumps(others, sort_keys=True).encode()) == head["checksum"]
    table = (folder / head["table"]).read_bytes()
    digest = f"{xxhash.xxh3_64_intdigest(table):016x}"
    assert head["table"] == f"shards-{digest}.table"
    magic, version, _, count, checksum = struct.unpack_from("<8sIIQQ", table)
    assert (magic, version, len(table)) == (b"SSTABLE\n", 1, 64 + 20 * count)
    assert xxhash.xxh3_64_intdigest(table[64:]) == checksum
    sizes = np.frombuffer(table, "<u8", count, 64)
    checksums = np.frombuffer(table, "<u8", count, 64 + 8 * count)
    samples = np.frombuffer(table, "<u4", count, 64 + 16 * count)
    assert (head["samples"], head["shards"], head["bytes"]) == (samples.sum(), count, sizes.sum())
    identity = {
        "fields": {name: entry["type"] for name, entry in head["fields"].items()},
        "format_version": 1,
        "framing": head["framing"],
        "naming": [[run["pattern"], run["shards"]] for run in head["naming"]],
        "table": digest,
    }
    assert xxhash.xxh3_128_hexdigest(json.dumps(identity, sort_keys=True).encode()) == head["fingerprint"]

    def read() -> Iterator[tuple[str, dict[str, Any]]]:
        number = 0
        for run in head["naming"]:
            for i in range(run["shards"]):
                data = (folder / run["pattern"].format(i)).read_bytes()
                assert len(data) == sizes[number]
                assert xxhash.xxh3_64_intdigest(data) == checksums[number]
                found = list(read_shard(data, head["framing"]))
                assert len(found) == samples[number]
                yield from found
                number += 1

    return head, read()


def read_shard(data: bytes, framing: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(key, values) of every sample of a shard; values as Python and numpy say them, tensors as arrays."""
    stop = len(data) - AFTER_INDEX[framing]
    assert not any(data[stop:])
    magic, version, zero, length, checksum = struct.unpack_from("<8sIIQQ", data, stop - 32)
    assert (magic, version, zero, length % 512) == (b"SSTRAIL\n", 1, 0, 0)
    index = data[stop - length : stop]
    assert xxhash.xxh3_64_intdigest(index[:-8]) == checksum
    magic, version, map_length = struct.unpack_from("<8sII", index)
    assert (magic, version) == (b"SSINDEX\n", 1)
    head = msgpack.unpackb(index[16 : 16 + map_length])
    assert (head["framing"], head["end"]) == (framing, stop - length)
    body = -(-(16 + map_length) // 64) * 64
    arrays = {
        (field, role): np.frombuffer(index, dtype, count, body + offset)
        for field, role, dtype, offset, count in head["arrays"]
    }
    blob, start = bytes(arrays["", "key_blob"]), 0
    for i in range(head["samples"]):
        end = int(arrays["", "key_ends"][i])
        values = {
            field["name"]: read_value(data, field, arrays, i) for field in head["fields"] if has(field, arrays, i)
        }
        yield blob[start:end].decode(), values
        start = end


def has(field: dict[str, Any], arrays: dict[tuple[str, str], Any], i: int) -> bool:
    """Whether sample i has a value."""
    valid = arrays.get((field["name"], "valid"))
    return valid is None or bool(valid[i // 8] >> (i % 8) & 1)


def read_value(data: bytes, field: dict[str, Any], arrays: dict[tuple[str, str], Any], i: int) -> Any:
    """The value of a field of sample i."""
    name, kind = field["name"], field["type"]
    if kind not in PAYLOADS and not kind.startswith("array:"):
        return arrays[name, "values"][i]
    if kind in PAYLOADS:
        offset, length = int(arrays[name, "offsets"][i]), int(arrays[name, "lengths"][i])
    else:
        _, element, text = kind.split(":")
        shape = [int(part) for part in text.split(",")]
        dtype = np.dtype(element).newbyteorder("<")
        length = dtype.itemsize * int(np.prod(shape))
        offset = int(arrays[name, "offsets"][i]) if field["base"] is None else field["base"] + i * length
    stored = data[offset : offset + length]
    assert len(stored) == length
    if (name, "checksums") in arrays:
        assert xxhash.xxh3_64_intdigest(stored) == int(arrays[name, "checksums"][i])
    if kind not in PAYLOADS:
        return np.frombuffer(stored, dtype).reshape(shape)
    if field["codec"] == "zstd":
        import zstandard

        stored = zstandard.ZstdDecompressor().decompress(stored)
        assert len(stored) == int(arrays[name, "raw_lengths"][i])
    return decode(kind, stored)


def decode(kind: str, stored: bytes) -> Any:
    """A payload's value."""
    if kind == "str":
        return stored.decode("utf-8")
    if kind == "json":
        return json.loads(stored.decode("utf-8"))
    if kind == "msgpack":
        return msgpack.unpackb(stored)
    if kind == "array":
        return np.load(io.BytesIO(stored), allow_pickle=False)
    if kind == "tensor":
        (length,) = struct.unpack_from("<Q", stored)
        ((_, entry),) = json.loads(stored[8 : 8 + length]).items()
        return np.frombuffer(stored[8 + length :], SAFETENSORS[entry["dtype"]]).reshape(entry["shape"])
    return stored
