"""Megatron's pairs of files, and bare tokens: documents and windows equal those of Megatron Core's reader."""

import json
import random
import shutil
import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardstream.errors import FormatError, StorageError, UsageError
from shardstream.formats.registry import recognize
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.tokens.megatron import Megatron
from shardstream.formats.tokens.nanogpt import NanoGpt
from shardstream.storage.local.store import LocalStore
from shardstream.testing import MemoryStore
from tests.formats.scanning import in_memory, listing_of, recognised, samples, scanned

GOLDEN = Path(__file__).parents[1] / "golden" / "foreign" / "megatron"
DTYPES = ("uint8", "int8", "int16", "int32", "int64", "float64", "float32", "uint16")


def index_of(lengths, marks, *, code=8, version=1, places=None, width=2, magic=b"MMIDIDX\0\0") -> bytes:
    places = np.cumsum([0, *lengths])[: len(lengths)] * width if places is None else places
    head = struct.pack("<9sQBQQ", magic, version, code, len(lengths), len(marks))
    tables = (np.array(lengths, "<i4"), np.array(places, "<i8"), np.array(marks, "<i8"))
    return head + b"".join(table.tobytes() for table in tables)


def pair(lengths, marks, **options) -> dict[str, bytes]:
    tokens = np.arange(sum(lengths), dtype="<u2").tobytes()
    return {"a.bin": tokens, "a.idx": index_of(lengths, marks, **options)}


def read(objects, options=None):
    found = samples(Megatron(), MemoryStore(objects), options)
    return [values["tokens"].tolist() for _, values in found]


def refused(objects, match: str, options=None) -> None:
    with pytest.raises(FormatError, match=match):
        read(objects, options)


# ------------------------------------------------------------------------------------------------------ what is read


@pytest.mark.parametrize("name", [*DTYPES, "merged"])
def test_documents_equal_those_of_megatrons_reader(tmp_path, name):
    for suffix in ("bin", "idx"):
        shutil.copy(GOLDEN / f"{name}.{suffix}", tmp_path)
    expected = json.loads((GOLDEN / "expected.json").read_text())[name]
    dtype = "int32" if name == "merged" else name
    for place in (tmp_path, in_memory(tmp_path)):
        found = samples(Megatron(), place)
        assert [key for key, _ in found] == [f"{name}/{i:08d}" for i in range(len(expected))]
        assert [values["tokens"].tolist() for _, values in found] == expected
        assert {values["tokens"].dtype.name for _, values in found} == {dtype}
    ((_, rows),) = scanned(Megatron(), tmp_path)
    assert str(rows.columns[0].type) == f"values:{dtype}"
    stream = [token for document in expected for token in document]
    windows = samples(Megatron(), tmp_path, {"length": "4"})
    assert [values["tokens"].tolist() for _, values in windows] == [
        stream[i : i + 5] for i in range(0, len(stream) - 4, 4)
    ]


def test_documents_need_not_lie_in_the_order_of_the_index():
    assert read(pair([2, 3], [0, 1, 2], places=[6, 0])) == [[3, 4], [0, 1, 2]]
    refused(pair([2, 3], [0, 1, 2], places=[6, 0]), "no stream to cut", {"length": "1"})


def test_more_documents_than_a_shard_has():
    lengths = [i % 3 for i in range(10_000)]
    objects = pair(lengths, range(10_001))
    store = MemoryStore(objects)
    found = [rows for _, rows in scanned(Megatron(), store, window=1 << 20)]
    assert [len(rows.keys) for rows in found] == [3333, 3333, 3334]
    assert found[2].keys[0] == "a/00006666"
    assert np.concatenate([rows.columns[0].lengths for rows in found]).tolist() == [2 * n for n in lengths]
    assert len(store.requests) < 12


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=12), st.integers(1, 12))
def test_random_documents_and_windows_come_back(documents, length):
    lengths = [n for document in documents for n in document]
    marks = np.cumsum([0, *(len(document) for document in documents)]).tolist()
    stream = list(range(sum(lengths)))
    sizes = [sum(document) for document in documents]
    ends = np.cumsum([0, *sizes]).tolist()
    assert read(pair(lengths, marks)) == [stream[b:e] for b, e in pairwise(ends)]
    windows = read(pair(lengths, marks), {"length": str(length)})
    assert windows == [stream[i : i + length + 1] for i in range(0, len(stream) - length, length)]


def test_several_pairs_are_one_data_set():
    one = pair([2], [0, 1])
    objects = {f"{name}.{suffix}": one[f"a.{suffix}"] for name in ("x/a", "b") for suffix in ("bin", "idx")}
    assert [key for key, _ in samples(Megatron(), MemoryStore(objects))] == ["b/00000000", "x/a/00000000"]


def test_other_files_are_left_to_others():
    for objects in ({"a.bin": b"12"}, {"a.idx": b"0\t0\n", "a.rec": b"x"}, {}):
        assert Megatron().recognize(listing_of(MemoryStore(objects)), {}) is None


# ---------------------------------------------------------------------------------------------------------- refusals


def test_pairs_that_are_none_are_refused():
    one = pair([2], [0, 1])
    refused({"a.idx": one["a.idx"]}, "there is no 'a.bin'")
    refused({**one, "b.bin": b""}, "no index .* beside it")
    refused({**one, "b.bin": b"", "b.idx": b"text"}, "not an index of a Megatron data set")
    refused({**one, "b.bin": b"1234", "b.idx": index_of([1], [0, 1], code=4, width=4)}, "of int32|of uint16")
    refused({"a.bin": b"", "a.idx": b"TNTIDX\0\0" + bytes(40)}, "older kind")
    for length in ("0", "-1", "many", "9" * 30, "2147483647"):
        with pytest.raises(UsageError):
            read(one, {"length": length})


