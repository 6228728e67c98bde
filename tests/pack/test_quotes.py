"""Lists with quotes: what the csv module and pandas write is what is packed, and what is streamed in place."""

from __future__ import annotations

import csv
import io
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import shardstream as ss
from shardstream.formats.files.lists import scanned
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.pack.sources import Item
from shardstream.pack.sources.lists.columns import Wanted
from shardstream.pack.sources.lists.mapping import parse_fields
from shardstream.pack.sources.lists.quotes import tab_quotes
from shardstream.pack.sources.lists.source import open_text_list
from shardstream.storage import locate, open_store


def packed(path: Path, column: str = "caption") -> list[Any]:
    """The captions of a list as `pack` reads them; ``None`` for rejected lines."""
    source = open_text_list(locate(str(path)), Wanted("line", fields=parse_fields({"text": f"{column}:str"})))
    items = source.part(np.arange(len(source)))
    return [item.values["text"] if isinstance(item, Item) else None for item in items]


def in_place(path: Path, column: str = "caption") -> list[Any]:
    """The captions of a list as they are read in place."""
    store = open_store(locate(str(path.parent)))
    data = ObjectBytes(store, path.name, store.size(path.name))
    about = {"options": {}, "chosen": {"text": f"{column}:str"}}
    found = []
    for rows in scanned(data, about):
        (column,) = rows.columns
        ends = [0, *column.held_ends.tolist()]
        found += [bytes(column.held[begin:end]).decode() for begin, end in pairwise(ends)]
    return found


DIALECTS = [
    {},
    {"lineterminator": "\n"},
    {"quoting": csv.QUOTE_ALL},
    {"quoting": csv.QUOTE_ALL, "lineterminator": "\n"},
    {"quoting": csv.QUOTE_NONNUMERIC},
]
values = st.text(st.sampled_from("abé \",\t\n\r'") | st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".txt"])
@example([' "hello"', '"hello"', '""', 'a 5" screen'], {}, False)
@example(["two\nlines", "x\ty", "", "end"], {}, True)
@example(["plain"], {"quoting": csv.QUOTE_ALL}, True)
@example(["\r"], {}, True)
@given(st.lists(values, min_size=1, max_size=8), st.sampled_from(DIALECTS), st.booleans())
def test_values_that_csv_writes_are_read_as_they_were(suffix: str, texts: list[str], dialect: Any, bom: bool) -> None:
    if dialect == {"lineterminator": "\n"}:  # then Python does not quote a carriage return, and cannot read it either
        texts = [text.replace("\r", "") for text in texts]
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter="," if suffix == ".csv" else "\t", **dialect)
    writer.writerow(["path", "caption", "n"])
    writer.writerows([f"{number}.jpg", text, number] for number, text in enumerate(texts))
    if suffix != ".csv" and not dialect.get("quoting") and "\t" in "".join(texts):
        # Plain lines may have quotes at their ends, too: without other evidence they stay.
        assume('""' in buffer.getvalue() or len({line.count("\t") for line in buffer.getvalue().split("\n")[:-1]}) > 1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"list{suffix}")
        path.write_bytes((b"\xef\xbb\xbf" if bom else b"") + buffer.getvalue().encode())
        assert packed(path) == texts
        assert in_place(path) == texts


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
def test_tables_of_pandas_are_read_as_they_were(tmp_path: Path, quoting: Any) -> None:
    pandas = pytest.importorskip("pandas")
    texts = ['a 5" screen', "two\nlines", "x\ty", "", '"all"', "plain"]
    frame = pandas.DataFrame({"path": [f"{n}.jpg" for n in range(6)], "caption": texts, "score": [0.5] * 6})
    frame.to_csv(tmp_path / "list.tsv", sep="\t", quoting=quoting)
    assert packed(tmp_path / "list.tsv") == in_place(tmp_path / "list.tsv") == texts
    frame.to_csv(tmp_path / "list.tsv.gz", sep="\t", quoting=quoting, index=False)
    assert packed(tmp_path / "list.tsv.gz") == in_place(tmp_path / "list.tsv.gz") == texts


PLAIN = [
    ['a "nice" dog', '"both" and "ends"', 'a 5" screen'],
    ['"hello"', "world"],
    ['"open', 'close"'],
    ['"open', "and never closed"],
    ['"', "x"],
    ['5"', '6"'],
    ['\\"escaped\\"', "x"],
]


@pytest.mark.parametrize("texts", PLAIN)
@pytest.mark.parametrize("suffix", [".tsv", ".txt"])
def test_quotes_of_plain_lines_stay(tmp_path: Path, texts: list[str], suffix: str) -> None:
    path = tmp_path / f"list{suffix}"
    path.write_text("path\tcaption\n" + "".join(f"{n}.jpg\t{text}\n" for n, text in enumerate(texts)))
    assert packed(path) == in_place(path) == texts


lines = st.text(st.sampled_from('ab"\t\n,'), max_size=40)


@pytest.mark.parametrize("suffix", [".tsv", ".csv"])
@example('1.jpg,a "b\n2.jpg,"c"\n3.jpg,"d"e\n4.jpg,"f\ng"\n')
@given(lines)
def test_both_readers_take_any_text_for_the_same_records(suffix: str, text: str) -> None:
    delimiter = "," if suffix == ".csv" else "\t"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"list{suffix}")
        path.write_text(f"path{delimiter}caption\nx.jpg{delimiter}x\n{text}")
        assert [one for one in packed(path) if one is not None] == in_place(path)


def test_a_list_with_quotes_of_both_kinds_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "list.tsv"
    path.write_text('path\tcaption\n1.jpg\t"a 5"" screen"\n2.jpg\ta 5" screen\n')
    for name in ("1.jpg", "2.jpg"):
        (tmp_path / name).write_bytes(b"\xff\xd8\xff\xd9")
    note = (
        "Quotes are kept as they are: some cells look as csv writes them, but a quote in line 3 is where csv has none."
    )
    assert packed(path) == in_place(path) == ['"a 5"" screen"', 'a 5" screen']
    assert note in open_text_list(locate(str(path)), Wanted()).notes
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert note in ss.index(str(path), workers=0).notes


@given(st.lists(st.text(st.sampled_from('ab"\t\n\r'), max_size=30)), st.integers(1, 7))
def test_the_meaning_of_quotes_does_not_depend_on_pieces(parts: list[str], size: int) -> None:
    text = "\n".join(parts).encode()
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert tab_quotes(pieces) == tab_quotes([text])
