"""What numpy sees in blocks of records is what a reader sees, a record at a time."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from shardstream.dataset.lists.list_file import spooled
from shardstream.errors import DuplicateKeyError, SourceError
from shardstream.pack.sources.duplicates import HashRuns, key_hash
from shardstream.pack.sources.lists.columns import Wanted, understand
from shardstream.pack.sources.lists.line_reader import LineReader
from shardstream.pack.sources.lists.lines import index_lines, survey
from shardstream.pack.sources.lists.records import DELIMITERS, Broken, Cells, split
from shardstream.pack.sources.lists.scan import Findings, ListScan, scan
from shardstream.pack.sources.lists.source import ListRecords
from shardstream.pack.sources.lists.source import key_rule as rule_of
from shardstream.pack.sources.paths import common_folder, scheme_of

_SEPARATORS = {"tab": b"\t", "tsv": b"\t", "csv": b",", "blank": b" ", "lst": b"\t"}
pieces = st.sampled_from([
    *(b"a", b"b.jpg", b"a/b.c.jpg", b"/", b"//", b"/./", b"..", b".", b"\t", b" ", b",", b'"', b"\r", b"", b"1", b"-2"),
    *("é".encode(), b"\xe9", b"http://", b"https://h/", b"s3://b/", b"?q=1", b"#", b"x", b".hidden", b"cat", b"1.5"),
    *(b'"a/2.jpg"', b'"x,y"', b'""', b'"a""b"', b'"\n"', b"./"),
])  # fmt: skip
texts = st.lists(pieces, max_size=5).map(b"".join)
lines = st.lists(texts, min_size=1, max_size=4)


class InBlocks(ListRecords):
    """Records that come in blocks of another size than is asked for."""

    block_size: int

    def block(self, first: int, size: int) -> tuple[bytes, NDArray[np.int64]]:
        return super().block(first, self.block_size)


class NoRecord(LineReader):
    """Cannot tell what a single record says."""

    def cells(self, raw: bytes) -> Cells:
        pytest.fail(f"slow: {raw!r}")


def records_of(data: bytes, kind: Any, block_size: int = 2 << 20) -> ListRecords:
    text = spooled(lambda: iter([data]), url="test")
    records = InBlocks(text, index_lines(text, survey(text)[0], delimiter=DELIMITERS.get(kind)))
    records.block_size = block_size
    return records


def reader_of(records: ListRecords, kind: Any, wanted: Wanted, reader: type[LineReader] = LineReader) -> LineReader:
    first = split(kind, records.read(np.array([0]))[0])
    return reader(kind, understand(kind, first, wanted), rule_of(wanted), wanted.labels, "/folder")


def seen(records: ListRecords, reader: LineReader) -> tuple[dict[int, int], Findings]:
    """The hashes of keys by number, and what else a scan finds."""
    walk = ListScan(records, reader)
    found = {}
    for part in walk.hashed():
        found |= dict(zip(part.numbers.tolist(), part.hashes.tolist(), strict=True))
    return found, walk.findings


def told(records: ListRecords, reader: LineReader) -> tuple[dict[int, int], Findings]:
    """The same as the reader says it of one record after another; those that it cannot read count for nothing."""
    hashes, paths, names = {}, [], set()
    numbers = np.arange(len(records))
    for number, raw, line in zip(numbers.tolist(), records.read(numbers), records.lines(numbers).tolist(), strict=True):
        try:
            cells = reader.cells(raw)
            path = reader.path(cells)
            hashes[number] = key_hash(reader.key(cells, path, line).encode())
            name = reader.name(cells) if reader.labels == "name" else ""
        except (Broken, UnicodeEncodeError):
            hashes.pop(number, None)
            continue
        paths.append(path)
        names.add(name)
    kinds = {"absolute" if path.startswith("/") else "url" if is_url(path) else "relative" for path in paths}
    normal = [reader.keys.normal(path) for path in paths]
    findings = Findings(names=names if reader.labels == "name" else None)
    if reader.keys.mode == "path" and normal:
        findings.common = common_folder(min(normal), max(normal))
        findings.absolute, findings.relative, findings.urls = (one in kinds for one in ("absolute", "relative", "url"))
    return hashes, findings


def is_url(path: str) -> bool:
    return "://" in path and scheme_of(path) is not None


@given(
    st.sampled_from(["tab", "tsv", "csv", "blank", "lst"]),
    st.lists(lines, min_size=1, max_size=12),
    st.sampled_from(["path", "stem", "1"]),
    st.sampled_from(["int", "name"]),
    st.sampled_from([b"\n", b"\r\n"]),
    st.booleans(),
    st.sampled_from([1, 40, 10_000]),
)
def test_blocks_are_what_records_are(
    kind: str, rows: list[list[bytes]], key: str, labels: Any, end: bytes, last: bool, block: int
) -> None:
    if kind in DELIMITERS:
        rows = [[cell.replace(b"\r", b"") for cell in row] for row in rows]
    data = {
        "tab": b"a/1.jpg\t0",
        "tsv": b"a/1.jpg\t0",
        "csv": b"a/1.jpg,0",
        "blank": b"a/1.jpg 0",
        "lst": b"0\t0\ta/1.jpg",
    }[kind]
    data += end + end.join(_SEPARATORS[kind].join(row) for row in rows) + (end if last else b"")
    records = records_of(data, kind, block)
    reader = reader_of(records, kind, Wanted(key, labels))
    assert seen(records, reader) == told(records, reader)


cells = st.one_of(
    texts.map(lambda text: text.decode("utf-8", "replace")),
    st.sampled_from(["a\tb", "a\nb", "", "\ud800", "é/ü.jpg", 3, -1, 2**70, 1.5, True, None, [1], {"bytes": None}]),
)
objects = st.fixed_dictionaries({}, optional={"path": cells, "label": cells, "id": cells, "other": cells})
garbage = st.sampled_from(["", " ", "[1]", "3", "{", '{"path": "a.jpg"} x', '{"path": "a.jpg"},{"path": "b.jpg"}', "é"])


@given(
    st.lists(objects.map(json.dumps) | objects.map(lambda one: json.dumps(one, ensure_ascii=False)) | garbage),
    st.sampled_from(["path", "stem", "id"]),
    st.sampled_from(["int", "name"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([1, 40, 10_000]),
)
def test_blocks_of_objects_are_what_objects_are(rows: list[str], key: str, labels: Any, end: str, block: int) -> None:
    first = json.dumps({"path": "a/1.jpg", "label": 0, "id": "x", "other": 1})
    records = records_of(end.join([first, *rows]).encode("utf-8", "surrogatepass"), "json", block)
    reader = reader_of(records, "json", Wanted(key, labels))
    assert seen(records, reader) == told(records, reader)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("json", '{{"path": "photos/train/{}.jpg", "label": {}}}\n'),
        ("tab", "photos/train/{}.jpg\t{}\n"),
        ("tab", "./photos/train/{}.jpg\t{}\n"),
        ("tab", "https://host.org/photos/train/{}.jpg\t{}\n"),
        ("tab", "s3://bucket/photos/train/{}.jpg\t{}\r\n"),
        ("csv", '"photos/train/{}.jpg","{}"\n'),
        ("csv", "/photos/train/{}.jpg,{}\n"),
        ("tsv", '"photos/train/{}.jpg"\t"{}"\n'),
        ("blank", "photos/train/my {}.jpg {}\n"),
        ("lst", "0\t{1}\tphotos/train/{0}.jpg\n"),
    ],
)
def test_lists_that_are_all_alike_are_read_fast(kind: str, line: str) -> None:
    data = "".join(line.format(i, i) for i in range(1000)).encode()
    records = records_of(data, kind)
    hashes, findings = seen(records, reader_of(records, kind, Wanted(), NoRecord))
    assert len(hashes) == 1000
    assert (hashes, findings) == told(records, reader_of(records, kind, Wanted()))
    assert scan(records, reader_of(records, kind, Wanted()))[0].keys.common.endswith("photos/train/")


def test_two_spellings_of_one_url_are_one_key() -> None:
    records = records_of(b"https://h/a/1.jpg?size=2\t0\nhttps://h/a/b/../1.png#x\t1\n", "tab")
    with pytest.raises(DuplicateKeyError, match="lines 1 and 2") as caught:
        scan(records, reader_of(records, "tab", Wanted()))
    assert caught.value.place["key"] == "1"


def test_rejected_lines_are_no_duplicates() -> None:
    records = records_of(b"a.jpg\t0\na.jpg\tx\nb.jpg\t0\n", "tab")
    scan(records, reader_of(records, "tab", Wanted()))


@pytest.mark.full
def test_names_without_end() -> None:
    records = records_of(b"".join(b"%d\t%x\n" % (i, i) for i in range(1_000_001)), "tab")
    with pytest.raises(SourceError, match="more than 1,000,000 names"):
        scan(records, reader_of(records, "tab", Wanted("line", labels="name")))


hashes = st.integers(0, 60) | st.integers(0, 60).map(lambda value: value << 58) | st.integers(0, 2**64 - 1)


@given(st.lists(st.lists(hashes, max_size=30), max_size=6), st.integers(1, 20))
def test_hashes_in_runs(batches: list[list[int]], run: int) -> None:
    everything = [value for batch in batches for value in batch]
    runs = HashRuns(len(everything), run)
    for batch in batches:
        runs.add(np.array(batch, np.uint64))
    found = runs.repeated().tolist()
    runs.close()
    assert found == sorted({value for value in everything if everything.count(value) > 1})
