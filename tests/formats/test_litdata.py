"""LitData: against files and values of litdata, random data sets, and files that lie."""

from __future__ import annotations

import json
import random
import re
import struct
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import FormatError, UnsupportedError, UsageError
from shardstream.formats.chunks.litdata import LitData, npy_of_numpy, npy_of_tensor
from shardstream.formats.chunks.pytree_names import leaf_names
from shardstream.formats.chunks.tagged_values import json_of_tagged
from shardstream.shards.field_names import usable_field

from .damaging import cut, flipped, scan_bytes
from .records import treespec, write_litdata
from .scanning import in_memory, listing_of, recognised, samples, scanned
from .told import check, expected

GOLDEN = Path(__file__).parents[1] / "golden" / "foreign" / "litdata"
LIT = LitData()
JPEG = b"\xff\xd8\xff\xe0photograph"
LABELLED = ({"image": 0, "label": 0}, ("jpeg", "int"))
LEAF = treespec(0)


def labelled(count: int) -> list[tuple[bytes, bytes]]:
    return [(JPEG * (row % 3 + 1), struct.pack("<q", row - 2)) for row in range(count)]


def rewrite(folder: Path, index: Any) -> None:
    (folder / "index.json").write_text(index if isinstance(index, str) else json.dumps(index))


def refusal(folder: Path, options: dict[str, str] | None = None) -> FormatError:
    with pytest.raises(FormatError) as caught:
        samples(LIT, folder, options)
    assert caught.value.hint
    return caught.value


class TestGolden:
    @pytest.mark.parametrize("name", ["every", "pairs", "single", "numpy", "tensors", "tokens"])
    @pytest.mark.parametrize("mapped", [True, False])
    def test_values_are_those_of_its_own_reader(self, name, mapped):
        folder = GOLDEN / name
        options = {"block_size": "6"} if name == "tokens" else None
        found = samples(LIT, folder if mapped else in_memory(folder), options)
        told = expected(folder)
        assert len(found) == len(told) > 0
        for (key, values), sample in zip(found, told, strict=True):
            assert values.keys() == {usable_field(one) for one in sample}
            for field, value in sample.items():
                check(values[usable_field(field)], value, (key, field))

    def test_types(self):
        rows = next(rows for _, rows in scanned(LIT, GOLDEN / "every"))
        types = {column.name: (str(column.type), column.codec) for column in rows.columns}
        assert types["photo"] == types["nested.two.jpeg"] == ("jpg", "none")
        assert types["int"] == types["nested.one"] == ("int64", "none")
        assert types["bool"] == ("bool", "none")
        assert types["row"] == ("values:int64", "none")
        assert types["a.b_c"] == ("values:int16", "none")
        assert types["tensor"] == ("array", "litdata.tensor")
        assert types["map.numbers"] == ("json", "litdata.json")
        assert rows.keys[1] == "chunk-0-0/00000001"

    def test_rows_of_tokens_as_they_were_written(self):
        found = [values["tokens"].tolist() for _, values in samples(LIT, GOLDEN / "tokens")]
        assert sorted(map(len, found)) == [*range(5, 14)]
        assert all(row == [*range(100 * len(row), 101 * len(row))] for row in found)
        assert "block_size" in recognised(LIT, listing_of(GOLDEN / "tokens")).notes[0]

    @pytest.mark.parametrize(
        ("name", "what"),
        [
            ("zstd-sample", "'sample'"),
            ("arrow", "LDARW01"),
            ("encrypted", "encrypted"),
            ("pickled", "pickle"),
        ],
    )
    def test_what_cannot_be_read_is_refused_by_name(self, name, what):
        error = refusal(GOLDEN / name)
        assert isinstance(error, UnsupportedError)
        assert what in error.what

    @pytest.mark.parametrize("name", ["zstd-chunk", "zstd-batch"])
    @pytest.mark.parametrize("mapped", [True, False])
    def test_compressed_chunks_are_read_inflated(self, name, mapped):
        place = GOLDEN / name if mapped else in_memory(GOLDEN / name)
        found = samples(LIT, place)
        assert [key for key, _ in found] == [f"chunk-0-{row // 4}/{row % 4:08d}" for row in range(6)]
        assert [one["label"] for _, one in found] == [*range(6)]
        assert all(one["image"][:3] == b"\xff\xd8\xff" and one["image"][-2:] == b"\xff\xd9" for _, one in found)


