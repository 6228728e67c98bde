"""numpy's own files: what numpy writes comes back sample by sample, what it should not hold is refused by name."""

import contextlib
import io
import random
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardstream as ss
from shardstream.errors import FormatError, ShardStreamError, StorageError, UsageError
from shardstream.formats.npy import Npy
from shardstream.shards.fields import SCALAR_TYPES
from shardstream.testing import MemoryStore
from tests.formats.scanning import in_memory, listing_of, samples, scanned


def npy(array, **options) -> bytes:
    out = io.BytesIO()
    np.save(out, array, **options)
    return out.getvalue()


def npz(**arrays) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def read(objects, options=None):
    return samples(Npy(), MemoryStore(objects), options)


def refused(objects, match: str, options=None) -> None:
    with pytest.raises(FormatError, match=match):
        read(objects, options)


def header(text: str, body: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + body


# ------------------------------------------------------------------------------------------------------ what is read


def test_an_array_is_a_field_named_after_the_file(tmp_path):
    array = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    np.save(tmp_path / "latent.npy", array)
    for place in (tmp_path, in_memory(tmp_path)):
        found = samples(Npy(), place)
        assert [key for key, _ in found] == [f"latent/{i:08d}" for i in range(4)]
        assert np.array_equal([values["latent"] for _, values in found], array)
    ((_, rows),) = scanned(Npy(), tmp_path)
    assert str(rows.columns[0].type) == "array:float32:3,2"


@pytest.mark.parametrize("dtype", SCALAR_TYPES)
def test_all_dtypes_as_numbers_and_as_arrays(dtype):
    array = np.arange(6).astype(dtype)
    found = read({"a.npz": npz(label=array, image=array.reshape(6, 1, 1).repeat(2, axis=2))})
    assert [values["label"] for _, values in found] == array.tolist()
    assert all(values["image"].tolist() == [[n, n]] for (_, values), n in zip(found, array.tolist(), strict=True))
    assert found[0][1]["image"].dtype == array.dtype


def test_arrays_of_an_npz_are_the_fields_of_a_sample(tmp_path):
    images, labels = np.random.default_rng(1).integers(0, 255, (9000, 2, 2), np.uint8), np.arange(9000)
    np.savez(tmp_path / "train.npz", x=images, y=labels)
    for place in (tmp_path, in_memory(tmp_path)):
        pieces = [rows for _, rows in scanned(Npy(), place)]
        assert [len(rows.keys) for rows in pieces] == [3000] * 3
    found = samples(Npy(), tmp_path)
    assert np.array_equal([values["x"] for _, values in found], images)
    assert [values["y"] for _, values in found] == labels.tolist()


def test_npz_files_are_shards_where_that_is_said():
    objects = {f"s-{i}.npz": npz(x=np.full((2, 3), i)) for i in range(3)} | {"README.md": b"x"}
    refused(objects, "there are 3 .npz files: s-0.npz, s-1.npz, s-2.npz")
    assert [values["x"][0] for _, values in read(objects, {"files": "shards"})] == [0, 0, 1, 1, 2, 2]
    with pytest.raises(UsageError, match="not known"):
        read(objects, {"files": "many"})


def test_versions_of_the_header_and_one_dimension_in_fortran_order():
    for version in ((1, 0), (2, 0), (3, 0)):
        out = io.BytesIO()
        np.lib.format.write_array(out, np.array([5, 6]), version=version)
        assert [values["a"] for _, values in read({"a.npy": out.getvalue()})] == [5, 6]
    text = "{'descr': '<i2', 'fortran_order': True, 'shape': (2,), }\n"
    assert [values["a"] for _, values in read({"a.npy": header(text, b"\1\0\2\0")})] == [1, 2]


def test_no_samples_are_none():
    assert read({"a.npy": npy(np.zeros((0, 3)))}) == []
    assert read({"a.npz": npz(x=np.zeros(0), y=np.zeros((0, 2)))}) == []


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(1, 3), max_size=3), st.integers(0, 7), st.sampled_from(["int16", "float64", "uint8", "bool"])
)
def test_random_shapes_come_back(shape, count, dtype):
    array = np.random.default_rng(0).integers(0, 2, (count, *shape)).astype(dtype)
    for objects in ({"a.npy": npy(array)}, {"b.npz": npz(a=array)}):
        assert np.array_equal([values["a"] for _, values in read(objects)], array if count else [])


def test_other_files_are_left_to_others():
    for objects in ({"a.npy": b"version https://git-lfs"}, {"a.npy": npy(np.ones(1)), "a.jpg": b"x"}, {"a.zip": npz()}):
        assert Npy().recognize(listing_of(MemoryStore(objects)), {}) is None


# ---------------------------------------------------------------------------------------------------------- refusals


