"""LMDB databases in place: against the package lmdb, in each layout, and from damaged and hostile files."""

from __future__ import annotations

import json
import pickle
import random
import struct
from pathlib import Path
from typing import Any

import lmdb
import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardstream.errors import FormatError
from shardstream.formats.lmdb.format import LmdbFormat
from shardstream.formats.lmdb.forms import packed_array as packed_array_form
from shardstream.formats.lmdb.forms import pickled_array, pickled_json
from shardstream.formats.lmdb.pages import Pages
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.shards.arrays import npy_array
from shardstream.storage.local.store import LocalStore

from .lmdb_making import PNG, content, datum, folder_of, jpeg, packed_array, write
from .scanning import in_memory, listing_of, recognised, samples, scanned

FORMAT = LmdbFormat()


def read(place: Path, **options: str) -> list[tuple[str, dict[str, Any]]]:
    """The samples, which are the same from a store that is mapped and one that is not."""
    found = samples(FORMAT, place, options)
    assert repr(samples(FORMAT, in_memory(place), options)) == repr(found)
    return found


def refused(place: Path, match: str, **options: str) -> FormatError:
    with pytest.raises(FormatError, match=match) as error:
        samples(FORMAT, place, options)
    assert error.value.hint
    assert "offset" in error.value.place
    return error.value


# ----------------------------------------------------------------------------------------------------------- the B-tree


def test_entries_are_those_of_the_package(tmp_path: Path) -> None:
    """Deep trees, large values, empty ones, keys that were deleted or written again, over several transactions."""
    choose = random.Random(1)
    place = tmp_path / "in"
    with lmdb.open(str(place), map_size=1 << 26) as environment:
        for turn in range(6):
            with environment.begin(write=True) as change:
                for _ in range(700):
                    key = b"%d" % choose.randrange(2500) * choose.choice((1, 1, 40))
                    size = choose.choice((0, 1, 30, 300, 2000, 2030, 5000, 20000)) if turn % 2 else 40
                    change.put(key, choose.randbytes(size)) if choose.random() < 0.8 else change.delete(key)
    expected = content(place)
    store = LocalStore(place)
    for one in (store, in_memory(place)):
        data = ObjectBytes(one, "data.mdb", one.size("data.mdb"), window=4096)
        pages = Pages(data)
        assert pages.main.depth >= 3
        found = {}
        for some in pages.entries(pages.main):
            for key, offset, length in zip(some.keys, some.offsets.tolist(), some.lengths.tolist(), strict=True):
                found[key] = bytes(data.get(offset, length))
        assert found == expected
        assert list(found) == list(expected)
        for key in [*choose.sample(sorted(expected), 50), b"none", b"", b"\xff"]:
            place_of = pages.find(pages.main, key)
            assert (place_of and bytes(data.get(*place_of))) == expected.get(key)
        start = sorted(expected)[700] + b"\0"
        rest = [key for some in pages.entries(pages.main, start) for key in some.keys]
        assert rest == [key for key in expected if key >= start]


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.binary(min_size=1, max_size=60), st.binary(max_size=3000), max_size=60))
def test_random_entries(entries: dict[bytes, bytes]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        place = write(Path(folder) / "in", entries)
        store = LocalStore(place)
        data = ObjectBytes(store, "data.mdb", store.size("data.mdb"))
        pages = Pages(data)
        found = [
            (key, bytes(data.get(offset, length)))
            for some in pages.entries(pages.main)
            for key, offset, length in zip(some.keys, some.offsets.tolist(), some.lengths.tolist(), strict=True)
        ]
        assert found == sorted(entries.items())


def test_a_remote_database_is_read_by_its_pages(tmp_path: Path) -> None:
    place = write(tmp_path / "in", {b"%05d" % i: jpeg(i, 20_000) for i in range(300)})
    store = in_memory(place)
    rows = [rows for _, rows in scanned(FORMAT, store)]
    assert sum(len(one.keys) for one in rows) == 300
    ranges = [one for one in store.requests if one.kind == "open"]
    assert len(ranges) < 50
    assert sum((one.stop or 0) - one.start for one in ranges) < store.size("data.mdb") / 5


def test_many_entries_come_in_pieces(tmp_path: Path) -> None:
    place = write(tmp_path / "in", {b"%05d" % i: jpeg(i, 10) for i in range(9000)})
    rows = [rows for _, rows in scanned(FORMAT, place)]
    assert [len(one.keys) for one in rows] == [4096, 4096, 808]
    assert [key for one in rows for key in one.keys] == [f"{i:05d}" for i in range(9000)]


def test_named_databases(tmp_path: Path) -> None:
    place = tmp_path / "in"
    for name in (b"train", b"val"):
        write(place, {b"%s%d" % (name, i): jpeg(i) for i in range(5)}, db=name)
    refused(place, "named databases: train, val")
    assert [key for key, _ in read(place, db="val")] == [f"val{i}" for i in range(5)]
    refused(place, "no database 'test'", db="test")
    assert read(place, db="") == []
    write(place, {b"a": jpeg(1)})
    refused(place, "named databases")
    assert read(place, db="") == [("a", {"jpg": jpeg(1)})]


def test_several_values_a_key_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "in", {b"a": b"1"}, db=b"twice", dupsort=True)
    refused(tmp_path / "in", "DUPSORT", db="twice")