class TestCompressed:
    def written(self, folder: Path, framed: int, count: int = 7) -> dict[str, Any]:
        """A chunk that is compressed: in frames of so many records, or as a whole."""
        index = write_litdata(folder, *LABELLED, [labelled(count)], compression="zstd")
        path = folder / "chunk-0-0.bin"
        data = path.read_bytes()
        if framed:
            data = in_frames(data, framed)
            index["config"]["compression_level"] = "batch"
            index["chunks"][0]["chunk_bytes"] = len(data)
        else:
            data = zstandard.ZstdCompressor().compress(data)
            index["chunks"][0]["filename"] = "chunk-0-0.zstd.bin"
            path.unlink()
        (folder / index["chunks"][0]["filename"]).write_bytes(data)
        rewrite(folder, index)
        return index

    @pytest.mark.parametrize("framed", [0, 1, 2, 3, 9])
    def test_samples_are_those_of_plain_chunks(self, tmp_path, framed):
        write_litdata(tmp_path / "plain", *LABELLED, [labelled(7)])
        self.written(tmp_path / "packed", framed)
        for place in (tmp_path / "packed", in_memory(tmp_path / "packed")):
            assert samples(LIT, place) == samples(LIT, tmp_path / "plain")

    @pytest.mark.parametrize("framed", [0, 2])
    def test_every_truncation_and_any_damage_is_one_error(self, tmp_path, framed):
        index = self.written(tmp_path, framed)
        path = tmp_path / index["chunks"][0]["filename"]
        whole, rng = path.read_bytes(), random.Random(7)

        def write(data):  # another file: the former may still be mapped
            (tmp_path / "new").write_bytes(data)
            (tmp_path / "new").replace(path)

        for length in range(0, len(whole), 3):
            write(whole[:length])
            if framed:
                index["chunks"][0]["chunk_bytes"] = length
                rewrite(tmp_path, index)
            with pytest.raises(FormatError):
                samples(LIT, tmp_path)
        if framed:
            index["chunks"][0]["chunk_bytes"] = len(whole)
            rewrite(tmp_path, index)
        for _ in range(60):
            data = bytearray(whole)
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            write(data)
            with suppress(FormatError):
                for _ in scanned(LIT, tmp_path):
                    pass

    def test_tables_of_frames_that_lie_are_refused(self, tmp_path):
        index = self.written(tmp_path, 3)
        path, head = tmp_path / "chunk-0-0.bin", 24 + 4 * 8
        whole = path.read_bytes()
        lies = [
            (8, "<H", 2),
            (10, "<H", 1),
            (12, "<I", 2**32 - 1),
            (20, "<I", 2**32 - 1),
            (24, "<I", 1),
            (32, "<I", 0),
            (head + 8, "<Q", 0),
            (head + 8, "<Q", 2**63),
            (head + 16, "<I", 2**32 - 1),
            (head + 20, "<I", 2**32 - 1),
            (head + 20, "<I", 1),
        ]
        for offset, kind, value in lies:
            data = bytearray(whole)
            struct.pack_into(kind, data, offset, value)
            path.write_bytes(data)
            with pytest.raises(FormatError):
                samples(LIT, tmp_path)
        index["chunks"][0]["chunk_size"] = 6
        path.write_bytes(whole)
        rewrite(tmp_path, index)
        assert "7 samples" in refusal(tmp_path).what

    @pytest.mark.parametrize("lie", [-1, 1, 1 << 30, 1 << 31])
    def test_sizes_of_chunks_that_lie_are_refused(self, tmp_path, lie):
        index = self.written(tmp_path, 0)
        index["chunks"][0]["chunk_bytes"] += lie
        rewrite(tmp_path, index)
        assert re.search("inflate|at most|larger", refusal(tmp_path).what)

    def test_other_compressions_are_named(self, tmp_path):
        index = self.written(tmp_path, 0)
        index["config"]["compression"] = "lz4"
        rewrite(tmp_path, index)
        assert "lz4" in refusal(tmp_path).what


