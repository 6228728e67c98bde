from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardstream import ShardOptions
from shardstream.diagnose import Problem, verify
from shardstream.errors import ChecksumError, NotFoundError
from shardstream.progress import ProgressEvent
from shardstream.shards.framings import framing_of
from shardstream.shards.index import ShardIndex
from shardstream.shards.manifest import Manifest
from shardstream.storage import open_store

from .making import flip, make


def first(url: Path) -> tuple[Path, ShardIndex]:
    manifest = Manifest.load(url)
    name = manifest.shard_name(0)
    return url / name, framing_of(manifest.framing).scan(open_store(url), name)


def kinds(problems: tuple[Problem, ...]) -> list[str]:
    return [problem.check for problem in problems]


@pytest.mark.parametrize("format", ["tar", "record"])
@pytest.mark.parametrize("options", [{}, {"shards": ShardOptions(checksums=False)}], ids=["", "unchecked"])
def test_a_sound_data_set(tmp_path: Path, format: str, options: dict[str, Any]) -> None:
    url = make(tmp_path, format=format, **options)
    seen: list[ProgressEvent] = []
    report = verify(url, progress=seen.append)
    manifest = Manifest.load(url)
    assert report.ok
    assert (report.shards, report.samples, report.bytes) == (manifest.shards, 20, manifest.bytes)
    assert manifest.shards > 1
    assert report.values == (20 + 20 + 13 if not options else 0)
    assert seen[-1].bytes == seen[-1].total_bytes == manifest.bytes
    assert len(seen) == manifest.shards


class Events(list[ProgressEvent]):
    """What was told, which is false before anything was."""

    __call__ = list.append


def test_progress_may_be_told_to_an_empty_container(tmp_path: Path) -> None:
    url, seen = make(tmp_path), Events()
    verify(url, progress=seen)
    assert len(seen) == Manifest.load(url).shards


def test_compressed_fields(tmp_path: Path) -> None:
    url = make(tmp_path, format="record", shards=ShardOptions(zstd=["txt", "raw"]))
    assert verify(url).ok


@pytest.mark.parametrize("format", ["tar", "record"])
@pytest.mark.parametrize("field", ["raw", "txt", "fix"])
def test_a_flipped_byte_names_its_value(tmp_path: Path, format: str, field: str) -> None:
    url = make(tmp_path, format=format)
    path, index = first(url)
    column = index.columns[field]
    offset = int(column.offsets[4]) if column.offsets is not None else (column.base or 0) + 4 * column.type.width
    flip(path, offset)
    report = verify(url)
    whole, value = report.problems
    assert whole.check == "checksum"
    assert (value.check, value.shard, value.sample, value.key, value.field) == ("value", path.name, 4, "a.b/4", field)
    assert value.offset == offset


def test_all_problems_are_found(tmp_path: Path) -> None:
    url = make(tmp_path)
    path, index = first(url)
    offsets = index.columns["raw"].offsets
    assert offsets is not None
    for row in (1, 2, 5):
        flip(path, int(offsets[row]) + 7)
    manifest = Manifest.load(url)
    (url / manifest.shard_name(manifest.shards - 1)).unlink()
    report = verify(url)
    assert kinds(report.problems) == ["checksum", "value", "value", "value", "missing"]
    assert [problem.sample for problem in report.problems if problem.check == "value"] == [1, 2, 5]


@pytest.mark.parametrize("format", ["tar", "record"])
def test_a_truncated_shard(tmp_path: Path, format: str) -> None:
    url = make(tmp_path, format=format)
    path, _ = first(url)
    path.write_bytes(path.read_bytes()[:-700])
    report = verify(url)
    assert kinds(report.problems) == ["size", "index"]
    assert "not" in report.problems[0].what


@pytest.mark.parametrize("format", ["tar", "record"])
def test_a_damaged_index(tmp_path: Path, format: str) -> None:
    url = make(tmp_path, format=format)
    path, index = first(url)
    flip(path, path.stat().st_size - (1024 if format == "tar" else 0) - 200)
    assert index.end < path.stat().st_size - 1200
    assert kinds(verify(url).problems) == ["checksum", "index"]


def member(path: Path, name: bytes) -> int:
    """Offset of the header of a member."""
    return path.read_bytes().index(name + b"\0")


@pytest.mark.parametrize(
    ("field", "text"), [(b"cls", b"9"), (b"yes", b"0"), (b"f", b"9.99"), (b"f16", b"0.2"), (b"cls", b"?")]
)
def test_a_scalar_member_that_differs_from_the_index(tmp_path: Path, field: bytes, text: bytes) -> None:
    url = make(tmp_path)
    path, _ = first(url)
    data = bytearray(path.read_bytes())
    at = member(path, b"a%2Eb/2." + field) + 512
    data[at : at + len(text)] = text
    path.write_bytes(data)
    report = verify(url)
    assert kinds(report.problems) == ["checksum", "tar"]
    problem = report.problems[1]
    assert (problem.sample, problem.field, problem.key, problem.offset) == (2, field.decode(), "a.b/2", at)


def rename(path: Path, old: bytes, new: bytes) -> None:
    """Rename a member, with a right header checksum."""
    data = bytearray(path.read_bytes())
    at = data.index(old + b"\0")
    data[at : at + len(old)] = new
    header = data[at : at + 512]
    header[148:156] = b" " * 8
    data[at + 148 : at + 156] = b"%06o\0 " % sum(header)
    path.write_bytes(data)


def test_a_member_under_another_name(tmp_path: Path) -> None:
    url = make(tmp_path)
    path, _ = first(url)
    rename(path, b"a%2Eb/1.cls", b"a%2Eb/1.clz")
    problem = verify(url).problems[-1]
    assert problem.check == "tar"
    assert (problem.sample, problem.field) == (1, "cls")
    assert "'a%2Eb/1.clz' where 'a%2Eb/1.cls' belongs" in problem.what


def test_a_tar_cut_off_by_a_broken_header(tmp_path: Path) -> None:
    url = make(tmp_path)
    path, _ = first(url)
    flip(path, member(path, b"a%2Eb/3.cls") + 150)
    assert "tar" in kinds(verify(url).problems)


def test_a_shard_of_another_data_set(tmp_path: Path) -> None:
    url, other = make(tmp_path / "a"), make(tmp_path / "b", 3)
    path, _ = first(url)
    path.write_bytes(first(other)[0].read_bytes())
    assert kinds(verify(url).problems) == ["size", "samples"]


def test_no_data_set_and_a_damaged_table(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        verify(tmp_path)
    url = make(tmp_path)
    flip(url / Manifest.load(url).table_name, 70)
    with pytest.raises(ChecksumError):
        verify(url)


def test_a_damaged_table_of_keys_is_found(tmp_path: Path) -> None:
    url = make(tmp_path)
    table = next(url.glob("keys-*.table"))
    flip(table, 20)
    (problem,) = verify(url).problems
    assert (problem.check, problem.shard) == ("keys", table.name)
    table.unlink()
    assert verify(url).ok, "a data set need not have one"
