"""JSON lines: rows come back as Python's reader gives them; what is damaged is told with its line."""

import bz2
import gzip
import json
import lzma
import re

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

import shardstream as ss
from shardstream.errors import FieldError, FormatError, UsageError
from shardstream.formats.jsonl import blocks
from shardstream.formats.jsonl import columns as columns_module
from shardstream.formats.jsonl.format import JsonLines
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.testing import MemoryStore
from tests.formats.damaging import check_forms, cut, flipped, scan_bytes
from tests.formats.scanning import listing_of, samples, scanned

FORMAT = JsonLines()
ROWS = [
    {
        "text": f'Ein "Satz" mit \\ und \n Zeilen, {row} \U0001f600',
        "url": f"https://example.org/{row}",
        "score": row / 4,
        "n": row - 3,
        "good": row % 2 == 0,
        "tokens": list(range(row)),
        "box": [row, 0.5],
        "meta": {"a": [{"b": "}]\\"}], "c": None},
        "nothing": None,
    }
    for row in range(12)
]


def lines(rows, **how) -> bytes:
    return b"".join(json.dumps(row, **how).encode() + b"\n" for row in rows)


def read(data: bytes, name: str = "a.jsonl", options=None):
    return samples(FORMAT, MemoryStore({name: data}), options)


def told(data: bytes, name: str = "a.jsonl"):
    """Samples before the damage, and the damage."""
    found = [rows for _, rows in scanned(FORMAT, MemoryStore({name: data}))]
    assert found[-1].damage is not None
    return sum(len(rows.keys) for rows in found), found[-1].damage


def broken(data: bytes, name: str = "a.jsonl"):
    """Samples, and the lines that are none."""
    found = [rows for _, rows in scanned(FORMAT, MemoryStore({name: data}))]
    assert all(rows.damage is None for rows in found)
    return sum(len(rows.keys) for rows in found), tuple(one for rows in found for one in rows.broken)


def plain(sample):
    return {name: one.tolist() if isinstance(one, np.ndarray) else one for name, one in sample.items()}


def without_nulls(row):
    return {name: value for name, value in row.items() if value is not None}


# ------------------------------------------------------------------------------------------------------ what is read


@pytest.mark.parametrize(
    "how", [{}, {"ensure_ascii": False}, {"separators": (",", ":")}, {"separators": (" ,\t", " : ")}]
)
def test_rows_come_back_as_they_were_written(how):
    found = read(lines(ROWS, **how))
    assert [key for key, _ in found] == [f"a/{row:08d}" for row in range(12)]
    assert [plain(values) for _, values in found] == [without_nulls(row) for row in ROWS]
    assert found[3][1]["tokens"].dtype == np.int64
    assert found[3][1]["box"].dtype == np.float64


@pytest.mark.parametrize("text", [b"\xef\xbb\xbf%s", b"\n \n%s\n\n  \n", b"%s \t\r\n"])
def test_marks_and_empty_lines_are_no_rows(text):
    data = text % lines([{"a": 1}, {}, {"b": "x"}]).replace(b"\n", b"\r\n").rstrip()
    assert [plain(values) for _, values in read(data)] == [{"a": 1}, {}, {"b": "x"}]


@pytest.mark.parametrize("indent", [None, 2])
def test_a_list_of_objects_is_read_like_lines(indent):
    data = b"\xef\xbb\xbf \n" + json.dumps(ROWS, indent=indent).encode() + b"\n"
    assert [plain(values) for _, values in read(data, "a.json")] == [without_nulls(row) for row in ROWS]


def test_what_a_column_is_depends_on_all_its_values():
    rows = [
        {"a": 1, "b": 1, "c": [1], "d": 2**64, "e": "x", "f": True, "g": [], "h": [[1]], "i": 1e300, "label": 3},
        {"a": 2.5, "b": None, "c": [0.5], "d": 1, "e": 5, "f": False, "g": [], "h": [], "i": 7, "label": 0},
    ]
    ((_, piece),) = scanned(FORMAT, MemoryStore({"a.jsonl": lines(rows)}))
    kinds = {one.name: str(one.type) for one in piece.columns}
    assert kinds == {
        "a": "float64",
        "b": "int64",
        "c": "values:float64",
        "cls": "int64",
        "d": "json",
        "e": "json",
        "f": "bool",
        "g": "json",
        "h": "json",
        "i": "float64",
    }
    found = [plain(values) for _, values in read(lines(rows))]
    assert [one | {"label": one["cls"]} for one in found] == [
        without_nulls(row) | {"cls": row["label"]} for row in rows
    ]


