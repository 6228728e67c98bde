"""RecordIO files of MXNet, by a writer of a few lines: with index and list, in parts, of faces, damaged and hostile."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import FormatError
from shardstream.formats.recordio import format as recordio
from shardstream.formats.recordio.format import RecordIO
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import PIECE, ScannedRows
from shardstream.testing import MemoryStore

from .damaging import check_forms
from .scanning import in_memory, listing_of, recognised, samples, scanned

MAGIC = struct.pack("<I", 0xCED7230A)
JPEG = b"\xff\xd8\xff\xe0"


def record(payload: bytes) -> bytes:
    """What dmlc's writer makes of a payload: a part more for each magic number at a multiple of 4."""
    cuts = [at for at in range(0, len(payload) - 3, 4) if payload[at : at + 4] == MAGIC]
    begins, ends = [0, *(at + 4 for at in cuts)], [*cuts, len(payload)]
    out = b""
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        kind = 0 if not cuts else 1 if number == 0 else 3 if number == len(cuts) else 2
        part = payload[begin:end]
        out += MAGIC + struct.pack("<I", kind << 29 | len(part)) + part + bytes(-len(part) % 4)
    return out


def packed(label: float | list[float], id: int, image: bytes) -> bytes:
    """What ``mx.recordio.pack`` makes of a header and an image."""
    if isinstance(label, list):
        return struct.pack(f"<IfQQ{len(label)}f", len(label), 0, id, 0, *label) + image
    return struct.pack("<IfQQ", 0, label, id, 0) + image


def write(folder: Path, payloads: list[bytes], *, index: list[int] | None = None, name: str = "train") -> bytes:
    """A ``.rec``, and an ``.idx`` with these keys."""
    data, lines = b"", []
    for row, payload in enumerate(payloads):
        lines.append(f"{index[row] if index else row}\t{len(data)}\n")
        data += record(payload)
    (folder / f"{name}.rec").write_bytes(data)
    if index is not None:
        (folder / f"{name}.idx").write_text("".join(lines))
    return data


def scan_bytes(data: bytes, about: dict[str, Any] | None = None) -> list[ScannedRows]:
    store = MemoryStore({"a.rec": data})
    return list(RecordIO().scan(ObjectBytes(store, "a.rec", len(data)), about or {}))


def types_of(folder: Path) -> dict[str, tuple[str, str]]:
    return {c.name: (str(c.type), c.codec) for _, rows in scanned(RecordIO(), folder) for c in rows.columns}


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("indexed", [False, True])
def test_images_as_im2rec_writes_them(tmp_path: Path, remote: bool, indexed: bool) -> None:
    images = [JPEG + bytes([row]) * row for row in range(30)]
    payloads = [packed(float(row % 5), row * 3, image) for row, image in enumerate(images)]
    write(tmp_path, payloads, index=[row * 3 for row in range(30)] if indexed else None)
    found = samples(RecordIO(), in_memory(tmp_path) if remote else tmp_path)
    assert found == [(f"train/{row * 3:08d}", {"jpg": images[row], "cls": row % 5}) for row in range(30)]
    assert types_of(tmp_path) == {"jpg": ("jpg", "none"), "cls": ("int64", "none")}


def test_a_list_beside_gives_paths_as_keys(tmp_path: Path) -> None:
    write(tmp_path, [packed(1.0, 7, JPEG), packed(2.0, 5, JPEG)])
    (tmp_path / "train.lst").write_bytes(
        b"5\t2.000000\t../../etc/passwd\n\n7\t1.0\t/n01/k\xe4se.jpg\n9\t0.0\tmissing.jpg\n"
    )
    assert [key for key, _ in samples(RecordIO(), tmp_path)] == ["n01/k%E4se.jpg", "../../etc/passwd"]
    (tmp_path / "train.lst").write_text("5\t2.0\tb.jpg\n")
    with pytest.raises(FormatError, match=r"train\.lst is not the list of train\.rec: it has no line 7"):
        samples(RecordIO(), tmp_path)
    (tmp_path / "train.lst").write_text("five\t2.0\tb.jpg\n")
    with pytest.raises(FormatError, match=r"malformed \.lst"):
        samples(RecordIO(), tmp_path)


