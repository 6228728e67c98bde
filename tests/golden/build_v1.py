#!/usr/bin/env python3
"""Built the golden files of format version 1, once: ``python tests/golden/build_v1.py FOLDER``.

They are never built again, and this program never changes: what was written in version 1 is read for ever, and
``tests/shards/test_golden.py`` holds us to it. A new version gets a builder and a folder of its own. It writes three
data sets, and for each ``expected.json`` with every value, from what went into the writer, not from what came out.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import zstandard
from PIL import Image

from shardstream.shards.fields import FieldType
from shardstream.shards.framings import writer_of
from shardstream.shards.manifest import Manifest, merge_fields
from shardstream.shards.table import NamedShards, ShardTable
from shardstream.shards.writing import Encoded, ShardSummary, encode_value
from shardstream.storage import Store, open_store

TYPES = {
    "array": "array",
    "bool": "bool",
    "bytes": "bytes",
    "empty": "array:int16:0,2",
    "fixed": "array:float32:2,3",
    "float16": "float16",
    "float32": "float32",
    "float64": "float64",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "int8": "int8",
    "jpg": "jpg",
    "json": "json",
    "mask.png": "png",
    "msgpack": "msgpack",
    "str": "str",
    "tensor": "tensor",
    "uint16": "uint16",
    "uint32": "uint32",
    "uint64": "uint64",
    "uint8": "uint8",
    "webp": "webp",
}
SETS = {"tar": ("tar", ()), "record": ("record", ()), "record-zstd": ("record", ("json", "str"))}
CLASSES = ("cat", "dög")
META = {"source": "golden files of format version 1", "numbers": [1, 2.5, None, True], "naïve": {"deep": []}}


def image(kind: str, mode: str, seed: int) -> bytes:
    """A small image file."""
    pixels = np.random.default_rng(seed).integers(0, 256, (9, 12, len(mode)), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels.squeeze()).save(out, kind)
    return out.getvalue()


def shards() -> list[list[tuple[str, dict[str, Any]]]]:
    """The samples: all fields, extremes, missing and empty values, a shard without most fields, odd keys."""
    full = {
        "array": np.arange(12, dtype=np.int16).reshape(3, 4),
        "bool": True,
        "bytes": bytes(range(256)),
        "empty": np.zeros((0, 2), np.int16),
        "fixed": np.arange(6, dtype=np.float32).reshape(2, 3) / 3,
        "float16": 65504.0,
        "float32": 0.1,
        "float64": 0.1,
        "int16": -(1 << 15),
        "int32": -(1 << 31),
        "int64": -(1 << 63),
        "int8": -128,
        "jpg": image("JPEG", "RGB", 0),
        "json": {"a": [1, 2.5, None, True, "é"], "b": {}, "long": "word " * 40},
        "mask.png": image("PNG", "L", 1),
        "msgpack": {"a": [1, -2, 2.5, None, True], "n": 1 << 63},
        "str": "héllo, 日本 " * 12,
        "tensor": torch.arange(6, dtype=torch.float32).reshape(2, 3) / 7,
        "uint16": (1 << 16) - 1,
        "uint32": (1 << 32) - 1,
        "uint64": (1 << 64) - 1,
        "uint8": 255,
        "webp": image("WEBP", "RGB", 2),
    }
    extremes = {
        "array": np.array([["ab", "é"]]),
        "bool": False,
        "bytes": b"",
        "fixed": np.array([[np.nan, np.inf, -np.inf], [-0.0, 1e-45, 3.4e38]], np.float32),
        "float16": float("nan"),
        "float32": float("-inf"),
        "float64": -0.0,
        "int64": (1 << 63) - 1,
        "jpg": image("JPEG", "RGB", 3),
        "json": "",
        "str": "",
        "tensor": torch.tensor(True),
        "uint64": (1 << 53) + 1,
    }
    few = {"jpg": image("JPEG", "L", 4), "int64": 3, "fixed": np.full((2, 3), -1, np.float32)}
    return [
        [("plain", full), ("folder/with.dots.in it", extremes), ("_under/50%/tab\there", few)],
        [("日本/écran", few), ("long/" + "0123456789" * 12, {"int64": 4, "jpg": b"no image"})],
    ]


def described(kind: FieldType, value: Any) -> Any:
    """A value as JSON that says it exactly."""
    if isinstance(value, np.ndarray | torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return {"dtype": dtype, "shape": list(value.shape), "values": np.asarray(value).ravel().tolist()}
    if kind.kind == "payload" and isinstance(value, bytes):
        return None  # the stored bytes say it all
    return value


def stored(encoded: Encoded) -> str | None:
    """Stored bytes in hexadecimal; None for scalars."""
    if isinstance(encoded, np.ndarray):
        return encoded.tobytes().hex()
    return bytes(encoded).hex() if isinstance(encoded, bytes | memoryview) else None


def build(store: Store, framing: str, zstd: tuple[str, ...]) -> dict[str, Any]:
    """Write one data set; what a reader has to find in it."""
    summaries: list[ShardSummary] = []
    expected: list[Any] = []
    naming = NamedShards("shard-{:03d}" + {"tar": ".tar", "record": ".rec"}[framing], 2)
    options = {"zstd": frozenset(zstd)} if zstd else {}
    names = [naming.pattern.format(number) for number in range(naming.count)]
    for name, samples in zip(names, shards(), strict=True):
        found = []
        with store.create(name) as out:
            shard = writer_of(framing)(out, **options)
            for key, values in samples:
                kinds = {field: FieldType.parse(TYPES[field]) for field in values}
                encoded = {field: encode_value(field, kinds[field], value) for field, value in values.items()}
                shard.write(key, {field: (kinds[field], encoded[field]) for field in values})
                found.append(
                    {
                        "key": key,
                        "stored": {field: stored(encoded[field]) for field in values if kinds[field].kind != "scalar"},
                        "values": {field: described(kinds[field], value) for field, value in values.items()},
                    }
                )
            summaries.append(shard.finish())
        expected.append({"name": name, "samples": found})
    manifest = Manifest(
        framing=framing,
        fields=merge_fields(summaries, names),
        naming=(naming,),
        table=ShardTable.of(summaries),
        classes=CLASSES,
        meta=META,
        seed=7,
        plan="0123456789abcdef",
        index_bytes=max(summary.index_bytes for summary in summaries),
        codecs=dict.fromkeys(zstd, "zstd"),
    )
    manifest.save(store)
    return {
        "framing": framing,
        "zstd": list(zstd),
        "zstd_version": list(zstandard.ZSTD_VERSION),
        "types": TYPES,
        "classes": list(CLASSES),
        "meta": META,
        "seed": 7,
        "plan": "0123456789abcdef",
        "fingerprint": manifest.fingerprint,
        "shards": expected,
    }


def main() -> int:
    """Build all sets into a folder that does not exist."""
    if len(sys.argv) != 2 or Path(sys.argv[1]).exists():
        print("usage: build_v1.py FOLDER, which must not exist: golden files are never built again", file=sys.stderr)
        return 2
    for name, (framing, zstd) in SETS.items():
        folder = Path(sys.argv[1]) / name
        expected = build(open_store(folder), framing, zstd)
        text = json.dumps(expected, indent=1, ensure_ascii=False)
        (folder / "expected.json").write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
