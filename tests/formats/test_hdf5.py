"""HDF5: what h5py writes comes back sample by sample; links, outside files and what is unknown are refused by name."""

import io
import random
from contextlib import suppress

import h5py
import numpy as np
import pytest

from shardstream.errors import DataError, FormatError
from shardstream.formats.contract import ObjectListing, shown
from shardstream.formats.hdf5.format import Hdf5
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.testing import MemoryStore
from tests.formats.catalog.making import jpeg
from tests.formats.damaging import check_column, flipped
from tests.formats.scanning import in_memory, listing_of, samples

ROWS = 50
DRAW = np.random.default_rng(0)


def file_of(write) -> bytes:
    """The bytes of a file that ``write`` fills."""
    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        write(file)
    return out.getvalue()


def read(data: bytes, chosen=None, options=None):
    store = MemoryStore({"a.h5": data})
    listing = ObjectListing(store, list(store.list()), chosen=chosen)
    found = Hdf5().recognize(listing, options or {})
    assert found is not None
    out = []
    inflated, shown_data, _ = shown(Hdf5(), store, found.objects[0])
    for rows in Hdf5().scan(shown_data, found.objects[0].about):
        for column in rows.columns:
            check_column(column, len(rows.keys), shown_data.size)
        out.append((inflated, rows))
    return out


def refused(write, match: str, chosen=None) -> None:
    with pytest.raises(FormatError, match=match):
        read(file_of(write), chosen)


def put(file, name, data, **how):
    file.create_dataset(name, data=data, **how)


def whole(file) -> None:
    """A data set of each kind."""
    pictures = DRAW.integers(0, 255, (ROWS, 6, 5, 3)).astype(np.uint8)
    put(file, "plain", pictures)
    put(file, "chunks", pictures, chunks=(7, 6, 5, 3))
    put(file, "gzip", pictures, chunks=(7, 6, 5, 3), compression="gzip", shuffle=True, fletcher32=True)
    put(file, "checked", pictures, chunks=(7, 6, 5, 3), fletcher32=True)
    put(file, "parts/gzip", pictures.astype(np.int32), chunks=(7, 4, 2, 2), compression="gzip", shuffle=True)
    put(file, "parts/plain", pictures.astype(np.float32), chunks=(20, 4, 2, 2))
    put(file, "lzf", pictures // 64, chunks=(3, 6, 5, 3), compression="lzf", shuffle=True)
    put(file, "lzf_noise", pictures, chunks=(3, 6, 5, 3), compression="lzf")  # its filter is left out, chunk by chunk
    put(file, "large_chunks", pictures, chunks=(80, 6, 5, 3), maxshape=(None, 6, 5, 3))
    put(file, "label", np.arange(ROWS) % 7)
    put(file, "label_gzip", (np.arange(ROWS) % 7).astype(np.int16), chunks=(16,), compression="gzip")
    put(file, "big/number", np.arange(ROWS).astype(">f8"))
    put(file, "big/gzip", np.arange(ROWS).astype(">u2"), chunks=(16,), compression="gzip")
    put(file, "big/array", pictures.astype(">i4"))
    put(file, "big/array_gzip", pictures.astype(">f4"), chunks=(7, 4, 2, 3), compression="gzip", shuffle=True)
    put(file, "bool", np.arange(ROWS) % 3 == 0)
    put(file, "bools", pictures % 2 == 0)
    put(file, "half", pictures[:, 0, 0].astype(np.float16))
    put(file, "enum", np.arange(ROWS) % 2, dtype=h5py.enum_dtype({"a": 0, "b": 1}, basetype="i1"))
    put(file, "text", [f"{row}é" * (row % 3) for row in range(ROWS)], dtype=h5py.string_dtype())
    put(file, "ascii", np.array([b"x" * (row % 4) for row in range(ROWS)], "S5"))
    put(file, "ascii_gzip", np.array([b"x" * (row % 4) for row in range(ROWS)], "S5"), compression="gzip")
    kind = np.dtype([("n", "<i4"), ("big", ">f8"), ("v", "<i2", 2), ("inner", [("t", "S3")])])
    put(file, "struct", np.array([(i, i / 2, [i, i + 1], (b"ab",)) for i in range(ROWS)], kind))
    never = file.create_dataset("never", (ROWS, 5), ">f4", chunks=(8, 5), fillvalue=3)
    never[9:12] = 7
    file.create_dataset("nowhere", (ROWS, 2), "f4", fillvalue=2)
    file.create_dataset("nothing", (ROWS,), "i8", chunks=(8,))
    picture = file.create_dataset("picture", (ROWS,), h5py.vlen_dtype(np.uint8))
    lists = file.create_dataset("lists", (ROWS,), h5py.vlen_dtype(np.float32), chunks=(16,), compression="gzip")
    for row in range(ROWS):
        picture[row] = np.frombuffer(jpeg(row % 3), np.uint8)
        lists[row] = np.arange(row % 5, dtype=np.float32)
    file["version"] = 3  # of nothing in particular
    file["empty"] = h5py.Empty("f4")


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hdf5")
    with h5py.File(folder / "every.h5", "w") as file:
        whole(file)
    return folder


def expected(file, name, row):
    path = name.replace(".", "/", 1) if name.startswith(("big.", "parts.")) else name
    if name.startswith("struct."):
        value = file["struct"][row]
        for part in name.split(".")[1:]:
            value = value[part]
    else:
        value = file[path][row]
    return value.decode() if isinstance(value, bytes) else value


# ------------------------------------------------------------------------------------------------------ what is read

VALUES = {
    "int64": np.arange(1, 8),
    "big": np.arange(1, 8).astype(">f4"),
    "rows": np.arange(1, 22).reshape(7, 3).astype(np.uint16),
    "big_rows": np.arange(1, 22).reshape(7, 3).astype(">i4"),
    "bool": np.arange(7) % 2 == 0,
    "bytes": np.array([b"x" * (row % 4) for row in range(7)], "S4"),
    "text": np.array([f"{row}é" for row in range(7)], h5py.string_dtype()),
    "struct": np.array([(row, [row, 1]) for row in range(7)], np.dtype([("n", "<i4"), ("v", "<f4", 2)])),
}
LAYOUTS = {"contiguous": h5py.h5d.CONTIGUOUS, "chunked": h5py.h5d.CHUNKED, "compact": h5py.h5d.COMPACT}


def lay_out(file, name, values, layout, *, fill, attributes, written=True) -> None:
    """A data set as low-level calls of h5py make it."""
    kind = h5py.h5t.py_create(values.dtype, logical=True)
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_layout(LAYOUTS[layout])
    if layout == "chunked":
        properties.set_chunk((4, *values.shape[1:]))
    if fill and values.dtype.kind not in "OS":  # of text it makes an address
        properties.set_fill_value(np.array(values[2], values.dtype))
    found = h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple(values.shape), properties)
    for number in range(attributes):  # which take so much room that the header has continuations
        h5py.Dataset(found).attrs[f"a{number}"] = "value" * 20
    if written:
        h5py.Dataset(found)[...] = values


