"""Zip files: what zipfile and Info-ZIP write is read as they read it; what could be read in two ways is refused."""

import io
import random
import shutil
import struct
import subprocess
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardstream.errors import FormatError, StorageError, UsageError
from shardstream.formats.scans import rows as rows_module
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import usable_key
from shardstream.formats.zip.directory import located, read_directory
from shardstream.formats.zip.format import Zip
from shardstream.storage.local.store import LocalStore
from shardstream.testing import MemoryStore
from tests.formats.scanning import in_memory, listing_of, recognised, samples, scanned

JPEG = b"\xff\xd8\xff\xe0" + bytes(40)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


def written(members: dict[str, bytes], **options) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", **options) as archive:
        for name, value in members.items():
            archive.writestr(name, value)
    return out.getvalue()


def read(data: bytes, options=None):
    return samples(Zip(), MemoryStore({"a.zip": data}), options)


def refused(data: bytes, match: str, options=None) -> None:
    with pytest.raises(FormatError, match=match):
        read(data, options)


MEMBERS = {
    "train/cat/1.jpg": JPEG + b"one",
    "train/cat/1.txt": b"eine Katze",
    "train/dog/2.v1.jpg": PNG,
    "train/dog/2.json": b'{"a":[1]}',
    "train/dog/2.cls": b"7\n",
    "train/cat/1.cls": b"-3",
}
EXPECTED = [
    ("train/cat/1", {"jpg": JPEG + b"one", "txt": "eine Katze", "cls": -3}),
    ("train/dog/2", {"v1.jpg": PNG, "json": {"a": [1]}, "cls": 7}),
]


# ------------------------------------------------------------------------------------------------------ what is read


def test_members_of_one_name_are_a_sample_wherever_they_lie(tmp_path):
    (tmp_path / "a.zip").write_bytes(written(MEMBERS))
    assert samples(Zip(), tmp_path) == EXPECTED
    assert samples(Zip(), in_memory(tmp_path)) == EXPECTED


def test_values_equal_those_of_zipfile_and_of_info_zip(tmp_path):
    rng = random.Random(1)
    values = {f"d{i % 7}/s{i:04d}.bin": rng.randbytes(rng.randrange(300)) for i in range(500)}
    (tmp_path / "a.zip").write_bytes(written(values))
    if shutil.which("zip"):
        for name, value in values.items():
            (tmp_path / "z" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "z" / name).write_bytes(value)
        subprocess.run(["zip", "-0", "-q", "-r", "../b.zip", "."], cwd=tmp_path / "z", check=True, timeout=60)
        shutil.rmtree(tmp_path / "z")
    for path in sorted(tmp_path.glob("*.zip")):
        with zipfile.ZipFile(path) as archive:
            theirs = [(n[:-4], {"bin": archive.read(n)}) for n in archive.namelist() if not n.endswith("/")]
        assert samples(Zip(), MemoryStore({"x.zip": path.read_bytes()})) == theirs


def test_streamed_and_zip64_members(tmp_path):
    class Pipe(io.RawIOBase):  # zipfile writes data descriptors where it cannot seek
        def __init__(self) -> None:
            self.parts: list[bytes] = []

        def writable(self) -> bool:
            return True

        def write(self, data) -> int:
            self.parts.append(bytes(data))
            return len(data)

    for wide in (False, True):
        pipe = Pipe()
        with zipfile.ZipFile(pipe, "w") as archive:
            for name, value in MEMBERS.items():
                with archive.open(name, "w", force_zip64=wide) as member:
                    member.write(value)
        assert read(b"".join(pipe.parts)) == EXPECTED
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, value in MEMBERS.items():
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(value)
    assert read(out.getvalue()) == EXPECTED


def test_zip64_end_record(monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 3)
    data = written(MEMBERS)
    assert b"PK\6\6" in data
    assert read(data) == EXPECTED


@pytest.mark.full
def test_a_directory_with_more_entries_than_16_bits_count(tmp_path):
    (tmp_path / "a.zip").write_bytes(written({f"{i}.x": b"" for i in range(66_000)}))
    found = [rows for _, rows in scanned(Zip(), tmp_path)]
    assert [key for rows in found for key in rows.keys] == [str(i) for i in range(66_000)]
    assert max(len(rows.keys) for rows in found) <= rows_module.PIECE