def test_ids_that_are_not_each_another_are_no_keys(tmp_path: Path) -> None:
    write(tmp_path, [packed(0.0, 4, JPEG), packed(1.0, 4, JPEG)])
    assert [key for key, _ in samples(RecordIO(), tmp_path)] == ["train/00000000", "train/00000001"]


@pytest.mark.parametrize("remote", [False, True])
def test_images_that_hold_the_magic_number(tmp_path: Path, remote: bool) -> None:
    images = [
        JPEG + MAGIC + b"after",
        JPEG + b"x" + MAGIC + b"unaligned",
        JPEG + MAGIC * 3,
        JPEG,
        MAGIC,
        JPEG + b"1234" + MAGIC + b"5678" + MAGIC + b"9",
    ]
    write(tmp_path, [packed([1.0, 2.0], row, image) for row, image in enumerate(images)], index=list(range(6)))
    found = samples(RecordIO(), in_memory(tmp_path) if remote else tmp_path)
    assert [values["jpg" if row < 0 else "data"] for row, (_, values) in enumerate(found)] == images
    assert [values["labels"].tolist() for _, values in found] == [[1.0, 2.0]] * 6
    assert types_of(tmp_path)["data"] == ("bytes", "recordio.image")


def test_labels_that_are_several(tmp_path: Path) -> None:
    write(tmp_path, [packed([1.0, 0.5, float(row)], row, JPEG) for row in range(3)])
    assert types_of(tmp_path)["labels"] == ("array:float32:3", "none")
    assert [values["labels"].tolist() for _, values in samples(RecordIO(), tmp_path)] == [[1, 0.5, n] for n in range(3)]
    write(tmp_path, [packed([1.0] * (row + 1), row, JPEG) for row in range(3)])
    assert types_of(tmp_path)["labels"] == ("array", "recordio.labels")
    assert [len(values["labels"]) for _, values in samples(RecordIO(), tmp_path)] == [1, 2, 3]


def test_labels_that_are_no_integers(tmp_path: Path) -> None:
    write(tmp_path, [packed(0.5, 0, JPEG), packed(float("nan"), 1, JPEG), packed(1.0, 2, JPEG)])
    assert [values["label"] for _, values in samples(RecordIO(), tmp_path)] == [
        0.5,
        pytest.approx(np.nan, nan_ok=True),
        1,
    ]


@pytest.mark.parametrize("label", [2**24, -(2**24), 2**24 + 2, 2**40])
def test_labels_that_a_float32_holds_only_roughly_are_no_integers(label: int, tmp_path: Path) -> None:
    """2**24 may have been 2**24 + 1: ``cls`` would be another class."""
    for exact in (True, False):
        written = [3, np.sign(label) * (2**24 - 1) if exact else label]
        data = b"".join(record(packed(one, row, JPEG)) for row, one in enumerate(written))
        (tmp_path / "train.rec").write_bytes(data)
        found = [values for _, values in samples(RecordIO(), tmp_path)]
        name = "cls" if exact else "label"
        assert types_of(tmp_path)[name] == ("int64" if exact else "float32", "none")
        assert [values[name] for values in found] == written


def test_faces_whose_range_a_float32_holds_only_roughly(tmp_path: Path) -> None:
    """The record of an identity next to the end of the range is no sample."""
    first = 2**24 + 1  # which the file has as 2**24
    records = [packed([first, first + 2], 0, b""), packed(7.0, 1, JPEG)]
    records += [packed([1.0, 2.0], first + number, b"") for number in range(2)]
    (tmp_path / "train.rec").write_bytes(b"".join(map(record, records)))
    assert [values for _, values in samples(RecordIO(), tmp_path)] == [{"jpg": JPEG, "cls": 7}]