def test_numbers_of_all_lengths_and_words_for_them():
    integers = [0, -1, 10**17, -(10**18) + 1, 2**63 - 1, -(2**63)]
    assert [values["n"] for _, values in read(lines({"n": one} for one in integers))] == integers
    floats = [0.1, -1e-300, 1.7976931348623157e308, float("inf"), float("-inf"), 5e-324]
    assert [values["x"] for _, values in read(lines({"x": one} for one in floats))] == floats
    long = b'{"x": 0.' + b"3" * 100 + b"}\n"
    assert read(long)[0][1]["x"] == 0.3333333333333333
    for large in ([1, 2**63], [-(2**63) - 1], [1] * 9 + [2**64 - 1, 2], [10**70]):
        rows = [{"a": 7, "t": [5, 6], "x": "1,2"}, {"t": large, "a": 10**18 + 1}, {"t": [10**18 + 1] * 3}]
        assert [plain(values) for _, values in read(lines(rows))] == rows
    tokens = [list(range(1000)), [2**63 - 1, -(2**63)], []]
    assert [values["t"].tolist() for _, values in read(lines({"t": one} for one in tokens))] == tokens


def test_options_say_what_a_file_alone_does_not():
    data = lines([{"a": 1, "b": [1], "c": "x", "k": 5}, {"a": 2, "b": [], "c": "y", "k": 6}])
    ((_, piece),) = scanned(FORMAT, MemoryStore({"a.jsonl": data}), {"float": "a,b", "json": "c", "key": "k"})
    assert {one.name: str(one.type) for one in piece.columns} == {
        "a": "float64",
        "b": "values:float64",
        "c": "json",
        "k": "int64",
    }
    assert piece.keys == ["5", "6"]
    with pytest.raises(FormatError, match="cannot be the key: it is missing in a row, repeats"):
        read(data, options={"key": "z"})
    with pytest.raises(UsageError, match="names no column"):
        read(data, options={"json": ","})


