"""MDS: against files and values of mosaicml-streaming, random data sets, and files that lie."""

from __future__ import annotations

import json
import random
import re
import shutil
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import FormatError, UsageError
from shardstream.formats.chunks.encoded_values import msgpack_of_jpegs, msgpack_of_list, npy_of_pil
from shardstream.formats.chunks.mds import Mds, npy_of_ndarray
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import PIECE
from shardstream.shards.field_names import usable_field

from .damaging import cut, flipped, scan_bytes
from .records import mds_shard, records_object, write_mds
from .scanning import in_memory, listing_of, recognised, samples, scanned
from .told import check, expected

GOLDEN = Path(__file__).parents[1] / "golden" / "foreign" / "mds"
MDS = Mds()
JPEG = b"\xff\xd8\xff\xe0photograph"
LABELLED = (("image", "jpeg", None), ("label", "int", 8))


def labelled(count: int) -> list[tuple[bytes, bytes]]:
    return [(JPEG * (row % 3 + 1), struct.pack("<q", row - 2)) for row in range(count)]


def rewrite(folder: Path, index: Any) -> None:
    (folder / "index.json").write_text(index if isinstance(index, str) else json.dumps(index))


def refusal(folder: Path) -> FormatError:
    with pytest.raises(FormatError) as caught:
        samples(MDS, folder)
    assert caught.value.hint
    return caught.value


class TestGolden:
    @pytest.mark.parametrize("name", ["every", "merged"])
    @pytest.mark.parametrize("mapped", [True, False])
    def test_values_are_those_of_its_own_reader(self, name, mapped):
        folder = GOLDEN / name
        found = samples(MDS, folder if mapped else in_memory(folder))
        told = expected(folder)
        assert len(found) == len(told) > 0
        for (key, values), sample in zip(found, told, strict=True):
            assert values.keys() == {usable_field(one) for one in sample}
            for field, value in sample.items():
                check(values[usable_field(field)], value, (key, field))

    def test_keys_are_shards_and_rows_and_empty_shards_have_none(self):
        keys = [key for key, _ in samples(MDS, GOLDEN / "merged")]
        assert keys[:2] == ["0/shard.00001/00000000", "0/shard.00002/00000000"]
        assert len(recognised(MDS, listing_of(GOLDEN / "merged")).objects) > len({key[:13] for key in keys})

    def test_types(self):
        rows = next(rows for _, rows in scanned(MDS, GOLDEN / "every"))
        types = {column.name: (str(column.type), column.codec) for column in rows.columns}
        assert types["photo"] == types["jpeg"] == ("jpg", "none")
        assert types["png"] == ("png", "none")
        assert types["bytes"] == ("bytes", "none")
        assert types["int"] == types["str_int"] == ("int64", "none")
        assert types["float16"] == ("float16", "none")
        assert types["str_float"] == ("float64", "none")
        assert types["str_decimal"] == ("str", "none")
        assert types["fixed.array"] == ("array:int16:2,3", "none")
        assert types["ndarray"] == ("array", "mds.ndarray")
        assert types["ndarray_typed"] == ("array", "mds.ndarray:float32")
        assert types["pil"] == ("array", "mds.pil")
        assert types["pils"] == ("msgpack", "mds.list:pil")

    def test_splits_are_not_mixed(self):
        with pytest.raises(UsageError) as caught:
            samples(MDS, GOLDEN / "splits")
        assert "splits/train, " in str(caught.value)
        assert "splits/val" in str(caught.value)
        assert len(samples(MDS, GOLDEN / "splits" / "train")) == 2

    @pytest.mark.parametrize("codec", ["zstd", "gz", "br", "bz2", "snappy"])
    def test_compressed_shards_are_read_inflated(self, codec):
        if codec in ("br", "snappy"):
            pytest.importorskip("cramjam")
        found = samples(MDS, GOLDEN / f"packed-{codec}")
        assert [key for key, _ in found] == [f"shard.00000/{row:08d}" for row in range(4)]
        assert [(one["label"], one["text"]) for _, one in found] == [(row, f"photograph {row}") for row in range(4)]
        assert all(one["image"][:3] == b"\xff\xd8\xff" for _, one in found)
        assert repr(found) == repr(samples(MDS, in_memory(GOLDEN / f"packed-{codec}")))

    @pytest.mark.parametrize(("hashed", "at"), [("raw_data", "sha1"), ("zip_data", "xxh64")])
    def test_compressed_shards_are_compared_with_their_hashes(self, tmp_path, hashed, at):
        shutil.copytree(GOLDEN / "packed-zstd", tmp_path, dirs_exist_ok=True)
        index = json.loads((tmp_path / "index.json").read_text())
        index["shards"][0][hashed]["hashes"][at] = "00"
        index["shards"][0][hashed]["hashes"]["unknown"] = "x"
        rewrite(tmp_path, index)
        assert f"{at} is " in refusal(tmp_path).what

    @pytest.mark.parametrize("codec", ["zstd", "gz", "br", "bz2", "snappy"])
    @pytest.mark.parametrize("more", [-1, 1, (1 << 30), (1 << 40)])
    def test_sizes_that_lie_are_refused(self, tmp_path, codec, more):
        if codec in ("br", "snappy"):
            pytest.importorskip("cramjam")
        shutil.copytree(GOLDEN / f"packed-{codec}", tmp_path, dirs_exist_ok=True)
        index = json.loads((tmp_path / "index.json").read_text())
        index["shards"][0]["raw_data"]["bytes"] += more
        rewrite(tmp_path, index)
        assert re.search("inflate|larger than", refusal(tmp_path).what)

    @pytest.mark.one_in(3)
    @pytest.mark.parametrize("codec", ["zstd", "gz", "br", "bz2", "snappy"])
    def test_compressed_shards_that_are_damaged_are_refused(self, tmp_path, codec):
        if codec in ("br", "snappy"):
            pytest.importorskip("cramjam")
        shutil.copytree(GOLDEN / f"packed-{codec}", tmp_path, dirs_exist_ok=True)
        (path,) = tmp_path.glob("*.mds.*")
        whole, index = path.read_bytes(), json.loads((tmp_path / "index.json").read_text())
        index["shards"][0]["zip_data"].pop("hashes")
        rng = random.Random(4)
        for length in range(0, len(whole), 19):
            index["shards"][0]["zip_data"]["bytes"] = length
            rewrite(tmp_path, index)
            path.write_bytes(whole[:length])
            refusal(tmp_path)
        index["shards"][0]["zip_data"]["bytes"] = len(whole)
        rewrite(tmp_path, index)
        for _ in range(50):
            data = bytearray(whole)
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
            with suppress(FormatError):  # flags that say nothing of the bytes
                samples(MDS, tmp_path)

    def test_a_codec_that_is_not_known_is_named(self, tmp_path):
        shutil.copytree(GOLDEN / "packed-zstd", tmp_path, dirs_exist_ok=True)
        index = json.loads((tmp_path / "index.json").read_text())
        index["shards"][0]["compression"] = "rar:9"
        rewrite(tmp_path, index)
        assert "rar:9" in refusal(tmp_path).what

    def test_pickles_are_refused(self):
        error = refusal(GOLDEN / "pickled")
        assert "'x'" in error.what
        assert "pkl" in error.what


NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
payloads = st.sampled_from(("bytes", "str", "json"))
columns_drawn = st.lists(
    st.one_of(st.sampled_from(NUMBERS), payloads, st.sampled_from(("ndarray:int16:2,2", "int"))), min_size=1, max_size=5
)


def stored_of(encoding: str, draw: Any) -> tuple[bytes, Any]:
    """What is stored, and what it is."""
    if encoding in NUMBERS or encoding == "int":
        dtype = np.dtype("int64" if encoding == "int" else encoding).newbyteorder("<")
        raw = draw(st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize))
        return raw, np.frombuffer(raw, dtype)[0].item()
    if encoding == "ndarray:int16:2,2":
        raw = draw(st.binary(min_size=8, max_size=8))
        return raw, raw
    if encoding == "str":
        text = draw(st.text(max_size=9))
        return text.encode(), text
    if encoding == "json":
        value = draw(st.lists(st.integers(), max_size=3))
        return json.dumps(value).encode(), value
    raw = draw(st.binary(max_size=40))
    return raw, raw


class TestRandom:
    @given(st.data())
    def test_random_data_sets_come_back(self, tmp_path_factory, data):
        encodings = data.draw(columns_drawn)
        sizes = {"int": 8, "ndarray:int16:2,2": 8} | {name: np.dtype(name).itemsize for name in NUMBERS}
        columns = [(f"c{number}", one, sizes.get(one)) for number, one in enumerate(encodings)]
        shards, told = [], []
        for _ in range(data.draw(st.integers(1, 3))):
            rows = [[stored_of(one, data.draw) for one in encodings] for _ in range(data.draw(st.integers(0, 5)))]
            shards.append([[raw for raw, _ in row] for row in rows])
            told += [[value for _, value in row] for row in rows]
        folder = tmp_path_factory.mktemp("mds")
        write_mds(folder, columns, shards)
        for place in (folder, in_memory(folder)):
            found = [list(values.values()) for _, values in samples(MDS, place)]
            plain = [[one.tobytes() if isinstance(one, np.ndarray) else one for one in row] for row in found]
            assert repr(plain) == repr(told)

    def test_pieces_and_reads_of_an_object_that_is_not_mapped(self, tmp_path):
        rows = [(JPEG + bytes(row % 90), struct.pack("<q", row)) for row in range(2 * PIECE + 5)]
        rows[7] = (JPEG + bytes(5 << 20), rows[7][1])
        write_mds(tmp_path, LABELLED, [rows])
        store = in_memory(tmp_path)
        (one,) = recognised(MDS, listing_of(store)).objects
        before = len(store.requests)
        found = [*MDS.scan(ObjectBytes(store, one.path, one.size), one.about)]
        assert len(store.requests) - before < 20
        assert [len(piece.keys) for piece in found] == [2732, 2732, 2733]
        assert np.concatenate([piece.columns[1].values for piece in found]).tolist() == [*range(len(rows))]
        assert found[0].columns[0].lengths.tolist() == [len(image) for image, _ in rows[: len(found[0].keys)]]
        assert all(str(piece.columns[0].type) == "jpg" for piece in found)
        assert found[2].keys[-1] == f"shard.00000/{len(rows) - 1:08d}"

    def test_numbers_with_a_size_and_payloads_without(self, tmp_path):
        columns = (("n", "int", None), ("code", "bytes", 3), ("empty", "str", 0))
        write_mds(tmp_path, columns, [[(struct.pack("<q", 5), b"abc", b""), (struct.pack("<q", 6), b"def", b"x")]])
        assert [values for _, values in samples(MDS, tmp_path)] == [
            {"n": 5, "code": b"abc", "empty": ""},
            {"n": 6, "code": b"def", "empty": "x"},
        ]

    def test_images_by_their_first_bytes(self, tmp_path):
        webp, png = b"RIFF\0\0\0\0WEBPVP8 ", b"\x89PNG\r\n\x1a\n...."
        columns = (("one", "bytes", None), ("both", "jpeg", None), ("none", "jpeg", None), ("gaps", "png", None))
        write_mds(tmp_path, columns, [[(webp, png, b"BM..", png), (webp, JPEG, b"BM..", b"")]])
        ((_, rows),) = scanned(MDS, tmp_path)
        assert [str(column.type) for column in rows.columns] == ["webp", "image", "bytes", "png"]

    def test_digits(self, tmp_path):
        columns = (("i", "str_int", None), ("f", "str_float", None))
        rows = [(b"-9223372036854775808", b"1e-5"), (b"7", b"nan")]
        write_mds(tmp_path, columns, [rows])
        found = [values for _, values in samples(MDS, tmp_path)]
        assert found[0] == {"i": -(2**63), "f": 1e-5}
        write_mds(tmp_path, columns, [[*rows, (b"9223372036854775808", b"x" * 500)]])
        ((_, cut_off),) = scanned(MDS, tmp_path)
        assert len(cut_off.keys) == 2
        assert "text=i" in cut_off.damage.hint
        assert samples(MDS, tmp_path, {"text": "i, f"})[2][1] == {"i": "9223372036854775808", "f": "x" * 500}
        with pytest.raises(UsageError, match="'g'"):
            samples(MDS, tmp_path, {"text": "g"})
        write_mds(tmp_path, columns, [[(b"seven", b"0")]])
        assert "'seven' (i)" in refusal(tmp_path).what


