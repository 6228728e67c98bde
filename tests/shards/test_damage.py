"""Damaged shards: any bytes give right values or the error for damaged data, and never anything else."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import xxhash
from hypothesis import example, given
from hypothesis import strategies as st

from shardstream.errors import ChecksumError, DataError, FormatError, VersionError
from shardstream.shards.framings import framing_of

from .making import FRAMINGS, OneObject, extract_all, samples_of, scan_bytes, shard_bytes

END = {"tar": 1024, "record": 0}
SMALL = samples_of(3)


@pytest.fixture(scope="module", params=FRAMINGS)
def shard(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    data = shard_bytes(folder, request.param, SMALL)
    return request.param, data


def index_start(framing: str, data: bytes) -> int:
    trailer = len(data) - END[framing] - 32
    return trailer + 32 - struct.unpack_from("<Q", data, trailer + 16)[0]


def reseal(framing: str, data: bytearray) -> bytearray:
    """Make the index's checksum right again."""
    end = len(data) - END[framing]
    data[end - 8 : end] = xxhash.xxh3_64_intdigest(data[index_start(framing, data) : end - 8]).to_bytes(8, "little")
    return data


def test_a_shard_cut_at_any_byte_is_refused(shard) -> None:
    framing, data = shard
    for size in range(len(data)):
        with pytest.raises((FormatError, ChecksumError)) as caught:
            scan_bytes(framing, data[:size])
        assert caught.value.place["shard"] == "damaged"


def test_a_shard_cut_after_a_shard_inside_of_it_is_refused(tmp_path) -> None:
    for framing in FRAMINGS:
        inner = shard_bytes(tmp_path, framing, SMALL)
        data = shard_bytes(tmp_path, framing, [("a", {"jpg": b"0" * 64}), ("b", {"jpg": inner})])
        end = data.index(inner) + len(inner)
        with pytest.raises(FormatError, match="truncated or was spliced"):
            scan_bytes(framing, data[:end])


def test_every_flipped_byte_of_the_index_is_found(shard) -> None:
    framing, data = shard
    end = len(data) - END[framing]
    for at in range(index_start(framing, data), end):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        with pytest.raises((FormatError, ChecksumError)) as caught:
            scan_bytes(framing, bytes(damaged))
        assert caught.value.place["url"] == "memory"


def test_every_flipped_byte_of_a_value_is_found_in_its_sample(shard) -> None:
    framing, data = shard
    index, _ = scan_bytes(framing, data)
    seen = 0
    for name, column in index.columns.items():
        if column.type.kind == "scalar":
            continue
        for row, (key, values) in enumerate(SMALL):
            if name not in values:
                continue
            payload = values[name]
            payload = payload.encode() if isinstance(payload, str) else bytes(payload)
            start = (
                int(column.fixed_offsets(np.array([row]))[0]) if column.lengths is None else int(column.offsets[row])
            )
            assert data[start : start + len(payload)] == payload
            for at in range(start, start + len(payload)):
                damaged = bytearray(data)
                damaged[at] ^= 1
                with pytest.raises(ChecksumError) as caught:
                    extract_all(framing, *scan_bytes(framing, bytes(damaged)))
                place = {"shard": "damaged", "sample": row, "key": key, "field": name, "offset": start}
                assert caught.value.place == {"url": "memory", **place}
                seen += 1
    assert seen == sum(map(len, (v for _, s in SMALL for v in (s["jpg"],)))) + 2 * 24 + 4


@pytest.mark.parametrize("at", ["head", "trailer"])
def test_a_newer_version_says_upgrade(shard, at) -> None:
    framing, data = shard
    damaged = bytearray(data)
    where = index_start(framing, data) if at == "head" else len(data) - END[framing] - 32
    struct.pack_into("<I", damaged, where + 8, 2)
    with pytest.raises(VersionError, match="version 2 is newer than 1") as caught:
        scan_bytes(framing, bytes(reseal(framing, damaged)))
    assert caught.value.hint == "upgrade shardstream"
    struct.pack_into("<I", damaged, where + 8, 0)
    with pytest.raises(FormatError, match="format version must be"):
        scan_bytes(framing, bytes(reseal(framing, damaged)))


def accepts_or_refuses(framing: str, data: bytes, *, verify: bool) -> None:
    """Any bytes give values or a DataError, whose place names the shard."""
    try:
        index, buffers = scan_bytes(framing, data, verify=verify)
        list(index.keys)
        extract_all(framing, index, buffers, verify=verify)
        framing_of(framing).plan(index, np.arange(index.samples), list(index.columns))
    except DataError as error:
        assert error.place["shard"] == "damaged"  # noqa: PT017 - or no error at all
        assert error.hint  # noqa: PT017


@given(data=st.data(), reset=st.booleans())
def test_a_hostile_index_gives_values_or_a_data_error(shard, data, reset) -> None:
    framing, content = shard
    damaged = bytearray(content)
    first, end = index_start(framing, content), len(content) - END[framing]
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(first, end - 9))
        width = data.draw(st.sampled_from((1, 2, 4, 8)))
        damaged[at : min(at + width, end)] = data.draw(st.binary(min_size=width, max_size=width))[: end - at]
    if reset and index_start_fits(framing, damaged):
        reseal(framing, damaged)
    accepts_or_refuses(framing, bytes(damaged), verify=reset)


def index_start_fits(framing: str, data: bytearray) -> bool:
    return 0 <= index_start(framing, bytes(data)) < len(data) - END[framing] - 8


@given(map_=st.binary(max_size=300), rest=st.binary(max_size=600))
@example(map_=b"\x91" * 100_000, rest=b"")  # deeper than any stack
@example(map_=b"\xdd\xff\xff\xff\xff", rest=b"")  # lists, maps and strings of 4 GiB
@example(map_=b"\xdf\xff\xff\xff\xff", rest=b"")
@example(map_=b"\xdb\xff\xff\xff\xff", rest=b"")
@example(map_=(b"\xdd\x00\x00\xff\xff") * 500 + bytes(1 << 16), rest=b"")
def test_any_map_with_right_checksums_gives_values_or_a_data_error(map_, rest) -> None:
    body = struct.pack("<8sII", b"SSINDEX\n", 1, len(map_)) + map_ + rest
    whole = body + struct.pack("<8sIIQ", b"SSTRAIL\n", 1, 0, len(body) + 32)
    accepts_or_refuses("record", whole + struct.pack("<Q", xxhash.xxh3_64_intdigest(whole)), verify=True)


@given(data=st.binary(max_size=2000), framing=st.sampled_from(FRAMINGS), verify=st.booleans())
def test_random_bytes_are_refused(data, framing, verify) -> None:
    with pytest.raises(FormatError):
        scan_bytes(framing, data, verify=verify)


def test_a_wrong_guess_of_the_size_of_the_index_costs_a_second_read_only(shard) -> None:
    framing, data = shard
    for guess, reads in ((1, 2), (40, 2), (1 << 40, 1), (None, 1)):
        store, asked = OneObject(data), []
        tail = store.get_tail
        store.get_tail = lambda path, length, tail=tail, asked=asked: asked.append(length) or tail(path, length)
        index = framing_of(framing).scan(store, "x", index_bytes=guess)
        assert list(index.keys) == [key for key, _ in SMALL]
        assert len(asked) == reads
