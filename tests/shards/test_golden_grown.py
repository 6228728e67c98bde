"""The golden data set that has grown: heads with a checksum, and an old version beside the newest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardstream.diagnose import verify
from shardstream.shards.heads import MANIFEST_NAME, seal
from shardstream.shards.manifest import Manifest
from shardstream.storage import fetch, open_store

from . import independent_reader

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "grown"
HEADS = ("dataset-v1.json", MANIFEST_NAME)
EXPECTED: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("version", [1, 2])
def test_every_version(version: int) -> None:
    manifest, store = Manifest.load(FOLDER, version=version), open_store(FOLDER)
    shards = EXPECTED["samples"][:version]
    assert (manifest.version, manifest.shards, manifest.samples) == (version, version, sum(map(len, shards)))
    assert list(manifest.classes or ()) == EXPECTED["classes"][version - 1]
    assert manifest.meta == EXPECTED["meta"][version - 1]
    assert manifest.fingerprint == EXPECTED["fingerprints"][version - 1]
    assert {name: kind.name for name, kind in manifest.fields.items()} == EXPECTED["types"]
    for shard, samples in enumerate(shards):
        index = manifest.reader.scan(store, manifest.shard_name(shard))
        rows, names = np.arange(len(samples)), sorted(EXPECTED["types"])
        buffers = fetch(store, lambda index=index, rows=rows, names=names: manifest.reader.plan(index, rows, names))
        values = manifest.reader.extract(index, buffers, rows, names)
        for row, (key, expected) in enumerate(samples):
            text = values["txt"].data[row]
            assert index.keys[row] == key
            assert int(values["cls"].data[row]) == expected["cls"]
            assert (None if text is None else str(text, "utf-8")) == expected.get("txt")


@pytest.mark.parametrize("name", HEADS)
def test_the_independent_reader_finds_the_same_checksum(name: str) -> None:
    head, found = independent_reader.read_dataset(FOLDER, name)
    assert "checksum" in head
    assert [list(sample) for sample in found] == [
        one for shard in EXPECTED["samples"][: head["version"]] for one in shard
    ]


@pytest.mark.parametrize("name", HEADS)
def test_the_writer_still_writes_these_bytes(name: str) -> None:
    assert seal(json.loads((FOLDER / name).read_text(encoding="utf-8"))) == (FOLDER / name).read_bytes()


def test_it_is_sound() -> None:
    assert verify(FOLDER).ok