def in_frames(chunk: bytes, records: int) -> bytes:
    """A plain chunk as one of frames (LDFZ01)."""
    (count,) = struct.unpack_from("<I", chunk)
    offsets = struct.unpack_from(f"<{count + 1}I", chunk, 4)
    begins = range(0, count, records)
    at = 24 + 4 * (count + 1) + 24 * len(begins)
    head = struct.pack("<8sHHIII", b"LDFZ01\0\0", 1, 0, count, records, len(begins))
    head += struct.pack(f"<{count + 1}I", *(one - offsets[0] for one in offsets))
    frames = b""
    for begin in begins:
        end = min(begin + records, count)
        raw = chunk[offsets[begin] : offsets[end]]
        frame = zstandard.ZstdCompressor().compress(raw)
        head += struct.pack("<IIQII", begin, end - begin, at + len(frames), len(frame), len(raw))
        frames += frame
    return head + frames


FORMATS = ("int", "float", "bool", "str", "bytes", "no_header_numpy:2", "no_header_tensor:16")


def stored_of(format: str, draw: Any) -> tuple[bytes, Any]:
    """What is stored, and what it is."""
    if format in ("int", "float"):
        raw = draw(st.binary(min_size=8, max_size=8))
        return raw, struct.unpack("<q" if format == "int" else "<d", raw)[0]
    if format == "bool":
        return (b"\1", True) if draw(st.booleans()) else (b"\0", False)
    if format == "str":
        text = draw(st.text(max_size=9))
        return text.encode(), text
    if format == "bytes":
        raw = draw(st.binary(max_size=40))
        return raw, raw
    numbers = draw(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5))
    return np.array(numbers, "<i4").tobytes(), numbers


def test_a_value_that_ends_as_an_arrow_table_does(tmp_path):
    write_litdata(tmp_path, [0, 0], ["bytes", "bytes"], [[[b"x" * 40, b"LDARW01\0"]]])
    assert [[*map(bytes, values.values())] for _, values in samples(LIT, tmp_path)] == [[b"x" * 40, b"LDARW01\0"]]