def test_zip64_offsets_in_a_sparse_file(tmp_path):
    """Members behind 4 GiB: header offsets are in zip64 extra data."""
    path = tmp_path / "a.zip"
    value = b"behind four gigabytes"
    start = (1 << 32) + 5
    name = b"far.txt"
    crc = zlib.crc32(value)
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 45, 0, 0, 0, 0, crc, len(value), len(value), len(name), 0) + name
    wide = struct.pack("<2HQ", 1, 8, start)
    sizes = (crc, len(value), len(value), len(name), len(wide), 0, 0, 0, 0, 0xFFFFFFFF)
    entry = struct.pack("<4s6H3I5H2I", b"PK\1\2", 45, 45, 0, 0, 0, 0, *sizes) + name + wide
    at = start + len(local) + len(value)
    end64 = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, len(entry), at)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, at + len(entry), 1)
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, len(entry), 0xFFFFFFFF, 0)
    with path.open("wb") as file:
        file.write(b"PK\3\4")
        file.seek(start)
        file.write(local + value + entry + end64 + locator + end)
    with zipfile.ZipFile(path) as archive:
        assert archive.read("far.txt") == value
    assert samples(Zip(), tmp_path) == [("far", {"txt": value.decode()})]


def test_names_in_utf8_cp437_and_info_zips_own_way():
    name = "größe.txt"
    local = written({name: b"x"})
    assert read(local) == [("größe", {"txt": "x"})]
    plain = zip_of([("gr\x94\xe1e.txt".encode("latin1"), b"x", {})])
    assert read(plain) == [("größe", {"txt": "x"})]
    raw = b"gr__e.\xff"
    unicode = struct.pack("<BI", 1, zlib.crc32(raw)) + name.encode()
    assert read(zip_of([(raw, b"x", {"extra": struct.pack("<2H", 0x7075, len(unicode)) + unicode})])) == [
        ("größe", {"txt": "x"})
    ]
    assert read(zip_of([(b"\xff.txt", b"x", {"flags": 1 << 11})])) == [("%FF", {"txt": "x"})]


def test_what_is_no_data_is_skipped():
    found = read(
        written(
            {
                "a/": b"",
                "a/1.jpg": JPEG,
                "a/.DS_Store": b"x",
                "a/._1.jpg": b"x",
                "__MACOSX/a/._1.jpg": b"x",
                "README": b"no extension",
                "a/.hidden/2.jpg": JPEG,
            }
        )
    )
    assert [key for key, _ in found] == ["a/1"]


def test_deflated_members_are_read_inflated(tmp_path):
    rng = random.Random(1)
    values = {f"d{i % 7}/s{i:04d}.bin": b"a" * rng.randrange(300) + rng.randbytes(rng.randrange(9)) for i in range(300)}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number, (name, value) in enumerate(values.items()):
            archive.writestr(name, value, zipfile.ZIP_DEFLATED if number % 3 else zipfile.ZIP_STORED)
        archive.writestr("label/x.cls", "12", zipfile.ZIP_DEFLATED)
    (tmp_path / "a.zip").write_bytes(out.getvalue())
    expected = [(name[:-4], {"bin": value}) for name, value in values.items()] + [("label/x", {"cls": 12})]
    assert samples(Zip(), tmp_path) == expected
    assert samples(Zip(), in_memory(tmp_path)) == expected
    assert read(written(MEMBERS, compression=zipfile.ZIP_DEFLATED)) == EXPECTED


@pytest.mark.full
def test_deflated_zips_that_are_cut_off_or_damaged():
    whole, rng = written(MEMBERS, compression=zipfile.ZIP_DEFLATED), random.Random(6)
    for length in range(4, len(whole)):
        refused(whole[:length], "a.zip")
    for _ in range(300):
        data = bytearray(whole)
        data[rng.randrange(4, len(data))] ^= 1 << rng.randrange(8)
        with suppress(FormatError, UsageError):  # times and the like may be anything
            list(scanned(Zip(), MemoryStore({"a.zip": bytes(data)})))


def test_skipped_members_may_be_compressed():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("__MACOSX/._1.jpg", bytes(500), zipfile.ZIP_DEFLATED)
        archive.writestr("1.jpg", JPEG)
    assert read(out.getvalue()) == [("1", {"jpg": JPEG})]


def test_types_by_first_bytes_and_equal_in_all_rows(monkeypatch):
    monkeypatch.setattr(rows_module, "PIECE", 4)
    store = MemoryStore({"a.zip": written({f"{i}.img": JPEG if i < 8 else PNG for i in range(10)})})
    found = [rows.columns[0].type for _, rows in scanned(Zip(), store)]
    assert len(found) == 3
    assert {str(kind) for kind in found} == {"image"}
    ((_, rows),) = scanned(Zip(), MemoryStore({"a.zip": written({"1.bin": JPEG, "2.bin": JPEG})}))
    assert str(rows.columns[0].type) == "jpg"
    ((_, rows),) = scanned(Zip(), MemoryStore({"a.zip": written({"1.jpg": b"no image", "2.jpg": JPEG})}))
    assert str(rows.columns[0].type) == "bytes"


