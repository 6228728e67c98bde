"""Files of samples, from disks that are slow and from stores, in their order."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream import ImageOptions, StorageOptions
from shardstream.errors import AccessError, StorageError
from shardstream.images.encode import encode
from shardstream.pack.encode import reading as reading_module
from shardstream.pack.encode.files import Files, Unreadable
from shardstream.pack.encode.reading import read_all
from shardstream.pack.options import PackOptions
from shardstream.pack.run import pack, run_pack
from shardstream.pack.sources import File, Item, Reject, SourcePart

from ..storage.places import AzurePlace, S3Place, WebPlace
from .making import jpeg, samples, tree


class Listed(SourcePart):
    """Samples as they are given; counts how many were asked for."""

    def __init__(self, items: list[Item | Reject]) -> None:
        self.items = items
        self.asked = 0

    def __iter__(self) -> Iterator[Item | Reject]:
        for item in self.items:
            self.asked += 1
            yield item


def item(number: int, *paths: str) -> Item:
    values = {f"f{i}": File(path) for i, path in enumerate(paths)}
    return Item(number, paths[0] if paths else "", str(number), {**values, "cls": number})


def read(path: str) -> bytes:
    if path.startswith("bad"):
        raise Unreadable(path)
    if path.startswith("slow"):
        time.sleep(0.002)
    return path.encode()


@given(st.lists(st.sampled_from(["quick", "slow", "s3://b", "bad", "two", "none", "reject"]), max_size=60))
def test_all_come_in_order_however_they_are_read(kinds: list[str]) -> None:
    items: list[Item | Reject] = []
    for number, kind in enumerate(kinds):
        paths = {"two": (f"a{number}", f"bad{number}"), "none": ()}.get(kind, (f"{kind}{number}",))
        items.append(Reject(number, "", kind) if kind == "reject" else item(number, *paths))
    for one, (found, contents) in zip(items, read_all(Listed(items), read), strict=True):
        assert found is one
        if isinstance(one, Reject):
            assert contents == {}
        elif any(isinstance(value, File) and value.path.startswith("bad") for value in one.values.values()):
            assert isinstance(contents, Unreadable)
        else:
            assert contents == {name: value.path.encode() for name, value in one.values.items() if name != "cls"}
    assert not [one.name for one in threading.enumerate() if one.name.startswith("shardstream-read")]


def test_slow_files_are_read_side_by_side() -> None:
    together, most, lock = 0, 0, threading.Lock()

    def slow(path: str) -> bytes:
        nonlocal together, most
        with lock:
            together += 1
            most = max(most, together)
        time.sleep(0.005)
        with lock:
            together -= 1
        return path.encode()

    items: list[Item | Reject] = [item(i, f"{i}") for i in range(200)]
    assert [contents for _, contents in read_all(Listed(items), slow)] == [{"f0": b"%d" % i} for i in range(200)]
    assert most > 8


def test_a_disk_that_reads_ahead_is_slow_all_the_same() -> None:
    """Nine of ten files are there, and each tenth takes what a seek takes."""
    names: set[str] = set()

    def seeks(path: str) -> bytes:
        names.add(threading.current_thread().name)
        if int(path) % 10 == 0:
            time.sleep(0.015)
        return path.encode()

    items: list[Item | Reject] = [item(i, f"{i}") for i in range(300)]
    assert len(list(read_all(Listed(items), seeks))) == 300
    assert any(name.startswith("shardstream-read") for name in names)


def test_quick_files_are_read_without_threads() -> None:
    threads = set()

    def quick(path: str) -> bytes:
        threads.add(threading.get_ident())
        return b""

    list(read_all(Listed([item(i, f"{i}") for i in range(500)]), quick))
    assert threads == {threading.get_ident()}


def test_a_single_long_wait_starts_no_threads() -> None:
    """On a busy machine somebody else has the processor now and then; threads would stay for the rest of a shard."""
    threads = set()

    def interrupted(path: str) -> bytes:
        threads.add(threading.get_ident())
        time.sleep(0.1 if path in ("100", "300") else 0)
        return b""

    list(read_all(Listed([item(i, f"{i}") for i in range(500)]), interrupted))
    assert threads == {threading.get_ident()}


def test_memory_of_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_module, "_AHEAD_BYTES", 10_000)
    part = Listed([item(i, f"s3://bucket/{i}") for i in range(300)])
    for number, _ in enumerate(read_all(part, lambda _: time.sleep(0.001) or bytes(5_000))):
        assert part.asked - number <= reading_module._THREADS + 3


def test_an_error_of_the_store_comes_at_once_and_threads_end() -> None:
    def refused(path: str) -> bytes:
        if path.endswith("/3"):
            raise AccessError("refused")
        return b"1"

    found = read_all(Listed([item(i, f"s3://bucket/{i}") for i in range(300)]), refused)
    assert [next(found)[0].line for _ in range(3)] == [0, 1, 2]
    with pytest.raises(AccessError):
        next(found)
    assert not [one.name for one in threading.enumerate() if one.name.startswith("shardstream-read")]


# ------------------------------------------------------------------------------------------------------- real places


@pytest.mark.parametrize("kind", ["s3", "web", pytest.param("azure", marks=pytest.mark.full)])
def test_files_in_a_store(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    place: S3Place | AzurePlace | WebPlace = request.getfixturevalue(kind)
    names = [f"a folder/ä {i}.jpg" for i in range(20)]
    for i, name in enumerate(names):
        place.plant(name, jpeg(i))
    place.plant("a folder/empty.jpg", b"")
    lines = [f"{place.url()}/{name}\t{i}\n" for i, name in enumerate([*names, "gone.jpg", "a folder/empty.jpg"])]
    (tmp_path / "list.tsv").write_text("".join(lines))
    (tmp_path / "local.jpg").write_bytes(jpeg(99))
    with (tmp_path / "list.tsv").open("a") as file:
        file.write(f"{tmp_path / 'local.jpg'}\t99\n")
    options = PackOptions(shard_size="10kB", key="line")
    results = [
        run_pack(
            tmp_path / "list.tsv",
            tmp_path / name,
            options,
            storage=StorageOptions(source=place.options),
            workers=workers,
        )
        for name, workers in (("one", 0), ("two", 2 if kind == "s3" else 0))
    ]
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    found = {sample["cls"]: sample["jpg"] for sample in samples(tmp_path / "one").values()}
    assert found == {**{i: jpeg(i) for i in range(20)}, 99: jpeg(99)}
    lines = (tmp_path / "one" / "rejects.jsonl").read_text().splitlines()
    assert {entry["line"]: entry["reason"] for entry in map(json.loads, lines)} == {
        21: "there is no such file",
        22: "the file is empty",
    }
    assert results[0].tally.bytes == sum(len(jpeg(i)) for i in (*range(20), 99))


def test_a_bucket_that_refuses_stops_the_run(s3: S3Place, tmp_path: Path) -> None:
    s3.plant("a.jpg", jpeg(0))
    (tmp_path / "list.tsv").write_text(f"{s3.url()}/a.jpg\t1\n")
    wrong = {**s3.options, "secret_access_key": "not-the-secret-0123456789"}
    with pytest.raises(AccessError) as caught:
        pack(tmp_path / "list.tsv", tmp_path / "out", storage=StorageOptions(source=wrong), workers=0)
    assert "not-the-secret" not in str(caught.value)
    assert str(caught.value.place["url"]).startswith("s3://")


@pytest.mark.full
def test_a_web_server_that_is_not_there_costs_its_samples_only(web: WebPlace, tmp_path: Path) -> None:
    web.plant("a.jpg", jpeg(0))
    (tmp_path / "list.tsv").write_text(f"{web.url()}/a.jpg\nhttp://127.0.0.1:9/b.jpg\n")
    report = run_pack(
        tmp_path / "list.tsv",
        tmp_path / "out",
        PackOptions(key="line"),
        storage=StorageOptions(source=web.options),
        workers=0,
    )
    assert (report.tally.samples, report.rejects) == (1, 1)


def test_a_plan_of_urls_stays_the_same_when_their_sizes_change(web: WebPlace, tmp_path: Path) -> None:
    """Or a run that goes on another day would find nothing of what it did."""
    for i in range(40):
        web.plant(f"{i}.jpg", jpeg(i))
    (tmp_path / "list.tsv").write_text("".join(f"{web.url()}/{i}.jpg\n" for i in range(40)))
    options = PackOptions(shard_size="10kB", key="line")

    def stop(_: object) -> None:
        if list((tmp_path / "out").glob("*.tar")):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_pack(
            tmp_path / "list.tsv",
            tmp_path / "out",
            options,
            storage=StorageOptions(source=web.options),
            workers=0,
            progress=stop,
        )
    for i in range(40):
        web.plant(f"{i}.jpg", jpeg(i) + bytes(5000))
    report = run_pack(
        tmp_path / "list.tsv", tmp_path / "out", options, storage=StorageOptions(source=web.options), workers=0
    )
    assert report.kept > 0


def test_sizes_and_contents_of_odd_paths(tmp_path: Path) -> None:
    files = Files()
    (tmp_path / "a b.jpg").write_bytes(b"123")
    url = (tmp_path / "a b.jpg").as_uri()
    assert (files.size(url), files.read(url)) == (3, b"123")
    assert files.size(str(tmp_path)) == files.size(str(tmp_path / "gone")) == files.size("a\0b") == 0
    for path, message in (("s3://", "not the URL"), ("http://host", "names no file"), ("1://a/b", "not the URL")):
        with pytest.raises(Unreadable, match=message):
            files.read(path)
        assert files.size(path) == 0


def test_images_of_too_many_pixels_are_rejected(tmp_path: Path) -> None:
    for side in (20, 21):
        (tmp_path / f"{side}.png").write_bytes(encode(np.zeros((side, 20, 3), np.uint8), "png"))
    (tmp_path / "list.tsv").write_text("20.png\n21.png\n")
    report = run_pack(
        tmp_path / "list.tsv", tmp_path / "out", PackOptions(images=ImageOptions(max_pixels=400)), workers=0
    )
    assert report.rejects == 1
    assert report.first_reject is not None
    assert report.first_reject.reason == "the image has 20 × 21 pixels, more than max_pixels=400"


def test_out_of_file_handles_is_no_fault_of_the_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> int:
        raise OSError(24, os.strerror(24))

    monkeypatch.setattr(os, "open", exhausted)
    with pytest.raises(StorageError, match="Too many open files"):
        Files().read(str(tmp_path / "a"))
