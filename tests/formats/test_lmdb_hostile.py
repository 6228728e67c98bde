"""LMDB databases that are damaged, or made to harm: each is one error, and nothing in them runs."""

from __future__ import annotations

import os
import pickle
import random
import re
import struct
import tracemalloc
from collections import OrderedDict
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

import shardstream.formats.lmdb as room
from shardstream.errors import FormatError
from shardstream.formats.lmdb.format import LmdbFormat
from shardstream.formats.lmdb.forms import pickled_json
from shardstream.formats.lmdb.packed import read_packed
from shardstream.formats.lmdb.pages import Pages
from shardstream.formats.lmdb.pickled import read_pickle
from shardstream.formats.lmdb.values import NotUnderstood
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.testing import MemoryStore

from .lmdb_making import datum, folder_of, jpeg, packed_array, write
from .scanning import decoded, listing_of, recognised, samples

FORMAT = LmdbFormat()
PAGE = 4096


def outcome(data: bytes) -> int | None:
    """How many samples a file has; ``None`` where it is refused. Any other error fails the test."""
    store = MemoryStore({"data.mdb": data})
    count = 0
    try:
        for one in recognised(FORMAT, listing_of(store)).objects:
            for rows in FORMAT.scan(ObjectBytes(store, one.path, one.size, window=1 << 20), one.about):
                count += len(rows.keys)
                for column in rows.columns:
                    if column.offsets is not None:
                        ends = np.add(*column.extents(np.arange(len(rows.keys))))
                        assert ends.max() <= len(data)
    except FormatError as error:
        assert error.hint  # noqa: PT017
        return None
    return count


def layouts(folder: Path) -> dict[str, bytes]:
    """A small database in each layout."""
    entries = {
        "files": {b"%02d" % i: jpeg(i, 3000 * (i % 2)) for i in range(6)},
        "numbered": {b"image-%09d" % i: jpeg(i, 20) for i in (1, 2)}
        | {b"label-%09d" % i: b"word" for i in (1, 2)}
        | {b"num-samples": b"2"},
        "pickles": {b"%d" % i: pickle.dumps((jpeg(i, 20), np.arange(3), i), 3 + i % 3) for i in range(4)}
        | {b"__keys__": pickle.dumps([b"2", b"0", b"1", b"3"]), b"__len__": pickle.dumps(4)},
        "msgpack": {
            b"%d" % i: msgpack.packb({"a": jpeg(i, 20), "b": np.arange(3), "c": [i]}, default=packed_array)
            for i in range(4)
        },
        "datum": {
            b"0": datum(jpeg(1, 20), label=3, encoded=True),
            b"1": datum(bytes(12), (3, 2, 2), 1),
            b"2": datum(shape=(2, 1, 1), floats=[1, 2]),
        },
    }
    return {name: (write(folder / name, one) / "data.mdb").read_bytes() for name, one in entries.items()}


@pytest.mark.parametrize("name", ["files", "numbered", "pickles", "msgpack", "datum"])
def test_cut_off_anywhere(tmp_path: Path, name: str) -> None:
    data = layouts(tmp_path)[name]
    whole = outcome(data)
    assert whole
    used = (max(struct.unpack_from("<QQ", data, at + 136)[0] for at in (0, PAGE)) + 1) * PAGE
    for end in [*range(20, 300, 7), *range(300, used, 331), used - 1]:
        assert outcome(data[:end]) is None
    assert outcome(data + bytes(PAGE)) == whole


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["files", "numbered", "pickles", "msgpack", "datum"])
def test_bytes_that_flipped(tmp_path: Path, name: str) -> None:
    data = layouts(tmp_path)[name]
    choose = random.Random(name)
    page = max((0, PAGE), key=lambda at: struct.unpack_from("<Q", data, at + 144)[0])
    root = struct.unpack_from("<Q", data, page + 128)[0] * PAGE
    lower = struct.unpack_from("<H", data, root + 14)[0]
    places = [*range(page, page + 152), *range(root, root + 60), *range(root + lower, root + PAGE)]
    for _ in range(120):
        broken = bytearray(data)
        for _ in range(choose.choice((1, 1, 3))):
            broken[choose.choice(places)] = choose.choice((0, 1, 0x7F, 0xFF, choose.randrange(256)))
        outcome(bytes(broken))


# ------------------------------------------------------------------------------------------------------------- the tree


def tree(tmp_path: Path, **fields: int) -> bytes:
    """A database of two levels, whose root is changed."""
    place = write(tmp_path / "in", {b"%04d" % i: jpeg(i, 300) for i in range(200)})
    data = bytearray((place / "data.mdb").read_bytes())
    page = max((0, PAGE), key=lambda at: struct.unpack_from("<Q", data, at + 144)[0])
    names = {"flags": (4, "<H"), "depth": (6, "<H"), "branches": (8, "<Q"), "leaves": (16, "<Q")}
    names |= {"entries": (32, "<Q"), "root": (40, "<Q")}
    for name, value in fields.items():
        at, code = names[name]
        struct.pack_into(code, data, page + 88 + at, value)
    return bytes(data)


