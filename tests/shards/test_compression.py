"""Values compressed one by one."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import DecodeError
from shardstream.shards.compression import compress, decompress
from shardstream.shards.framings import framing_of

from .making import extract_all, scan_bytes, shard_bytes

TEXT = [b"", b"a", b"abc" * 5000, bytes(10 << 20)]


@pytest.mark.parametrize("data", TEXT, ids=len)
def test_there_and_back(data) -> None:
    frame = compress(data)
    assert decompress(memoryview(frame), size=len(data)) == data
    assert zstandard.ZstdDecompressor().decompress(frame) == data
    for size in (len(data) + 1, 1 << 62):
        with pytest.raises(DecodeError, match="announces"):
            decompress(memoryview(frame), size=size)


@given(frame=st.binary(max_size=60), size=st.sampled_from([0, 1, 1000, 1 << 40, (1 << 64) - 1]))
def test_any_bytes_are_a_value_or_a_decode_error(frame, size) -> None:
    for data in (frame, b"\x28\xb5\x2f\xfd" + frame):
        try:
            assert len(decompress(memoryview(data), size=size)) == size
        except DecodeError as error:
            assert error.hint  # noqa: PT017 - or no error at all


def test_a_frame_that_announces_more_than_it_can_hold_is_refused_before_anything_is_allocated() -> None:
    size = 1 << 46
    frame = b"\x28\xb5\x2f\xfd\xe0" + size.to_bytes(8, "little") + b"\x01\x00\x00"
    assert zstandard.frame_content_size(frame) == size
    with pytest.raises(DecodeError, match="announces"):
        decompress(memoryview(frame), size=size)


def test_bytes_after_a_frame_are_refused() -> None:
    with pytest.raises(DecodeError, match="unused data"):
        decompress(memoryview(compress(b"abc") + b"x"), size=3)


def test_threads_do_not_share_contexts() -> None:
    wrong = []

    def work(seed: int) -> None:
        data = np.random.default_rng(seed).integers(0, 4, 50_000, np.uint8).tobytes()
        wrong.extend(seed for _ in range(30) if decompress(memoryview(compress(data)), size=len(data)) != data)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not wrong


def test_a_compressed_field_is_smaller_and_says_where_it_is_damaged(tmp_path) -> None:
    samples = [(f"{i}", {"txt": "word " * 200, "jpg": b"x"}) for i in range(5)]
    plain, packed = (
        shard_bytes(tmp_path, "record", samples, **options) for options in ({}, {"zstd": frozenset({"txt"})})
    )
    assert len(packed) < len(plain) / 2
    index, buffers = scan_bytes("record", packed)
    assert extract_all("record", index, buffers)["txt"] == [("word " * 200).encode()] * 5
    offset = int(index.column("txt").offsets[3])
    damaged = bytearray(packed)
    damaged[offset : offset + 4] = b"none"
    index, buffers = scan_bytes("record", bytes(damaged))
    with pytest.raises(DecodeError, match="decompress") as caught:
        framing_of("record").extract(index, buffers, np.array([0, 3]), ["txt"], verify=False)
    assert caught.value.place == {
        "url": "memory",
        "shard": "damaged",
        "sample": 3,
        "key": "3",
        "field": "txt",
        "offset": offset,
    }