def test_keys_that_are_integers(tmp_path: Path) -> None:
    write(tmp_path / "a", {struct.pack("=Q", i): jpeg(i) for i in (3, 256, 70000)}, db=b"n", integerkey=True)
    assert [key for key, _ in read(tmp_path / "a", db="n")] == ["3", "256", "70000"]
    for order in "<>":
        place = write(tmp_path / f"b{ord(order)}", {struct.pack(f"{order}Q", i): b"v%d" % i for i in (0, 3, 256)})
        assert dict(read(place)) == {str(i): {"bin": b"v%d" % i} for i in (0, 3, 256)}


def test_an_empty_database(tmp_path: Path) -> None:
    assert read(write(tmp_path / "in", {})) == []


# ---------------------------------------------------------------------------------------------------------- recognition


def test_folders_files_and_what_is_beside(tmp_path: Path) -> None:
    write(tmp_path / "a.lmdb", {b"x": jpeg(1)}, folder=False)
    write(tmp_path / "b", {b"x": jpeg(2)})
    found = recognised(FORMAT, listing_of(tmp_path))
    assert [one.path for one in found.objects] == ["a.lmdb", "b/data.mdb"]
    assert read(tmp_path) == [("a/x", {"jpg": jpeg(1)}), ("b/x", {"jpg": jpeg(2)})]
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "set").write_bytes((tmp_path / "a.lmdb").read_bytes())
    assert read(tmp_path / "only") == [("x", {"jpg": jpeg(1)})]


def test_other_files_are_not_claimed(tmp_path: Path) -> None:
    place = folder_of(tmp_path / "in", ("a.mdb", b"\0\1\0\0Standard Jet DB" + bytes(5000)), ("b.jpg", jpeg(1)))
    assert FORMAT.recognize(listing_of(place), {}) is None


def test_databases_of_other_machines_and_versions(tmp_path: Path) -> None:
    data = bytearray((write(tmp_path / "in", {b"a": b"b"}) / "data.mdb").read_bytes())

    def changed(at: int, new: bytes) -> Path:
        return folder_of(tmp_path / "out", ("data.mdb", bytes(data[:at] + new + data[at + len(new) :])))

    refused(changed(16, b"\xbe\xef\xc0\xde"), "big-endian")
    refused(changed(12, b"\xde\xc0\xef\xbe" + bytes(4)), "32-bit")
    refused(changed(20, b"\2"), "version 2")
    refused(changed(40, struct.pack("<I", 4000)), "did not write")
    refused(changed(4096 + 40, struct.pack("<I", 8192)), "did not write|pages of")
    refused(changed(16, b"oops"), "not an LMDB database")


# -------------------------------------------------------------------------------------------------------------- layouts


