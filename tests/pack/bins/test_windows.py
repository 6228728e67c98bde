"""Documents that become bins: every token once, nothing cut that fits, the same whoever packs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardstream as ss
from shardstream.dataset.opening import open_dataset
from shardstream.diagnose import info
from shardstream.errors import FieldError, FormatError, SourceError, UsageError
from shardstream.pack.bins import binning
from shardstream.pack.dry_run import dry_run
from shardstream.pack.options import PackOptions
from shardstream.pack.output.places import StorageOptions
from shardstream.pack.plan.pack_plan import pack_plan
from shardstream.pack.sources.stored import StoredSource
from shardstream.testing import MemoryStore

from ...examples import at_most

NEEDED = ("ids", "ids.lengths", "ids.offsets", "ids.keys", "ids.documents")


class Piece(NamedTuple):
    """What lies in a bin."""

    bin: int
    begin: int
    length: int
    offset: int
    ids: np.ndarray
    loss: np.ndarray


def pieces_of(url: Any) -> dict[str, list[Piece]]:
    """The pieces of all documents of a data set, by key, as they lie."""
    found: dict[str, list[Piece]] = {}
    reader = ss.Reader(url)
    bins = reader.manifest.bins
    assert bins is not None
    for number, row in enumerate(reader):
        runs = row.get(bins.beside("loss"))
        loss = (
            np.ones(bins.size, bool)
            if runs is None or not len(runs)
            else np.repeat(np.arange(len(runs)) % 2 == 0, runs)
        )
        offsets = row[bins.beside("offsets")]
        begin, of = 0, iter(row[bins.beside("keys")])
        lengths = row[bins.beside("lengths")].tolist()
        assert sum(map(abs, lengths)) == bins.size
        for length in lengths:
            stop = begin + abs(length)
            ids = row[bins.field][begin:stop]
            if length < 0:
                assert (ids == bins.pad).all()
            else:
                key = next(of)
                offset = 0 if not len(offsets) else int(offsets[row[bins.beside("keys")].index(key)])
                found.setdefault(key, []).append(Piece(number, begin, length, offset, ids, loss[begin:stop]))
            begin = stop
        assert next(of, None) is None
        assert row[bins.beside("documents")] == sum(
            one.offset == 0 for many in found.values() for one in many if one.bin == number
        )
    return found


def documents(lengths: list[int], *, masked: bool = False) -> list[dict[str, Any]]:
    """Documents of these lengths, no two tokens of them alike."""
    ends = np.cumsum([0, *lengths])
    made = []
    for i, (begin, end) in enumerate(pairwise(ends)):
        one = {"__key__": f"d{i}", "ids": np.arange(begin, end) + 1, "n": i, "text": f"text {i}"}
        made.append(one | ({"loss_mask": (np.arange(begin, end) % 3 != 0)} if masked and i % 2 else {}))
    return made


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binning, "_BINS", 3)
    monkeypatch.setattr(binning, "_FEWEST", 1)


@given(st.data())
@at_most(60)
def test_every_token_lies_once_and_nothing_is_cut_that_fits(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binning, "_BINS", data.draw(st.sampled_from([1, 2, 5])))
        patch.setattr(binning, "_FEWEST", 1)
        size = data.draw(st.sampled_from([1, 4, 7, 16]))
        packing = data.draw(st.sampled_from(["fit", "concat"]))
        lengths = data.draw(st.lists(st.integers(1, 3 * size), min_size=1, max_size=40))
        shuffle, masked = data.draw(st.booleans()), data.draw(st.booleans())
        made = documents(lengths, masked=masked)
        store = MemoryStore({})
        manifest = ss.pack(
            made,
            store,
            bins=ss.PackedSequences(size, packing=packing),
            shuffle=shuffle,
            format="record",
            shard_size=2000,
            workers=0,
        )
    bins = manifest.bins
    assert bins is not None
    assert (bins.documents, bins.tokens) == (len(made), sum(lengths))
    found = pieces_of(store)
    assert found.keys() == {one["__key__"] for one in made}
    for one in made:
        pieces = sorted(found[one["__key__"]], key=lambda piece: piece.offset)
        assert np.concatenate([piece.ids for piece in pieces]).tolist() == one["ids"].tolist()
        assert [piece.offset for piece in pieces] == [0, *np.cumsum([piece.length for piece in pieces])[:-1]]
        mask = np.concatenate([piece.loss for piece in pieces])
        assert mask.tolist() == np.asarray(one.get("loss_mask", np.ones(len(mask), bool))).tolist()
        if packing == "fit":
            assert all(piece.length == size for piece in pieces[:-1]), "cut into full bins and a rest"
            part = size
            while part >= bins.least:
                for piece in pieces:
                    assert piece.length > part or piece.begin // part == (piece.begin + piece.length - 1) // part
                part //= 2


def test_what_a_document_has_besides_stands_with_its_tokens() -> None:
    store = MemoryStore({})
    ss.pack(documents([3, 20, 5, 8]), store, bins=8, format="record", workers=0)
    rows = list(ss.Reader(store))
    assert all(row["n"].dtype == np.int64 for row in rows)
    for row in rows:
        assert row["text"] == [f"text {n}" for n in row["n"]]
        assert row["ids.keys"] == [f"d{n}" for n in row["n"]]


@pytest.mark.one_in(2)
@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("format", ["tar", "record"])
def test_the_same_bytes_by_any_number_of_workers(tmp_path: Path, format: str) -> None:
    rng = np.random.default_rng(0)
    made = documents(rng.integers(1, 90, 400).tolist(), masked=True)
    written = []
    for workers in (0, 2):
        out = tmp_path / f"{workers}"
        manifest = ss.pack(made, out, bins=32, format=format, shard_size="20kB", workers=workers)
        assert manifest.shards > 2
        written.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert written[0] == written[1]


@pytest.mark.usefixtures("small_windows")
def test_the_order_of_bins_is_that_of_documents_where_nothing_is_shuffled() -> None:
    store = MemoryStore({})
    ss.pack(
        documents([5] * 40),
        store,
        bins=ss.PackedSequences(10, packing="concat"),
        shuffle=False,
        format="record",
        workers=0,
    )
    ids = np.concatenate([row["ids"] for row in ss.Reader(store)])
    assert ids.tolist() == list(range(1, 201))
    ss.pack(documents([5] * 40), store, bins=10, shuffle=False, format="record", workers=0, overwrite=True)
    firsts = [row["n"].min() for row in ss.Reader(store)]
    assert firsts == sorted(firsts)


def test_bins_are_shuffled_in_their_window() -> None:
    stores = [MemoryStore({}) for _ in range(2)]
    for seed, store in enumerate(stores):
        ss.pack(documents(list(range(1, 9)) * 30), store, bins=8, seed=seed, format="record", workers=0)
    longest = [[max(row["ids.lengths"]) for row in ss.Reader(store)] for store in stores]
    assert longest[0] != sorted(longest[0], reverse=True), "longest documents first"
    assert longest[0] != longest[1]


@pytest.mark.parametrize(
    ("long", "kept", "rejected", "truncated"), [("split", 30, 0, 0), ("reject", 9, 1, 0), ("truncate", 17, 0, 1)]
)
def test_documents_longer_than_a_bin(tmp_path: Path, long: Any, kept: int, rejected: int, truncated: int) -> None:
    manifest = ss.pack(
        documents([4, 21, 5]), tmp_path / "out", bins=ss.PackedSequences(8, long=long), format="record", workers=0
    )
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert manifest.bins is not None
    assert manifest.bins.tokens == kept == report["bins"]["tokens"]
    assert (report["rejects"], report["bins"]["truncated"]) == (rejected, truncated)
    cut = {one["length"]: one["documents"] for one in report["bins"]["cut"]}
    assert cut == ({8: 1, 4: 2, 2: 3} if long == "split" else {8: 0, 4: 1, 2: 2} if rejected else {8: 0, 4: 2, 2: 3})
    if rejected:
        text = (tmp_path / "out" / "rejects.jsonl").read_text()
        assert "it has 21 tokens, more than a bin of 8" in text


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"ids": []}, "it has no tokens"),
        ({"n": 3}, "it has no field 'ids', which holds its tokens"),
        ({"ids": [1, 70_000]}, "70000 does not fit uint16"),
        ({"ids": [1, -1]}, "field 'ids'"),
        ({"ids": [[1], [2]]}, "numbers in one row"),
        ({"ids": [1, 2], "loss_mask": [1, 2]}, "its loss_mask has other numbers than 0 and 1"),
        ({"ids": [1, 2], "loss_mask": [1]}, "its loss_mask has 1 numbers for 2 tokens"),
        ({"ids": [1], "emb": np.ones(3)}, "field 'emb' is array"),
        ({"ids": [1], "ids.lengths": 3}, "'ids.lengths' is called like those that say where documents begin"),
    ],
)
def test_what_is_no_document_is_rejected(tmp_path: Path, bad: dict[str, Any], reason: str) -> None:
    made = [{"__key__": "good", "ids": [1, 2, 3]}, {"__key__": "bad", **bad}]
    options: dict[str, Any] = {"bins": ss.PackedSequences(8, token_dtype="uint16"), "format": "record", "workers": 0}
    manifest = ss.pack(made, tmp_path / "out", **options)
    assert manifest.bins is not None
    assert manifest.bins.documents == 1
    assert reason in (tmp_path / "out" / "rejects.jsonl").read_text()


def test_a_cost_is_no_tokens_and_is_told_where_it_belongs(tmp_path: Path) -> None:
    clips = [{"__key__": f"{number}", "seconds": 1.5} for number in range(9)]
    with pytest.raises(SourceError, match=r'is one number, not .* are read: batch_size=\{"seconds": 120\}'):
        ss.pack(clips, tmp_path / "out", bins=ss.PackedSequences(120, field="seconds"), workers=0)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"length": 0}, "bins must be a number of tokens"),
        ({"length": True}, "bins must be a number of tokens"),
        ({"min": 3}, r"min=...\) \(--bin-min\) must be their length divided by a power of two"),
        ({"min": 16}, r"min=...\) \(--bin-min\) must be their length divided by a power of two"),
        ({"packing": "best"}, "packing must be 'fit' or 'concat'"),
        ({"long": "cut"}, "long must be 'split', 'reject' or 'truncate'"),
        ({"token_dtype": "int64"}, "token_dtype must be 'uint16' or 'uint32'"),
        ({"pad": -1}, "pad must be a token"),
        ({"pad": 65_536, "token_dtype": "uint16"}, r"pad must be a token in \[0, 65535\]"),
        ({"field": "__ids"}, "cannot be a field name"),
        ({"length": None, "long": "reject"}, r"long \(--long\) is an option of bins"),
        ({"length": None}, "bins have no length"),
    ],
)
def test_options_that_are_not_allowed(options: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        ss.PackedSequences(**{"length": 8} | options)


def test_rows_list_samples_and_not_bins(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rows=True lists a sample a row"):
        ss.pack(documents([3]), tmp_path / "out", bins=8, shards=ss.ShardOptions(rows=True), workers=0)


def test_numbers_that_some_documents_lack(tmp_path: Path) -> None:
    floats = [{"__key__": "a", "ids": [1], "score": 0.5}, {"__key__": "b", "ids": [2]}]
    ss.pack(floats, tmp_path / "floats", bins=2, format="record", workers=0)
    (row,) = ss.Reader(tmp_path / "floats")
    scores = dict(zip(row["ids.keys"], row["score"].tolist(), strict=True))
    assert scores["a"] == 0.5
    assert np.isnan(scores["b"])
    integers = [{"__key__": "a", "ids": [1], "n": 5}, {"__key__": "b", "ids": [2]}]
    with pytest.raises(FieldError, match="the document has no 'n', which others have"):
        ss.pack(integers, tmp_path / "integers", bins=2, format="record", workers=0)


def test_a_data_set_of_bins_grows_by_bins_of_the_same_kind(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options: dict[str, Any] = {"bins": 8, "format": "record", "workers": 0}
    ss.pack(documents([5, 3, 2]), out, **options)
    more = [one | {"__key__": f"more/{i}"} for i, one in enumerate(documents([4, 4]))]
    manifest = ss.pack(more, out, append=True, **options)
    assert manifest.bins is not None
    assert (manifest.version, manifest.bins.documents, manifest.bins.tokens) == (2, 5, 18)
    assert len(pieces_of(out)) == 5
    for bins in (16, ss.PackedSequences(8, pad=1), ss.PackedSequences(8, packing="concat"), None):
        with pytest.raises((UsageError, FieldError)):
            ss.pack(more, out, append=True, **options | {"bins": bins})
    with pytest.raises((UsageError, FieldError)), ss.ShardWriter(out, append=True) as writer:
        writer.write({"__key__": "x", "txt": "no bin"})


def test_a_dry_run_packs_a_probe_into_bins(tmp_path: Path) -> None:
    found = dry_run(
        documents([9] * 50),
        tmp_path / "out",
        PackOptions(bins=ss.PackedSequences(32), format="record"),
        storage=StorageOptions(),
    )
    assert found.fields["ids"] == "array:uint32:32"
    assert not (tmp_path / "out").exists()


def test_documents_that_can_only_be_read_in_order(tmp_path: Path) -> None:
    made = documents([3, 9, 20, 1, 8] * 8)
    options: dict[str, Any] = {"bins": ss.PackedSequences(8, token_dtype="uint16"), "format": "record", "workers": 0}
    ss.pack((one for one in made), tmp_path / "generator", **options)
    lines = tmp_path / "documents.jsonl"
    lines.write_text("".join(json.dumps({"key": one["__key__"], "ids": one["ids"].tolist()}) + "\n" for one in made))
    ss.pack(lines, tmp_path / "lines", key="key", **options)
    for name in ("generator", "lines"):
        found = pieces_of(tmp_path / name)
        for one in made:
            pieces = sorted(found[one["__key__"]], key=lambda piece: piece.offset)
            assert np.concatenate([piece.ids for piece in pieces]).tolist() == one["ids"].tolist()


def test_bins_are_repacked_as_they_are_and_never_packed_into_bins(tmp_path: Path) -> None:
    old = ss.pack(documents([5, 3, 2] * 20), tmp_path / "out", bins=8, format="record", workers=0)
    new = ss.repack(tmp_path / "out", tmp_path / "again", shuffle=True, shard_size=1000, workers=0)
    assert new.bins == old.bins
    assert len(pieces_of(tmp_path / "again")) == 60
    with pytest.raises(SourceError, match="this folder holds a packed data set"):
        ss.pack(tmp_path / "out", tmp_path / "bins of bins", bins=16, workers=0)


def test_some_of_the_bins_are_bins(tmp_path: Path) -> None:
    made = documents([20, 5, 3, 2] * 20)
    old = ss.pack(made, tmp_path / "out", bins=8, format="record", shard_size=1000, workers=0).bins
    assert old is not None
    part = ss.repack(tmp_path / "out", tmp_path / "part", take=30, fields=NEEDED, shuffle=True, workers=0)
    found = [piece for pieces in pieces_of(tmp_path / "part").values() for piece in pieces]
    begun, tokens = sum(piece.offset == 0 for piece in found), sum(len(piece.ids) for piece in found)
    assert 0 < begun < len(found)
    assert part.bins == replace(old, documents=begun, pieces=len(found), tokens=tokens, partial=True)
    report = json.loads((tmp_path / "part" / "report.json").read_text())
    assert report["bins"] == {
        "bins": 30, "documents": begun, "pieces": len(found), "tokens": tokens, "truncated": 0, "cut": []
    }  # fmt: skip
    fields = {"text": ss.decode.Packed(labels="next")}
    rows = [row["ids"] for row in ss.ShardDataset(tmp_path / "part", fields=fields)]
    assert len(rows) == 30
    with pytest.raises(FormatError, match="may go on in a bin that is not here"):
        ss.Reader(tmp_path / "part").get(next(iter(pieces_of(tmp_path / "part"))))
    with pytest.raises(UsageError, match="some of the bins of another data set"):
        ss.repack(tmp_path / "part", tmp_path / "anew", bins=16, workers=0)
    assert ss.repack(tmp_path / "part", tmp_path / "all of it", workers=0).bins == part.bins
    other = ss.pack(documents([5] * 9), tmp_path / "other", bins=8, format="record", workers=0).bins
    both = ss.merge([tmp_path / "part", tmp_path / "other"], tmp_path / "both").bins
    assert other is not None
    assert both == replace(part.bins, documents=begun + 9, pieces=len(found) + 9, tokens=tokens + 45)
    # without what tells where documents begin, they are rows of tokens
    assert ss.repack(tmp_path / "out", tmp_path / "rows", fields=NEEDED[:2], workers=0).bins is None


def test_a_shard_whose_bins_nobody_counted_is_written_again(tmp_path: Path) -> None:
    old = ss.pack(documents([20, 5, 3] * 20), tmp_path / "out", bins=8, format="record", workers=0).bins
    source, how = StoredSource(open_dataset(tmp_path / "out")), {"format": "record", "shard_size": 1000}
    for task in pack_plan(source, tmp_path / "new", **how).tasks[1:]:
        task.run()
    first, *others = sorted((tmp_path / "new" / ".pack").glob("*.json"))
    first.write_text(re.sub('"bins":{[^}]*}', '"bins":null', first.read_text()))
    plan = pack_plan(source, tmp_path / "new", **how)
    assert [task.run().kept for task in plan.tasks] == [False, False, *(True for _ in others)]
    assert plan.commit().bins == old


def test_some_of_the_bins_have_whole_documents_where_none_lies_in_two(tmp_path: Path) -> None:
    made = documents([5, 3, 2] * 20)
    ss.pack(made, tmp_path / "out", bins=8, format="record", workers=0)
    part = ss.repack(tmp_path / "out", tmp_path / "part", take=3, workers=0)
    assert part.bins is not None
    assert not part.bins.partial
    found, reader = pieces_of(tmp_path / "part"), ss.Reader(tmp_path / "part")
    assert len(found) == part.bins.documents == part.bins.pieces
    for one in made:
        if one["__key__"] in found:
            assert reader.get(one["__key__"])["ids"].tolist() == one["ids"].tolist()


def test_data_sets_of_bins_are_merged(tmp_path: Path) -> None:
    options: dict[str, Any] = {"format": "record", "workers": 0}
    for name, count in (("one", 20), ("other", 30)):
        ss.pack(documents([5, 3] * count), tmp_path / name, bins=8, **options)
    both = ss.merge([tmp_path / "one", tmp_path / "other"], tmp_path / "both")
    assert both.bins is not None
    assert (both.bins.documents, both.bins.tokens) == (100, 400)
    ss.pack(documents([5]), tmp_path / "longer", bins=16, **options)
    with pytest.raises((UsageError, FieldError)):
        ss.merge([tmp_path / "one", tmp_path / "longer"], tmp_path / "mixed")
    ss.pack([{"__key__": "a", "txt": "no bin"}], tmp_path / "samples", **options)
    with pytest.raises(UsageError, match="has bins of documents"):
        ss.merge([tmp_path / "one", tmp_path / "samples"], tmp_path / "mixed")


def test_what_is_said_of_bins(tmp_path: Path) -> None:
    manifest = ss.pack(documents([5, 3, 2, 6]), tmp_path / "out", bins=8, format="record", workers=0)
    said = "8 tokens of 'ids' (fit, down to 2, padded with 0): 4 documents, 16 tokens, 100.00% full"
    assert f"bins of {said}" in repr(manifest)
    assert info(tmp_path / "out").bins == said
