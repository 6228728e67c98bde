"""Tar shards are tars: what other programs see of them, and the headers themselves."""

from __future__ import annotations

import io
import subprocess
import tarfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import FormatError, UsageError
from shardstream.shards.fields import FieldType
from shardstream.shards.index import escape_key
from shardstream.shards.tar import INDEX_MEMBER, list_members, member_header

from .making import samples_of, scan_bytes, shard_bytes
from .peers import gnu_tar_names, split_at_the_first_dot, webdataset_samples

KEYS = [
    "a",
    "n01/x.y.z",
    "_under",
    "__meta__/x",
    "per%cent%2E",
    "sp ace",
    "日本/é",
    "l" * 99,
    "l" * 300 + "é",
    "tab\tnew\nline",
]


@pytest.mark.parametrize("name", ["a.jpg", "x" * 100, "x" * 101, "é.jpg", "dir/" * 60 + "b.jpg", "日" * 33])
@pytest.mark.parametrize("size", [0, 1, 512, 8**11 - 1, 8**11, 9 << 30, 1 << 50])
def test_headers_say_what_they_should_to_tarfile(name, size) -> None:
    header = member_header(name, size)
    assert len(header) % 512 == 0
    info = tarfile.TarInfo.frombuf(header[-512:], "utf-8", "strict")
    assert (info.mode, info.uid, info.gid, info.mtime, info.uname, info.gname) == (0o644, 0, 0, 0, "", "")
    with tarfile.open(fileobj=io.BytesIO(header + bytes(1024)), mode="r:") as archive:
        found = archive.next()
        assert (found.name, found.size, found.offset_data) == (name, size, len(header))
        assert found.isreg()
    assert (len(header) == 512) == (name.isascii() and len(name) <= 100 and size < 8**11)


@pytest.mark.parametrize("length", [*range(40, 50), *range(490, 500)])  # where records become 100 and 1,000 bytes long
def test_pax_records_count_their_own_digits(length) -> None:
    with tarfile.open(fileobj=io.BytesIO(member_header("é" * length, 0) + bytes(1024)), mode="r:") as archive:
        assert archive.next().name == "é" * length


def test_headers_are_those_that_tarfile_writes() -> None:
    for name, size in (("a/b.jpg", 12345), ("x" * 150, 3), ("é", 9 << 30)):
        info = tarfile.TarInfo(name)
        info.size, info.mode = size, 0o644
        ours, theirs = (
            tarfile.TarInfo.frombuf(h[-512:], "utf-8", "strict")
            for h in (member_header(name, size), info.tobuf(tarfile.PAX_FORMAT))
        )
        assert ours.get_info() | {"chksum": 0} == theirs.get_info() | {"chksum": 0}


@pytest.fixture
def archive(tmp_path):
    types = {"jpg": "jpg", "cls": "int64", "seg.png": "png", "emb": "array:int16:2,2", "w": "float32", "ok": "bool"}
    types = {name: FieldType.parse(kind) for name, kind in types.items()}
    samples = []
    for i, key in enumerate(KEYS):
        values = {"jpg": b"\xff" * i * 300, "cls": i - 4, "emb": np.full((2, 2), i, np.int16), "ok": i % 2 == 0}
        values["w"] = [0.1, float("nan"), float("inf"), -0.0][i % 4]
        if i % 2:
            values["seg.png"] = b"png"
        samples.append((key, values))
    data = shard_bytes(tmp_path, "tar", samples, types=types)
    (tmp_path / "x.tar").write_bytes(data)
    return tmp_path / "x.tar", samples


def members_of(samples) -> list[str]:
    return [f"{escape_key(key)}.{field}" for key, values in samples for field in sorted(values)] + [INDEX_MEMBER]


def test_tarfile_and_gnu_tar_list_every_member_in_order(archive) -> None:
    path, samples = archive
    with tarfile.open(path) as tar:
        assert tar.getnames() == members_of(samples)
        assert len({info.mtime for info in tar}) == 1
    assert gnu_tar_names(path) == members_of(samples)


def test_gnu_tar_unpacks_the_files(archive, tmp_path) -> None:
    path, samples = archive
    few = [(key, values) for key, values in samples if len(key) < 200]
    names = [name for name in members_of(few) if len(name) < 250]
    subprocess.run(["tar", "-xf", path, "-C", tmp_path, *names], check=True, env={"LC_ALL": "C.UTF-8"})
    assert (tmp_path / "a.cls").read_text() == "-4"
    assert (tmp_path / "n01/x%2Ey%2Ez.seg.png").read_bytes() == b"png"
    np.testing.assert_array_equal(np.load(tmp_path / "n01/x%2Ey%2Ez.emb"), np.full((2, 2), 1, np.int16))


@pytest.mark.parametrize("read", [webdataset_samples, split_at_the_first_dot])
def test_peers_yield_every_sample_with_its_bytes_and_key(archive, read) -> None:
    path, samples = archive
    found = read(path)
    assert [key for key, _ in found] == [key for key, _ in samples]
    for (_, one), (_, values) in zip(found, samples, strict=True):
        assert set(one) == set(values)
        assert one["jpg"] == values["jpg"]
        assert int(one["cls"]) == values["cls"]
        assert int(one["ok"]) == values["ok"]
        assert np.float32(one["w"]).tobytes() == np.float32(values["w"]).tobytes()
        assert one.get("seg.png") == values.get("seg.png")
        np.testing.assert_array_equal(np.load(io.BytesIO(one["emb"])), values["emb"])


def test_list_members_says_what_the_index_says(archive) -> None:
    path, samples = archive
    data = path.read_bytes()
    members = list_members(memoryview(data))
    assert [name for name, _, _ in members] == members_of(samples)
    index, _ = scan_bytes("tar", data)
    jpg = index.column("jpg")
    found = [(offset, size) for name, offset, size in members if name.endswith(".jpg")]
    assert found == list(zip(jpg.offsets.tolist(), jpg.lengths.tolist(), strict=True))


@given(data=st.data())
def test_list_members_of_anything_ends(data, tmp_path_factory) -> None:
    content = bytearray(shard_bytes(tmp_path_factory.getbasetemp(), "tar", samples_of(2)))
    for _ in range(data.draw(st.integers(0, 3))):
        block = 512 * data.draw(st.integers(0, len(content) // 512 - 1))
        at = block + data.draw(st.integers(100, 160))
        content[at] = data.draw(st.integers(0, 255))
        total = 256 + sum(content[block : block + 148]) + sum(content[block + 156 : block + 512])
        content[block + 148 : block + 156] = b"%06o\0 " % total
    try:
        assert all(size >= 0 for _, _, size in list_members(memoryview(content)))
    except FormatError as error:
        assert "not a tar" in error.what  # noqa: PT017 - or no error at all


def test_a_member_of_negative_size_is_no_tar() -> None:
    header = bytearray(member_header("a", 0))
    header[124:136] = b"\xff" * 10 + b"\xfe\x00"  # base 256: -512
    total = 256 + sum(header[:148]) + sum(header[156:])
    header[148:156] = b"%06o\0 " % total
    with pytest.raises(FormatError):
        list_members(memoryview(bytes(header) + bytes(1024)))
    with pytest.raises(FormatError):
        list_members(memoryview(b"hello" * 1000))


def test_tars_do_not_compress(tmp_path) -> None:
    with pytest.raises(UsageError, match="stored as they are"):
        shard_bytes(tmp_path, "tar", [], zstd=frozenset({"txt"}))