def test_files_that_differ_are_refused_with_the_option_that_unites_them(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.jsonl").write_bytes(lines([{"a": 1}, {"a": 2}]))
    (tmp_path / "in/1.jsonl").write_bytes(lines([{"a": 0.5}]))
    with pytest.raises(FieldError, match=r"int64 in 2 samples, float64 in 1 sample[\s\S]*--format-option float=a"):
        ss.ShardDataset(tmp_path / "in")
    found = ss.Reader(tmp_path / "in", reading=ss.SourceOptions(options={"float": "a"}))
    assert [sample["a"] for sample in found] == [1.0, 2.0, 0.5]
    with pytest.raises(UsageError, match="has no option 'flot'"):
        ss.ShardDataset(tmp_path / "in", reading=ss.SourceOptions(options={"flot": "a"}))


def test_an_id_that_each_row_has_is_the_key():
    rows = [{"id": f"<urn:{row}>/\u00e9/", "n": row} for row in range(5)]
    assert [key for key, _ in read(lines(rows))] == [f"<urn:{row}>/\u00e9" for row in range(5)]
    assert read(lines([{"__key__": "x", "a": 1}])) == [("x", {"a": 1})]
    for bad in ({"id": rows[0]["id"]}, {"x": 1}, {"id": None}, {"id": 0.5}, {"id": ""}, {"id": "\ud800"}):
        ((_, piece),) = scanned(FORMAT, MemoryStore({"a.jsonl": lines([*rows, bad])}))
        assert piece.keys[0] == "a/00000000"
    assert read(lines([{"id": 5}, {"id": 6}]))[1][0] == "6"
    assert [key for key, _ in scanned(FORMAT, MemoryStore({"a.jsonl": b'{"id": "\\u00z9"}'}))] == ["a.jsonl"]


def test_rows_that_have_other_names_or_the_same_in_another_order():
    rows = [{"a": 1, "b": 2}, {"b": 3, "a": 4}, {"c": "x"}, {"a\u00e9": 1}, {"b": 2, "a": 1}]
    for how in ({}, {"ensure_ascii": False}):
        found = [values for _, values in read(lines(rows, **how))]
        assert found == [{"a_" if name == "a\u00e9" else name: value for name, value in row.items()} for row in rows]


def places(data: bytes, name: str = "a.jsonl"):
    found = [rows for _, rows in scanned(FORMAT, MemoryStore({name: data}))]
    return [
        (rows.keys, [(one.name, one.values, one.offsets, one.lengths, one.valid) for one in rows.columns])
        for rows in found
    ]


@pytest.mark.full
def test_small_and_large_objects_are_read_alike(monkeypatch):
    rows = [{"id": str(row), "t": "x" * (row % 70), "n": row if row % 5 else None} for row in range(5000)]
    data = lines(rows)
    assert read(data)[4000:] == [(str(row["id"]), without_nulls(row)) for row in rows][4000:]
    expected = places(data)
    assert [len(keys) for keys, _ in expected] == [2500] * 2
    monkeypatch.setattr(blocks, "_WINDOW", 10_000)
    np.testing.assert_equal(places(data), expected)
    monkeypatch.setattr(columns_module, "_HELD", 5000)  # is read twice
    np.testing.assert_equal(places(data), expected)
    listed = places(b"[" + b",".join(data.splitlines()) + b"]", "a.json")
    assert [keys for keys, _ in listed] == [keys for keys, _ in expected]


COMPRESSED = {
    "gz": lambda data: gzip.compress(data[:200]) + gzip.compress(data[200:]),
    "zst": lambda data: zstandard.ZstdCompressor().compress(data[:99]) + zstandard.ZstdCompressor().compress(data[99:]),
    "bz2": bz2.compress,
    "xz": lzma.compress,
}


@pytest.mark.parametrize("how", COMPRESSED)
def test_compressed_files_have_the_samples_of_plain_ones(how):
    expected = read(lines(ROWS))
    found = read(COMPRESSED[how](lines(ROWS)), f"a.jsonl.{how}")
    assert [(key, plain(values)) for key, values in found] == [(key, plain(values)) for key, values in expected]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.full
@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("abcd"), JSON, max_size=4), min_size=1, max_size=6), st.booleans())
def test_random_rows_come_back(rows, ascii):
    data = lines(rows, ensure_ascii=ascii, separators=(",", ": "))
    found = [plain(values) for _, values in read(data)]
    assert found == [without_nulls(row) for row in rows]
    assert [plain(values) for _, values in read(json.dumps(rows).encode() + b" ", "x.jsonl")] == found


# ------------------------------------------------------------------------------------------------------- recognition


@pytest.mark.parametrize(
    ("objects", "taken"),
    [
        (
            {"en/c4-train.00000-of-00002.json.gz": gzip.compress(b'{"text": "x"}\n{"text": "y"}\n'), "README.md": b"x"},
            1,
        ),
        ({"a.json": b'[{"a": 1}]', "b.json": b'{"a": 1}\n{"a": 2}\n', "dataset_info.json": b"{}"}, 2),
        ({"a.jsonl": b'{"text": "photo.jpg and more"}'}, 1),
        ({"a.jsonl": b'{"file_path": "s3://commoncrawl/x.warc.gz", "text": "x"}'}, 1),
        ({"a.jsonl": b'{"image": "a/1.jpg", "text": "x"}'}, 0),
        ({"a.jsonl": b'{"clip": "a/1.png"}\n{"clip": "a/2.png"}'}, 0),
        ({"a.jsonl": b'{"path": "1.wav"}'}, 0),
        ({"a.json": b'{"images": []}'}, 0),
        ({"a.json": b'{\n "images": []}'}, 0),
        ({"a.json": b"[1, 2]"}, 0),
        ({"a.json": b""}, 0),
        ({"a.jsonl": b'{"a": 1}', "a.tar": b"x"}, 0),
        ({"a.jsonl": b'{"a": 1}', "index.json": b"{}"}, 0),
        ({"metadata.jsonl": b'{"a": 1}', "1.jpg": b"x"}, 0),
    ],
)
def test_what_is_taken_for_rows(objects, taken):
    found = FORMAT.recognize(listing_of(MemoryStore(objects)), {})
    assert (0 if found is None else len(found.objects)) == taken


