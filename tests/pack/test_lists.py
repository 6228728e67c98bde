from __future__ import annotations

import csv
import io
import itertools
import os
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.dataset.lists.list_file import spooled
from shardstream.errors import DuplicateKeyError, SourceError, UsageError
from shardstream.pack.sources import File, Item, Reject
from shardstream.pack.sources.lists import lines, scan
from shardstream.pack.sources.lists.lines import index_lines, survey
from shardstream.pack.sources.lists.records import Broken, packed, split
from shardstream.pack.sources.lists.source import ListRecords
from shardstream.pack.sources.opening import open_source
from shardstream.pack.sources.paths import common_folder
from shardstream.text import valid_unicode

from .making import make


def read(path: Path, **options: str) -> list[Item | Reject]:
    source = open_source(path, **options)  # type: ignore[arg-type]
    return list(source.part(np.arange(len(source))))


def records(data: bytes, *, quoted: bool) -> tuple[list[object], list[int]]:
    """The records of a text, ``None`` for those that are broken, and the lines where they begin."""
    text = spooled(lambda: iter([data]), url="test")
    kind = "csv" if quoted else "tab"
    held = ListRecords(text, index_lines(text, survey(text)[0], delimiter=b"," if quoted else None))
    found: list[object] = []
    for raw in held.read(np.arange(len(held))):
        try:
            found.append(split(kind, raw))  # type: ignore[arg-type]
        except Broken:
            found.append(None)
    return found, held.lines(np.arange(len(held))).tolist()


def keys(items: list[Item | Reject]) -> list[str]:
    return [item.key for item in items if isinstance(item, Item)]


cells = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=8)


@given(
    st.lists(st.tuples(cells, cells), min_size=1, max_size=20),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.booleans(),
)
def test_csv_is_read_as_python_reads_it(rows: list[tuple[str, str]], end: str, bom: bool, last: bool) -> None:
    buffer = io.StringIO()
    # Python's writer does not quote a lone carriage return by itself.
    quoting = csv.QUOTE_ALL if any("\r" in cell for row in rows for cell in row) else csv.QUOTE_MINIMAL
    csv.writer(buffer, lineterminator=end, quoting=quoting).writerows(rows)
    text = buffer.getvalue() if last else buffer.getvalue().removesuffix(end)
    data = (b"\xef\xbb\xbf" if bom else b"") + text.encode()
    found, numbers = records(data, quoted=True)
    assert [tuple(record) for record in found] == rows  # type: ignore[arg-type]
    assert numbers[0] == 1
    assert all(after > before for before, after in itertools.pairwise(numbers))


@given(st.lists(st.sampled_from(["", "a\t1", "b c\t2", "x"])), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_lines_and_their_numbers(lines: list[str], end: str, last: bool) -> None:
    data = (end.join(lines) + (end if last else "")).encode()
    found, numbers = records(data, quoted=False)
    assert [line.split("\t") for line in lines if line] == found
    assert [i + 1 for i, line in enumerate(lines) if line] == numbers


@pytest.mark.full
def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [[f"a{i}", 'say "hi"\r\nand\n\n"bye"' if i % 3 else "x"] for i in range(200)]
    buffer = io.StringIO()
    csv.writer(buffer).writerows(rows)
    data = buffer.getvalue().encode()
    whole = records(data, quoted=True)
    assert whole[0] == rows
    for chunk in (1, 2, 7, 64, 1000):
        monkeypatch.setattr(lines, "_CHUNK", chunk)
        assert records(data, quoted=True) == whole


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a,1\n"b,2\nc,3\n', [["a", "1"], None, ["c", "3"]]),
        ('a,1\n"b"x,2\n"c",3\n', [["a", "1"], None, ["c", "3"]]),
        ('5" disk,1\nc,3\n6" disk,2\n', [['5" disk', "1"], ["c", "3"], ['6" disk', "2"]]),
        ('a,"1\n"\n\n"b,2\n"c\nd",4\n"e,5', [["a", "1\n"], None, ["c\nd", "4"], None]),
    ],
)
def test_a_wrong_quote_costs_one_line(text: str, expected: list[object]) -> None:
    assert records(text.encode(), quoted=True)[0] == expected