@pytest.mark.parametrize(
    ("index", "match"),
    [
        (index_of([2], [0, 1], version=2), "version 2"),
        (index_of([2], [0, 1], code=9), "code 9"),
        (index_of([2], [0, 1]) + b"\0", "multimodal"),
        (index_of([2], [0, 1]) + b"\0\0", "and it has"),
        (index_of([2], [0, 1])[:-1], "and it has"),
        (struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, 1 << 62, 1 << 62), "and it has"),
        (index_of([2], []), "0 marks"),
        (index_of([2, 1], [0, 1]), "do not rise"),
        (index_of([2, 1], [1, 2]), "do not rise"),
        (index_of([2, 1], [0, 2, 1, 2]), "do not rise"),
        (index_of([2, 1], [0, -1, 2]), "do not rise"),
        (index_of([2, 1], [0, 99, 2]), "do not rise"),
        (index_of([3], [0, 1], places=[2]), "should be 6 bytes from 2 on"),
        (index_of([-1], [0, 1]), "should be -2 bytes"),
        (index_of([1], [0, 1], places=[-2]), "from -2 on"),
        (index_of([1], [0, 1], places=[(1 << 63) - 1]), "from 9223372036854775807 on"),
        (index_of([(1 << 31) - 1], [0, 1]), "should be 4294967294 bytes"),
        (index_of([1, 1], [0, 2], places=[0, 4]), "sequence 1 does not follow"),
    ],
)
def test_indexes_that_contradict_are_refused(index, match):
    refused({"a.bin": bytes(6), "a.idx": index}, match)


def test_windows_of_an_object_that_the_index_does_not_fill_are_refused():
    refused({"a.bin": bytes(8), "a.idx": index_of([2, 1], [0, 1, 2])}, "speaks of 6 bytes", {"length": "1"})


def test_cut_off_at_every_byte_and_flipped_bits():
    objects = pair([2, 0, 3, 1], [0, 1, 3, 3, 4])
    for name, data in objects.items():
        for length in range(9 if name == "a.idx" else 0, len(data)):
            refused({**objects, name: data[:length]}, "a.(idx|bin)")
    rng, index = random.Random(3), objects["a.idx"]
    for _ in range(150):
        broken = bytearray(index)
        for _ in range(rng.randrange(1, 4)):
            broken[rng.randrange(9, len(index))] = rng.choice([0, 1, 2, 127, 128, 255])
        store = MemoryStore({**objects, "a.idx": bytes(broken)})
        for options in ({}, {"length": "2"}):
            try:
                for _, rows in scanned(Megatron(), store, options):
                    (column,) = rows.columns
                    offsets, lengths = column.extents(np.arange(len(rows.keys)))
                    assert np.all(offsets + lengths <= 12)
            except (FormatError, StorageError):
                pass


def test_an_index_that_changed_since_is_noticed(tmp_path):
    (tmp_path / "a.bin").write_bytes(bytes(6))
    (tmp_path / "a.idx").write_bytes(index_of([2, 1], [0, 1, 2]))
    listing = listing_of(tmp_path)
    (one,) = recognised(Megatron(), listing).objects
    (tmp_path / "a.idx").write_bytes(index_of([3], [0, 1]))
    with pytest.raises(FormatError, match="when it was listed"):
        list(Megatron().scan(ObjectBytes(LocalStore(tmp_path), one.path, one.size), one.about))


# -------------------------------------------------------------------------------------------------------- bare tokens


def bare(objects, **options):
    return [values["tokens"] for _, values in samples(NanoGpt(), MemoryStore(objects), options)]


def test_bare_tokens_are_read_in_windows_as_the_options_say():
    tokens = np.arange(11, dtype="<u2")
    windows = bare({"train.bin": tokens.tobytes()}, dtype="uint16", length="3")
    assert [window.tolist() for window in windows] == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
    assert windows[0].dtype == np.uint16
    assert [w.tolist() for w in bare({"a.bin": np.array([1, 2], "<u4").tobytes()}, dtype="uint32", length="1")] == [
        [1, 2]
    ]
    assert bare({"a.bin": b""}, dtype="uint16", length="3") == []


def test_bare_tokens_are_never_guessed():
    listing = listing_of(MemoryStore({"a.bin": bytes(8)}))
    assert NanoGpt().recognize(listing, {}) is None
    assert NanoGpt().recognize(listing, {"length": "3"}) is None
    assert NanoGpt().recognize(listing_of(MemoryStore(pair([2], [0, 1]))), {"dtype": "uint16", "length": "1"}) is None
    for options in ({"dtype": "uint16"}, {"dtype": "float32", "length": "2"}, {"dtype": "uint16", "length": "0"}):
        with pytest.raises(UsageError):
            bare({"a.bin": bytes(8)}, **options)
    with pytest.raises(UsageError, match=r"nothing says 'dtype'(?s:.*)options=\{'dtype': \.\.\.\}\) \(dtype: of the"):
        recognize(listing, "nanogpt", {"length": "3"})


def test_bare_tokens_that_are_none_are_refused():
    options = {"dtype": "uint16", "length": "1"}
    for objects, match in [
        ({"a.bin": bytes(7)}, "not a multiple of a uint16"),
        ({"a.bin": struct.pack("<2i", 20240520, 1) + bytes(1016)}, "head of llm.c"),
        ({"train.bin": bytes(8), "val.bin": bytes(8)}, "several splits: train.bin, val.bin"),
    ]:
        with pytest.raises(FormatError, match=match):
            bare(objects, **options)