def test_one_label_in_some_records_and_several_in_others(tmp_path: Path) -> None:
    write(tmp_path, [packed(3.0, 0, JPEG), packed([4.0, 5.0], 1, JPEG)])
    first, second = (values for _, values in samples(RecordIO(), tmp_path))
    assert first == {"jpg": JPEG, "cls": 3}
    assert second["labels"].tolist() == [4, 5]
    assert "cls" not in second


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("several", [False, True])
def test_faces_as_insightface_writes_them(tmp_path: Path, last: bool, several: bool) -> None:
    header = packed([5.0, 7.0], 0, b"")
    images = [packed([float(row // 3), 0.0] if several else row // 3, row, JPEG + bytes([row])) for row in range(1, 5)]
    identities = [packed([1.0, 3.0], 5, b""), packed([3.0, 5.0], 6, b"")]
    payloads = [*images, *identities, header] if last else [header, *images, *identities]
    write(tmp_path, payloads, index=[*range(1, 7), 0] if last else list(range(7)))
    found = samples(RecordIO(), tmp_path)
    assert [key for key, _ in found] == [f"train/{row:08d}" for row in range(1, 5)]
    assert [values["jpg"] for _, values in found] == [JPEG + bytes([row]) for row in range(1, 5)]
    assert [values["cls"] for _, values in found] == [0, 0, 1, 1]


def test_empty_images_are_samples_without_one(tmp_path: Path) -> None:
    write(tmp_path, [packed(1.0, 1, JPEG), packed(2.0, 2, b""), packed(3.0, 3, JPEG)])
    assert [values for _, values in samples(RecordIO(), tmp_path)] == [
        {"jpg": JPEG, "cls": 1},
        {"cls": 2},
        {"jpg": JPEG, "cls": 3},
    ]


def test_records_that_are_no_images(tmp_path: Path) -> None:
    payloads = [b"text of any length", b"", b"abcd" + MAGIC + b"efgh", bytes(30)]
    write(tmp_path, payloads)
    assert samples(RecordIO(), tmp_path) == [(f"train/{row:08d}", {"record": one}) for row, one in enumerate(payloads)]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("0\t0\n1\t40\n", "names byte 40, where no record begins"),
        ("0\t0\n", "names 1 records of 2"),
        ("0\t0\n1\tx\n", "malformed .idx"),
        ("0\t0\n1\t" + "9" * 30 + "\n", "malformed .idx"),
        ("", "names 0 records of 2"),
    ],
)
def test_an_index_of_another_file_is_refused(tmp_path: Path, text: str, what: str) -> None:
    write(tmp_path, [packed(1.0, 1, JPEG), packed(2.0, 2, JPEG)])
    (tmp_path / "train.idx").write_text(text)
    with pytest.raises(FormatError, match=what) as caught:
        samples(RecordIO(), tmp_path)
    assert "train.idx" in str(caught.value)


def test_an_index_whose_keys_are_no_numbers(tmp_path: Path) -> None:
    write(tmp_path, [packed(1.0, 8, JPEG)])
    (tmp_path / "train.idx").write_text("first\t0\n")
    assert samples(RecordIO(), tmp_path) == [("train/00000008", {"jpg": JPEG, "cls": 1})]


def test_what_is_recognised(tmp_path: Path) -> None:
    data = write(tmp_path, [packed(0.0, 0, JPEG)], index=[0])
    (tmp_path / "notes.txt").write_text("x")
    (one,) = recognised(RecordIO(), listing_of(tmp_path)).objects
    assert (one.path, dict(one.about)) == ("train.rec", {"idx": ["train.idx", 4]})
    for objects in ({"a.bin": data}, {"a.rec": b"something else"}, {"a.rec": b""}, {".a.rec": data}, {}):
        assert RecordIO().recognize(listing_of(MemoryStore(objects)), {}) is None


def test_an_object_that_is_not_mapped_is_read_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(recordio, "_BLOCK", 10_000)
    data = write(tmp_path, [packed(0.0, row, JPEG + bytes(1000 + 30_000 * (row == 7))) for row in range(50)])
    store = in_memory(tmp_path)
    store.requests.clear()
    rows = list(RecordIO().scan(ObjectBytes(store, "train.rec", len(data), window=10_000), {}))
    assert sum(len(one.keys) for one in rows) == 50
    assert len(store.requests) <= len(data) // 9_000 + 6


def test_samples_come_in_pieces(tmp_path: Path) -> None:
    count = PIECE + 2
    write(tmp_path, [packed(float(row), row, JPEG if row < count - 1 else JPEG + MAGIC) for row in range(count)])
    rows = [one for _, one in scanned(RecordIO(), tmp_path)]
    assert [len(one.keys) for one in rows] == [count // 2] * 2
    assert {column.codec for one in rows for column in one.columns if column.name == "jpg"} == {"recordio.image"}


def test_cut_off_anywhere_gives_the_whole_samples() -> None:
    parts = [record(packed(float(row), row, JPEG + MAGIC * row + b"x" * row)) for row in range(3)]
    data, ends = b"".join(parts), np.cumsum([len(one) for one in parts]).tolist()
    for length in range(1, len(data)):
        whole = sum(end <= length for end in ends)
        if whole == 0:
            with pytest.raises(FormatError, match="ends inside of a record"):
                scan_bytes(data[:length])
            continue
        (rows,) = scan_bytes(data[:length])
        assert len(rows.keys) == whole
        assert (rows.damage is None) == (length in ends)


@pytest.mark.parametrize("rounds", [100, pytest.param(3000, marks=pytest.mark.full)])
def test_random_damage_is_one_error(rounds: int) -> None:
    chance = random.Random(rounds)
    header = packed([4.0, 6.0], 0, b"")
    payloads = [packed([1.0, 2.0], 1, JPEG + MAGIC + b"x"), packed(1.0, 2, JPEG), packed(0.5, 3, b"")]
    data = b"".join(map(record, [header, *payloads, packed([1.0, 2.0], 4, b"")]))
    for _ in range(rounds):
        wrong = bytearray(data)
        for _ in range(chance.randint(1, 3)):
            wrong[chance.randrange(len(wrong))] = chance.randrange(256)
        try:
            found = scan_bytes(bytes(wrong))
        except FormatError:
            continue
        for rows in found:
            check_forms(RecordIO(), bytes(wrong), [rows])


@pytest.mark.parametrize(
    "bad",
    [
        MAGIC + struct.pack("<I", 2 << 29 | 4) + bytes(4),  # the middle of nothing
        MAGIC + struct.pack("<I", 3 << 29 | 4) + bytes(4),
        MAGIC + struct.pack("<I", 5 << 29 | 4) + bytes(4),  # a flag that is none
        MAGIC + struct.pack("<I", 1 << 29 | 4) + bytes(4) + record(b"whole"),  # a first part without a last one
        struct.pack("<II", 0x3ED7230A, 4) + bytes(4),  # the magic number of 2015
        record(b"no header"),
        record(struct.pack("<IfQQ", 0xFFFFFFFF, 0, 0, 0)),  # 2 ** 32 labels
    ],
)
def test_damage_after_whole_records(bad: bytes) -> None:
    good = record(packed(1.0, 1, JPEG))
    (rows,) = scan_bytes(good + bad + good)
    assert len(rows.keys) == 1
    assert rows.damage is not None
    assert rows.damage.place["offset"] == len(good)


def test_an_empty_file_has_no_samples() -> None:
    assert scan_bytes(b"") == []


def test_a_header_of_faces_alone_before_damage_is_an_error() -> None:
    with pytest.raises(FormatError, match="ends inside of a record"):
        scan_bytes(record(packed([1.0, 1.0], 0, b"")) + MAGIC)


_PIECES = st.lists(st.sampled_from([MAGIC, MAGIC[:3], b"abcd", b"x", JPEG, b""]), max_size=8).map(b"".join)


@given(
    st.lists(st.tuples(st.lists(st.floats(width=32, allow_nan=False), max_size=3), _PIECES), min_size=1, max_size=20)
)
def test_random_images_come_back(written: list[tuple[list[float], bytes]]) -> None:
    payloads = [packed([1.0, *labels], row, image) for row, (labels, image) in enumerate(written, 1)]
    store = MemoryStore({"a.rec": b"".join(map(record, payloads))})
    for (_, values), (labels, image) in zip(samples(RecordIO(), store), written, strict=True):
        assert values.get("jpg", values.get("data", b"")) == image
        assert values["labels"].tolist() == [1.0, *labels]
