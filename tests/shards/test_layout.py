"""The index as bytes: limits that no small shard reaches, and maps that contradict themselves."""

from __future__ import annotations

import struct
from typing import Any

import msgpack
import numpy as np
import pytest
import xxhash
from hypothesis import example, given
from hypothesis import strategies as st

from shardstream.errors import FieldError, FormatError, UsageError
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Column, check_key
from shardstream.shards.layout import index_length, pack_index, parse_index

JPG = FieldType.parse("jpg")
KEYS = st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: is_key(text))


def is_key(text: str) -> bool:
    try:
        check_key(text)
    except UsageError:
        return False
    return True


def keys_of(names: list[str]) -> tuple[np.ndarray, bytes]:
    parts = [name.encode() for name in names]
    return np.cumsum([len(part) for part in parts], dtype=np.uint64).reshape(len(parts)), b"".join(parts)


def parse(data: bytes, end: int, framing: str = "record"):
    view = memoryview(data)
    assert index_length(view, shard="s", size=len(data)) == len(data)
    return parse_index(view, path="s", framing=framing, end=end)


def payload(**changes: Any) -> Column:
    arrays = {name: np.array([5, 6], np.uint64) for name in ("offsets", "lengths", "checksums")}
    return Column("jpg", JPG, **{**arrays, **changes})


@given(
    names=st.lists(KEYS, max_size=20),
    offset=st.sampled_from([0, 1, (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 62)]),
)
def test_what_is_packed_is_parsed_beyond_four_gigabytes_too(names, offset) -> None:
    count = len(names)
    offsets = np.arange(count, dtype=np.uint64) * np.uint64(1000) + np.uint64(offset)
    lengths = np.full(count, 1000, np.uint64)
    valid = np.packbits(np.arange(count) % 2 == 0, bitorder="little")
    end = offset + 1000 * count
    columns = [
        Column("e", FieldType.parse("array:uint8:1000"), base=offset, checksums=lengths),
        Column("f", FieldType.parse("array:uint8:10,100"), offsets=offsets, valid=valid),
        Column("jpg", JPG, offsets=offsets, lengths=lengths, checksums=~offsets),
        Column("u", FieldType.parse("uint64"), values=~offsets),
    ]
    data = pack_index("tar", keys_of(names), columns, end=end)
    assert len(data) % 512 == 0
    index = parse(data, end, "tar")
    assert (index.samples, list(index.keys), index.end) == (count, names, end)
    rows = np.arange(count)
    np.testing.assert_array_equal(index.columns["e"].fixed_offsets(rows), offsets.astype(np.int64))
    np.testing.assert_array_equal(index.columns["f"].fixed_offsets(rows), offsets.astype(np.int64))
    np.testing.assert_array_equal(index.columns["jpg"].offsets, offsets)
    np.testing.assert_array_equal(index.columns["jpg"].checksums, ~offsets)
    np.testing.assert_array_equal(index.columns["u"].values, ~offsets)
    assert index.columns["jpg"].offsets.dtype == (np.uint32 if not count or int(offsets[-1]) < 1 << 32 else np.uint64)
    assert not any(array.flags.owndata for array in (index.columns["jpg"].offsets, index.columns["u"].values))
    for short in (end - 1, 0):
        with pytest.raises(FormatError):
            parse(pack_index("tar", keys_of(names), columns, end=short), short, "tar") if count else parse(data, -1)


def test_values_beyond_the_object_are_refused_without_wrapping() -> None:
    top = (1 << 64) - 1
    for changes in (
        {"offsets": np.array([5, 95], np.uint64)},
        {"lengths": np.array([top, 6], np.uint64)},
        {"offsets": np.array([top, 5], np.uint64), "lengths": np.array([2, 2], np.uint64)},
        {"offsets": np.array([1 << 63, 5], np.uint64), "lengths": np.array([1 << 63, 2], np.uint64)},
    ):
        with pytest.raises(FormatError, match="lie outside"):
            parse(pack_index("record", keys_of(["a", "b"]), [payload(**changes)], end=100), 100)
    parse(pack_index("record", keys_of(["a", "b"]), [payload()], end=12), 12)
    with pytest.raises(FormatError, match="lie outside"):
        parse(pack_index("record", keys_of(["a", "b"]), [payload()], end=11), 11)
    for base in (-1, 81, 1 << 63):
        wide = Column("e", FieldType.parse("array:uint8:10"), base=base)
        with pytest.raises(FormatError, match="lie outside"):
            parse(pack_index("record", keys_of(["a", "b"]), [wide], end=100), 100)


