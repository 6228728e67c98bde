"""A reader of catalogues written from ``docs/foreign.md`` and ``docs/format.md`` alone: the proof that they are enough.

It imports nothing of shardstream, and believes what it reads, as ``independent_reader`` does.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from tests.shards.independent_reader import read_shard

OF_OBJECTS = ("sizes", "versions", "checksums", "abouts", "name_ends")
OF_SHARDS = (("index_ends", "<u8"), ("index_checksums", "<u8"), ("objects", "<u4"), ("samples", "<u4"))


def read_table(data: bytes) -> tuple[dict[str, Any], list[str]]:
    """The columns of a table of objects, and the names."""
    magic, version, zero, m, n, names_bytes, checksum = struct.unpack_from("<8sIIQQQQ", data)
    assert (magic, version, zero, data[48:64]) == (b"SSOBJCT\n", 1, 0, bytes(16))
    assert xxhash.xxh3_64_intdigest(data[64:]) == checksum
    columns, at = {}, 64
    for name, dtype, count in [*((name, "<u8", m) for name in OF_OBJECTS), *((*one, n) for one in OF_SHARDS)]:
        columns[name] = np.frombuffer(data, dtype, count, at)
        at += columns[name].nbytes
    assert len(data) == at + names_bytes
    ends = [at, *(at + columns["name_ends"])]
    return columns, [data[begin:end].decode("utf-8") for begin, end in itertools.pairwise(ends)]


def read_catalogue(folder: Path, data: Path) -> tuple[dict[str, Any], Iterator[tuple[str, dict[str, Any]]]]:
    """The head of the catalogue in a folder, and (key, values) of every sample of the data in another."""
    head = json.loads((folder / "shardstream-catalogue.json").read_text(encoding="utf-8"))
    assert (head["format"], head["format_version"]) == ("shardstream-catalogue", 1)
    others = {key: value for key, value in head.items() if key != "checksum"}
    assert xxhash.xxh3_128_hexdigest(json.dumps(others, sort_keys=True).encode()) == head["checksum"]
    table = (folder / head["table"]).read_bytes()
    assert head["table"] == f"shardstream-objects-{xxhash.xxh3_64_hexdigest(table)}.table"
    columns, names = read_table(table)
    counts = (columns["samples"].sum(), len(names), len(columns["samples"]), columns["sizes"].sum())
    assert counts == (head["samples"], head["objects"], head["shards"], head["bytes"])
    identified = [columns[name] for name in (*OF_OBJECTS, *dict(OF_SHARDS)) if name not in ("versions", "abouts")]
    objects = b"".join([*(column.tobytes() for column in identified), "".join(names).encode()])
    identity = {
        "format_version": 1,
        "source": head["source"],
        "fields": head["fields"],
        "objects": xxhash.xxh3_128_hexdigest(objects),
    }
    assert xxhash.xxh3_128_hexdigest(json.dumps(identity, sort_keys=True).encode()) == head["fingerprint"]
    assert head["indexes"] == f"shardstream-indexes-{head['fingerprint'][:16]}.bin"
    indexes = (folder / head["indexes"]).read_bytes()
    assert len(indexes) == columns["index_ends"][-1]

    def read() -> Iterator[tuple[str, dict[str, Any]]]:
        begin = 0
        for shard, end in enumerate(columns["index_ends"].tolist()):
            number = columns["objects"][shard]
            stored = (data / names[number]).read_bytes()
            assert len(stored) == columns["sizes"][number]
            index = indexes[begin:end]
            assert int.from_bytes(index[-8:], "little") == columns["index_checksums"][shard]
            found = list(read_shard(stored + index, "foreign"))  # the index says that it lies behind the object
            assert len(found) == columns["samples"][shard]
            yield from found
            begin = end

    return head, read()