# ------------------------------------------------------------------------------------------------------------ damage


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b'{"a": 1', "Expecting"),
        (b'{"a": "x}', "Unterminated string"),
        (b'{"a": 1}}', "Extra data"),
        (b'{"a": 1} {"a": 2}', "Extra data"),
        (b"[1]", "it is not an object"),
        (b"hello", "Expecting value"),
        (b"5", "it is not an object"),
        (b'{"a" 1}', "delimiter"),
        (b'{"a": 1,}', "property name|trailing comma"),
        (b'{"a": }', "Expecting value"),
        (b'{"a": 1 2}', "delimiter"),
        (b'{"a": [1}', "delimiter"),
        (b'{"a": "x" "y"}', "delimiter"),
        (b'{"a": tru}', "Expecting value"),
        (b'{"a": 1-2}', "delimiter"),
        (b'{"a": 1e}', "delimiter"),
        (b'{"a": 1, "a": 2}', "two values of 'a'"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"a": ' + b"[" * 600 + b"]" * 600 + b"}", "more than 512 deep"),
        (b'{"a": \\"x"}', "Expecting value"),
        (b'{1: "x"}', "property name"),
        (b'{"a": {"b": 1] }', "Expecting|delimiter"),
    ],
)
def test_a_broken_line_is_lost_alone_and_named(line, what, monkeypatch):
    before = lines([{"a": 0}] * 7)
    for window in (2 << 20, 40):
        monkeypatch.setattr(blocks, "_WINDOW", window)
        for behind in (7, 0):
            count, lost = broken(before + line + b"\n" + lines([{"a": 3}] * behind))
            assert (count, [(one.line, one.samples) for one in lost]) == (7 + behind, [(8, 1)])
            named = re.fullmatch(r"line 8 is not a row: (.*) \(offset (\d+)\)", lost[0].what)
            assert named is not None, lost[0].what
            assert re.search(what, named[1])
            assert len(before) <= int(named[2]) <= len(before) + len(line)
    if line != b"[1]":  # which is a list of another kind
        count, damage = told(line + b"\n")
        assert (count, damage.what.startswith("line 1 is not a row: ")) == (0, True)


@settings(max_examples=60)
@given(st.data())
def test_exactly_the_lines_that_are_no_objects_are_lost(data):
    """Whatever is wrong with how many of them, and wherever blocks end."""
    rows = [b'{"a": 1}', b'{"b": {"c": "\\""}}']
    none = [b'{"a": "x}', b'{"a": [1', b"}", b'{"a": 1, "a": 2}', b"\xff", b'"']
    chosen = data.draw(st.lists(st.sampled_from([*rows, *none, b""]), min_size=1, max_size=60))
    good = [line in rows for line in chosen]
    wrong = [number for number, line in enumerate(chosen, 1) if line in none]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_WINDOW", data.draw(st.integers(20, 200)))
        count, lost = broken(b'{"a": 0}\n' + b"\n".join(chosen) + b"\n")
    assert (count, [one.line - 1 for one in lost]) == (1 + sum(good), wrong)


def test_a_file_that_is_cut_off():
    data = lines([{"a": "x" * 50, "b": [1, 2]}] * 5).rstrip()
    for end in range(1, len(data), 3):
        if end > data.index(b"\n") and data[:end].rstrip()[-1:] != b"}":
            count, (lost,) = broken(data[:end])
            assert count == data[:end].count(b"\n")
            assert f"line {count + 1} is not a row" in lost.what
            assert (lost.samples, "inside of which the file ends" in lost.what) == (None, True)
    listed = json.dumps([{"a": 1}] * 3).encode()
    assert told(listed[:-1], "a.json")[0] == 3
    assert "cut off" in told(listed[:-1], "a.json")[1].what
    assert told(listed + b" x", "a.json")[0] == 3
    assert told(listed[:-1] + b",]", "a.json")[0] == 3