def test_a_label_that_is_no_number_leaves_bytes():
    assert read(written({"1.cls": b"7", "2.cls": b"cat"})) == [("1", {"cls": b"7"}), ("2", {"cls": b"cat"})]


def test_folders_become_labels_only_where_that_is_said(tmp_path):
    (tmp_path / "a.zip").write_bytes(written({"all/dog/1.jpg": JPEG, "all/cat/2.jpg": JPEG}))
    (tmp_path / "b.zip").write_bytes(written({"all/emu/3.png": PNG}))
    plain = recognised(Zip(), listing_of(tmp_path))
    assert plain.classes is None
    assert "labels=folder" in plain.notes[0]
    assert [set(values) for _, values in samples(Zip(), tmp_path)] == [{"jpg"}, {"jpg"}, {"png"}]
    found = recognised(Zip(), listing_of(tmp_path), {"labels": "folder"})
    assert found.classes == ("cat", "dog", "emu")
    labelled = samples(Zip(), in_memory(tmp_path), {"labels": "folder"})
    assert [(key, values["cls"]) for key, values in labelled] == [("all/dog/1", 1), ("all/cat/2", 0), ("all/emu/3", 2)]


def test_labels_of_folders_that_give_none():
    refused(written({"a/1.jpg": JPEG, "a/b/2.jpg": JPEG}), "one depth", {"labels": "folder"})
    refused(written({"1.jpg": JPEG}), "class folders", {"labels": "folder"})
    refused(written({"a/1.jpg": JPEG, "a/1.json": b"{}"}), "images alone", {"labels": "folder"})
    with pytest.raises(UsageError, match="come from folders"):
        read(written({"a/1.jpg": JPEG}), {"labels": "names"})


def test_splits_are_not_mixed():
    data = written({"x/train/a/1.jpg": JPEG, "x/val/a/1.jpg": PNG})
    refused(data, "several splits: x/train, x/val")
    assert read(data, {"folder": "x/val"}) == [("x/val/a/1", {"jpg": PNG})]
    refused(data, "nothing below", {"folder": "x/test"})
    assert len(read(written({"train/val/1.jpg": JPEG, "train/cat/1.jpg": JPEG}))) == 2


# ----------------------------------------------------------------------------------------------------- recognition


def test_other_listings_are_left_to_others(tmp_path):
    data = written({"1.jpg": JPEG})
    assert Zip().recognize(listing_of(MemoryStore({"a.zip": data, "b.tar": b"x"})), {}) is None
    assert Zip().recognize(listing_of(MemoryStore({"a.zip": b"Rar!"})), {}) is None
    assert Zip().recognize(listing_of(MemoryStore({"a.txt": b"x"})), {}) is None
    found = recognised(Zip(), listing_of(MemoryStore({"a.ZIP": data, "train.csv": b"x", "._a.zip": b"x"})))
    assert found.notes == ("train.csv is not read",)
    assert [one.path for one in found.objects] == ["a.ZIP"]


# ---------------------------------------------------------------------------------------------------------- refusals


def zip_of(members, *, comment=b"", edit_end=lambda fields: fields, before=b"") -> bytes:
    """A zip by an independent writer. Members: name, value, and what its entry (or local header) says otherwise."""
    body, directory = bytearray(before), bytearray()
    for name, value, odd in members:
        header = odd.get("header", len(body))
        method, flags, extra = odd.get("method", 0), odd.get("flags", 0), odd.get("extra", b"")
        size = odd.get("size", len(value))
        local_name = odd.get("local_name", name)
        head = (20, flags, odd.get("local_method", method), 0, 0, zlib.crc32(value), odd.get("local_size", len(value)))
        local = (*head, odd.get("local_raw", len(value)), len(local_name), 0)
        body += struct.pack("<4s5H3I2H", b"PK\3\4", *local) + local_name + value
        sizes = (zlib.crc32(value), size, odd.get("raw_size", size), len(name), len(extra), 0, odd.get("disk", 0), 0, 0)
        directory += struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, 20, flags, method, 0, 0, *sizes, header) + name + extra
    fields = [0, 0, len(members), len(members), len(directory), len(body)]
    end = struct.pack("<4s4H2IH", b"PK\5\6", *edit_end(fields), len(comment))
    return bytes(body + directory + end + comment)