def test_several_npy_files_are_refused():
    refused({"x.npy": npy(np.ones(2)), "y.npy": npy(np.ones(2))}, "2 files: x.npy, y.npy")
    refused({"x.npy": npy(np.ones((2, 3))), "y.npy": npy(np.ones((2, 3)))}, "2 files: x.npy, y.npy")
    refused({"x.npy": npy(np.ones((2, 3))), "y.npy": npy(np.ones(3))}, "2 files: x.npy, y.npy")
    refused({"x.npy": npy(np.ones((2, 3))), "y.npy": b"no array"}, "2 files: x.npy, y.npy")


def beside(folder):
    folder.mkdir()
    vectors, ids = np.arange(12, dtype=np.float32).reshape(4, 3), np.arange(4) * 10
    for name, array in {"train_ids": ids, "train_emb": vectors, "train_cls": ids % 3, "test_emb": vectors[:2]}.items():
        np.save(folder / f"{name}.npy", array)
    return [
        {"train_emb": list(row), "train_ids": one, "train_cls": one % 3} for row, one in zip(vectors, ids, strict=True)
    ]


def samples_of(place, **options):
    rows = [{name: one[name] for name in one if not name.startswith("__")} for one in ss.Reader(place, **options)]
    return [{name: list(v) if np.ndim(v) else v for name, v in row.items()} for row in rows]


def test_arrays_of_one_length_side_by_side_are_fields_of_the_same_samples(tmp_path):
    expected = beside(tmp_path / "data")
    assert samples_of(f"{tmp_path}/data/train_*.npy") == expected
    with pytest.raises(FormatError, match=r"4 files.*\n.*a pattern of those"):
        ss.Reader(tmp_path / "data")
    (tmp_path / "data/test_emb.npy").unlink()
    assert samples_of(tmp_path / "data") == expected
    ss.pack(tmp_path / "data", tmp_path / "out", workers=0, shuffle=False)
    assert samples_of(tmp_path / "out") == expected
    np.save(tmp_path / "data/train_ids.npy", np.arange(4) * 11)
    assert [one["train_ids"] for one in samples_of(tmp_path / "data")] == [0, 11, 22, 33]


def test_arrays_that_may_be_a_sample_each_are_packed_so(tmp_path):
    for i in range(3):
        (tmp_path / "waves").mkdir(exist_ok=True)
        np.save(tmp_path / f"waves/{i}.npy", np.full(9, i))
    assert ss.pack(tmp_path / "waves", tmp_path / "out", workers=0).samples == 3


def raw(**options):
    return {"reading": ss.SourceOptions(format="memmap", options=options)}


def test_raw_arrays_are_read_and_packed_as_options_say(tmp_path):
    array = np.arange(12, dtype="<f2").reshape(4, 3)
    for name in ("a.dat", "b.dat"):
        np.memmap(tmp_path / name, array.dtype, "w+", shape=array.shape)[:] = array
    for shape in ("4,3", "(4, 3)", "-1,3"):
        assert samples_of(tmp_path / "a.dat", **raw(dtype="float16", shape=shape)) == [
            {"a": list(row)} for row in array
        ]
    both = raw(dtype="float16", shape="-1,3", field="emb")
    ss.pack(f"{tmp_path}/*.dat", tmp_path / "out", workers=0, shuffle=False, **both)
    assert samples_of(tmp_path / "out") == [{"emb": list(row)} for row in array] * 2
    assert ss.Manifest.load(tmp_path / "out").fields["emb"].name == "array:float16:3"
    assert [one["a"] for one in samples_of(tmp_path / "a.dat", **raw(dtype="int16", shape="-1"))] == list(
        array.view("<i2").ravel()
    )


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"dtype": "float16"}, "nothing says 'shape'"),
        ({"dtype": "float16", "shape": "5,3"}, "24 bytes are not 5 samples of 6 bytes"),
        ({"dtype": "float16", "shape": "-1,5"}, "24 bytes are not samples of 10 bytes"),
        ({"dtype": "flat16", "shape": "4,3"}, "there is no such array"),
        ({"dtype": "float16", "shape": "4 x 3"}, "there is no such array"),
        ({"dtype": ">f2", "shape": "4,3"}, "little-endian"),
        ({"dtype": "complex64", "shape": "3"}, "there is no such array|cannot be read"),
    ],
)
def test_raw_arrays_of_other_shapes_are_an_error(options, match, tmp_path):
    (tmp_path / "a.dat").write_bytes(bytes(24))
    with pytest.raises(ShardStreamError, match=f"(?s){match}"):
        ss.Reader(tmp_path / "a.dat", **raw(**options))


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (npy(np.array([{}, 1], object), allow_pickle=True), "cannot be read: an NPY file of Python objects"),
        (npy(np.zeros(2, [("a", "<i4")])), "an NPY file of"),
        (npy(np.zeros((2, 2), ">f4")), "big-endian"),
        (npy(np.zeros(2, ">f4")), "big-endian"),
        (npy(np.zeros((2, 2), order="F")), "Fortran order"),
        (npy(np.zeros(2, "c8")), "array of complex64"),
        (npy(np.zeros(2, "U3")), "array of str"),
        (npy(np.zeros(2, "M8[s]")), "array of datetime64"),
        (npy(np.float32(1)), "single value"),
        (npy(np.zeros((2, 0))), "empty"),
        (npy(np.zeros((10**15, 0))), "empty"),
        (npy(np.zeros(2)) + b"\0", "1 bytes after the array"),
        (header("{'descr': '<i4', 'fortran_order': False, 'shape': (1000000000000000,), }"), "announces"),
        (header("{'descr': '<i4', 'fortran_order': False, 'shape': (-1,), }"), "shape"),
        (header("{'descr': '<i4', 'fortran_order': False, 'shape': (1, 99999999999), }"), "unknown field type|large"),
        (header("{'descr': '<i4', 'fortran_order': False, 'shape': (1, 4294967295), }"), "too large"),
        (header("{'descr': __import__('os').system('false'), 'fortran_order': False, 'shape': (1,), }"), "malformed"),
        (header("(" * 900), "malformed"),
        (b"\x93NUMPY\x01\x00\xff\xff" + bytes(70000), "header of version 1 and 65535"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(100), "header of version 2 and 4294967295"),
        (b"\x93NUMPY\x07\x00\x00\x00" + bytes(100), "header of version 7"),
        (b"\x93NUMPY\x01", "not an NPY file"),
        (npy(np.zeros(2, bool))[:-1] + b"\2", "neither true nor false"),
    ],
)
def test_arrays_that_cannot_be_read_are_refused(data, match):
    refused({"a.npy": data}, match)