def test_rows_that_are_too_large_or_too_many_names(monkeypatch):
    monkeypatch.setattr(blocks, "_WINDOW", 64)
    monkeypatch.setattr(blocks, "LONGEST", 1000)
    count, lost = broken(lines([{"a": 1}, {"a": "x" * 5000}, {"a": 2}]))
    assert (count, lost) == (2, (("line 2 is not a row: it has more than 1.0 kB (offset 9)", 1, 2, "unsupported"),))
    monkeypatch.setattr(blocks, "MOST_COLUMNS", 10)
    count, damage = told(lines({str(row): 1} for row in range(20)))
    assert count == 10
    assert "more than 10 different names" in damage.what


def test_columns_of_one_name_are_refused():
    with pytest.raises(FormatError, match=r"'a\.b' and 'a/b' are both called 'a\.b' here"):
        read(lines([{"a/b": 1, "a.b": 2}]))


def test_damaged_objects_give_rows_inside_of_them_or_one_error(monkeypatch):
    monkeypatch.setattr(blocks, "_WINDOW", 256)
    data = lines(ROWS[:4])
    for hurt in [*cut(data, 30), *flipped(data, 60), *flipped(json.dumps(ROWS[:4]).encode(), 30)]:
        scan_bytes(FORMAT, hurt, {})
    for hurt in flipped(data, 50, seed=1):
        store = MemoryStore({"object.x": hurt})
        try:
            found = list(FORMAT.scan(ObjectBytes(store, "object.x", len(hurt)), {}))
        except FormatError:
            continue
        check_forms(FORMAT, hurt, found)


def test_all_lines_that_python_takes_are_taken():
    for hurt in flipped(lines(ROWS), 150, seed=2):
        store = MemoryStore({"a.jsonl": hurt})
        try:
            count = sum(len(rows.keys) for rows in FORMAT.scan(ObjectBytes(store, "a.jsonl", len(hurt)), {}))
        except FormatError:
            count = 0
        whole = 0
        for line in hurt.split(b"\n"):
            try:
                found = json.loads(line, object_pairs_hook=list) if line.strip() else None
            except ValueError:
                continue
            if found is not None and (not isinstance(found, list) or len({name for name, _ in found}) < len(found)):
                continue
            whole += found is not None
        assert count >= whole  # values inside of values, and words of text, are looked at when they are read


# ------------------------------------------------------------------------------------------------ numbers and lists

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(2**53 - 2, 2**53 + 2)


@settings(max_examples=60)
@given(st.lists(NUMBERS, min_size=1), st.booleans())
def test_no_integer_loses_digits_beside_floats(values, as_lists):
    """Each value is the one that Python reads, or an integer as the float that is equal to it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_WINDOW", 40)
        rows = [{"a": [value, 1]} if as_lists else {"a": value} for value in values]
        found = [plain(one)["a"] for _, one in read(lines(rows))]
    assert found == [row["a"] for row in rows]


def test_integers_beside_floats_are_refused_as_floats_that_lose_digits():
    assert read(lines([{"a": 2**53}, {"a": 0.5}]), options={"float": "a"})[0][1]["a"] == 2.0**53
    with pytest.raises(FormatError, match="integers that float64 does not hold with all their digits"):
        read(lines([{"a": 2**53 + 1}, {"a": 5}]), options={"float": "a"})


@pytest.mark.parametrize("damaged", ["error", "reject"])
@pytest.mark.parametrize(
    ("others", "kind"),
    [([[1, 2]], "values:int64"), ([[0.5]], "values:float64"), ([["x"]], "json"), ([[], []], "json"), ([{}], "json")],
)
def test_empty_lists_take_the_type_of_lists_in_other_files(others, kind, damaged, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.jsonl").write_bytes(lines({"a": one} for one in others))
    (tmp_path / "in/1.jsonl").write_bytes(lines([{"a": []}, {"a": []}]))
    for more in (None, "2.jsonl"):  # also of files that were indexed before
        if more is not None:
            (tmp_path / "in" / more).write_bytes(lines([{"a": others[0]}]))
        ss.index(tmp_path / "in", workers=0, damaged=damaged)
        reader = ss.Reader(tmp_path / "in")
        assert str(reader.manifest.fields["a"]) == kind
        assert [plain(one)["a"] for one in reader] == [*others, [], [], *([others[0]] if more else [])]
