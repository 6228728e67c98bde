"""FFCV's files: what its writer wrote equals what its loader gives; an independent writer makes all else."""

import gzip
import json
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardstream.errors import FormatError, StorageError
from shardstream.formats.beton import Beton
from shardstream.testing import MemoryStore
from tests.formats.scanning import in_memory, listing_of, samples, scanned

GOLDEN = Path(__file__).parents[1] / "golden" / "foreign" / "beton"
JPEG = b"\xff\xd8\xff\xe0" + bytes(20)
INT, FLOAT, IMAGE, BYTES, ARRAY, JSON = 1, 0, 2, 3, 4, 5
ROW = {INT: "<i8", FLOAT: "<f8", IMAGE: [("m", "u1"), ("w", "<u2"), ("h", "<u2"), ("p", "<u8")], ARRAY: "<u8"}
ROW |= {BYTES: [("p", "<u8"), ("s", "<u8")], JSON: [("p", "<u8"), ("s", "<u8")]}


def arguments(shape, descr) -> bytes:
    text = descr if isinstance(descr, bytes) else json.dumps([["", descr]]).encode()
    return struct.pack("<32QQ", *shape, *[0] * (32 - len(shape)), len(text)) + text


def beton(fields, samples, *, version=2, head=None) -> bytes:
    """Fields: name to type and arguments. Samples: tuples of a number, bytes, or (mode, width, height, bytes)."""
    row = np.dtype([(f"x{i}", np.dtype(ROW[kind])) for i, (kind, _) in enumerate(fields.values())], align=True)
    start = 24 + 1041 * len(fields) + row.itemsize * len(samples)
    table, pages, allocations = np.zeros(len(samples), row), b"", b""
    for number, values in enumerate(samples):
        for part, value, (kind, _) in zip(row.names, values, fields.values(), strict=True):
            if kind in (INT, FLOAT):
                table[part][number] = value
                continue
            place, data = start + len(pages), value[3] if kind == IMAGE else value
            pages += data
            allocations += struct.pack("<3Q", number, place, len(data))
            rest = {IMAGE: (*value[:3], place), ARRAY: place}.get(kind, (place, len(data)))
            table[part][number] = rest
    described = b"".join(struct.pack("<B16s1024s", kind, name.encode(), args) for name, (kind, args) in fields.items())
    head = head or struct.pack("<HHIQQ", version, len(fields), 1 << 21, len(samples), start + len(pages))
    return head + described + table.tobytes() + pages + allocations


FIELDS = {
    "label": (INT, b""),
    "image": (IMAGE, b""),
    "text": (BYTES, b""),
    "box": (ARRAY, arguments((2,), "<i2")),
    "about": (JSON, b""),
    "score": (FLOAT, b""),
}
SAMPLES = [(i, (0, 3, 4, JPEG + bytes(i)), b"t" * i, bytes([i, 0, 7, 0]), b"[%d]\0" % i, i / 2) for i in range(5)]


def read(data: bytes):
    return [values for _, values in samples(Beton(), MemoryStore({"a.beton": data}))]


def refused(data: bytes, match: str) -> None:
    with pytest.raises(FormatError, match=match):
        read(data)


def golden(name: str) -> bytes:
    return gzip.decompress((GOLDEN / f"{name}.beton.gz").read_bytes())


# ------------------------------------------------------------------------------------------------------ what is read


def test_all_fields_equal_those_of_ffcvs_loader(tmp_path):
    expected = json.loads((GOLDEN / "expected.json").read_text())
    (tmp_path / "every.beton").write_bytes(golden("every"))
    for place in (tmp_path, in_memory(tmp_path)):
        found = samples(Beton(), place)
        assert [key for key, _ in found] == [f"every/{i:08d}" for i in range(7)]
        columns = {name: [values[name] for _, values in found] for name in found[0][1]}
        assert columns["label"] == [one[0] for one in expected["label"]]
        assert columns["score"] == [one[0] for one in expected["score"]]
        assert [list(one) for one in columns["raw"]] == expected["raw"]
        assert columns["about"] == expected["about"]
        assert [one.tolist() for one in columns["box"]] == expected["box"]
        assert [one.tolist() for one in columns["tensor"]] == expected["tensor"]


def test_images_equal_those_of_ffcv():
    expected = json.loads((GOLDEN / "expected.json").read_text())
    assert [values["image"].hex() for values in read(golden("jpg"))] == expected["jpg"]
    found = read(golden("raw"))
    assert [values["image"].tolist() for values in found] == expected["images"]
    assert [values["label"] for values in found] == [i % 3 for i in range(7)]
    refused(golden("sizes"), "pixels of 7 sizes")
    refused(golden("mixed"), "both JPEG files and pixels")


def test_files_of_the_independent_writer():
    found = read(beton(FIELDS, SAMPLES))
    for i, values in enumerate(found):
        assert values.pop("box").tolist() == [i, 7]
        image = JPEG + bytes(i)
        assert values == {"label": i, "image": image, "text": b"t" * i, "about": [i], "score": i / 2}
    ((_, rows),) = scanned(Beton(), MemoryStore({"a.beton": beton({"x": (BYTES, b"")}, [(JPEG,)] * 3)}))
    assert str(rows.columns[0].type) == "jpg"
    assert read(beton(FIELDS, [])) == []


def test_more_samples_than_a_shard_has():
    store = MemoryStore({"a.beton": beton({"n": (INT, b""), "b": (BYTES, b"")}, [(i, b"") for i in range(5000)])})
    found = [rows for _, rows in scanned(Beton(), store, window=Beton.window)]
    assert [len(rows.keys) for rows in found] == [2500, 2500]
    assert np.concatenate([rows.columns[0].values for rows in found]).tolist() == list(range(5000))
    assert len(store.requests) < 10


