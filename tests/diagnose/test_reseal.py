from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardstream import StorageOptions
from shardstream.diagnose import reseal, verify
from shardstream.errors import ChecksumError, FormatError, NotFoundError
from shardstream.pack.merge import merge
from shardstream.pack.repack import repack
from shardstream.pack.writer import ShardWriter
from shardstream.shards.manifest import Manifest

from ..storage.places import S3Place
from .making import make


def edit(head: Path, **changes: object) -> bytes:
    """Change entries as an editor would, and say what the file holds then."""
    head.write_text(json.dumps(json.loads(head.read_text()) | changes, indent=1))
    return head.read_bytes()


def test_what_was_edited_by_hand_is_read_again(tmp_path: Path) -> None:
    head = make(tmp_path / "a") / "dataset.json"
    edit(head, classes=["x"], meta={"by": "hand"})
    with pytest.raises(ChecksumError):
        verify(tmp_path / "a")
    assert reseal(tmp_path / "a") == ("dataset.json",)
    found = Manifest.load(tmp_path / "a")
    assert (found.classes, found.meta) == (("x",), {"by": "hand"})
    assert verify(tmp_path / "a").ok
    assert reseal(tmp_path / "a") == ()


def test_a_head_without_a_checksum_gets_one_and_keeps_what_is_not_known_here(tmp_path: Path) -> None:
    head = make(tmp_path / "a") / "dataset.json"
    entries = {name: value for name, value in json.loads(head.read_text()).items() if name != "checksum"}
    head.write_text(json.dumps(entries | {"of a later writer": [1]}))
    assert Manifest.load(tmp_path / "a").samples == 20
    assert reseal(tmp_path / "a") == ("dataset.json",)
    sealed = json.loads(head.read_text())
    assert sealed.pop("checksum")
    assert sealed == entries | {"of a later writer": [1]}


@pytest.mark.parametrize(
    "changes", [{"fingerprint": "0" * 32}, {"classes": [1]}, {"naming": []}, {"fields": {}}], ids=str
)
def test_what_cannot_be_edited_is_still_refused_and_nothing_is_written(tmp_path: Path, changes: object) -> None:
    head = make(tmp_path / "a") / "dataset.json"
    before = edit(head, **changes)  # type: ignore[arg-type]
    with pytest.raises(FormatError):
        reseal(tmp_path / "a")
    assert head.read_bytes() == before


def test_old_versions_are_looked_at_and_sealed(tmp_path: Path) -> None:
    url = make(tmp_path / "a")
    with ShardWriter(url, append=True, fields={"fix": "array:float32:4", "f16": "float16"}) as writer:
        writer.write({"__key__": "new", "cls": 1})
    assert verify(url).ok
    edit(url / "dataset-v1.json", meta={"by": "hand"})
    (problem,) = verify(url).problems
    assert (problem.check, problem.shard) == ("version", "dataset-v1.json")
    assert reseal(url) == ("dataset-v1.json",)
    assert verify(url).ok
    assert Manifest.load(url, version=1).meta == {"by": "hand"}
    (url / "dataset-v1.json").unlink()
    assert [problem.check for problem in verify(url).problems] == ["version"]
    with pytest.raises(NotFoundError):
        reseal(url)


def test_whatever_writes_a_data_set_seals_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with ShardWriter(tmp_path / name) as writer:
            writer.write({"__key__": name, "cls": 0})
    merge([tmp_path / "a", tmp_path / "b"], tmp_path / "merged")
    repack(tmp_path / "merged", tmp_path / "repacked", workers=0)
    for name in ("a", "merged", "repacked"):
        assert "checksum" in json.loads((tmp_path / name / "dataset.json").read_text())
        assert reseal(tmp_path / name) == ()


def test_in_a_store(s3: S3Place) -> None:
    place: dict[str, Any] = {"storage_options": s3.options}
    with ShardWriter(s3.url(), classes=["a"], storage=StorageOptions(options=s3.options)) as writer:
        writer.write({"__key__": "k", "cls": 0})
    s3.plant("dataset.json", (s3.dig("dataset.json") or b"").replace(b'"a"', b'"b"'))
    with pytest.raises(ChecksumError):
        Manifest.load(s3.url(), **place)
    assert reseal(s3.url(), **place) == ("dataset.json",)
    assert Manifest.load(s3.url(), **place).classes == ("b",)