class TestRandom:
    @given(st.data())
    def test_random_data_sets_come_back(self, tmp_path_factory, data):
        formats = data.draw(st.lists(st.sampled_from(FORMATS), min_size=1, max_size=4))
        chunks, told = [], []
        for _ in range(data.draw(st.integers(1, 3))):
            rows = [[stored_of(one, data.draw) for one in formats] for _ in range(data.draw(st.integers(0, 5)))]
            chunks.append([[raw for raw, _ in row] for row in rows])
            told += [[value for _, value in row] for row in rows]
        folder = tmp_path_factory.mktemp("litdata")
        write_litdata(folder, [0] * len(formats), formats, chunks)
        for place in (folder, in_memory(folder)):
            found = [list(values.values()) for _, values in samples(LIT, place)]
            plain = [[one.tolist() if isinstance(one, np.ndarray) else one for one in row] for row in found]
            assert repr(plain) == repr(told)

    @given(st.lists(st.lists(st.integers(0, 65535), max_size=9), max_size=9), st.integers(1, 7))
    def test_blocks_of_tokens(self, tmp_path_factory, rows, block):
        folder = tmp_path_factory.mktemp("tokens")
        chunk = [[np.array(row, "<u2").tobytes()] for row in rows]
        write_litdata(folder, 0, ["no_header_numpy:5"], [chunk], item_loader="TokensLoader")
        whole = [*chain.from_iterable(rows)]
        told = [whole[begin : begin + block] for begin in range(0, len(whole) - block + 1, block)]
        found = samples(LIT, folder, {"block_size": str(block)})
        assert [values["tokens"].tolist() for _, values in found] == told

    @given(st.recursive(st.just(0), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner)))
    def test_names_of_leaves(self, tree):
        def paths(node: Any, path: list[str]) -> list[str]:
            if node == 0:
                return [".".join(path)]
            items = node.items() if isinstance(node, dict) else enumerate(node)
            return [one for key, child in items for one in paths(child, [*path, str(key)])]

        assert leaf_names(json.dumps([1, treespec(tree)])) == paths(tree, [])

    def test_a_chunk_that_was_decompressed_beside_what_is_listed(self, tmp_path):
        index = write_litdata(tmp_path, *LABELLED, [labelled(2)], compression="zstd")
        index["chunks"][0]["filename"] = "chunk-0-0.zstd.bin"
        rewrite(tmp_path, index)
        assert [values["label"] for _, values in samples(LIT, tmp_path)] == [-2, -1]

    def test_an_arrow_table_behind_the_records_is_passed_over(self, tmp_path):
        index = write_litdata(tmp_path, *LABELLED, [labelled(2)])
        path = tmp_path / "chunk-0-0.bin"
        path.write_bytes(path.read_bytes() + b"table" + struct.pack("<I", 5) + b"LDARW01\0")
        index["chunks"][0]["chunk_bytes"] += 17
        rewrite(tmp_path, index)
        assert len(samples(LIT, tmp_path)) == 2