@given(st.text('a",\n\r', max_size=60))
def test_no_csv_loses_a_line(text: str) -> None:
    """Whatever stands in it, every line that is not blank belongs to a record."""
    data = text.encode()
    if not data:
        return
    _, numbers = records(data, quoted=True)
    filled = [i + 1 for i, line in enumerate(data.split(b"\n")) if line.removesuffix(b"\r")]
    assert numbers[:1] == filled[:1]
    assert set(numbers) <= set(filled)


def test_a_plain_list(tmp_path: Path) -> None:
    items = read(make(tmp_path, "a/b/1.JPEG\t3\na/b/c/2.png\t-4\n"))
    assert items == [
        Item(1, "a/b/1.JPEG", "1", {"jpg": File(str(tmp_path / "a/b/1.JPEG")), "cls": 3}),
        Item(2, "a/b/c/2.png", "c/2", {"png": File(str(tmp_path / "a/b/c/2.png")), "cls": -4}),
    ]


def test_bom_crlf_and_blank_lines(tmp_path: Path) -> None:
    items = read(make(tmp_path, b"\xef\xbb\xbfx/1.jpg\t0\r\n\r\n\nx/2.jpg\t1\r\n"))
    assert [(item.line, item.path) for item in items] == [(1, "x/1.jpg"), (4, "x/2.jpg")]
    assert keys(items) == ["1", "2"]


def test_without_labels(tmp_path: Path) -> None:
    assert read(make(tmp_path, "1.jpg\n"))[0].values == {"jpg": File(str(tmp_path / "1.jpg"))}  # type: ignore[union-attr]


def test_a_header_names_the_columns(tmp_path: Path) -> None:
    text = 'id,Label,image_path,width\nx1,5,"a, b.jpg",10\nx2,6,c.jpg,20\n'
    source = open_source(make(tmp_path, text, "list.csv"), key="id")
    items = list(source.part(np.arange(2)))
    assert keys(items) == ["x1", "x2"]
    assert [item.line for item in items] == [2, 3]
    assert [item.values["cls"] for item in items if isinstance(item, Item)] == [5, 6]
    assert "width" in source.notes[0]


def test_names_as_labels(tmp_path: Path) -> None:
    source = open_source(make(tmp_path, "1.jpg\twolf\n2.jpg\tape\n3.jpg\twolf\n"), labels="name")
    assert source.classes == ("ape", "wolf")
    assert [item.values["cls"] for item in source.part(np.arange(3)) if isinstance(item, Item)] == [1, 0, 1]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("path", ["a/x.1", "b/x.1"]), ("line", ["0000000001", "0000000002"])],
)
def test_keys(tmp_path: Path, mode: str, expected: list[str]) -> None:
    assert keys(read(make(tmp_path, "./q/a/x.1.jpg\t0\nq//b/x.1.jpg\t0\n"), key=mode)) == expected


def test_stems(tmp_path: Path) -> None:
    assert keys(read(make(tmp_path, "q/a/x.jpg\nq/b/y.z.jpg\n"), key="stem")) == ["x", "y.z"]


def test_absolute_and_relative_paths_share_a_folder(tmp_path: Path) -> None:
    items = read(make(tmp_path, f"a/1.jpg\n{tmp_path}/b/2.jpg\n"))
    assert keys(items) == ["a/1", "b/2"]
    assert keys(read(make(tmp_path, "/data/a/1.jpg\n/data/b/1.jpg\n"))) == ["a/1", "b/1"]
    with pytest.raises(DuplicateKeyError, match="lines 1 and 2"):
        read(make(tmp_path, f"a/1.jpg\n{tmp_path}/a/1.jpg\n"))


path_texts = st.lists(st.sampled_from(["a", "b", "ab", "c.d"]), min_size=1, max_size=4).map("/".join)