@pytest.mark.parametrize(
    "fields",
    [
        {"depth": 1}, {"depth": 3}, {"depth": 33}, {"depth": 0}, {"root": 0}, {"root": 1 << 40},
        {"root": (1 << 64) - 1},
        {"entries": 199}, {"entries": 201}, {"entries": 1 << 62}, {"leaves": 1}, {"leaves": 1 << 60}, {"branches": 0},
        {"flags": 4},
    ],
    ids=str,
)  # fmt: skip
def test_roots_that_cannot_be(tmp_path: Path, fields: dict[str, int]) -> None:
    assert outcome(tree(tmp_path)) == 200
    assert outcome(tree(tmp_path, **fields)) is None


def test_pages_in_a_circle_and_pages_outside(tmp_path: Path) -> None:
    data = tree(tmp_path)
    pages = Pages(ObjectBytes(MemoryStore({"a": data}), "a", len(data)))
    root = pages.main.root * PAGE
    pointers = struct.unpack_from(f"<{(struct.unpack_from('<H', data, root + 12)[0] - 16) // 2}H", data, root + 16)
    for target in (pages.main.root, pages.main.root - 1, 0, 1 << 31):
        broken = bytearray(data)
        for pointer in pointers:
            struct.pack_into("<HH", broken, root + pointer, target & 0xFFFF, target >> 16)
        assert outcome(bytes(broken)) is None
    for depth in (3, 20, 32):  # a page below itself
        broken = bytearray(tree(tmp_path, depth=depth))
        struct.pack_into("<HH", broken, root + pointers[0], pages.main.root, 0)
        assert outcome(bytes(broken)) is None


# -------------------------------------------------------------------------------------------------------------- pickles

RAN: list[str] = []


class Harm:
    """Pickles as a call of what it is given."""

    def __init__(self, call: Any, *arguments: Any, state: Any = None) -> None:
        self.how = (call, arguments) if state is None else (call, arguments, state)

    def __reduce__(self) -> Any:
        return self.how


class Plain:
    """An object of a class of somebody's own."""


def ran(text: str = "") -> None:
    """What nobody may call."""
    RAN.append(text)


HARMFUL = {
    r"(posix|nt|os)\.system": Harm(os.system, "touch /tmp/shardstream-was-here"),
    r"builtin.*\.eval": Harm(eval, "ran()"),
    r"builtin.*\.exec": Harm(exec, "ran()"),
    r"builtin.*\.getattr": Harm(getattr, "a", "upper"),
    r"copyreg\._reconstructor|test_lmdb_hostile": Plain(),
    r"test_lmdb_hostile\.ran": Harm(ran, "x"),
    r"collections\.OrderedDict": OrderedDict(a=1),
    r"builtin.*\.(set|bytearray)|SET": {1, 2},
    r"builtin.*\.complex": 1j,
    r"numpy.*|dtype": np.array(["a"], object),
    r"dtype": np.zeros(2, [("a", "i4"), ("b", "f4")]),
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("name", HARMFUL)
def test_nothing_that_a_pickle_names_is_called(tmp_path: Path, name: str, protocol: int) -> None:
    RAN.clear()
    try:
        harm = pickle.dumps(HARMFUL[name], protocol)
    except pickle.PicklingError:
        pytest.skip("cannot be pickled")
    image = pickle.dumps((jpeg(1), 1), protocol)
    for number, entries in enumerate(
        (
            {b"a": harm},
            {b"a": image, b"b": harm},
            {b"a": image, b"__keys__": harm},
            {b"a": image, b"__len__": harm},
            {b"a": pickle.dumps((jpeg(1), HARMFUL[name]), protocol)},
            {b"a": pickle.dumps({"x": [HARMFUL[name]]}, protocol)},
        )
    ):
        place = write(tmp_path / f"{number}", entries)
        with pytest.raises(FormatError, match=name) as error:
            samples(FORMAT, place)
        assert re.search("value of key", str(error.value))
        assert "offset" in error.value.place
        assert not RAN
    assert not Path("/tmp/shardstream-was-here").exists()


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (b"Pid\n.", "PERSID"),
        (b"K\x01Q.", "BINPERSID"),
        (b"(iposix\nsystem\n.", "INST"),
        (b"(cposix\nsystem\no.", r"posix\.system"),
        (b"\x82\x01.", "EXT1"),
        (b"]\x81.", "NEWOBJ"),
        (b"\x97.", "NEXT_BUFFER"),
        (b"K\x01r\xff\xff\xff\x7f.", "memo"),
        (b"K\x01q\x05.", "memo"),
        (b"h\x09.", "damaged"),
        (b"B\xff\xff\xff\x7fabc.", "bytes in a pickle"),
        (b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc.", "bytes in a pickle"),
        (b"\x8b\xff\xff\xff\x7f.", "integer of"),
        (b"\x95\xff\xff\xff\xff\xff\xff\xff\x7f.", "bytes in a pickle"),
        (b"\x80\x04.", "inside"),
        (b".", "ends too early"),
        (b"(.", "ends too early"),
        (b"]]a", "cut off"),
        (b"K\x01K\x02R.", "not a name"),
        (b"]K\x01K\x02s.", "damaged"),
        (b"K\x01)b.", "class with a state"),
        (b"\x00.", "0x00"),
        (b"cnumpy\ndtype\nX\x02\0\0\0O8\x85R.", "dtype"),
        (b"cnumpy\ndtype\n)R.", "as numpy does not"),
        (b"cnumpy\nndarray\n)R.", "as numpy does not"),
        (b"c_codecs\nencode\nX\1\0\0\0aX\6\0\0\0rot_13\x86R.", "as numpy does not"),
        (b"cnumpy\nload\n.", r"numpy\.load"),
        (b"c" + b"a" * 5000 + b"\n.", "does not end"),
        (b"\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.", r"os\.system"),
    ],
)
def test_opcodes_that_are_refused_by_name(tmp_path: Path, body: bytes, match: str) -> None:
    with pytest.raises(NotUnderstood, match=match):
        read_pickle(memoryview(b"\x80\x04" + body))


