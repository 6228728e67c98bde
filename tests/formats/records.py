"""Objects of records with an offset each, as MDS and LitData lay them out, written by a few lines of our own."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def records_object(records: Sequence[bytes], between: bytes = b"") -> bytes:
    """uint32 n, n + 1 offsets, what may stand between, the records."""
    offsets = [4 + 4 * (len(records) + 1) + len(between)]
    for record in records:
        offsets.append(offsets[-1] + len(record))
    return struct.pack(f"<I{len(offsets)}I", len(records), *offsets) + between + b"".join(records)


def record(values: Sequence[bytes], sized: Sequence[bool]) -> bytes:
    """Sizes of the values that are sized, then all values."""
    sizes = [len(value) for value, has in zip(values, sized, strict=True) if has]
    return struct.pack(f"<{len(sizes)}I", *sizes) + b"".join(values)


def mds_shard(path: str, columns: Sequence[tuple[str, str, int | None]], rows: Sequence[Sequence[bytes]]) -> Any:
    """What stands in index.json of a shard, and its bytes."""
    data = records_object([record(row, [not size for _, _, size in columns]) for row in rows], b'{"a": 1}')
    entry = {
        "column_names": [name for name, _, _ in columns],
        "column_encodings": [encoding for _, encoding, _ in columns],
        "column_sizes": [size for _, _, size in columns],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "raw_data": {"basename": path, "bytes": len(data), "hashes": {}},
        "samples": len(rows),
        "size_limit": None,
        "version": 2,
        "zip_data": None,
    }
    return entry, data


def write_mds(folder: Path, columns: Sequence[tuple[str, str, int | None]], shards: Sequence[Any]) -> dict[str, Any]:
    """A data set; returns its index.json, for tests that write it once more with a change."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for number, rows in enumerate(shards):
        entry, data = mds_shard(f"shard.{number:05d}.mds", columns, rows)
        (folder / entry["raw_data"]["basename"]).write_bytes(data)
        entries.append(entry)
    index = {"shards": entries, "version": 2}
    (folder / "index.json").write_text(json.dumps(index))
    return index


def treespec(tree: Any) -> dict[str, Any]:
    """The node of a structure of dicts, lists and tuples, whose leaves are anything else."""
    if isinstance(tree, dict):
        children, context = list(tree.values()), json.dumps(list(tree))
    elif isinstance(tree, list | tuple):
        children, context = list(tree), "null"
    else:
        return {"type": None, "context": None, "children_spec": []}
    kind = f"builtins.{type(tree).__name__}"
    return {"type": kind, "context": context, "children_spec": [treespec(child) for child in children]}


def write_litdata(
    folder: Path, tree: Any, formats: Sequence[str], chunks: Sequence[Sequence[Sequence[bytes]]], **config: Any
) -> dict[str, Any]:
    """A data set; returns its index.json."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    tokens = config.get("item_loader") == "TokensLoader"
    for number, rows in enumerate(chunks):
        data = records_object([row[0] if tokens else record(row, [True] * len(row)) for row in rows])
        name = f"chunk-0-{number}.bin"
        (folder / name).write_bytes(data)
        entries.append({"chunk_bytes": len(data), "chunk_size": len(rows), "dim": None, "filename": name})
    given = {
        "compression": None,
        "data_format": list(formats),
        "data_spec": json.dumps([1, treespec(tree)]),
        "encryption": None,
        "item_loader": "PyTreeLoader",
    }
    index = {"chunks": entries, "config": given | config, "updated_at": "0"}
    (folder / "index.json").write_text(json.dumps(index))
    return index
