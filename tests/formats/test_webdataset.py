"""Tar files of WebDataset: the same samples as the package webdataset reads, addressed where they lie."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tarfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardstream.formats.tar.webdataset as webdataset_module
from shardstream.errors import FormatError, UsageError
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.tar.samples import split_name
from shardstream.formats.tar.webdataset import WebDataset
from shardstream.storage.local.store import LocalStore
from shardstream.testing import MemoryStore, make_dataset

from .scanning import in_memory, listing_of, recognised, samples
from .tars import Samples, header, padded, pax, pieces_of, refusal, stored, tar_of, theirs

FORMAT = WebDataset()
JPEG = b"\xff\xd8\xff\xe0 a photograph"
END = bytes(1024)
# Names of members that webdataset splits, groups, or leaves out in ways of its own.
NAMES = [
    *("a.jpg", "a.cls", "a.seg.PNG", "a.JSON", "b.jpg", "b.jpeg", "b.txt", "x.", "x..jpg", "d.e/a.jpg", "d.e/a.txt"),
    *("noext", "d.e/noext", ".hidden.jpg", "..jpg", "d/.hidden", "d.e/.hidden", "//.c", "d.e//.c", "/abs/x.jpg", "/.x"),
    *("./a.jpg", "./a.cls", "../x.y.z", "a//b.jpg", "__m__/a.jpg", "__m__", "__m__.json", "d/__m__/a.jpg", "__/a.jpg"),
    *("___/a.jpg", "____/a.jpg", "__a.jpg", "._a.jpg", "d/._a.jpg", ".DS_Store", "d/.DS_Store", "d/a.DS_Store"),
    *("a.__bad__", "b.b ad", "é/ü.jpg", "a\udce9.txt", "l" * 99 + ".jpg", "l" * 180 + ".jpg", "f/" * 80 + "x.cls"),
    *("n\nl.jpg", "n\n/l.jpg", "n.\n/l.jpg", "n.o/\n/.l", "n\n.o/.l", "tail.jpg\n", "__m__\n", "__m__\n/a.jpg"),
]


webdataset = pytest.importorskip("webdataset", reason="the peer webdataset is not installed")


def ours(tar: bytes, about: dict[str, str] | None = None) -> Samples:
    pieces = list(pieces_of(FORMAT, tar, about))
    assert all(rows.damage is None for rows in pieces)
    return stored(tar, pieces)


def same(tar: bytes) -> None:
    """Ours are their samples; what they refuse, so is by us; and so are the halves of samples that they give."""
    try:
        expected = theirs(tar)
    except ValueError:  # two members of one name
        assert "of one sample" in str(refusal(FORMAT, tar))
        return
    keys = [key for key, _ in expected]
    refused = _refused(tar)
    if refused is not None:
        assert ("of one sample" in refused and len(set(keys)) < len(keys)) or "two values" in refused
        return
    found = ours(tar)
    assert found == expected


def _refused(tar: bytes) -> str | None:
    try:
        ours(tar)
    except FormatError as error:
        return str(error)
    return None


@settings(max_examples=150, deadline=None)
@given(
    names=st.lists(st.sampled_from(NAMES), max_size=12),
    format=st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
def test_samples_are_those_of_webdataset(names: list[str], format: int) -> None:
    members = [(name, b"%d" % i) for i, name in enumerate(names)]
    try:
        tar = tar_of(members, format)
    except ValueError:  # ustar has no room for a name
        return
    same(tar)


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_split_as_webdataset_does(name: str) -> None:
    same(tar_of([("first.txt", b"1"), (name, b"2"), ("last.txt", b"3")]))


def test_names_and_labels() -> None:
    assert split_name("n01.d/0001.Seg.png") == ("n01.d/0001", "seg.png")
    members = [
        ("a/1.JPEG", JPEG),
        ("a/1.cls", b" 7\n"),
        ("a/1.txt", "ä".encode()),
        ("a/2.png", JPEG),
        ("a/2.cls", b"-3"),
    ]
    assert ours(tar_of(members)) == [
        ("a/1", {"jpg": JPEG, "cls": b"7", "txt": "ä".encode()}),
        ("a/2", {"png": JPEG, "cls": b"-3"}),
    ]
    (rows,) = pieces_of(FORMAT, tar_of(members))
    types = {column.name: column.type.name for column in rows.columns}
    assert types == {"cls": "int64", "jpg": "jpg", "png": "jpg", "txt": "str"}
    both = [("a.jpeg", JPEG), ("a.jpg", JPEG + b"2")]
    assert ours(tar_of(both)) == [("a", {"jpeg": JPEG, "jpg": JPEG + b"2"})]


@pytest.mark.parametrize("odd", [b"dog", b"", b"1.5", b"9223372036854775808", b"1" * 40, "²".encode(), b"1_0"])
@pytest.mark.parametrize("at", [0, 4, 8])
def test_labels_have_one_type_in_all_pieces_of_an_object(odd: bytes, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webdataset_module, "PIECE", 3)
    members = [(f"{i}.{name}", b"%d" % i) for i in range(9) for name in ("txt", "cls") if name == "txt" or i != 5]
    for changed, kind in ((False, "int64"), (True, "str")):
        if changed:
            members = [(name, odd if name == f"{at}.cls" else data) for name, data in members]
        tar = tar_of(members)
        pieces = list(pieces_of(FORMAT, tar))
        assert [len(rows.keys) for rows in pieces] == [3, 3, 3]
        assert {column.type.name for rows in pieces for column in rows.columns if column.name == "cls"} == {kind}
        assert stored(tar, pieces) == theirs(tar)


def test_pieces_without_labels_are_not_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webdataset_module, "PIECE", 2)
    tar = tar_of([(f"{i}.txt", b"x") for i in range(5)] + [("5.cls", b"1"), ("6.cls", b"2")])
    assert [len(rows.keys) for rows in pieces_of(FORMAT, tar)] == [2, 2, 2, 1]
    assert ours(tar) == theirs(tar)


# ------------------------------------------------------------------------------------------------- other writers


def test_what_webdataset_writes(tmp_path: Path) -> None:
    written = [
        (f"k{i}", {"jpg": JPEG, "cls": i, "json": {"i": i}, "txt": f"ä{i}", "emb.npy": np.arange(i), "b": b"%d" % i})
        for i in range(10)
    ]
    with webdataset.TarWriter(str(tmp_path / "a.tar")) as writer:
        for key, values in written:
            writer.write({"__key__": key, **values})
    found = samples(FORMAT, tmp_path)
    assert [key for key, _ in found] == [key for key, _ in written]
    for (_, values), (_, expected) in zip(found, written, strict=True):
        assert np.array_equal(values.pop("emb.npy"), expected.pop("emb.npy"))
        assert values == expected


@pytest.mark.skipif(shutil.which("tar") is None, reason="needs GNU tar")
@pytest.mark.parametrize("format", ["v7", "ustar", "gnu", "pax"])
def test_gnu_tar(format: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    long = "d" * 90 + "/" + "e" * (60 if format in ("gnu", "pax") else 0)
    for i in range(6):
        for folder in ("", "sub.d/", f"{long}/" if format != "v7" else "sub/"):
            path = source / f"{folder}{i:03d}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"text {folder}{i}")
            path.with_suffix(".cls").write_text(str(i))
    os.link(source / "000.txt", source / "000.copy.txt")
    (source / "001.ref").symlink_to("001.txt")
    (source / os.fsdecode(b"\xe9\xff.txt")).write_text("latin")
    command = ["tar", f"--format={format}", "--sort=name", "-cf", tmp_path / "a.tar", "-C", source, "."]
    subprocess.run(command, check=True, timeout=20)
    expected = {key: dict(values) for key, values in theirs((tmp_path / "a.tar").read_bytes())}
    assert "copy.txt" in expected["000"]
    expected["000"] = {"copy.txt": b"text 0", "txt": b"text 0", "cls": b"0"}
    assert dict(ours((tmp_path / "a.tar").read_bytes())) == expected
    assert "%E9%FF" in expected
    (tmp_path / "there").mkdir()
    shutil.move(tmp_path / "a.tar", tmp_path / "there")
    decoded = samples(FORMAT, tmp_path / "there")
    assert decoded == samples(FORMAT, in_memory(tmp_path / "there"))
    assert dict(decoded)["sub.d/003"] == {"cls": 3, "txt": "text sub.d/3"}


@pytest.mark.skipif(shutil.which("tar") is None, reason="needs GNU tar")
def test_times_of_gnu_tar_are_no_folder(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.txt").write_text("a")
    command = ["tar", "--format=gnu", f"--listed-incremental={tmp_path}/state", "-cf", tmp_path / "a.tar", "source"]
    subprocess.run(command, check=True, timeout=20, cwd=tmp_path)
    assert ours((tmp_path / "a.tar").read_bytes()) == [("source/a", {"txt": b"a"})]


@pytest.mark.skipif(shutil.which("tar") is None, reason="needs GNU tar")
@pytest.mark.parametrize("kind", ["gnu", "pax --sparse-version=0.0", "pax --sparse-version=0.1", "pax"])
def test_sparse_files_are_refused(kind: str, tmp_path: Path) -> None:
    with open(tmp_path / "a.bin", "wb") as file:
        file.truncate(1 << 20)
    command = ["tar", *f"--format={kind}".split(), "--sparse", "-cf", tmp_path / "a.tar", "-C", tmp_path, "a.bin"]
    subprocess.run(command, check=True, timeout=20)
    error = refusal(FORMAT, (tmp_path / "a.tar").read_bytes())
    assert "sparse" in str(error)
    assert "a.bin" in str(error)


def test_links() -> None:
    link = header(b"b.jpg", kind=b"1", link=b"./sub/../a.jpg") + header(b"c.jpg", kind=b"1", link=b"b.jpg")
    first = header(b"a.jpg", len(JPEG)) + padded(JPEG)
    assert ours(first + link + END) == [(key, {"jpg": JPEG}) for key in "abc"]
    named = first + pax({"linkpath": "a.jpg", "path": "ü.jpg"}) + header(b"x", kind=b"1", link=b"x") + END
    assert ours(named) == [("a", {"jpg": JPEG}), ("ü", {"jpg": JPEG})]
    for target in (b"c.jpg", b"/etc/passwd", b"../a.jpg", b""):
        error = refusal(FORMAT, header(b"b.jpg", kind=b"1", link=target) + first + END)
        assert "hard link" in str(error)
        assert "hard-dereference" in str(error)


def test_sizes() -> None:
    value = b"v" * 700
    large = header(b"a.bin", field=b"\x80" + len(value).to_bytes(11, "big")) + padded(value)
    octal = header(b"b.bin", field=b"%12o" % len(value)) + padded(value)
    said = pax({"size": str(len(value)), "path": "c.bin"}) + header(b"x") + padded(value)
    blanks = header(b"d.bin", field=b"   %7o \0" % len(value)) + padded(value)
    tar = large + octal + said + blanks + END
    assert ours(tar) == theirs(tar) == [(key, {"bin": value}) for key in "abcd"]


def test_headers_in_front_of_headers() -> None:
    long = header(b"long", 7, b"L") + padded(b"l.txt\0\0")
    tar = (
        pax({"comment": "of git archive"}, b"g")
        + (pax({"path": "p.txt"}) + long + header(b"x.txt", 1) + padded(b"1"))
        + (long + pax({"path": "q.txt"}) + header(b"x.txt", 1) + padded(b"2"))
        + (header(b"v", 3, b"V") + padded(b"vol") + header(b"d.txt/", 3, b"\0") + header(b"f.txt", 3, b"5"))
        + (header(b"s.txt", kind=b"2", link=b"p.txt") + header(b"y.txt", 1, b"\0") + padded(b"3"))
        + (pax({"path": "z.txt/", "atime": "1"}, b"X") + header(b"x.txt", 1, b"7") + padded(b"4"))
        + END
    )
    assert ours(tar) == theirs(tar)
    assert [key for key, _ in ours(tar)] == ["p", "l", "y", "z"]


def test_sums_of_signed_bytes() -> None:
    block = bytearray(header("é.txt".encode("latin-1"), 1))
    block[148:156] = b"%06o\0 " % (sum(block[:148]) + sum(block[156:]) + 256 - 256)
    tar = bytes(block) + padded(b"1") + END
    assert ours(tar) == theirs(tar) == [("%E9", {"txt": b"1"})]


def test_concatenated_tars_are_read_up_to_the_first_end_mark() -> None:
    tar = tar_of([("a.txt", b"1")]) + tar_of([("b.txt", b"2")])
    assert ours(tar) == theirs(tar) == [("a", {"txt": b"1"})]
    assert ours(bytes(1024)) == theirs(bytes(1024)) == []


def test_shards_of_ours_without_their_manifest(tmp_path: Path) -> None:
    make_dataset(tmp_path, fields={"cls": "int64", "txt": "str"}, samples=20)
    (tmp_path / "dataset.json").unlink()
    listing = listing_of(tmp_path)
    found = samples(FORMAT, tmp_path)
    tars = [one.path for one in recognised(FORMAT, listing).objects]
    expected = [sample for name in tars for sample in theirs((tmp_path / name).read_bytes())]
    assert [(key, {"cls": b"%d" % v["cls"], "txt": v["txt"].encode()}) for key, v in found] == expected
    assert len(found) == 20


# --------------------------------------------------------------------------------------------------- interleaved


def test_interleaved_members_are_joined_or_refused() -> None:
    members = [(f"k{i}.{name}", b"%s %d" % (name.encode(), i)) for name in ("jpg", "txt") for i in range(5)]
    tar = tar_of(members)
    error = str(refusal(FORMAT, tar))
    assert "'k0.jpg' (at 0)" in error
    assert "'k0.txt' (at 5120)" in error
    assert "group=key" in error
    expected = [(f"k{i}", {"jpg": b"jpg %d" % i, "txt": b"txt %d" % i}) for i in range(5)]
    assert ours(tar, {"group": "key"}) == expected
    (one,) = recognised(FORMAT, listing_of(MemoryStore({"a.tar": tar})), {"group": "key"}).objects
    assert one.about == {"group": "key"}
    with pytest.raises(UsageError, match="group=key"):
        FORMAT.recognize(listing_of(MemoryStore({"a.tar": tar})), {"group": "yes"})
    cut = refusal(FORMAT, tar[:8000], {"group": "key"})
    assert "not known to be whole" in str(cut)
    assert "one field" in str(refusal(FORMAT, tar_of([*members, ("k0.txt", b"")]), {"group": "key"}))


def test_samples_without_common_fields_are_no_interleaving() -> None:
    members = [("a.jpg", JPEG), ("b.txt", b"b"), ("a2.jpg", JPEG), ("c.txt", b"c")]
    assert ours(tar_of(members)) == theirs(tar_of(members))
    repeated = [("a.jpg", JPEG), ("b.jpg", JPEG), ("c.txt", b"c"), ("a.jpg", b"another")]
    assert ours(tar_of(repeated)) == theirs(tar_of(repeated))


def test_names_whose_first_dot_ends_no_key() -> None:
    for name in ("cat.{}.jpg", "{0}.v{0}.jpg"):
        error = refusal(FORMAT, tar_of([(name.format(i), JPEG) for i in range(600)]))
        assert "512 different extensions" in str(error)
        assert "first dot" in str(error)


# -------------------------------------------------------------------------------------------------------- damage


def small_tar() -> tuple[bytes, Samples, list[int]]:
    """A tar with headers of all kinds, its samples, and where each begins."""
    members, first = b"", []
    for i in range(3):
        first.append(len(members))
        long = header(b"long", 9, b"L") + padded(b"d/k%d.jpg\0" % i)
        members += (pax({"path": f"d/k{i}.jpg"}) if i % 2 else long) + header(b"x", 300) + padded((JPEG * 40)[:300])
        members += header(b"d/k%d.cls" % i, 1) + padded(b"%d" % i)
    tar = members + END
    return tar, theirs(tar), [*first, len(members)]


@pytest.mark.full
def test_a_tar_that_is_cut_off_anywhere() -> None:
    tar, whole, begins = small_tar()
    for size in range(len(tar) - 512):
        expected = sum(begin <= size for begin in begins[1:])
        try:
            pieces = list(pieces_of(FORMAT, tar[:size]))
        except FormatError as error:
            pieces, damage = [], error
        else:
            damage = pieces[-1].damage
        found = stored(tar, pieces)
        if damage is None:
            assert found == whole[:expected], size
            assert size in begins or size > begins[-1]
            continue
        lost = damage.place["offset"]
        # Up to the name of the next member, the last sample is not known to be whole.
        assert begins.index(lost) == len(found) == expected - (size < begins[expected] + 1536 and expected > 0), size
        assert found == whole[: len(found)]
        assert f"{size - lost} bytes from {lost} on" in str(damage)


def test_a_tar_without_an_end_mark() -> None:
    members = [("a.jpg", JPEG), ("a.cls", b"1"), ("b.jpg", JPEG), ("b.cls", b"2")]
    assert len(ours(tar_of(members, ended=False))) == 2
    (rows,) = pieces_of(FORMAT, tar_of(members[:3], ended=False))
    assert rows.keys == ["a"]
    assert "end mark" in str(rows.damage)


def test_bad_headers() -> None:
    good = header(b"a.txt", 1) + padded(b"1") + header(b"b.txt", 1) + padded(b"2")
    for bad in (
        b"\1" * 512,
        header(b"c.txt", 1)[:148] + b"0000000\0" + header(b"c.txt", 1)[156:] + padded(b"3"),
        header(b"c.txt", field=b"-1         \0"),
        header(b"c.txt", field=b"\xff" * 12),
        header(b"c.txt", field=b"zzzzzzzzzzz\0"),
        header(b"long", 3 << 20, b"L") + bytes(3 << 20),
        header(b"long", 5, b"L") + padded(b"a.txt") + END,
        pax({"path": "c.txt"}) + END,
        pax({"path": "c" * 70_000 + ".txt"}) + header(b"c.txt"),
        header(b"long", 70_000, b"L") + padded(b"c" * 70_000) + header(b"c.txt"),
        pax({"size": "-5"}) + header(b"c.txt"),
        pax({"size": "9" * 21}) + header(b"c.txt"),
        header(b"pax", 9, b"x") + padded(b"99 path=a"),
        header(b"pax", 9, b"x") + padded(b"0 path=ab"),
        header(b"pax", 9, b"x") + padded(b"9 path a\n"),
        header(b"pax", 30, b"x") + padded(b"30path=aaaaaaaaaaaaaaaaaaaaaa\n"),
        header(b"pax", 30, b"x") + padded(b"9 path=a\n0 path=aaaaaaaaaaaaa\n"),
        header(b"pax", 9, b"x") + padded(b"999999999"),
    ):
        (rows,) = pieces_of(FORMAT, good + bad + header(b"d.txt") + END)
        assert stored(good, [rows]) == [("a", {"txt": b"1"})]
        assert rows.damage is not None
        assert rows.damage.place["offset"] == 1024
    for too_long in (header(b"c.txt", field=b"\x80" + b"\xff" * 11), pax({"size": "9" * 19}) + header(b"c.txt")):
        (rows,) = pieces_of(FORMAT, good + too_long + END)
        assert rows.keys == ["a", "b"]
        assert rows.damage is not None
        assert rows.damage.place["offset"] == 2048
    for nothing in (b"", b"x", b"garbage" * 200, header(b"a.txt", 1 << 40)):
        assert refusal(FORMAT, nothing).place["offset"] == 0


def test_bytes_that_changed_raise_nothing_else() -> None:
    tar, _, _ = small_tar()
    tar += header(b"b.jpg", kind=b"1", link=b"d/k0.jpg") + END
    draw = random.Random(5)
    for _ in range(400):
        data = bytearray(tar)
        for _ in range(draw.choice((1, 1, 2, 20))):
            data[draw.randrange(len(data))] = draw.choice((0, 32, 48, 49, 55, 120, 128, 255, draw.randrange(256)))
        where = draw.randrange(0, len(data), 512)
        if draw.random() < 0.7:  # a sum that fits, so that the rest of the header counts
            block = data[where : where + 512]
            data[where + 148 : where + 156] = b"%06o\0 " % (sum(block[:148]) + sum(block[156:]) + 256)
        for about in ({}, {"group": "key"}):
            with suppress(FormatError):
                stored(bytes(data), list(pieces_of(FORMAT, bytes(data), about)))


# ------------------------------------------------------------------------------------------- stores and listings


def test_large_members_are_not_read_from_a_store() -> None:
    tar = tar_of([(f"{i}.{name}", bytes(300_000)) for i in range(10) for name in ("a", "b")])
    store = MemoryStore({"a.tar": tar})
    data = ObjectBytes(store, "a.tar", len(tar), window=4096)
    store.requests.clear()
    (rows,) = FORMAT.scan(data, {})
    assert len(rows.keys) == 10
    assert len(store.requests) <= 22
    assert sum((one.stop or 0) - one.start for one in store.requests) <= 22 * 4096


def test_small_members_come_in_large_reads() -> None:
    tar = tar_of([(f"{i}.{name}", JPEG) for i in range(200) for name in ("jpg", "txt")])
    store = MemoryStore({"a.tar": tar})
    data = ObjectBytes(store, "a.tar", len(tar), window=1 << 16)
    store.requests.clear()
    (rows,) = FORMAT.scan(data, {})
    assert len(rows.keys) == 200
    assert len(store.requests) <= len(tar) // (1 << 16) + 2


def test_copies_of_a_file_that_became_shorter(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of([(f"{i}.bin", bytes(20_000)) for i in range(9)]))
    data = ObjectBytes(LocalStore(tmp_path), "a.tar", (tmp_path / "a.tar").stat().st_size)
    assert data.copy(3, 5) == bytes(data.get(3, 5))
    with pytest.raises(FormatError, match="not in an object"):
        data.copy(data.size - 1, 2)
    os.truncate(tmp_path / "a.tar", 50_000)
    with pytest.raises(FormatError, match="shorter"):
        list(FORMAT.scan(data, {}))


def test_what_lies_beside_is_no_sample() -> None:
    tar = tar_of([("a.jpg", JPEG)])
    store = MemoryStore({"00001.tar": tar, "00000.tar": tar, "._00000.tar": b"", "00000.parquet": b"PAR1"})
    store.put("00000_stats.json", b"{}")
    store.put("index.json", b'{"__kind__": "wids-shard-index-v1"}')
    store.put("00000.tar.idx", bytes(16))
    store.put(
        ".nv-meta/dataset.yaml", b"__module__: megatron.energon\n__class__: CrudeWebdataset\n# sample_loader: x\n"
    )
    store.put("devkit.tar.gz", b"\x1f\x8b\x08")
    found = recognised(FORMAT, listing_of(store))
    assert [one.path for one in found.objects] == ["00000.tar", "00001.tar"]
    assert ["devkit.tar.gz" in note for note in found.notes] == [True]
    for name in ("b.tar.gz", "b.tar"):
        assert FORMAT.recognize(listing_of(MemoryStore({"a.zip": b"PK", name: b"\x1f\x8b\x08"})), {}) is None
    assert FORMAT.recognize(listing_of(MemoryStore({"a.json": b"{}"})), {}) is None


def test_energons_splits_are_never_mixed() -> None:
    store = MemoryStore({f"shard_{number}.tar": tar_of([("a.jpg", JPEG)]) for number in range(3)})
    split = ".nv-meta/split.yaml"
    store.put(split, b"exclude: []\nsplit_parts:\n  train:\n  - shard_{0..1}.tar\n  val: [shard_2.tar]\n  test: []\n")
    with pytest.raises(
        FormatError, match=r"several splits: train, val(?s:.*)train: .*shard_\{0\.\.1\}\.tar; val: .*shard_2"
    ):
        FORMAT.recognize(listing_of(store), {})
    assert len(recognised(FORMAT, listing_of(store, "shard_0.tar", "shard_1.tar")).objects) == 2
    store.put(split, b"split_parts: {train: ['shard_{0..1}.tar'], val: []}\n")
    found = recognised(FORMAT, listing_of(store))
    assert [one.path for one in found.objects] == ["shard_0.tar", "shard_1.tar"]
    assert found.notes == ("1 tar file that split.yaml does not name left out",)
    for text in (b"split_parts: 3\n", b"split_parts: {train: {a: b}, val: [[1]]}\n", b"exclude: []\n", b"[1\n"):
        store.put(split, text)
        with pytest.raises(FormatError, match=r"split\.yaml"):
            FORMAT.recognize(listing_of(store), {})


@pytest.mark.parametrize(
    "line",
    [
        "sample_loader: sample_loader.py:sample_loader",
        "  part_filter:  'x.py:f'",
        "__module__: my.package",
        "{__class__: X, '__module__': mine}",
    ],
)
def test_energons_code_is_refused(line: str) -> None:
    store = MemoryStore({"a.tar": tar_of([("a.jpg", JPEG)])})
    store.put(".nv-meta/dataset.yaml", f"__class__: X\n{line}\n".encode())
    with pytest.raises(FormatError, match="never run"):
        FORMAT.recognize(listing_of(store), {})
    assert recognised(FORMAT, listing_of(store, "a.tar")).objects
    store.put(".nv-meta/dataset.yaml", b"__module__: megatron.energon\nfield_map:\n  image: jpg\n")
    assert ["field_map" in note for note in recognised(FORMAT, listing_of(store)).notes] == [True]