DEFLATED = zlib.compress(bytes(100), wbits=-15)
PLAIN = [(b"1.txt", b"one", {}), (b"2.txt", b"two", {})]


def test_the_writer_of_these_tests_writes_zips():
    assert read(zip_of(PLAIN)) == [("1", {"txt": "one"}), ("2", {"txt": "two"})]
    assert zipfile.ZipFile(io.BytesIO(zip_of(PLAIN))).testzip() is None


@pytest.mark.parametrize(
    ("members", "match"),
    [
        ([(b"1.txt", b"one", {"flags": 1})], "'1.txt' is encrypted"),
        ([(b"1.txt", b"one", {"method": 99})], "encrypted"),
        ([(b"1.txt", b"one", {"method": 8})], "does not inflate"),
        ([(b"1.txt", b"\x03\0", {"method": 8, "raw_size": 2065})], "announces 2065 bytes in 2"),
        ([(b"1.txt", b"\x03\0", {"method": 8, "raw_size": 20, "local_raw": 20})], "inflates to 0 bytes, not 20"),
        ([(b"1.txt", DEFLATED, {"method": 8, "raw_size": 99, "local_raw": 99})], "inflates to more than 99 bytes"),
        ([(b"1.txt", DEFLATED + b"x", {"method": 8, "raw_size": 100, "local_raw": 100})], "bytes follow"),
        ([(b"1.txt", DEFLATED, {"method": 8, "raw_size": 100, "local_raw": 100})], "other bytes than those"),
        ([(b"1.txt", b"one", {"method": 8, "flags": 1})], "encrypted"),
        ([(b"1.txt", b"one", {"method": 93})], r"compressed \(zstd\)"),
        ([(b"1.txt", b"one", {"method": 1234})], "method 1234"),
        ([(b"1.txt", b"one", {"raw_size": 4})], "3 bytes, and 4 uncompressed"),
        ([*PLAIN, (b"3.txt", b"three", {"header": 0})], "contradicts|overlap"),
        ([(b"1.txt", b"x" * 50, {"size": 90, "local_size": 90}), (b"2.txt", b"y" * 99, {})], "contradicts"),
        ([(b"1.txt", b"one", {"size": 1 << 31})], "reaches into the zip's directory"),
        ([(b"1.txt", b"one", {"local_name": b"2.txt"})], "contradicts the zip's directory"),
        ([(b"1.txt", b"one", {"local_method": 8})], "contradicts the zip's directory"),
        ([(b"1.txt", b"one", {"local_size": 2})], "contradicts the zip's directory"),
        ([(b"1.txt", b"one", {"disk": 1})], "another part"),
        ([(b"1.txt\0.jpg", b"one", {})], "zero byte"),
        ([(b"1.txt", b"one", {"header": 0xFFFFFFFF})], "zip64 should give"),
        ([(b"1.txt", b"one", {}), (b"1.TXT", b"one", {})], "two values of 'txt'"),
        ([(b"1.txt", b"one", {"size": 0xFFFFFFFF, "extra": struct.pack("<2H", 1, 99)})], "reaches past their end"),
        ([(b"LICENSE", b"one", {})], "none of its 1 members"),
    ],
)
def test_hostile_members_are_refused(members, match):
    refused(zip_of(members), match)


def test_overlapping_members_are_refused():
    """The bomb of D. Fifield: the bytes of one member hold the header of the next."""
    inner = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 0, 0, 3, 3, 5, 0) + b"2.txtTWO"
    members = [(b"1.txt", inner, {}), (b"2.txt", b"two", {"header": 35})]
    refused(zip_of(members), "'1.txt' and '2.txt' overlap")
    again = [(b"1.txt", b"one", {}), (b"1.txt", b"one", {"header": 0})]
    refused(zip_of(again), "overlap")


def test_hostile_end_records_are_refused():
    for place, value, match in [
        (0, 1, "one part of a zip in several"),
        (1, 1, "one part of a zip in several"),
        (2, 1, "one part of a zip in several"),
        (4, 1, "something stands before or inside"),
        (5, 0xFFFFFFFF, "something stands before or inside"),
    ]:
        refused(zip_of(PLAIN, edit_end=lambda f, p=place, v=value: [*f[:p], v, *f[p + 1 :]]), match)
    refused(zip_of(PLAIN, edit_end=lambda f: [0, 0, 1, 1, *f[4:]]), "more than the 1 entries")
    refused(zip_of(PLAIN, edit_end=lambda f: [0, 0, 65535, 65535, *f[4:]]), "65535 entries cannot be in")