def test_whole_samples_before_a_cut_are_kept():
    data = npy(np.arange(12, dtype="<i4").reshape(4, 3))
    ((_, rows),) = scanned(Npy(), MemoryStore({"a.npy": data[:-13]}))
    assert len(rows.keys) == 2
    assert "announces 13 bytes more: 2 of 4 samples are lost" in str(rows.damage)


def test_archives_that_cannot_be_read_are_refused():
    out = io.BytesIO()
    np.savez_compressed(out, x=np.zeros(9))
    refused({"a.npz": out.getvalue()}, r"(?s)compressed \(deflate\).*numpy.savez")
    refused({"a.npz": npz(x_train=np.ones(3), x_test=np.ones(2))}, "x_train 3, x_test 2")
    refused({"a.npz": npz(x=np.ones(3), scale=np.float32(2))}, "'scale' is a single value")
    refused({"a.npz": npz(x=np.ones(3)).replace(b"x.npy", b"x.txt")}, "not an array")
    refused({"a.npz": npz(**{"a b": np.ones(3), "a_b": np.ones(3)})}, "two that become the field 'a_b'")
    refused({"a.npz": npz(x=np.array([{}], object))}, "Python objects")
    inner = npy(np.ones(3))
    refused({"a.npz": npz(x=np.ones(3)).replace(inner, inner.replace(b"(3,)", b"(4,)"))}, "8 bytes more")


def test_cut_off_and_flipped_bits(tmp_path):
    files = {
        "a.npy": npy(np.arange(6, dtype="<i2").reshape(3, 2)),
        "a.npz": npz(x=np.arange(3), y=np.ones((3, 2), bool)),
    }
    rng = random.Random(5)
    for name, data in files.items():
        for length in range(8, len(data), 5):
            with contextlib.suppress(FormatError):
                list(scanned(Npy(), MemoryStore({name: data[:length]})))
        (tmp_path / name[-3:]).mkdir()
        for _ in range(80):
            broken = bytearray(data)
            for _ in range(rng.randrange(1, 4)):
                broken[rng.randrange(6, min(len(data), 150))] = rng.choice([0, 32, 40, 48, 57, 255])
            (tmp_path / name[-3:] / name).write_bytes(broken)
            try:
                for _, rows in scanned(Npy(), tmp_path / name[-3:]):
                    for column in rows.columns:
                        if column.values is None:
                            offsets, lengths = column.extents(np.arange(len(rows.keys)))
                            assert np.all(offsets + lengths <= len(data))
            except (FormatError, StorageError):
                pass


def test_an_object_that_is_not_mapped_is_not_read_for_its_places():
    store = MemoryStore({"a.npz": npz(x=np.zeros((100_000, 8)))})
    listing = listing_of(store)
    before = len(store.requests)
    assert sum(len(rows.keys) for _, rows in scanned(Npy(), store, window=Npy.window)) == 100_000
    assert len(store.requests) - before < 8
    assert listing.objects[0].size > 6_000_000