def test_a_file_a_value(tmp_path: Path) -> None:
    place = write(tmp_path / "a", {b"n01/%03d.jpg" % i: jpeg(i) for i in range(30)} | {b"length": b"30"})
    assert read(place) == [(f"n01/{i:03d}", {"jpg": jpeg(i)}) for i in range(30)]
    place = write(tmp_path / "b", {b"a": jpeg(1), b"a.jpg": jpeg(2), b"a.png": PNG, b"b.png": PNG, b"b-.jpg": jpeg(3)})
    assert [key for key, _ in read(place)] == ["a", "a.jpg", "a.png", "b-.jpg", "b.png"]
    place = write(tmp_path / "c", {b"a.jpg": jpeg(2), b"a.png": PNG, b"b.png": PNG})
    assert read(place) == [("a", {"jpg": jpeg(2)}), ("a.png", {"jpg": PNG}), ("b", {"jpg": PNG})]


def test_the_list_of_basicsr(tmp_path: Path) -> None:
    place = write(tmp_path / "gt.lmdb", {b"0001_s%03d" % i: PNG for i in range(3)})
    lines = "".join(f"0001_s{i:03d}.png (480,480,3) 1\n" for i in range(3))
    (place / "meta_info.txt").write_text(lines)
    assert read(place) == [(f"0001_s{i:03d}", {"png": PNG}) for i in range(3)]
    (place / "meta_info.txt").write_text(lines + "more.png (1,1,3) 1\n")
    refused(place, "lists 4 images, and there are 3")


def numbered(count: int) -> dict[bytes, bytes]:
    images = {b"image-%09d" % i: jpeg(i) for i in range(1, count + 1)}
    labels = {b"label-%09d" % i: f"wört {i}".encode() for i in range(1, count + 1)}
    return images | labels | {b"num-samples": b"%d" % count}


def test_text_recognition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardstream.formats.lmdb.files.PIECE", 100)
    place = write(tmp_path / "in", numbered(450))
    assert read(place) == [(f"{i:09d}", {"jpg": jpeg(i), "txt": f"wört {i}"}) for i in range(1, 451)]
    assert [len(rows.keys) for _, rows in scanned(FORMAT, place)] == [100, 100, 100, 100, 50]
    entries = {key: value for key, value in numbered(4).items() if not key.startswith(b"label")}
    assert [sorted(one) for _, one in read(write(tmp_path / "b", entries))] == [["jpg"]] * 4
    more = numbered(4) | {b"image_hr-%09d" % i: PNG for i in range(1, 5)} | {b"note": b"x"}
    assert read(write(tmp_path / "c", more))[3] == ("000000004", {"image_hr": PNG, "jpg": jpeg(4), "txt": "wört 4"})


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({b"num-samples": b"5"}, "says b'5', and there are 4"),
        ({b"num-samples": b"many"}, "says b'many'"),
        ({b"label-000000003": None}, "no label-000000003"),
        ({b"image-000000003": None}, "no image-000000003"),
        ({b"label-000000005": b"x"}, "no image-000000005"),
        ({b"image-12": b"x"}, "image-12 is not numbered"),
    ],
)
def test_counts_of_text_recognition_agree(tmp_path: Path, change: dict[bytes, Any], match: str) -> None:
    entries = {key: value for key, value in (numbered(4) | change).items() if value is not None}
    refused(write(tmp_path / "in", entries), match)


def dumps(encoding: str, value: Any) -> bytes:
    if encoding == "msgpack":
        return bytes(msgpack.packb(value, default=packed_array))
    if encoding == "raw msgpack":
        return bytes(msgpack.packb(value, default=packed_array, use_bin_type=False))
    return pickle.dumps(value, int(encoding))