@given(st.lists(path_texts, min_size=1, max_size=8))
def test_the_common_folder_is_the_deepest_that_holds_all(paths: list[str]) -> None:
    folders = [path.split("/")[:-1] for path in paths]
    expected = os.path.commonprefix(folders)  # noqa: RUF071 - of lists of components, not of strings
    assert common_folder(min(paths), max(paths)) == "".join(f"{name}/" for name in expected)


def test_names_that_are_no_utf8_still_work(tmp_path: Path) -> None:
    items = read(make(tmp_path, b"x/caf\xe9.jpg\t0\nx/\xc3\xa9.jpg\t1\n"))
    assert keys(items) == ["caf%E9", "é"]
    assert os.fsencode(items[0].values["jpg"].path).endswith(b"caf\xe9.jpg")  # type: ignore[union-attr]
    assert valid_unicode(os.fsdecode(b"\xff.jpg")) == "%FF.jpg"


def test_duplicate_keys_name_both_lines(tmp_path: Path) -> None:
    lines = [f"f/{i}.jpg\t0" for i in range(500)]
    lines[400] = "f/17.png\t1"
    with pytest.raises(DuplicateKeyError, match="lines 18 and 401") as caught:
        read(make(tmp_path, "\n".join(lines)))
    assert caught.value.place == {"url": str(tmp_path / "list.tsv"), "key": "17", "line": 401}
    assert "--key" in str(caught.value)
    assert len(read(tmp_path / "list.tsv", key="line")) == 500


def test_equal_hashes_of_different_keys_are_no_duplicates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "key_hash", lambda _key: 5)
    assert keys(read(make(tmp_path, "1.jpg\n2.jpg\n"))) == ["1", "2"]


@pytest.mark.parametrize("label", ["cat", "", "1.5", "1_0", "9223372036854775808", "0x1", "nan", "1e999.", "9e18."])
def test_a_label_that_is_no_integer(tmp_path: Path, label: str) -> None:
    _, broken = read(make(tmp_path, f"1.jpg\t0\n2.jpg\t{label}\n"))
    assert broken == Reject(2, "2.jpg", f"the label {label!r} is not a 64-bit integer")


def test_labels_that_are_all_names(tmp_path: Path) -> None:
    path = make(tmp_path, "".join(f"{i}.jpg\tcat\n" for i in range(100)) + "x.jpg\t1\n")
    with pytest.raises(SourceError, match="is not a 64-bit integer") as caught:
        read(path)
    assert caught.value.place == {"url": str(path), "line": 1}
    assert "--labels name" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("", "list.tsv", "empty"),
        ("\n\r\n", "list.tsv", "empty"),
        ("path\tlabel\n", "list.tsv", "empty"),
        ('"2.jpg"x,0\n', "list.csv", "malformed csv"),
        ("path\tlabel\n1.jpg\n2.jpg\n", "list.tsv", "1 column where the first has 2"),
        ("p\0a\0t\0h", "list.tsv", "not a text list"),
        ("x", "list.rec", "of no format that is known"),
        ("x", "list.zip", "of no format that is known"),
    ],
)
def test_bad_lists_are_one_clear_error(tmp_path: Path, text: str, name: str, message: str) -> None:
    path = make(tmp_path, text, name)
    with pytest.raises(SourceError, match=message) as caught:
        read(path)
    assert caught.value.place["url"] == str(path)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "name", "path", "reason"),
    [
        ("1.jpg\t0\n2.jpg\n", "list.tsv", "", "1 column where the first has 2"),
        ("1.jpg\n2.jpg\t3\n", "list.tsv", "", "2 columns where the first has 1"),
        ('1.jpg,0\n"2.jpg"x,0\n', "list.csv", "", "malformed csv"),
        ('1.jpg,0\n"2.jpg,0\n', "list.csv", "", "malformed csv"),
    ],
)
def test_broken_lines_are_rejected(tmp_path: Path, text: str, name: str, path: str, reason: str) -> None:
    good, broken = read(make(tmp_path, text, name))
    assert isinstance(good, Item)
    assert isinstance(broken, Reject)
    assert (broken.line, broken.path) == (2, path)
    assert reason in broken.reason


