"""Documents that lie in bins are packed anew: other bins of the same documents, whoever packs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import shardstream as ss
from shardstream.cli.app import app
from shardstream.errors import DuplicateKeyError, FieldError, FormatError, SourceError, UsageError
from shardstream.pack.bins import binning, stored_documents
from shardstream.shards import key_table
from shardstream.shards.heads import seal
from shardstream.testing import MemoryStore

from ...examples import at_most

Documents = dict[str, dict[str, Any]]


def documents(lengths: list[int], *, masked: bool = False) -> list[dict[str, Any]]:
    ends = np.cumsum(lengths)
    made = []
    for i, (end, length) in enumerate(zip(ends.tolist(), lengths, strict=True)):
        ids = np.arange(end - length, end) % 60_000
        made.append({"__key__": f"d/{i}", "ids": ids, "n": i, "small": np.float32(i / 3), "text": f"text {i}"})
        if masked and i % 3:
            made[-1]["loss_mask"] = ids % 3 > 0
    return made


def pack(made: Any, place: Any, **options: Any) -> ss.Manifest:
    given: dict[str, Any] = {
        "bins": ss.PackedSequences(8, token_dtype="uint16"),
        "format": "record",
        "shard_size": 2000,
        "workers": 0,
    }
    return ss.pack(made, place, **given | options)


def found_in(place: Any, keys: list[str]) -> Documents:
    """The documents of a data set, in forms that can be compared."""
    reader, found = ss.Reader(place), Documents()
    for key in keys:
        one = reader.get(key)
        del one["ids.places"]
        ids = one["ids"]
        mask = one.pop("loss_mask", np.ones(len(ids), bool))
        found[key] = one | {"ids": ids.tolist(), "dtype": ids.dtype.name, "mask": mask.tolist()}
    return found


def names(made: list[dict[str, Any]]) -> list[str]:
    return [one["__key__"] for one in made]


@pytest.mark.full
@given(st.data())
@at_most(40)
def test_the_same_documents_lie_in_other_bins(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binning, "_BINS", data.draw(st.sampled_from([1, 3])))
        patch.setattr(binning, "_FEWEST", 1)
        patch.setattr(stored_documents, "_AT_ONCE", data.draw(st.sampled_from([1, 5])))
        if data.draw(st.booleans()):
            patch.setattr(stored_documents, "hash_of", lambda key: len(key) % 2)
            patch.setattr(key_table, "key_hash", lambda key: len(bytes(key)) % 2)
        lengths = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=30))
        made = documents(lengths, masked=data.draw(st.booleans()))
        first, second = MemoryStore({}), MemoryStore({})
        old = pack(
            made,
            first,
            shuffle=data.draw(st.booleans()),
            bins=ss.PackedSequences(8, token_dtype="uint16", packing=data.draw(st.sampled_from(["fit", "concat"]))),
        )
        new = ss.repack(
            first,
            second,
            bins=ss.PackedSequences(
                data.draw(st.sampled_from([4, 8, 32])), packing=data.draw(st.sampled_from(["fit", "concat"]))
            ),
            shuffle=data.draw(st.booleans()),
            seed=data.draw(st.integers(0, 3)),
            shard_size=1000,
            workers=0,
        )
        assert old.bins is not None
        assert new.bins is not None
        assert (new.bins.documents, new.bins.tokens) == (old.bins.documents, old.bins.tokens)
        assert found_in(second, names(made)) == found_in(first, names(made))
    assert new.fields.keys() - {"ids.loss"} == old.fields.keys() - {"ids.loss"}
    assert [str(new.fields[name]) for name in ("n", "small", "text")] == ["values:int64", "values:float32", "json"]


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    pack(
        documents([5, 30, 3, 8, 17] * 20, masked=True),
        tmp_path / "out",
        bins=ss.PackedSequences(8, token_dtype="uint16", pad=7, tokenizer_id="mine"),
        meta={"a": 1},
    )
    return tmp_path / "out"


def test_what_bins_inherit(packed: Path, tmp_path: Path) -> None:
    old = ss.Manifest.load(packed)
    new = ss.repack(packed, tmp_path / "new", bins=16, workers=0)
    assert old.bins is not None
    assert new.bins is not None
    assert (new.bins.pad, new.bins.tokenizer, new.bins.field, new.meta, new.framing) == (
        7,
        "mine",
        "ids",
        {"a": 1},
        "record",
    )
    assert (new.bins.size, new.bins.least) == (16, 4)
    ss.repack(tmp_path / "new", tmp_path / "back", bins=8, workers=0, format="tar")
    keys = [f"d/{i}" for i in range(100)]
    assert found_in(tmp_path / "back", keys) == found_in(packed, keys)


def test_another_seed_has_other_documents_share_a_bin(packed: Path, tmp_path: Path) -> None:
    together = []
    for seed in (1, 2):
        ss.repack(packed, tmp_path / str(seed), bins=8, shuffle=True, seed=seed, workers=0)
        together.append({tuple(one["ids.keys"]) for one in ss.Reader(tmp_path / str(seed))})
    assert together[0] != together[1]


@pytest.mark.full
def test_the_same_bytes_by_any_number_of_workers(packed: Path, tmp_path: Path) -> None:
    written = []
    for workers in (0, 2):
        out = tmp_path / f"by {workers}"
        ss.repack(packed, out, bins=16, shuffle=True, shard_size=1500, workers=workers)
        written.append({one.name: one.read_bytes() for one in out.iterdir() if one.name != "report.json"})
    assert written[0] == written[1]
    assert sum(name.endswith(".rec") for name in written[0]) > 2
    before = (tmp_path / "by 2" / "dataset.json").stat().st_mtime_ns
    ss.repack(packed, tmp_path / "by 2", bins=16, shuffle=True, shard_size=1500, workers=2)
    assert (tmp_path / "by 2" / "dataset.json").stat().st_mtime_ns == before, "it is complete"


def test_some_of_the_documents_and_of_what_they_have(packed: Path, tmp_path: Path) -> None:
    new = ss.repack(packed, tmp_path / "new", bins=8, take=7, fields=["n"], workers=0)
    assert new.bins is not None
    assert new.bins.documents == 7
    reader = ss.Reader(tmp_path / "new")
    assert {"text", "small"}.isdisjoint(new.fields)
    assert sum(f"d/{i}" in reader for i in range(100)) == 7
    with pytest.raises(FieldError, match="there is no field 'nix'"):
        ss.repack(packed, tmp_path / "other", bins=8, fields=["nix"])
    with pytest.raises(UsageError, match="take must be a positive integer"):
        ss.repack(packed, tmp_path / "other", bins=8, take=0)


def kept(sample: dict[str, Any]) -> dict[str, Any] | None:
    return None if sample["n"] % 2 else sample | {"n": sample["n"] * 10}


def test_a_transform_gets_documents(packed: Path, tmp_path: Path) -> None:
    new = ss.repack(packed, tmp_path / "new", bins=8, transform=kept, workers=0)
    assert new.bins is not None
    assert new.bins.documents == 50
    assert ss.Reader(tmp_path / "new").get("d/4")["n"] == 40
    assert "d/3" not in ss.Reader(tmp_path / "new")


def test_documents_of_merged_data_sets_may_share_keys(tmp_path: Path) -> None:
    for name, lengths in (("a", [5, 20]), ("b", [18, 2])):
        pack(documents(lengths), tmp_path / name)
    ss.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "both")
    for key in ("path", "auto", "line", "stem"):  # whose pieces are whose, nothing says
        with pytest.raises(DuplicateKeyError, match="told apart by their keys"):
            ss.repack(tmp_path / "both", tmp_path / "new", bins=8, workers=0, key=key)
    ss.repack(tmp_path / "a", tmp_path / "stems", bins=8, workers=0, key="stem")
    assert ss.Reader(tmp_path / "stems").get("1")["ids"].tolist() == list(range(5, 25))


def test_what_cannot_be_packed_into_bins_anew(packed: Path, tmp_path: Path) -> None:
    with ss.ShardWriter(tmp_path / "plain") as writer:
        writer.write({"__key__": "a", "ids": np.arange(3)})
    with pytest.raises(UsageError, match="this one has none"):
        ss.repack(tmp_path / "plain", tmp_path / "new", bins=8)
    with pytest.raises(UsageError, match=r"repack takes no bins=PackedSequences\(pad="):
        ss.repack(packed, tmp_path / "new", bins=ss.PackedSequences(8, pad=8))
    with pytest.raises(SourceError, match="this folder holds a packed data set"):
        ss.pack(packed, tmp_path / "new", bins=16, workers=0)


@pytest.mark.parametrize(("lost", "what"), [(0, "no bin has the beginning"), (1, "a piece of the document is missing")])
def test_a_bin_that_is_lost(lost: int, what: str, tmp_path: Path) -> None:
    pack(documents([24]), tmp_path / "out", shuffle=False)
    whole = list(ss.Reader(tmp_path / "out"))
    manifest = ss.Manifest.load(tmp_path / "out")
    types = {name: str(kind) for name, kind in manifest.fields.items()}
    with ss.ShardWriter(tmp_path / "part", fields=types, format="record") as writer:
        for i, sample in enumerate(whole):
            if i != lost:
                writer.write(sample)
    head = json.loads((tmp_path / "part" / "dataset.json").read_bytes())
    assert manifest.bins is not None
    head["bins"] = manifest.bins.entry
    head.pop("checksum")
    (tmp_path / "part" / "dataset.json").write_bytes(seal(head))
    with pytest.raises(FormatError, match=what):
        ss.repack(tmp_path / "part", tmp_path / "new", bins=8, workers=0)


def test_on_the_command_line(packed: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app,
        ["repack", str(packed), str(tmp_path / "new"), "--bins", "16", "--shuffle", "--seed", "3", "--workers", "0"],
    )
    assert done.exit_code == 0, done.output
    new = ss.Manifest.load(tmp_path / "new").bins
    assert new is not None
    assert (new.size, new.documents) == (16, 100)