def rebuilt(change) -> bytes:
    """A small index whose map went through ``change``, with right lengths and checksums."""
    columns = [payload(), Column("cls", FieldType.parse("int32"), values=np.array([1, 2], np.int32))]
    columns.append(Column("ok", FieldType.parse("bool"), values=np.array([True, False])))
    data = pack_index("record", keys_of(["a", "b"]), columns, end=12)
    _, version, length = struct.unpack_from("<8sII", data)
    head = msgpack.unpackb(data[16 : 16 + length])
    head = change(head) or head
    packed = msgpack.packb(head)
    start, old = 16 + len(packed), 16 + length
    body = data[old + -old % 64 : -32]
    out = struct.pack("<8sII", b"SSINDEX\n", version, len(packed)) + packed + bytes(-start % 64) + body
    out += struct.pack("<8sIIQ", b"SSTRAIL\n", 1, 0, len(out) + 32)
    return out + struct.pack("<Q", xxhash.xxh3_64_intdigest(out))


HOSTILE = {
    "no map": lambda h: 5,
    "a list": lambda h: [1, 2],
    "nothing": lambda h: {"framing": "record"},
    "samples too many": lambda h: h.update(samples=1 << 60),
    "samples a float": lambda h: h.update(samples=2.0),
    "samples negative": lambda h: h.update(samples=-2),
    "samples true": lambda h: h.update(samples=True),
    "other framing": lambda h: h.update(framing="tar"),
    "framing a list": lambda h: h.update(framing=[1]),
    "end": lambda h: h.update(end=11),
    "fields none": lambda h: h.update(fields=None),
    "fields a str": lambda h: h.update(fields="abc"),
    "field twice": lambda h: h["fields"].append(h["fields"][0]),
    "field without arrays": lambda h: h["fields"].append({**h["fields"][0], "name": "x"}),
    "name a path": lambda h: h["fields"][0].update(name="x/../../victim"),
    "name reserved": lambda h: h["fields"][0].update(name="__key__"),
    "name a list": lambda h: h["fields"][0].update(name=[1]),
    "type": lambda h: h["fields"][0].update(type="pickle"),
    "type of another width": lambda h: h["fields"][1].update(type="int64"),
    "type another kind": lambda h: h["fields"][1].update(type="jpg"),
    "type too wide": lambda h: h["fields"][0].update(type="array:float64:9999999999,9999999999"),
    "type with a long number": lambda h: h["fields"][0].update(type="array:uint8:" + "9" * 6000),
    "type with other digits": lambda h: h["fields"][0].update(type="array:uint8:٣"),
    "type a list": lambda h: h["fields"][0].update(type=["jpg"]),
    "type none": lambda h: h["fields"][0].update(type=None),
    "codec": lambda h: h["fields"][0].update(codec="lzma"),
    "codec without lengths": lambda h: h["fields"][0].update(codec="zstd"),
    "codec of a scalar": lambda h: (
        h["fields"][1].update(codec="zstd"),
        h["arrays"].append(["cls", "raw_lengths", "<u4", 0, 2]),
    )[2:],
    "base a float": lambda h: h["fields"][0].update(type="array:uint8:1", base=0.5),
    "base true": lambda h: h["fields"][0].update(type="array:uint8:1", base=True),
    "base a str": lambda h: h["fields"][0].update(type="array:uint8:1", base="0"),
    "array offset negative": lambda h: h["arrays"][3].__setitem__(3, -64),
    "array offset far": lambda h: h["arrays"][3].__setitem__(3, 1 << 63),
    "array offset a str": lambda h: h["arrays"][3].__setitem__(3, "0"),
    "array count far": lambda h: h["arrays"][3].__setitem__(4, 1 << 63),
    "array count negative": lambda h: h["arrays"][3].__setitem__(4, -1),
    "array count other": lambda h: h["arrays"][3].__setitem__(4, 1),
    "array count none": lambda h: h["arrays"][3].__setitem__(4, None),
    "array of objects": lambda h: h["arrays"][2].__setitem__(2, "|O"),
    "array of floats": lambda h: h["arrays"][2].__setitem__(2, "<f4"),
    "array of signed": lambda h: h["arrays"][2].__setitem__(2, "<i4"),
    "array of big endian": lambda h: h["arrays"][2].__setitem__(2, ">u4"),
    "array of structs": lambda h: h["arrays"][2].__setitem__(2, "i4,i4"),
    "array of a list": lambda h: h["arrays"][2].__setitem__(2, [["a", "<i4"]]),
    "array short": lambda h: h["arrays"].append([1, 2]),
    "array of nobody": lambda h: h["arrays"][0].__setitem__(0, {"a": 1}),
    "keys missing": lambda h: h["arrays"].pop(0) and None,
    "keys descending": lambda h: h["arrays"][0].__setitem__(3, h["arrays"][1][3]),
    "keys cut": lambda h: h["arrays"][1].__setitem__(4, 1),
    "bool of numbers": lambda h: h["arrays"][6].__setitem__(3, h["arrays"][2][3]),
    "valid too short": lambda h: h["arrays"].append(["jpg", "valid", "|u1", 0, 0]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_maps_that_contradict_themselves(name) -> None:
    def change(head):
        result = HOSTILE[name](head)
        return result if result in (5, [1, 2]) or isinstance(result, dict) else head

    data = rebuilt(change)
    with pytest.raises(FormatError) as caught:
        parse(data, 12)
    assert caught.value.place["shard"] == "s"
    assert caught.value.hint


def test_the_same_map_unchanged_is_read() -> None:
    index = parse(rebuilt(lambda head: head), 12)
    assert sorted(index.columns) == ["cls", "jpg", "ok"]


def test_readers_leave_out_what_they_do_not_know() -> None:
    def change(head):
        head["later"] = {"a": [1]}
        head["fields"][0]["later"] = 1
        head["arrays"].append(["jpg", "later", "<f8", 0, 1 << 60])
        return head

    assert sorted(parse(rebuilt(change), 12).columns) == ["cls", "jpg", "ok"]


def test_keys_that_are_no_utf8_are_found_when_read() -> None:
    data = pack_index("record", (np.array([1, 3], np.uint64), b"a\xff\xfe"), [], end=0)
    index = parse(data, 0)
    assert index.keys[0] == "a"
    for ask in (lambda: index.keys[1], lambda: list(index.keys)):
        with pytest.raises(FormatError, match="no UTF-8") as caught:
            ask()
        assert caught.value.place == {"shard": "s", "sample": 1}


@given(names=st.lists(st.text("/ab.é", max_size=4), max_size=6))
@example(names=["a", "/b"])
@example(names=["a/", "b"])
@example(names=["a//b"])
@example(names=["a", "", "b"])
def test_an_index_with_a_key_that_no_writer_takes_is_refused(names) -> None:
    data = pack_index("record", keys_of(names), [], end=0)
    if all(map(is_key, names)):
        assert list(parse(data, 0).keys) == names
    else:
        with pytest.raises(FormatError, match="one of its keys"):
            parse(data, 0)


def test_too_many_fields_are_refused_when_written() -> None:
    names = [f"{i:0200d}" for i in range(45_000)]
    columns = [Column(name, FieldType.parse("bool"), values=np.zeros(0, bool)) for name in names]
    with pytest.raises(FieldError, match="too many"):
        pack_index("record", keys_of([]), columns, end=0)
