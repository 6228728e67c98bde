from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from shardstream import ShardOptions
from shardstream.diagnose import ViewedField, view
from shardstream.errors import ChecksumError, DestinationError, NotFoundError, UsageError
from shardstream.images.encode import encode
from shardstream.pack.writer import ShardWriter
from shardstream.shards.manifest import Manifest

from .making import flip, make


def test_every_kind_of_value(tmp_path: Path) -> None:
    jpeg = encode(np.zeros((30, 40, 3), np.uint8), "jpg")
    sample = {"jpg": jpeg, "png": b"no image", "cls": 1, "f": 0.5, "yes": True, "txt": "é" * 100, "j": {"a": [1]}}
    sample |= {"arr": np.zeros((2, 3), np.int16), "ten": torch.ones(4, dtype=torch.bfloat16), "raw": bytes(range(90))}
    sample |= {"fix": np.arange(4, dtype=np.float32), "gone": None}
    fields = {"fix": "array:float32:4"}
    with ShardWriter(tmp_path, classes=["cat", "dog"], fields=fields, damaged="keep") as writer:
        writer.write({"__key__": "other", "gone": "here"})
        writer.write({"__key__": "a/b.c", **sample})
    found = view(tmp_path, [1])
    (one,) = found.samples
    assert (found.url, found.total, found.saved) == (str(tmp_path), 2, ())
    assert (one.number, one.key, one.shard, one.row) == (1, "a/b.c", "shard-000000.tar", 1)
    fields = {field.name: field for field in one.fields}
    assert "gone" not in fields
    assert fields["jpg"] == ViewedField("jpg", "jpg", len(jpeg), (30, 40, 3), "40 x 30, jpg, colour")
    assert fields["png"].shape is None
    assert "does not decode" in fields["png"].text
    assert fields["cls"].text == "1 (dog)"
    assert (fields["f"].text, fields["yes"].text, fields["j"].text) == ("0.5", "True", "{'a': [1]}")
    assert (fields["arr"].shape, fields["arr"].text) == ((2, 3), "int16 2 x 3: 0 0 0 0 0 0")
    assert (fields["ten"].shape, fields["ten"].text) == ((4,), "bfloat16 4: 1.0 1.0 1.0 1.0")
    assert fields["fix"].text == "float32 4: 0.0 1.0 2.0 3.0"
    assert fields["txt"].bytes == 200
    assert max(len(field.text) for field in one.fields if field.name != "png") <= 60
    assert fields["raw"].text.startswith("00 01 02")


@pytest.mark.parametrize("format", ["tar", "record"])
def test_by_number_and_by_key(tmp_path: Path, format: str) -> None:
    url = make(tmp_path, 30, format=format)
    found = view(url, [29, 0, -2], keys=["a.b/13", "a.b/0"])
    assert [one.number for one in found.samples] == [29, 0, 28, 13, 0]
    assert all(one.key == f"a.b/{one.number}" for one in found.samples)
    for numbers, keys in (([30], []), ([-31], []), ([], ["a.b/30"])):
        with pytest.raises(UsageError, match="no sample"):
            view(url, numbers, keys=keys)
    with pytest.raises(NotFoundError):
        view(tmp_path / "nothing", [0])


def test_saved_values_are_files_called_as_in_a_tar(tmp_path: Path) -> None:
    url = make(tmp_path / "set", 3, format="record", shards=ShardOptions(zstd=["raw"]))
    found = view(url, [1], save=tmp_path / "out")
    assert set(found.saved) == {f"a%2Eb/1.{name}" for name in ("raw", "cls", "yes", "f", "fix", "f16", "txt")}
    folder = tmp_path / "out" / "a%2Eb"
    assert (folder / "1.raw").read_bytes() == b"\1" * 1500
    assert [(folder / f"1.{name}").read_text() for name in ("cls", "yes", "txt")] == ["1", "0", "é"]
    assert float((folder / "1.f").read_text()) == 1 / 3
    assert np.load(folder / "1.fix").tolist() == [1.0] * 4
    before = (folder / "1.raw").stat().st_mtime_ns
    with pytest.raises(DestinationError, match="already"):
        view(url, [1], save=tmp_path / "out")
    assert (folder / "1.raw").stat().st_mtime_ns == before


def test_no_key_leads_out_of_the_folder(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "set") as writer:
        writer.write({"__key__": "../../x", "raw": b"1"})
    assert view(tmp_path / "set", [0], save=tmp_path / "deep" / "out").saved == ("%2E%2E/%2E%2E/x.raw",)
    assert not list(tmp_path.glob("x*"))


def test_a_damaged_value_is_an_error(tmp_path: Path) -> None:
    url = make(tmp_path)
    manifest = Manifest.load(url)
    path = url / manifest.shard_name(0)
    flip(path, path.read_bytes().index(b"\2" * 1500))
    with pytest.raises(ChecksumError) as caught:
        view(url, [2])
    assert caught.value.place["key"] == "a.b/2"
    assert view(url, [1]).samples[0].key == "a.b/1"