ENCODINGS = ["2", "3", "4", "5", "msgpack", "raw msgpack"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_images_and_labels(tmp_path: Path, encoding: str) -> None:
    """As ``folder2lmdb`` writes them, and tensorpack: in the order of ``__keys__``, which is not that of the tree."""
    keys = [b"%d" % i for i in range(25)]
    extra = {
        b"__keys__": dumps(encoding, keys),
        b"__len__": dumps(encoding, 25),
        b"classes": dumps(encoding, ["a", "b"]),
    }
    expected = [(f"{i}", {"jpg": jpeg(i), "cls": i % 2}) for i in range(25)]
    values = {key: dumps(encoding, (jpeg(i), i % 2)) for i, key in enumerate(keys)}
    place = write(tmp_path / "a", values | extra)
    assert read(place) == expected
    assert recognised(FORMAT, listing_of(place)).classes == ("a", "b")
    values = {key: dumps(encoding, [np.frombuffer(jpeg(i), np.uint8), i % 2]) for i, key in enumerate(keys)}
    extra = {b"__keys__": dumps(encoding, [f"{i}" for i in range(25)])}
    assert read(write(tmp_path / "b", values | extra)) == expected


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_parts_of_samples(tmp_path: Path, encoding: str) -> None:
    def sample(i: int) -> dict[str, Any]:
        return {
            "image": jpeg(i), "label": i, "score": i / 4, "ok": i % 2 == 0, "text": f"ä{i}",
            "boxes": [[1, 2.5], [i, 4]],
            "feature": np.arange(6, dtype=np.float32).reshape(2, 3) + i, "mask": np.full((1, i % 3), i, np.int16),
            "none": None, "meta": {"w": i}, "big": np.arange(3, dtype=">i4"),
        }  # fmt: skip

    place = write(tmp_path / "in", {b"%02d" % i: dumps(encoding, sample(i)) for i in range(20)})
    kinds = {one.name: one.type.name for _, rows in scanned(FORMAT, place) for one in rows.columns}
    nested = "msgpack" if "msgpack" in encoding else "json"
    assert kinds == {
        "image": "jpg", "cls": "int64", "score": "float64", "ok": "bool", "text": "str",
        "boxes": nested, "meta": nested,
        "feature": "array" if encoding == "2" else "array:float32:2,3", "mask": "array", "big": "array",
    }  # fmt: skip
    for i, (key, found) in enumerate(read(place)):
        expected = sample(i)
        expected["cls"] = expected.pop("label")
        del expected["none"]
        assert key == f"{i:02d}"
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value) if name != "meta" else None
        assert found["meta"] == expected["meta"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_values_that_are_one_thing(tmp_path: Path, encoding: str) -> None:
    for number, (name, value) in enumerate(
        {"txt": "a word", "jpg": jpeg(1), "value": 7, "bin": b"\0\xff" * 20}.items()
    ):
        if (encoding, name) == ("raw msgpack", "bin"):
            continue
        keys = dumps(encoding, [b"a", b"b"])
        entries = {b"a": dumps(encoding, value), b"b": dumps(encoding, value), b"__keys__": keys}
        assert read(write(tmp_path / f"{number}", entries)) == [("a", {name: value}), ("b", {name: value})]


PLAIN = st.recursive(
    st.sampled_from([None, True, False, "", "ä€😀", "x" * 300, 1.5, -0.0]) | st.integers(-(1 << 63), (1 << 63) - 1),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from("abcä"), inner, max_size=5),
    max_leaves=12,
)


@settings(max_examples=30, deadline=None)
@given(st.lists(PLAIN, max_size=8), st.sampled_from([2, 3, 4, 5]))
def test_random_plain_values(value: list[Any], protocol: int) -> None:
    assert json.loads(pickled_json(memoryview(pickle.dumps(value, protocol)), "")) == value


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["?", "u1", "<i2", ">i4", "<u8", "<f2", ">f8", "<c8"]),
    st.lists(st.integers(0, 5), min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from(["2", "3", "4", "5", "msgpack", "raw msgpack"]),
)
def test_random_arrays(dtype: str, shape: list[int], fortran: bool, encoding: str) -> None:
    values = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    array = np.asfortranarray(values) if fortran and "msgpack" not in encoding else values
    form = packed_array_form if "msgpack" in encoding else pickled_array
    for value, place in ((array, ""), ({"a": 1, "b": array}, "/b"), (["x", array], "/1")):
        found = npy_array(memoryview(form(memoryview(dumps(encoding, value)), place)))
        np.testing.assert_array_equal(found, values)
        assert found.dtype == values.dtype.newbyteorder("=")