def test_a_missing_label_name(tmp_path: Path) -> None:
    source = open_source(make(tmp_path, "1.jpg\ta\n2.jpg\t\n"), labels="name")
    assert source.classes == ("a",)
    assert list(source.part(np.array([1]))) == [Reject(2, "2.jpg", "the label is missing")]


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such list"):
        read(tmp_path / "nowhere")


def test_columns_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"id.*nor a column") as caught:
        read(make(tmp_path, "path\tlabel\n1.jpg\t0\n"), key="id")
    assert "path, label" in str(caught.value)
    with pytest.raises(UsageError, match="no header"):
        read(make(tmp_path, "1.jpg\t0\n"), key="id")


def test_a_key_of_a_column_that_cannot_be_one(tmp_path: Path) -> None:
    _, broken = read(make(tmp_path, "path\tid\n1.jpg\ta/b\n2.jpg\t/c\n"), key="id")
    assert isinstance(broken, Reject)
    assert (broken.line, broken.path) == (3, "2.jpg")
    assert "no key" in broken.reason


@pytest.mark.parametrize("name", ["noextension", "x.c s", "x.cls", "x.é"])
def test_extensions_that_name_no_field_are_rejected(tmp_path: Path, name: str) -> None:
    (item,) = read(make(tmp_path, f"{name}\t0\n"))
    assert isinstance(item, Reject)
    assert "extension" in item.reason


def test_a_line_without_path_is_rejected(tmp_path: Path) -> None:
    items = read(make(tmp_path, "1.jpg\t0\n\t0\n\t1\n"))
    assert [type(item) for item in items] == [Item, Reject, Reject]


def test_parts_carry_their_lines(tmp_path: Path) -> None:
    import pickle

    path = make(tmp_path, "".join(f"folder/{i}.jpg\t{i}\n" for i in range(20_000)))
    source = open_source(path)
    part = source.part(np.array([19_999, 0, 5]))
    path.unlink()
    assert len(pickle.dumps(part)) < 2000
    assert [item.path for item in pickle.loads(pickle.dumps(part))] == [f"folder/{i}.jpg" for i in (19_999, 0, 5)]


def test_a_list_that_changes_is_noticed(tmp_path: Path) -> None:
    path = make(tmp_path, "1.jpg\t0\n2.jpg\t1\n")
    source = open_source(path)
    path.write_text("folder/1.jpg\t1\n")
    with pytest.raises(SourceError, match="changed"):
        source.part(np.array([0]))


def test_the_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one = open_source(make(tmp_path, "1.jpg\t0\n")).fingerprint
    assert open_source(make(tmp_path / "other", "1.jpg\t0\n", "renamed.tsv")).fingerprint == one
    assert open_source(make(tmp_path, "1.jpg\t1\n")).fingerprint != one


def test_sources_that_are_no_paths() -> None:
    with pytest.raises(UsageError, match="must be a path, a URL or samples"):
        open_source(5)
    with pytest.raises(UsageError, match="lists and folders"):
        open_source([{"jpg": b""}], fields={"jpg": "path"})


def test_a_record_for_a_temporary_file_gives_back_what_it_was_made_of() -> None:
    arrays = [np.array([0, 65535], np.uint16), np.array([], np.float32), np.array([-0.5], np.float16)]
    arrays += [np.arange(6).reshape(2, 3), np.zeros((0, 2))]
    *numbers, half, text = split("packed", packed([*arrays, np.float16(0.5), "é"]))
    assert [(one.dtype, one.tolist()) for one in numbers] == [(one.dtype, one.tolist()) for one in arrays]
    assert (half, text) == (0.5, "é")
    with pytest.raises(TypeError, match="a date in a record"):
        packed([date(2026, 1, 2)])