class TestIndex:
    @pytest.mark.parametrize("name", ["/etc/passwd", "../x.bin", "a\\b.bin", "", "a/./b", "s3://b/a", 3, None])
    def test_names_that_lead_elsewhere_are_refused(self, tmp_path, name):
        index = write_litdata(tmp_path, *LABELLED, [labelled(1)])
        index["chunks"][0]["filename"] = name
        rewrite(tmp_path, index)
        assert "filename" in refusal(tmp_path).what

    @pytest.mark.parametrize(
        ("change", "what"),
        [
            ({"encryption": {"algorithm": "fernet", "level": "chunk"}}, "encrypted"),
            ({"compression": "zstd", "compression_level": "other"}, "other"),
            ({"item_loader": "ParquetLoader"}, "ParquetLoader"),
            ({"item_loader": ["x"]}, "list"),
            ({"item_loader": "TokensLoader"}, "TokensLoader"),
            ({"data_format": ["jpeg"]}, "leaves"),
            ({"data_format": ["jpeg", 3]}, "data_format"),
            ({"data_format": None}, "data_format"),
            ({"data_format": ["graph", "int"]}, "pickle"),
            ({"data_format": ["jpeg", "custom"]}, "'custom'"),
            ({"data_format": ["jpeg", "no_header_numpy:14"]}, "no_header_numpy:14"),
            ({"data_format": ["jpeg", "no_header_tensor:10"]}, "no_header_tensor:10"),
            ({"data_format": ["jpeg", "no_header_tensor:"]}, "no_header_tensor:"),
            ({"data_spec": 3}, "data_spec"),
            ({"data_spec": "gASVBAAAAAAAAACMAWGULg=="}, "data_spec"),
            ({"data_spec": "[" * 100_000}, "data_spec"),
            ({"data_spec": json.dumps([2, LEAF])}, "version 2"),
            ({"data_spec": json.dumps([1, treespec({"a/b": 0, "a.b": 0})])}, "one field"),
            ({"data_spec": json.dumps([1, LEAF | {"type": "os.system", "context": "ls"}])}, "os.system"),
            ({"data_spec": json.dumps([1, LEAF | {"type": "builtins.dict", "context": "[[]]"}])}, "keys"),
            ({"data_spec": json.dumps([1, LEAF | {"type": "builtins.dict", "context": '["a"]'}])}, "1 keys"),
            ({"data_spec": json.dumps([1, LEAF | {"children_spec": [LEAF]}])}, "leaf"),
            ({"data_spec": json.dumps([1, LEAF | {"children_spec": 3}])}, "children_spec"),
        ],
    )
    def test_configurations_that_are_not_known_are_refused(self, tmp_path, change, what):
        index = write_litdata(tmp_path, *LABELLED, [labelled(2)])
        index["config"] |= change
        rewrite(tmp_path, index)
        error = refusal(tmp_path)
        assert what in error.what
        malformed = ("leaves", "data_format", "data_spec", "keys", "1 keys", "leaf", "children_spec")
        assert isinstance(error, UnsupportedError) == (what not in malformed)

    @pytest.mark.parametrize(
        ("change", "what"),
        [
            ({"chunk_size": 3}, "3"),
            ({"chunk_size": "2"}, "chunk_size"),
            ({"chunk_bytes": 5}, "5"),
            ({"chunk_bytes": -1}, "chunk_bytes"),
            ({"filename": "chunk-0-9.bin"}, "not here"),
        ],
    )
    def test_chunks_that_contradict_the_index_are_refused(self, tmp_path, change, what):
        index = write_litdata(tmp_path, *LABELLED, [labelled(2)])
        index["chunks"][0] |= change
        rewrite(tmp_path, index)
        assert what in refusal(tmp_path).what

    def test_defaultdict_names_no_module(self):
        context = {"default_factory_module": "os", "default_factory_name": "system", "dict_context": ["a"]}
        node = {"type": "collections.defaultdict", "context": context, "children_spec": [LEAF]}
        assert leaf_names(json.dumps([1, node])) == ["a"]

    def test_a_structure_that_is_nested_too_deep(self):
        tree: Any = 0
        for _ in range(80):
            tree = [tree]
        with pytest.raises(UnsupportedError, match="deep"):
            leaf_names(json.dumps([1, treespec(tree)]))

    @pytest.mark.parametrize("text", ["", "[1]", "{", '{"chunks": [], "config": {}}', '{"chunks": [1], "config": {}}'])
    def test_an_index_that_is_none(self, tmp_path, text):
        write_litdata(tmp_path, *LABELLED, [labelled(1)])
        rewrite(tmp_path, text)
        refusal(tmp_path)

    def test_splits_are_not_mixed_and_lone_chunks_are_refused(self, tmp_path):
        write_litdata(tmp_path / "train", *LABELLED, [labelled(1)])
        write_litdata(tmp_path / "val", *LABELLED, [labelled(1)])
        with pytest.raises(UsageError, match=r"train, .*val"):
            samples(LIT, tmp_path)
        (tmp_path / "val" / "index.json").unlink()
        assert "index.json" in refusal(tmp_path / "val").what

    def test_what_is_not_of_this_format(self, tmp_path):
        (tmp_path / "model.bin").write_bytes(b"")
        assert LIT.recognize(listing_of(tmp_path), {}) is None
        (tmp_path / "index.json").write_text('{"version": 2, "shards": []}')
        assert LIT.recognize(listing_of(tmp_path), {}) is None

    @pytest.mark.parametrize("block", ["0", "-3", "many", "9999999999"])
    def test_blocks_of_no_size(self, block):
        with pytest.raises(UsageError, match="block_size"):
            samples(LIT, GOLDEN / "tokens", {"block_size": block})

    def test_blocks_of_what_has_none(self):
        with pytest.raises(UsageError, match="block_size"):
            samples(LIT, GOLDEN / "pairs", {"block_size": "5"})
        assert "999999999" in refusal(GOLDEN / "tokens", {"block_size": "999999999"}).what