class TestIndex:
    def test_unknown_keys_and_a_raw_shard_beside_what_was_compressed(self, tmp_path):
        index = write_mds(tmp_path, LABELLED, [labelled(2)])
        index["new"] = {"a": 1}
        index["shards"][0] |= {"new": 1, "compression": "zstd", "zip_data": {"basename": "x.zstd", "bytes": 1}}
        rewrite(tmp_path, index)
        assert len(samples(MDS, tmp_path)) == 2

    @pytest.mark.parametrize(
        "name",
        ["/etc/passwd", "../x.mds", "a/../../x", "a\\x.mds", "", "a//b", "./a", "s3://b/a", 3, None, "a\0b", "."],
    )
    def test_names_that_lead_elsewhere_are_refused(self, tmp_path, name):
        index = write_mds(tmp_path, LABELLED, [labelled(1)])
        index["shards"][0]["raw_data"]["basename"] = name
        rewrite(tmp_path, index)
        assert "basename" in refusal(tmp_path).what
        index["shards"][0] |= {"zip_data": {"basename": name}, "raw_data": {"basename": "x", "bytes": 1}}
        rewrite(tmp_path, index)
        assert "basename" in refusal(tmp_path).what

    @pytest.mark.parametrize(
        ("change", "what"),
        [
            ({"version": 1}, "version 1"),
            ({"format": "csv"}, "'csv'"),
            ({"samples": 3}, "3"),
            ({"samples": -1}, "samples"),
            ({"samples": 1e3}, "samples"),
            ({"samples": True}, "samples"),
            ({"column_sizes": [None, 4]}, "'int'"),
            ({"column_sizes": [None]}, "column_sizes"),
            ({"column_sizes": [None, -8]}, "column_sizes"),
            ({"column_sizes": [None, 1 << 40]}, "column_sizes"),
            ({"column_names": ["a/b", "a.b"]}, "a.b"),
            ({"column_names": ["a", 1]}, "column_names"),
            ({"column_names": [], "column_encodings": [], "column_sizes": []}, "column_names"),
            ({"column_encodings": ["jpeg", "pkl"]}, "pickle"),
            ({"column_encodings": ["jpeg", "int128"]}, "'int128'"),
            ({"column_encodings": ["jpeg", "ndarray:complex64"]}, "complex64"),
            ({"column_encodings": ["jpeg", "ndarray::2"]}, "ndarray::2"),
            ({"column_encodings": ["jpeg", "ndarray:int8:2,x"]}, "2,x"),
            ({"column_encodings": ["jpeg", "ndarray:int8:9"]}, "8"),
            ({"column_encodings": ["jpeg", "ndarray:int64:9999999999,9999999999"]}, "9999999999"),
            ({"raw_data": None}, "raw_data"),
            ({"raw_data": {"basename": "shard.00000.mds", "bytes": 5}}, "5"),
            ({"raw_data": {"basename": "shard.00009.mds", "bytes": 5}}, "not here"),
        ],
    )
    def test_what_contradicts_or_is_not_known_is_refused(self, tmp_path, change, what):
        index = write_mds(tmp_path, LABELLED, [labelled(2)])
        index["shards"][0] |= change
        rewrite(tmp_path, index)
        assert what in refusal(tmp_path).what

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "[",
            '{"version": 2, "shards": ' + "[" * 100_000,
            "[1]",
            '{"shards": [], "version": 2}',
            "\xff",
            "9" * 5000,
            '{"shards": [3], "version": 2}',
            '{"shards": [{}], "version": [[2]]}',
        ],
    )
    def test_an_index_that_is_none(self, tmp_path, text):
        write_mds(tmp_path, LABELLED, [labelled(1)])
        rewrite(tmp_path, text)
        refusal(tmp_path)

    def test_a_shard_that_is_listed_twice(self, tmp_path):
        index = write_mds(tmp_path, LABELLED, [labelled(1)])
        rewrite(tmp_path, index | {"shards": index["shards"] * 2})
        assert "twice" in refusal(tmp_path).what

    def test_what_is_not_of_this_format(self, tmp_path):
        for text in ('{"chunks": []}', '{"shards": []}', '{"version": 2}', "[", ""):
            (tmp_path / "index.json").write_text(text)
            assert MDS.recognize(listing_of(tmp_path), {}) is None
        (tmp_path / "index.json").unlink()
        (tmp_path / "a.tar").write_bytes(b"")
        assert MDS.recognize(listing_of(tmp_path), {}) is None

    def test_shards_without_index(self, tmp_path):
        write_mds(tmp_path, LABELLED, [labelled(1)])
        (tmp_path / "index.json").unlink()
        assert "index.json" in refusal(tmp_path).what

    def test_a_data_set_in_a_folder_beside_is_told(self, tmp_path):
        write_mds(tmp_path, LABELLED, [labelled(1)])
        write_mds(tmp_path / "val", LABELLED, [labelled(1)])
        (note,) = recognised(MDS, listing_of(tmp_path)).notes
        assert "val" in note


