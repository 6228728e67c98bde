"""What both writers promise: equal bytes for equal samples, and refused samples that leave no trace."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import warnings

import numpy as np
import pytest
import xxhash

from shardstream.errors import FieldError, UsageError
from shardstream.shards import record
from shardstream.shards.fields import FieldType
from shardstream.shards.framings import writer_of
from shardstream.shards.writing import encode_value
from shardstream.storage.local.store import LocalStore

from .making import FRAMINGS, TYPES, extract_all, samples_of, scan_bytes, shard_bytes, write_shard

pytestmark = pytest.mark.parametrize("framing", FRAMINGS)


def test_the_same_samples_give_the_same_bytes_in_any_process(framing, tmp_path) -> None:
    data = shard_bytes(tmp_path, framing, samples_of(20))
    (tmp_path / "elsewhere").mkdir()
    assert shard_bytes(tmp_path / "elsewhere", framing, samples_of(20)) == data
    assert str(tmp_path).encode() not in data
    shuffled = [(key, dict(reversed(values.items()))) for key, values in samples_of(20)]
    assert shard_bytes(tmp_path, framing, shuffled) == data
    code = (
        "import sys, hashlib, importlib, pathlib, tempfile\n"
        f"sys.path.insert(0, {str(__file__).rsplit('/', 2)[0]!r})\n"
        "making = importlib.import_module('shards.making')\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        f"    data = making.shard_bytes(pathlib.Path(folder), {framing!r}, making.samples_of(20))\n"
        "print(hashlib.sha256(data).hexdigest())\n"
    )
    environment = {"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == hashlib.sha256(data).hexdigest(), done.stderr


def test_the_summary_says_what_was_written(framing, tmp_path) -> None:
    summary = write_shard(LocalStore(tmp_path), "x", framing, samples_of(9))
    data = (tmp_path / "x").read_bytes()
    assert (summary.samples, summary.bytes, summary.fields) == (9, len(data), dict(sorted(TYPES.items())))
    assert summary.checksum == xxhash.xxh3_64_intdigest(data)
    index, _ = scan_bytes(framing, data)
    assert index.end == len(data) - summary.index_bytes - {"tar": 1024, "record": 0}[framing]


def test_checksums_can_be_left_out(framing, tmp_path) -> None:
    with_, without = (shard_bytes(tmp_path, framing, samples_of(200), checksums=c) for c in (True, False))
    assert len(without) < len(with_)
    index, buffers = scan_bytes(framing, without)
    assert all(column.checksums is None for column in index.columns.values())
    assert extract_all(framing, index, buffers)["jpg"] == [v["jpg"] for _, v in samples_of(200)]


def test_what_is_refused_leaves_the_shard_as_it_was(framing, tmp_path) -> None:
    good = samples_of(4)
    encoded = [(key, {n: (TYPES[n], encode_value(n, TYPES[n], v)) for n, v in values.items()}) for key, values in good]
    png, scalar = FieldType.parse("png"), FieldType.parse("int8")
    with LocalStore(tmp_path).create("x") as out:
        shard = writer_of(framing)(out)
        for key, sample in encoded:
            shard.write(key, sample)
            size, samples = shard.size, shard.samples
            for bad, error, words in (
                (("k", {**sample, "jpg": (png, b"1")}), FieldError, "is jpg, not png"),
                (("k", {**sample, "a b": (scalar, 1)}), FieldError, "cannot be a field name"),
                (("k", {**sample, "__x__": (scalar, 1)}), FieldError, "reserved"),
                (("k", {**sample, "JPG": (png, b"1")}), FieldError, "differ by case"),
                (("", sample), UsageError, "non-empty"),
                (("/a", sample), UsageError, "begin or end"),
            ):
                with pytest.raises(error, match=words):
                    shard.write(*bad)
            assert (shard.size, shard.samples) == (size, samples)
        shard.finish()
    assert (tmp_path / "x").read_bytes() == shard_bytes(tmp_path, framing, good)


def test_fields_that_come_late_are_missing_before(framing, tmp_path) -> None:
    types = {"a": FieldType.parse("int8"), "b": FieldType.parse("array:uint8:3"), "c": FieldType.parse("bytes")}
    types |= {"d": FieldType.parse("float16"), "e": FieldType.parse("bool"), "z": FieldType.parse("array:int32:0,2")}
    late = {"b": np.array([1, 2, 3], np.uint8), "c": b"", "d": 0.5, "e": True, "z": np.zeros((0, 2), np.int32)}
    samples = [("0", {"a": 1}), ("1", {"a": 2}), ("2", {**late}), ("3", {})]
    index, buffers = scan_bytes(framing, shard_bytes(tmp_path, framing, samples, types=types))
    found = extract_all(framing, index, buffers)
    assert found["a"] == [1, 2, None, None]
    for name, value in late.items():
        assert [one is None for one in found[name]] == [True, True, False, True]
        np.testing.assert_array_equal(found[name][2], value)
    assert found["z"][2].shape == (0, 2)


def test_a_field_wide_and_late_does_not_take_memory_for_what_is_missing(framing, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(record, "_COPY", 1000)
    monkeypatch.setattr(record, "_SPOOL", 5000)
    types = {"a": FieldType.parse("int8"), "e": FieldType.parse("array:uint8:777")}
    samples = [(f"{i}", {"a": 0}) for i in range(30)]
    samples[20] = ("20", {"a": 0, "e": np.full(777, 7, np.uint8)})
    index, buffers = scan_bytes(framing, shard_bytes(tmp_path, framing, samples, types=types))
    found = extract_all(framing, index, buffers)["e"]
    assert [one is not None for one in found] == [i == 20 for i in range(30)]
    np.testing.assert_array_equal(found[20], 7)


def test_an_unfinished_shard_can_be_closed(framing, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(record, "_SPOOL", 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = LocalStore(tmp_path).create("x")
        shard = writer_of(framing)(out)
        for key, values in samples_of(3):
            shard.write(key, {n: (TYPES[n], encode_value(n, TYPES[n], v)) for n, v in values.items()})
        out.discard()
        shard.close()
        shard.close()
    assert list(tmp_path.iterdir()) == []


def test_scalars_keep_every_bit(framing, tmp_path) -> None:
    values = {
        "int64": [-(1 << 63), (1 << 63) - 1, (1 << 53) + 1],
        "uint64": [0, (1 << 64) - 1, (1 << 53) + 1],
        "int8": [-128, 127, 0],
        "uint8": [0, 255, 1],
        "float64": [0.1, float("nan"), -0.0],
        "float32": [float("inf"), float("-inf"), 3.4e38],
        "float16": [65504.0, 1e-8, float("nan")],
        "bool": [True, False, True],
    }
    types = {name: FieldType.parse(name) for name in values}
    samples = [(f"{i}", {name: values[name][i] for name in values}) for i in range(3)]
    index, _ = scan_bytes(framing, shard_bytes(tmp_path, framing, samples, types=types))
    for name, expected in values.items():
        column = index.column(name).values
        assert column.dtype == np.dtype(name)
        assert column.tobytes() == np.array(expected, name).tobytes()


def test_only_payloads_are_compressed(framing, tmp_path) -> None:
    if framing == "tar":
        pytest.skip("no compression")
    with pytest.raises(FieldError, match="cannot be compressed") as caught:
        shard_bytes(tmp_path, framing, samples_of(3), zstd=frozenset({"emb"}))
    assert caught.value.place["field"] == "emb"