class TestDamage:
    def about(self, folder: Path) -> tuple[bytes, dict[str, Any]]:
        (one,) = recognised(LIT, listing_of(folder)).objects
        return (folder / one.path).read_bytes(), dict(one.about)

    def test_cut_off_anywhere(self, tmp_path):
        write_litdata(tmp_path, *LABELLED, [labelled(3)])
        data, about = self.about(tmp_path)
        assert scan_bytes(LIT, data, about) == 3
        assert [scan_bytes(LIT, part, about) for part in cut(data)] == [0] * len(data)

    def test_changed_bytes(self, tmp_path):
        formats = ("jpeg", "int", "bool", "no_header_numpy:2")
        row = (JPEG, b"12345678", b"\1", b"abcd")
        write_litdata(tmp_path, [0] * 4, formats, [[row] * 4])
        data, about = self.about(tmp_path)
        assert {0, 4} <= {scan_bytes(LIT, part, about) for part in flipped(data, 200)} <= {0, 1, 2, 3, 4}
        write_litdata(tmp_path, 0, ["no_header_numpy:2"], [[[b"abcd"]] * 4], item_loader="TokensLoader")
        data, about = self.about(tmp_path)
        assert {scan_bytes(LIT, part, about | {"tokens": 2}) for part in flipped(data, 200)} <= {0, 2}

    def test_numbers_of_another_size_are_damage(self, tmp_path):
        write_litdata(tmp_path, *LABELLED, [[*labelled(2), (JPEG, b"four")]])
        ((_, rows),) = scanned(LIT, tmp_path)
        assert len(rows.keys) == 2
        assert "sample 2" in rows.damage.what

    def test_a_table_that_is_longer_than_the_chunk(self, tmp_path):
        data = struct.pack("<III", 1, 12, 12) + struct.pack("<I", 99) + b"LDARW01\0"
        assert scan_bytes(LIT, data, {"data_format": ["int"], "names": ["a"], "samples": 1}) == 0


class TestForms:
    @given(st.binary(max_size=60))
    def test_bytes_that_are_no_such_value(self, data):
        for name, form in LIT.forms.items():
            try:
                found = form(memoryview(data), "int16" if name == "values" else "")
            except ValueError:
                continue
            assert len(found) <= 30 * len(data) + 400

    def test_arrays(self):
        numbers = struct.pack("<ii", 5, -6)
        found = npy_of_numpy(memoryview(struct.pack("<IIII", 2, 2, 1, 2) + numbers), "")
        assert found == npy_of_tensor(memoryview(struct.pack(">IIII", 15, 2, 1, 2) + numbers), "")
        for wrong in ((2, 2, 1, 3), (14, 2, 1, 2), (2, 1 << 30, 1, 2), (2, 2, 1 << 31, 1 << 31)):
            with pytest.raises(ValueError):
                npy_of_numpy(memoryview(struct.pack("<IIII", *wrong) + numbers), "")

    @pytest.mark.parametrize(
        "stored",
        [
            b"",
            b"\x01\xff\xff\xff\xff",
            b"\x05\x01\0\0\0",
            b"\x06\xff\0\0\0\0\0\0\0",
            b"\x06\1\0\0\0\1\0\0\0\1\0\0\0a\x07",
            b"\x0b\0",
            b"\x0c",
            b"\x00\1\0\0\0[",
            b"\x05\1\0\0\0\0\0\0\0" * 90 + b"\x0b",
        ],
    )
    def test_tagged_values_that_are_none(self, stored):
        with pytest.raises(ValueError):
            json_of_tagged(memoryview(stored), "")

    def test_older_values_are_json(self):
        assert json_of_tagged(memoryview(b'{"a": 1}'), "") == b'{"a": 1}'