class TestDamage:
    def test_cut_off_anywhere(self):
        entry, data = mds_shard("x.mds", LABELLED, labelled(3))
        about = {"samples": 3, "columns": [list(one) for one in LABELLED]}
        assert entry["samples"] == scan_bytes(MDS, data, about)
        assert [scan_bytes(MDS, part, about) for part in cut(data)] == [0] * len(data)

    def test_changed_bytes(self):
        columns = [("a", "bytes", None), ("n", "str_int", None), ("f", "float32", 4), ("z", "ndarray", None)]
        _, data = mds_shard("x.mds", columns, [(JPEG, b"%d" % row, b"1234", b"\x09\x04\x02ab") for row in range(4)])
        about = {"samples": 4, "columns": [list(one) for one in columns]}
        found = [scan_bytes(MDS, part, about) for part in flipped(data, 400)]
        assert {0, 4} <= set(found) <= {0, 1, 2, 3, 4}

    def test_a_damaged_sample_ends_the_shard_and_keeps_what_is_before_it(self, tmp_path):
        index = write_mds(tmp_path, LABELLED, [labelled(5)])
        path = tmp_path / "shard.00000.mds"
        data = bytearray(path.read_bytes())
        (offset,) = struct.unpack_from("<I", data, 4 + 4 * 3)
        data[offset] ^= 1
        path.write_bytes(data)
        rewrite(tmp_path, index)
        ((_, rows),) = scanned(MDS, tmp_path)
        assert len(rows.keys) == len(rows.columns[1].values) == 3
        assert rows.damage.place["offset"] == offset
        assert "sample 3" in rows.damage.what

    def test_offsets_that_wrapped_are_told(self, tmp_path):
        class Huge(ObjectBytes):
            def __init__(self) -> None:
                data = records_object([b"\0\0\0\0"])
                self.size, self.url, self.path, self._held, self._start = len(data) + (1 << 32), "x", "x", data, 0
                self._held = memoryview(data)

        with pytest.raises(FormatError, match="32 bits") as caught:
            [*MDS.scan(Huge(), {"samples": 1, "columns": [["a", "str", None]]})]
        assert "4 GiB" in caught.value.hint

    def test_a_count_that_is_not_there_allocates_nothing(self):
        data = struct.pack("<II", 0xFFFFFFFF, 8)
        assert scan_bytes(MDS, data, {"samples": 0xFFFFFFFF, "columns": [["a", "str", None]]}) == 0


