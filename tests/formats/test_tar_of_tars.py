"""A tar of tars, as ImageNet's training images come: addressed in the outer tar, a class for each inner one."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

import shardstream.formats.tar.tar_of_tars as module
from shardstream.errors import FormatError
from shardstream.formats.contract import ObjectListing
from shardstream.formats.tar.tar_of_tars import TarOfTars
from shardstream.formats.tar.webdataset import WebDataset
from shardstream.testing import MemoryStore

from .scanning import in_memory, listing_of, recognised, samples, scanned
from .tars import OneTar, header, padded, stored, tar_of

FORMAT = TarOfTars()
JPEG = b"\xff\xd8\xff\xe0 a photograph of "
CLASSES = ("n02", "n01", "n10")


def inner(name: str, count: int = 3) -> bytes:
    return tar_of([(f"{name}_{i}.JPEG", JPEG + b"%s %d" % (name.encode(), i)) for i in range(count)])


def outer(*names: str) -> bytes:
    return tar_of([(f"{name}.tar", inner(name)) for name in names])


def listing(tar: bytes) -> ObjectListing:
    return listing_of(OneTar(tar))


def test_classes_are_the_names_of_inner_tars(tmp_path: Path) -> None:
    (tmp_path / "train.tar").write_bytes(outer(*CLASSES))
    found = recognised(FORMAT, listing_of(tmp_path))
    assert found.classes == ("n01", "n02", "n10")
    expected = [
        (f"{name}/{name}_{i}", {"cls": label, "jpg": JPEG + b"%s %d" % (name.encode(), i)})
        for name, label in (("n02", 1), ("n01", 0), ("n10", 2))
        for i in range(3)
    ]
    assert samples(FORMAT, tmp_path) == expected
    assert samples(FORMAT, in_memory(tmp_path)) == expected
    assert WebDataset().recognize(listing_of(tmp_path), {}) is None


def test_pieces_and_several_outer_tars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", 4)
    (tmp_path / "a.tar").write_bytes(outer("n05", "n03", "n04"))
    (tmp_path / "b.tar").write_bytes(tar_of([("./sub/n01.tar", inner("x")), ("n03.TAR", inner("n03", 1))]))
    assert recognised(FORMAT, listing_of(tmp_path)).classes == ("n01", "n03", "n04", "n05")
    assert [(path, len(rows.keys)) for path, rows in scanned(FORMAT, tmp_path)] == [
        *(("a.tar", 4), ("a.tar", 4), ("a.tar", 1)),
        ("b.tar", 4),
    ]
    assert [values["cls"] for _, values in samples(FORMAT, tmp_path)] == [3, 3, 3, 1, 1, 1, 2, 2, 2, 0, 0, 0, 1]


def test_classes_are_found_without_reading_the_images() -> None:
    store = MemoryStore({"train.tar": tar_of([(f"n{i}.tar", inner("x") + bytes(400_000)) for i in range(5)])})
    found = listing_of(store)
    store.requests.clear()
    assert len(recognised(FORMAT, found).classes or ()) == 5
    assert sum((one.stop or 0) - one.start for one in store.requests) < 100_000


def test_what_is_no_tar_of_tars() -> None:
    flat = tar_of([("a.jpg", JPEG)])
    assert FORMAT.recognize(listing(flat), {}) is None
    mixed = MemoryStore({"train.tar": outer("n1"), "val.tar": flat})
    for format in (FORMAT, WebDataset()):
        with pytest.raises(FormatError, match=r"train.tar holds tar files, and val.tar does not"):
            format.recognize(listing_of(mixed), {})
    for second, what in (
        (("a.jpg", JPEG), "is not a tar file"),
        (("n2.tar.gz", b"\x1f\x8b"), "is not a tar file"),
        (("b/n1.tar", b""), "two tars of class 'n1'"),
    ):
        with pytest.raises(FormatError, match=what):
            FORMAT.recognize(listing(tar_of([("n1.tar", inner("n1")), second])), {})


def test_damage() -> None:
    tar = outer(*CLASSES)
    for size in range(len(inner("n1")) + 512, len(tar.rstrip(b"\0")), 512):
        with pytest.raises(FormatError, match="classes have no numbers"):
            FORMAT.recognize(listing(tar[:size]), {})
    cut, bad = inner("n2")[:4608], inner("n3")[:1024] + b"x" * 512
    broken = tar_of([("n1.tar", inner("n1")), ("n2.tar", cut), ("n3.tar", bad)])
    ((_, rows),) = scanned(FORMAT, OneTar(broken))
    keys = [key for key, _ in stored(broken, [rows])]
    assert keys == ["n1/n1_0", "n1/n1_1", "n1/n1_2", "n2/n2_0", "n2/n2_1", "n2/n2_2"]
    assert rows.damage is not None
    with pytest.raises(FormatError, match="no whole sample"):
        list(scanned(FORMAT, OneTar(tar_of([("n1.tar", b"garbage" * 100)]))))


def test_bytes_that_changed_raise_nothing_else() -> None:
    tar = tar_of([(f"{name}.tar", inner(name, 2)[:4096]) for name in ("a", "b")], ended=False)
    draw = random.Random(7)
    for _ in range(200):
        data = bytearray(tar)
        for _ in range(draw.choice((1, 3, 20))):
            data[draw.randrange(len(data))] = draw.choice((0, 48, 49, 128, 255, draw.randrange(256)))
        with suppress(FormatError):
            found = FORMAT.recognize(listing(bytes(data)), {})
            if found is not None:
                stored(bytes(data), [rows for _, rows in scanned(FORMAT, OneTar(bytes(data)))])


def test_a_label_inside_of_an_inner_tar_is_refused() -> None:
    tar = tar_of([("n1.tar", header(b"a.cls", 1) + padded(b"1") + bytes(1024))])
    with pytest.raises(FormatError, match="cls"):
        list(scanned(FORMAT, OneTar(tar)))