@pytest.mark.parametrize("libver", ["earliest", "v108", "latest"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_has_the_values_of_h5py(layout, libver, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        for number, (name, values) in enumerate(VALUES.items()):
            attributes = 20 * (number % 2)
            lay_out(file, name, values, layout, fill=False, attributes=attributes)
            lay_out(file, f"filled_{name}", values, layout, fill=True, attributes=attributes)
            if values.dtype.kind not in "OS":
                lay_out(file, f"never_{name}", values, layout, fill=True, attributes=attributes, written=False)
        file.create_dataset("never_bytes", (7,), "S4", fillvalue=b"abc")
    with h5py.File(tmp_path / "a.h5") as file:
        found = samples(Hdf5(), tmp_path)
        assert len(found) == 7
        assert len({name.partition(".")[0] for name in found[0][1]}) == 3 * len(VALUES) - 1
        for row, (_, values) in enumerate(found):
            for name, value in values.items():
                dataset, _, member = name.partition(".")
                wanted = file[dataset][row][member] if member else file[dataset][row]
                wanted = wanted.decode() if isinstance(wanted, bytes) else wanted
                assert np.array_equal(value, wanted), (layout, name, row)


def test_a_fill_value_that_is_not_read_is_refused():
    def write(file, *, written: int) -> None:
        text = file.create_dataset("x", (8,), h5py.string_dtype(), chunks=(4,), fillvalue="none")
        text[:written] = [f"{row}" for row in range(written)]

    refused(lambda file: write(file, written=4), "'x' has samples that were never written")
    ((_, rows),) = read(file_of(lambda file: write(file, written=8)))
    assert len(rows.keys) == 8


@pytest.mark.full
def test_every_kind_comes_back(every):
    with h5py.File(every / "every.h5") as file:
        for place in (every, in_memory(every)):
            found = samples(Hdf5(), place)
            assert [key for key, _ in found] == [f"every/{row:08d}" for row in range(ROWS)]
            assert len(found[0][1]) == 31
            for row, (_, values) in enumerate(found):
                for name, value in values.items():
                    value = np.frombuffer(value, np.uint8) if isinstance(value, bytes) else value
                    assert np.array_equal(value, expected(file, name, row)), (name, row)


def test_types_are_those_of_the_arrays(every):
    ((_, rows),) = read((every / "every.h5").read_bytes())
    kinds = {column.name: str(column.type) for column in rows.columns}
    assert kinds["plain"] == kinds["gzip"] == "array:uint8:6,5,3"
    assert kinds["big.array"] == "array:int32:6,5,3"
    assert (kinds["label"], kinds["big.number"], kinds["bool"], kinds["enum"]) == ("int64", "float64", "bool", "int8")
    assert (kinds["text"], kinds["ascii"], kinds["picture"], kinds["lists"]) == ("str", "str", "jpg", "values:float32")
    assert (kinds["struct.v"], kinds["struct.inner.t"]) == ("array:int16:2", "str")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("version", ["earliest", "latest"])
def test_many_samples_in_all_kinds_of_chunk_indexes(version, tmp_path):
    images = np.arange(4200 * 4, dtype=np.int32).reshape(4200, 4)
    with h5py.File(tmp_path / "a.hdf5", "w", libver=version) as file:
        put(file, "one", images, chunks=(4200, 4), compression="gzip")
        put(file, "fixed", images, chunks=(10, 4))
        put(file, "growing", images, chunks=(10, 4), maxshape=(None, 4), compression="gzip")
        put(file, "both", images, chunks=(100, 3), maxshape=(None, None))
    found = samples(Hdf5(), tmp_path)
    for name in ("one", "fixed", "growing", "both"):
        assert np.array_equal([values[name] for _, values in found], images)


def test_small_chunks_share_blocks(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        put(file, "x", DRAW.integers(0, 9, (4000, 64)).astype(np.uint8), chunks=(10, 64), compression="gzip")
    listing = listing_of(tmp_path)
    found = Hdf5().blocks(ObjectBytes(listing.store, "a.h5", listing.size("a.h5")), {})
    assert 2 <= len(found.blocks) <= 4
    assert len(found.blocks.pack()) < 400 * 8


def test_what_is_chosen_need_not_go_with_the_rest():
    def write(file):
        put(file, "train/x", np.ones((6, 2)))
        put(file, "train/y", np.arange(6))
        put(file, "test/x", np.ones((3, 2)))
        file["alias"] = h5py.SoftLink("/train/x")

    refused(write, "'alias' is a soft link")
    ((_, rows),) = read(file_of(write), {"x": "train.x", "cls": "train.y"})
    assert [column.name for column in rows.columns] == ["train.x", "train.y"]
    ((_, rows),) = read(file_of(write), options={"fields": "test/x"})
    assert len(rows.keys) == 3
    assert read(file_of(write), {"x": "none"}) == []


def test_no_samples_are_none():
    assert read(file_of(lambda file: put(file, "x", np.zeros((0, 3))))) == []


def test_other_files_are_left_to_others():
    for objects in ({"a.h5": b"version https://git-lfs"}, {"a.h5": file_of(whole), "a.jpg": b"x"}, {"a.nc": b"x"}):
        assert Hdf5().recognize(listing_of(MemoryStore(objects)), {}) is None


# ---------------------------------------------------------------------------------------------------------- refusals


def test_arrays_of_different_lengths_are_told():
    def write(file):
        put(file, "x", np.ones((6, 2)))
        put(file, "mean", np.ones(3))

    refused(write, "different numbers of samples: mean 3, x 6")


def _virtual(file):
    layout = h5py.VirtualLayout((4,), "i8")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", (4,))
    file.create_virtual_dataset("x", layout)


def _scattered(file):
    put(file, "x", np.ones((2, 4 << 20), np.uint8), chunks=(1, 2 << 20), compression="gzip")
    made = file.create_dataset("y", (2, 8), "u1", chunks=(1, 4))
    made[0, :4] = 1
    file.flush()
    put(file, "between", DRAW.integers(0, 255, (2, 1 << 20)).astype(np.uint8))
    made[0, 4:] = 1


HOSTILE = {
    "soft link": (lambda file: file.update({"x": h5py.SoftLink("/y")}), "'x' is a soft link"),
    "external link": (lambda file: file.update({"x": h5py.ExternalLink("/etc/x.h5", "/y")}), "'x' is an external link"),
    "link to a group": (
        lambda file: (put(file, "real/x", np.ones(3)), file.update({"also": h5py.SoftLink("/real")})),
        "'also' is a soft link",
    ),
    "link in a group": (lambda file: file.create_group("g").update({"x": h5py.SoftLink("/")}), "'g/x' is a soft link"),
    "external storage": (
        lambda file: file.create_dataset("x", (10,), "u1", external=[("/etc/passwd", 0, 10)]),
        "'x' lies in other files",
    ),
    "virtual": (_virtual, "'x' is virtual"),
    "filter": (
        lambda file: put(file, "x", np.arange(100), chunks=(10,), scaleoffset=0),
        "'x' is filtered by scaleoffset",
    ),
    "group of itself": (lambda file: file.create_group("g").update({"g": file["g"]} if "g" in file else {}), "deep"),
    "reference": (
        lambda file: file.create_dataset("x", (3,), h5py.ref_dtype),
        "'x' holds references, which are not read",
    ),
    "complex": (lambda file: put(file, "x", np.ones((3, 2), np.complex64)), r"holds \[2\] structures a sample"),
    "lists of text": (
        lambda file: file.create_dataset("x", (3,), h5py.vlen_dtype(h5py.string_dtype())),
        "lists of texts that are not read",
    ),
    "texts": (lambda file: put(file, "x", [["a", "b"]], dtype=h5py.string_dtype()), r"holds \[2\] values of text"),
    "single values": (lambda file: file.update({"x": 3}), "holds no arrays"),
    "empty samples": (lambda file: put(file, "x", np.zeros((3, 0))), "empty samples"),
    "no end": (lambda file: file.create_dataset("x", (1 << 40, 8), "f8", chunks=(1 << 10, 8)), "cannot hold"),
    "all chunks": (lambda file: file.create_dataset("x", (1 << 16,), "u1", chunks=(1,)), "announces 65536 chunks"),
    "scattered": (_scattered, "'y' keeps parts of samples far apart"),
    "two of a name": (
        lambda file: (put(file, "a b", np.ones(3)), put(file, "a_b", np.ones(3))),
        "becomes the field 'a_b', as another",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_leads_elsewhere_or_is_not_known_is_refused(name):
    write, match = HOSTILE[name]
    refused(write, match)


def test_a_user_block_is_refused(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=512) as file:
        put(file, "x", np.ones(3))
    with pytest.raises(FormatError, match="begins at byte 512"):
        Hdf5().recognize(listing_of(tmp_path), {})


def test_cut_off_files_say_so():
    data = file_of(lambda file: put(file, "x", np.arange(300), chunks=(50,), compression="gzip"))
    for end in [*range(8, 96, 8), *range(96, len(data), len(data) // 12)]:
        with pytest.raises(FormatError, match=r"cut off|does not begin|not in an object"):
            read(data[:end])


def small(file) -> None:
    put(file, "x", DRAW.integers(0, 9, (20, 6, 4)).astype(np.int16), chunks=(4, 3, 4), compression="gzip", shuffle=True)
    put(file, "label", np.arange(20), chunks=(8,), fletcher32=True)
    put(file, "text", [str(row) for row in range(20)], dtype=h5py.string_dtype())


@pytest.mark.parametrize("count", [50, pytest.param(400, marks=pytest.mark.full)])
def test_damage_is_an_error_of_ours(count):
    for data in flipped(file_of(small), count, seed=random.Random(count).randrange(1000)):
        if Hdf5().recognize(listing_of(MemoryStore({"a.h5": data})), {}) is None:
            continue
        with suppress(DataError):
            for inflated, rows in read(data):
                for column in rows.columns:
                    if column.type.kind != "scalar":
                        for offset, length in zip(*map(list, column.extents(np.arange(len(rows.keys)))), strict=True):
                            inflated.get("a.h5", int(offset), int(length))


def test_a_chunk_that_differs_from_its_checksum_is_noticed():
    values = DRAW.integers(0, 255, (20, 32)).astype(np.uint8)
    data = bytearray(file_of(lambda file: put(file, "x", values, chunks=(20, 32), fletcher32=True)))
    at = bytes(data).index(values[3].tobytes())
    data[at] ^= 1
    ((inflated, rows),) = read(bytes(data))
    with pytest.raises(DataError, match="differs from its checksum"):
        inflated.get("a.h5", rows.columns[0].base, 32)
