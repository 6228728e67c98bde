"""Documents that lie in bins are found by key, whole, whatever became of the data set that they are in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardstream as ss
from shardstream.dataset.keys import listings
from shardstream.diagnose import verify, view
from shardstream.errors import DecodeError, FormatError, MissingKeyError
from shardstream.pack.bins import binning
from shardstream.shards import key_table
from shardstream.shards.heads import seal
from shardstream.shards.key_table import key_table_name
from shardstream.testing import MemoryStore

from ..examples import at_most

Documents = list[dict[str, Any]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "shardstream" / "keys"


def documents(lengths: list[int], prefix: str = "d", *, masked: bool = False) -> Documents:
    """Documents of these lengths, whose tokens say where they belong."""
    ends = np.cumsum(lengths)
    found: Documents = []
    for i, (end, length) in enumerate(zip(ends.tolist(), lengths, strict=True)):
        ids = np.arange(end - length, end) + 1
        found.append({"__key__": f"{prefix}/{i}", "ids": ids, "n": i, "score": i / 3, "note": {"of": [i]}})
        if i % 2:
            found[-1]["title"] = f"title {i}"
        if masked and i % 3:
            found[-1]["loss_mask"] = ids % 3 > 0
    return found


def pack(made: Documents, place: Any, **options: Any) -> ss.Manifest:
    given: dict[str, Any] = {"bins": 8, "format": "record", "shard_size": 2000, "workers": 0} | options
    return ss.pack(made, place, **given)


def check(reader: ss.Reader, made: Documents) -> None:
    """All documents are there, each where it says."""
    bins = reader.manifest.bins
    assert bins is not None
    pieces = 0
    for one in made:
        key = one["__key__"]
        assert key in reader
        found = reader.get(key)
        places = found.pop("ids.places")
        pieces += len(places)
        ids = [reader[int(number)]["ids"][begin : begin + length] for number, begin, length in places]
        assert np.concatenate(ids).tolist() == found["ids"].tolist() == one["ids"].tolist()
        mask = found.pop("loss_mask", np.ones(len(one["ids"]), bool))
        assert mask.tolist() == one.get("loss_mask", np.ones(len(one["ids"]), bool)).tolist()
        rest = {name: value for name, value in one.items() if name not in ("ids", "loss_mask")}
        assert {name: value for name, value in found.items() if name != "ids"} == rest
    assert (bins.documents, bins.pieces) == (len(made), pieces)


@given(st.data())
@at_most(40)
def test_every_document_is_found_whole(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binning, "_BINS", data.draw(st.sampled_from([1, 3])))
        patch.setattr(binning, "_FEWEST", 1)
        patch.setattr(key_table, "_LEAST_BLOCK", 3)
        patch.setattr(key_table, "_RUN", 7)
        if data.draw(st.booleans()):
            patch.setattr(key_table, "key_hash", lambda key: len(bytes(key)) % 4)
        made = documents(
            data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=40)), masked=data.draw(st.booleans())
        )
        store = MemoryStore({})
        format, packing = data.draw(st.sampled_from(["record", "tar"])), data.draw(st.sampled_from(["fit", "concat"]))
        pack(made, store, format=format, bins=ss.PackedSequences(8, packing=packing), shuffle=data.draw(st.booleans()))
        check(ss.Reader(store), made)


def test_a_document_may_lie_in_hundreds_of_bins(tmp_path: Path) -> None:
    made = documents([3, 8 * 1000 + 5, 2])
    pack(made, tmp_path / "out", shard_size="10KB")
    check(ss.Reader(tmp_path / "out"), made)


def test_a_key_that_no_document_has(tmp_path: Path) -> None:
    pack(documents([5, 3]), tmp_path / "out")
    reader = ss.Reader(tmp_path / "out")
    assert "d/2" not in reader
    assert 3 not in reader
    with pytest.raises(MissingKeyError, match=r"no sample has this key.*key d/2"):
        reader.get("d/2")
    assert reader.get(reader[0]["__key__"])["ids.keys"] == ["d/0", "d/1"], "bins are samples like any others"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("table", [True, False])
def test_every_version_finds_its_documents(table: bool, tmp_path: Path, home: Path) -> None:
    parts = [documents([5, 20, 3] * 30, "a"), documents([9, 1], "b"), documents([2, 31], "c")]
    for i, part in enumerate(parts):
        pack(part, tmp_path / "out", append=i > 0, shards=ss.ShardOptions(key_table=table))
    for version in (1, 2, 3):
        there = [one for part in parts[:version] for one in part]
        reader = ss.Reader(tmp_path / "out", version=version)
        check(reader, there)
        assert all(part[0]["__key__"] not in reader for part in parts[version:])
    assert len(list((tmp_path / "out").glob("documents-*"))) == (3 if table else 0)
    assert len(list(home.glob("*-documents.keys"))) == (0 if table else 3)


def test_without_a_table_one_is_made_once(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = documents([5, 20, 3])
    pack(made, tmp_path / "out", shards=ss.ShardOptions(key_table=False))
    check(ss.Reader(tmp_path / "out"), made)
    monkeypatch.setattr(listings.DocumentKeys, "read", lambda *_: 1 / 0)
    check(ss.Reader(tmp_path / "out"), made)


def test_merged_and_repacked(tmp_path: Path) -> None:
    parts = [documents([5, 20, 3], "a"), documents([9, 1], "b")]
    for name, part in zip("ab", parts, strict=True):
        pack(part, tmp_path / name)
    ss.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "both")
    check(ss.Reader(tmp_path / "both"), parts[0] + parts[1])
    ss.repack(tmp_path / "both", tmp_path / "again", shuffle=True, format="tar", workers=0)
    check(ss.Reader(tmp_path / "again"), parts[0] + parts[1])


def test_what_is_packed_anew_leaves_no_table_of_before(tmp_path: Path) -> None:
    pack(documents([5, 20, 3]), tmp_path / "out")
    new = pack(documents([4, 4]), tmp_path / "out", overwrite=True)
    assert [one.name for one in (tmp_path / "out").glob("documents-*")] == [
        key_table_name(new.fingerprint, "documents")
    ]
    with ss.ShardWriter(tmp_path / "out", overwrite=True) as writer:
        writer.write({"__key__": "a", "cls": 1})
    assert not list((tmp_path / "out").glob("documents-*"))


def test_a_damaged_table_is_told_and_made_anew(tmp_path: Path, home: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = documents([5, 20, 3])
    name = key_table_name(pack(made, tmp_path / "out").fingerprint, "documents")
    whole = bytearray((tmp_path / "out" / name).read_bytes())
    whole[3] ^= 4
    (tmp_path / "out" / name).write_bytes(whole)
    assert [(one.check, one.shard) for one in verify(tmp_path / "out").problems] == [("keys", name)]
    check(ss.Reader(tmp_path / "out"), made)
    assert caplog.text.count("the key table is damaged") == 1


@pytest.mark.parametrize("pieces", [0, 5, 7, 1 << 40])
def test_a_manifest_that_counts_other_pieces(pieces: int, tmp_path: Path, home: Path) -> None:
    manifest = pack(documents([5, 20, 3, 1]), tmp_path / "out", shards=ss.ShardOptions(key_table=False))
    assert manifest.bins is not None
    assert manifest.bins.pieces == 6
    head = json.loads((tmp_path / "out" / "dataset.json").read_bytes())
    head["bins"]["pieces"] = pieces
    head.pop("checksum")
    (tmp_path / "out" / "dataset.json").write_bytes(seal(head))
    with pytest.raises(FormatError, match="other documents than the manifest counts"):
        ss.Reader(tmp_path / "out").get("d/0")


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"ids.keys": ["d/0"]}, "2 documents and names 1"),
        ({"ids.keys": "d/0"}, "does not say which documents lie in it"),
        ({"ids.lengths": np.array([4, 4, 4], np.int32)}, "lengths of 12 tokens in a bin of 8"),
        ({"ids.offsets": np.array([3, 0], np.uint32)}, "no bin has token 0 of the document"),
    ],
)
def test_bins_that_contradict_themselves(fields: dict[str, Any], what: str, tmp_path: Path, home: Path) -> None:
    pack(documents([5, 3]), tmp_path / "out", shards=ss.ShardOptions(key_table=False))
    manifest = ss.Manifest.load(tmp_path / "out")
    sample = ss.Reader(tmp_path / "out")[0] | fields
    types = {name: str(kind) for name, kind in manifest.fields.items()}
    with ss.ShardWriter(tmp_path / "bad", shards=ss.ShardOptions(key_table=False), fields=types) as writer:
        writer.write(sample)
    head = json.loads((tmp_path / "bad" / "dataset.json").read_bytes())
    assert manifest.bins is not None
    head["bins"] = manifest.bins.entry | {"pieces": len(fields.get("ids.keys", "ab"))}
    head.pop("checksum")
    (tmp_path / "bad" / "dataset.json").write_bytes(seal(head))
    with pytest.raises((FormatError, DecodeError), match=what) as raised:
        ss.Reader(tmp_path / "bad").get("d/0")
    assert str(tmp_path / "bad") in str(raised.value)


def test_view_shows_the_bin_of_a_document(tmp_path: Path) -> None:
    pack(documents([8, 8, 8]), tmp_path / "out", shuffle=False)
    (sample,) = view(tmp_path / "out", keys=["d/1"]).samples
    assert sample.number == 1
