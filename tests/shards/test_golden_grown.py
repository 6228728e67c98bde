"""The golden data set that has grown: heads with a checksum, and an old version beside the newest."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
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
# The golden bytes themselves: no change to a test or a builder may move them.
SHA256 = {
    "dataset-v1.json": "22d7194254a4d0863d5cc996a8b137aea77073141e9ef966aeaafd3f867b843c",
    "dataset.json": "bae5940f031f6c90530d03ad0114fb87927f32137a692b8e370b81db93684d5e",
    "expected.json": "a7aecedfa8c8585e2b00cebea8e076e8f120e55ad10b91369ded2049ad2aa163",
    "shard-000000.rec": "7dd0c6add0fc9b61c35009e300d7d1b8fc009dc87ab112d4385fc2ed0b309b3f",
    "shard-r1-000000.rec": "595ce17b22b608db090023972f5847dbeb05d3707cf117cfeb20300b2af89bff",
    "shards-435e3d853419640d.table": "38dfc53b99c724e702907067ec2d603a87550260e3daaae0a19b9c65d25b7157",
    "shards-58cc3140509e720f.table": "b45bbe3c25c5626c7564aa62f7b7a9d47432a5b7f15e8e02e340449f8181dd7b",
}
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


def test_golden_files_are_those_that_were_committed() -> None:
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in FOLDER.iterdir()}
    assert found == SHA256


def test_the_builder_does_not_build_twice() -> None:
    done = subprocess.run([sys.executable, FOLDER.parent / "build_grown.py", FOLDER], capture_output=True, text=True)
    assert done.returncode == 2
    assert "never built again" in done.stderr