def test_bombs_take_no_memory() -> None:
    deep = b"]" * 9000 + b"a" * 8999
    itself = b"]\x94h\x00ah\x00a"
    doubling = b"K\x01\x94" + b"".join(b"h%ch%c\x86\x94" % (i, i) for i in range(200)) + b"t"
    tracemalloc.start()
    for bomb in (deep, itself, b"(" + doubling):
        with pytest.raises(NotUnderstood, match="larger than they are stored"):
            pickled_json(memoryview(b"\x80\x04" + bomb + b"."), "")
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(
    "data",
    [
        b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xffab",
        b"\x91" * 100_000, b"\x81\xa1a" * 50_000, b"\xc7\x01\x05a", b"\xd4\x01a", b"\xc1", b"\x92\x01",
        b"\x01\x01", b"",
        b"\x82\xa2nd\xc3\xa5shape" * 20_000,
        msgpack.packb({"nd": True, "type": "|O", "shape": [1], "data": b"12345678"}),
        msgpack.packb({"nd": True, "type": "<f4", "shape": [1 << 40] * 5, "data": b"1234"}),
        msgpack.packb({"nd": True, "type": "<f4", "shape": [-1], "data": b"1234"}),
        msgpack.packb({"nd": True, "type": "<f4", "shape": [[1]], "data": b"1234"}),
    ],
)  # fmt: skip
def test_msgpack_that_is_refused(data: bytes) -> None:
    with pytest.raises(NotUnderstood):
        read_packed(memoryview(data))


def test_a_field_of_two_kinds(tmp_path: Path) -> None:
    for number, odd in enumerate((1.5, "text", b"bytes", None, [1], np.zeros(3), True, 1 << 70, {"a": 1})):
        entries = {b"%02d" % i: pickle.dumps((jpeg(i), i)) for i in range(30)}
        place = write(tmp_path / f"{number}", entries | {b"99": pickle.dumps((jpeg(9), odd))})
        if odd is None:
            assert "cls" not in samples(FORMAT, place)[-1][1]
            continue
        with pytest.raises(FormatError, match="field 'cls' is int64"):
            samples(FORMAT, place)


def test_forms_of_damaged_values(tmp_path: Path) -> None:
    """What lies in the file may change after the scan: a form says so with a ValueError."""
    place = write(tmp_path / "in", {b"a": pickle.dumps({"x": [1, 2], "y": np.zeros((2, 0))}, 2)})
    listing = listing_of(place)
    (one,) = recognised(FORMAT, listing).objects
    data = ObjectBytes(listing.store, one.path, one.size)
    (rows,) = FORMAT.scan(data, one.about)
    assert len(list(decoded(FORMAT, listing.store, one.path, rows))) == 1
    choose = random.Random(3)
    for column in rows.columns:
        offsets, lengths = column.extents(np.arange(1))
        stored = bytes(data.get(int(offsets[0]), int(lengths[0])))
        name, _, text = column.codec.removeprefix("lmdb.").partition(":")
        for _ in range(300):
            broken = bytearray(stored)
            broken[choose.randrange(len(broken))] = choose.randrange(256)
            try:
                FORMAT.forms[name](memoryview(bytes(broken)), text)
            except ValueError:
                continue


def test_pickle_is_not_imported() -> None:
    for path in Path(room.__file__).parent.glob("*.py"):
        assert not re.search(
            r"^\s*(import|from) (pickle|pickletools|_pickle|importlib)|__import__", path.read_text(), re.M
        )


def test_no_data_set_of_ours(tmp_path: Path) -> None:
    place = folder_of(tmp_path / "in", ("data.mdb", b""))
    with pytest.raises(FormatError):
        samples(FORMAT, place)