def test_a_comment_with_end_records_deceives_nobody():
    fake = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0, 0, 0, 0, 0)
    assert len(read(zip_of(PLAIN, comment=b"see: " + fake + b"..."))) == 2
    assert len(read(zip_of(PLAIN, comment=b"see: " + fake))) == 2
    outer = zip_of(PLAIN, comment=bytes(len(zip_of([(b"evil.txt", b"evil", {})]))))
    whole = outer[: -len(zip_of([(b"evil.txt", b"evil", {})]))]
    # A whole directory in the comment, with offsets that are right: two readers could take two zips from it.
    inner = zip_of([(b"evil.txt", b"evil", {})], before=whole)[len(whole) :]
    refused(whole + inner, "two end records")


def test_zip64_records_that_contradict_are_refused():
    data = zip_of(PLAIN)
    end, count = data[-22:], 2
    start, length = struct.unpack("<II", end[16:20] + end[12:16])
    place = len(data) - 22

    def with_64(count=count, length=length, start=start, at=place, disks=1, size=44) -> bytes:
        record = struct.pack("<4sQ2H2I4Q", b"PK\6\6", size, 45, 45, 0, 0, count, count, length, start)
        return data[:-22] + record + struct.pack("<4sIQI", b"PK\6\7", 0, at, disks) + end

    assert len(read(with_64())) == 2
    refused(with_64(count=1), "contradict each other")
    refused(with_64(start=start + 1), "contradict each other")
    refused(with_64(at=1 << 60), "cannot be at")
    refused(with_64(at=4), "no zip64 end record|cannot")
    refused(with_64(disks=3), "parts")
    refused(with_64(size=1 << 63), "no zip64 end record")


def test_something_before_or_after_the_zip_is_refused():
    with pytest.raises(FormatError, match="before"):
        list(located(data := whole_object(b"#!/bin/sh\n" + zip_of(PLAIN)), read_directory(data)))
    refused(zip_of(PLAIN) + b"\0", "cut off, or something follows")


def whole_object(data: bytes) -> ObjectBytes:
    return ObjectBytes(MemoryStore({"a.zip": data}), "a.zip", len(data))


def test_cut_off_at_every_third_byte_and_flipped_bits(tmp_path):
    """Nothing but FormatError, and never a value that is not in the file."""
    data = written(MEMBERS)
    for length in range(4, len(data), 3):
        refused(data[:length], "a.zip")
    rng = random.Random(7)
    path = tmp_path / "a.zip"
    for _ in range(200):
        broken = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            place = (
                rng.randrange(4, len(data)) if rng.random() < 0.5 else rng.randrange(data.index(b"PK\1\2"), len(data))
            )
            broken[place] = rng.randrange(256)
        path.write_bytes(broken)
        try:
            for _, rows in scanned(Zip(), tmp_path):
                for column in rows.columns:
                    if column.offsets is not None and column.lengths is not None:
                        assert np.all(column.offsets + column.lengths <= len(data))
        except (FormatError, StorageError):
            pass


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text("ab/_% é漢\x01:", min_size=1, max_size=8), st.binary(max_size=40), max_size=8))
def test_random_names_and_values_come_back(members):
    members = {f"{name.rstrip('/')}/x.{i}.bin": value for i, (name, value) in enumerate(members.items())}
    found = {(key, field): value for key, values in read(written(members)) for field, value in values.items()}
    expected = {(usable_key(name.partition(".")[0]), name.partition(".")[2]): value for name, value in members.items()}
    assert found == expected


# ------------------------------------------------------------------------------------------------------------- cost


def test_an_object_that_is_not_mapped_is_read_once_in_large_pieces():
    store = MemoryStore({"a.zip": written({f"{i:04d}.bin": bytes(900) for i in range(1000)})})
    listing = listing_of(store)
    objects = recognised(Zip(), listing).objects
    data = ObjectBytes(store, "a.zip", objects[0].size, window=Zip.window)
    before = len(store.requests)
    assert sum(len(rows.keys) for rows in Zip().scan(data, objects[0].about)) == 1000
    assert len(store.requests) - before <= 3


def test_a_local_file_and_its_copy_in_memory_give_the_same_rows(tmp_path):
    (tmp_path / "a.zip").write_bytes(written(MEMBERS))
    for (_, one), (_, other) in zip(
        scanned(Zip(), LocalStore(tmp_path)), scanned(Zip(), in_memory(Path(tmp_path)), window=64), strict=True
    ):
        assert one.keys == other.keys
        for left, right in zip(one.columns, other.columns, strict=True):
            assert (left.name, str(left.type)) == (right.name, str(right.type))