def test_pickles_of_old_pythons(tmp_path: Path) -> None:
    """Strings of Python 2, which are bytes, and numpy 1's names."""
    jpg = jpeg(3, 300)
    value = b"\x80\x02]q\x00(T" + struct.pack("<I", len(jpg)) + jpg + b"q\x01K\x07U\x03catq\x02e."
    assert read(write(tmp_path / "a", {b"a": value})) == [("a", {"jpg": jpg, "cls": 7, "2": b"cat"})]
    value = pickle.dumps({"x": np.arange(4)}, 4)
    value = value.replace(b"\x16numpy._core.multiarray", b"\x15numpy.core.multiarray")
    found = read(write(tmp_path / "b", {b"a": value.replace(value[2:11], b"", 1)}))
    np.testing.assert_array_equal(found[0][1]["x"], np.arange(4))


def test_keys_and_lengths_that_contradict(tmp_path: Path) -> None:
    values = {b"a": pickle.dumps((jpeg(1), 1)), b"b": pickle.dumps((jpeg(2), 2))}
    refused(write(tmp_path / "a", values | {b"__len__": pickle.dumps(3)}), "__len__ says 3, and there are 2")
    for number, keys in enumerate(([b"a", b"c"], [b"b", b"c", b"a"])):
        refused(write(tmp_path / f"b{number}", values | {b"__keys__": pickle.dumps(keys)}), "no such entry")
    refused(write(tmp_path / "c", values | {b"__keys__": pickle.dumps([b"b", b"a", b"b"])}), "twice")
    refused(write(tmp_path / "d", values | {b"__keys__": pickle.dumps([1, 2])}), "not a list of keys")
    assert len(read(write(tmp_path / "e", values | {b"__keys__": pickle.dumps([b"b"]), b"__len__": b"1"}))) == 1


def test_pyarrow_is_refused_by_name(tmp_path: Path) -> None:
    new = struct.pack("<4i", 0, 0, 0, 1) + b"\xff\xff\xff\xff" + bytes(200)
    old = struct.pack("<4i", 0, 0, 0, 1) + struct.pack("<I", 300) + bytes(400)
    for number, value in enumerate((new, old)):
        place = write(tmp_path / f"{number}", {b"0": value, b"__keys__": value, b"__len__": value})
        assert "pyarrow.deserialize" in str(refused(place, r"pyarrow\.serialize").hint)


def test_datums(tmp_path: Path) -> None:
    place = write(tmp_path / "a", {b"%08d_n/x.jpg" % i: datum(jpeg(i), label=i - 2, encoded=True) for i in range(20)})
    assert read(place) == [(f"{i:08d}_n/x", {"jpg": jpeg(i), "cls": i - 2}) for i in range(20)]
    planes = [np.random.default_rng(i).integers(0, 256, (3, 4 + i % 2, 5), np.uint8) for i in range(20)]
    place = write(tmp_path / "b", {b"%08d" % i: datum(p.tobytes(), p.shape, i) for i, p in enumerate(planes)})
    for (_, found), one in zip(read(place), planes, strict=True):
        np.testing.assert_array_equal(found["image"], one[::-1].transpose(1, 2, 0))
    gray = np.arange(20, dtype=np.uint8).reshape(1, 4, 5)
    ((_, found),) = read(write(tmp_path / "c", {b"a": datum(gray.tobytes(), gray.shape)}))
    np.testing.assert_array_equal(found["image"], gray.reshape(4, 5, 1))
    for packed in (True, False):
        value = datum(shape=(6, 1, 1), label=3, floats=np.arange(6) / 2, packed=packed)
        ((_, found),) = read(write(tmp_path / f"d{packed}", {b"a": value}))
        assert found["cls"] == 3
        np.testing.assert_array_equal(found["data"], (np.arange(6) / 2).reshape(6, 1, 1))


def test_anything_else_is_bytes(tmp_path: Path) -> None:
    entries = {b"a": b"text", b"b": b"", b"c/d": bytes(9000)}
    assert read(write(tmp_path / "a", entries)) == [(key.decode(), {"bin": value}) for key, value in entries.items()]
    refused(write(tmp_path / "b", {b"\xff\xfe\x01": b"?"}), "layout is not known")