@settings(max_examples=40, deadline=None)
@given(
    st.permutations(list(FIELDS)).flatmap(
        lambda names: st.tuples(st.integers(1, len(names)).map(lambda n: names[:n]), st.integers(0, 6))
    )
)
def test_random_fields_and_samples_come_back(chosen):
    names, count = chosen
    places = [list(FIELDS).index(name) for name in names]
    rows = [tuple(SAMPLES[i % 5][place] for place in places) for i in range(count)]
    found = read(beton({name: FIELDS[name] for name in names}, rows))
    whole = read(beton(FIELDS, SAMPLES))
    for i, values in enumerate(found):
        assert set(values) == set(names)
        assert all(np.array_equal(values[name], whole[i % 5][name]) for name in names)
    assert len(found) == count


# ---------------------------------------------------------------------------------------------------------- refusals


def test_other_files_are_left_to_others_and_several_are_refused():
    assert Beton().recognize(listing_of(MemoryStore({"a.beton": b"", "b.tar": b"x"})), {}) is None
    assert Beton().recognize(listing_of(MemoryStore({"a.bin": b""})), {}) is None
    with pytest.raises(FormatError, match=r"2: train.beton, val.beton"):
        samples(Beton(), MemoryStore({"train.beton": b"", "val.beton": b""}))


def test_kinds_that_are_not_read_are_refused():
    plain = beton({"n": (INT, b"")}, [(1,)])
    refused(beton({"n": (INT, b"")}, [(1,)], version=1), "version 1")
    refused(plain[:24] + b"\xff" + plain[25:], r"'n' is a field of a class of its own \(custom\)")
    refused(plain[:24] + b"\x09" + plain[25:], r"unknown type \(9\)")
    refused(plain[:16] + bytes(8) + plain[24:], "did not finish")
    refused(beton({"a b": (INT, b""), "a_b": (INT, b"")}, []), "two of one name")
    refused(struct.pack("<HHIQQ", 2, 0, 0, 1 << 60, 24), "no fields")
    for shape, descr in [
        ((), "<f4"),
        ((2,), ">f4"),
        ((2,), "|O"),
        ((2,), "<c8"),
        ((1 << 62,), "<f4"),
        ((2,), b"[["),
        ((2,), b"[" * 700),
        ((2,), b'{"a": 1}'),
        ((2,), b"[]"),
        ((2,), b'[["", ["<f4"]]]'),
        ((2,), b'[["f0", "<f4"], ["f1", "<f4"]]'),
    ]:
        refused(beton({"x": (ARRAY, arguments(shape, descr))}, []), "cannot be read")


def test_tables_that_contradict_are_refused():
    plain = beton(FIELDS, SAMPLES)
    end = struct.unpack_from("<Q", plain, 16)[0]
    refused(struct.pack("<HHIQQ", 2, 6, 0, 1 << 60, end) + plain[24:], "are a table up to")
    refused(struct.pack("<HHIQQ", 2, 6, 0, 5, len(plain) + 1) + plain[24:], "allocations should be at")
    refused(struct.pack("<HHIQQ", 2, 65535, 0, 5, end) + plain[24:], "not in an object")
    refused(plain[:-1], "allocations was cut off")
    refused(plain[:end], "allocations was cut off")
    refused(plain[: end + 24], "no entry for 'image' of sample|cut off")
    moved = plain[:end] + struct.pack("<3Q", 9, *struct.unpack_from("<2Q", plain, end + 8)) + plain[end + 24 :]
    refused(moved, "no entry for 'image' of sample 0")
    image = {"image": (IMAGE, b"")}
    one = beton(image, [((0, 3, 4, JPEG),)])
    refused(one[:-8] + struct.pack("<Q", 1 << 63), "outside of the pages")
    refused(beton(image, [((1, 300, 400, JPEG),)]), "should be 360000 bytes")
    text = beton({"t": (BYTES, b"")}, [(b"text",)])
    for place, size in [(0, 4), (1 << 63, 4), (24 + 1041 + 16, 1 << 63), (24 + 1041, 4), ((1 << 64) - 1, 2)]:
        refused(text[:1065] + struct.pack("<2Q", place, size) + text[1081:], "outside of the pages")
    refused(beton({"j": (JSON, b"")}, [(b"",)]), "lacks the zero byte")


def test_cut_off_and_flipped_bits(tmp_path):
    data = beton(FIELDS, SAMPLES[:3])
    end = struct.unpack_from("<Q", data, 16)[0]
    tables = [*range(8, 26), *range(1041 * 3, 1041 * 3 + 30), *range(24 + 1041 * 6, len(data))]
    for length in [*range(60), *range(60, 24 + 1041 * 6, 211), *range(24 + 1041 * 6, len(data), 3)]:
        if length < end + 3 * 24 or (length - end) % 24:
            refused(data[:length], "a.beton")
    rng = random.Random(11)
    for _ in range(150):
        broken = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            broken[rng.choice(tables)] = rng.choice([0, 1, 2, 127, 255])
        (tmp_path / "a.beton").write_bytes(broken)
        try:
            for _, rows in scanned(Beton(), tmp_path):
                for column in rows.columns:
                    if column.values is None:
                        offsets, lengths = column.extents(np.arange(len(rows.keys)))
                        assert np.all(offsets + lengths <= len(data))
        except (FormatError, StorageError):
            pass