class TestForms:
    @given(st.binary(max_size=60))
    def test_bytes_that_are_no_such_value(self, data):
        for name, form in MDS.forms.items():
            for text in ("", "pil") if name == "list" else ("", "int16") if name == "ndarray" else ("",):
                try:
                    found = form(memoryview(data), text)
                except ValueError:
                    continue
                assert len(found) <= 8 * len(data) + 400

    def test_arrays(self):
        header = bytes([33, 2 << 2 | 1]) + struct.pack("<HH", 2, 1)
        values = struct.pack("<ii", 5, -6)
        found = npy_of_ndarray(memoryview(header + values), "")
        assert found.endswith(values)
        assert b"(2, 1)" in found
        assert npy_of_ndarray(memoryview((header + values)[1:]), "int32") == found
        for wrong in (header + values[1:], b"", b"\x07" + header[1:] + values, header[:3], header[:1]):
            with pytest.raises(ValueError):
                npy_of_ndarray(memoryview(wrong), "")

    def test_lists_that_announce_what_they_do_not_have(self):
        for wrong in (b"", b"\xff" * 4, struct.pack("<II", 1, 9) + b"12345678", struct.pack("<I", 1 << 30)):
            with pytest.raises(ValueError):
                msgpack_of_jpegs(memoryview(wrong), "")
            with pytest.raises(ValueError):
                msgpack_of_list(memoryview(b"\0\0\0\0" + wrong), "")
        assert msgpack.unpackb(msgpack_of_list(memoryview(struct.pack("<IIII", 0, 2, 1, 0) + b"a"), "")) == [b"a", b""]

    @pytest.mark.parametrize("mode", [b"RGB", b"1", b"nope", b"I;16B", b"\xff", b"x" * 99])
    def test_pixels_that_are_too_few(self, mode):
        with pytest.raises(ValueError):
            npy_of_pil(memoryview(struct.pack("<III", 70000, 70000, len(mode)) + mode + b"..."), "")

    def test_big_endian_pixels(self):
        stored = struct.pack("<III", 2, 1, 5) + b"I;16B" + struct.pack(">HH", 1, 2)
        assert npy_of_pil(memoryview(stored), "").endswith(struct.pack("<HH", 1, 2))
