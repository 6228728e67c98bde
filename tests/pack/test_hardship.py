"""Full disks, stores that misbehave, sources that change, processes killed at any moment."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shardstream import SourceOptions, StorageOptions
from shardstream.diagnose import verify
from shardstream.errors import StorageError
from shardstream.pack.encode import files as files_module
from shardstream.pack.encode.files import Files, Unreadable, read_file
from shardstream.pack.options import PackOptions
from shardstream.pack.plan.pack_plan import pack_plan
from shardstream.pack.run import pack, run_pack
from shardstream.storage import counters
from shardstream.storage.base.location import Access

from ..processes import session
from ..storage.faults import FaultProxy
from ..storage.places import S3Place, WebPlace
from .making import jpeg, photo_list, samples, tree
from .test_kill import check_end, until

SMALL = "10kB"


# --------------------------------------------------------------------------------------------------------- a full disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 200 kB."""
    path = tmp_path / "disk"
    path.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", path], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("this process may mount nothing")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_full_disk_stops_the_run_and_it_goes_on_when_there_is_room(disk: Path, tmp_path: Path, workers: int) -> None:
    source = photo_list(tmp_path / "in", 400)
    pack(source, tmp_path / "whole", shard_size="40kB", workers=0)
    with pytest.raises(StorageError, match="No space left on device") as caught:
        pack(source, disk / "out", shard_size="40kB", workers=workers)
    assert str(disk) in str(caught.value.place["url"])
    assert not (disk / "out" / "dataset.json").exists()
    assert not list(disk.rglob(".shardstream-*"))  # what is half-written would keep the disk full
    finished = len(list((disk / "out").glob("*.tar")))
    assert finished > 0
    subprocess.run(["mount", "-o", "remount,size=20m", disk], check=True)
    report = run_pack(source, disk / "out", PackOptions(shard_size="40kB"), workers=workers)
    assert finished - workers <= report.kept <= finished  # a shard without its receipt is made again
    assert tree(disk / "out") == tree(tmp_path / "whole")


# ------------------------------------------------------------------------------------------------------- a bad network


@pytest.mark.full
def test_source_and_destination_behind_a_bad_network(s3: S3Place, tmp_path: Path) -> None:
    names = [f"in/{i:03d}.jpg" for i in range(60)]
    for i, name in enumerate(names):
        s3.plant(name, jpeg(i))
    source = tmp_path / "list.tsv"
    source.write_text("".join(f"{s3.url()}/{name}\t{i % 3}\n" for i, name in enumerate(names)))
    pack(source, tmp_path / "whole", storage=StorageOptions(source=s3.options), shard_size=SMALL, workers=0)
    with FaultProxy(s3.endpoint.removeprefix("http://")) as proxy:
        options = {**s3.options, "endpoint": proxy.url}
        proxy.add("status", status=503, method="PUT", times=3)
        proxy.add("reset", method="PUT", times=2, skip=6)
        proxy.add("status", status=500, method="GET", times=4, match=".jpg")
        proxy.add("reset in body", after=200, method="GET", times=4, match=".jpg")
        proxy.add("close in body", after=100, method="GET", times=4, match=".jpg")
        proxy.add("reset", times=4, skip=30)
        report = run_pack(
            source,
            s3.url("out"),
            PackOptions(shard_size=SMALL),
            storage=StorageOptions(options=options, source=options),
            workers=2,
        )
        assert proxy.hits("reset in body") > 0
    assert report.rejects == 0
    expected = tree(tmp_path / "whole")
    assert {name: s3.dig(f"out/{name}") for name in expected} == expected


# ------------------------------------------------------------------------------------------------- sources that change


def test_a_file_that_grows_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"1" * 1000)
    read = os.read

    def growing(handle: int, count: int) -> bytes:
        data = read(handle, count)
        if len(data) == 1000:
            path.write_bytes(b"2" * 2000)
        return data

    monkeypatch.setattr(files_module.os, "read", growing)
    with pytest.raises(Unreadable, match="changed while it was being read"):
        read_file(str(path))


LARGE = {
    "zeros.jpg": (b"", 40 << 30, "neither JPEG, PNG nor WebP"),
    "page.png": (b"<html>", 300 << 20, "a web page (HTML) is here"),
    "header.jpg": (jpeg(1), 3 << 30, "3.2 GB are too many for an image of"),
    "scan.tif": (b"II*\0", 1 << 40, "1.1 TB; pack it where there is more memory"),
}


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in/a").mkdir(parents=True)
    (tmp_path / "in/a/sound.jpg").write_bytes(jpeg(2))
    for name, (start, size, _) in LARGE.items():
        with open(tmp_path / "in/a" / name, "wb") as file:
            file.write(start)
            file.truncate(size)
    read = os.read

    def counted(handle: int, count: int) -> bytes:
        assert count < 1 << 20
        return read(handle, count)

    monkeypatch.setattr(files_module.os, "read", counted)
    assert pack(tmp_path / "in", tmp_path / "out", workers=0, reading=SourceOptions(max_rejects="100%")).samples == 1
    lines = map(json.loads, (tmp_path / "out/rejects.jsonl").read_text().splitlines())
    reasons = {line["path"]: line["reason"] for line in lines}
    assert len(reasons) == len(LARGE)
    assert all(told in reasons[f"a/{name}"] for name, (_, _, told) in LARGE.items())


@pytest.mark.parametrize("kind", ["s3", "web"])
def test_a_huge_object_is_refused_before_it_is_read(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place: S3Place | WebPlace = request.getfixturevalue(kind)
    objects = {"sound.jpg": jpeg(2), "zeros.jpg": bytes(9 << 20), "page.png": b"<html>" + bytes(9 << 20)}
    for name, data in objects.items():
        place.plant(name, data)
    monkeypatch.setattr(files_module, "_LARGE", 1 << 20)
    (tmp_path / "list.tsv").write_text("".join(f"{place.url(name)}\n" for name in objects))
    before = counters().snapshot()
    kept = PackOptions(key="line")
    run = run_pack(
        tmp_path / "list.tsv", tmp_path / "out", kept, storage=StorageOptions(source=place.options), workers=0
    )
    assert (run.tally.samples, run.rejects) == (1, 2)
    assert counters().since(before)["bytes"] < 1 << 20
    lines = map(json.loads, (tmp_path / "out/rejects.jsonl").read_text().splitlines())
    reasons = {line["line"]: line["reason"] for line in lines}
    assert "neither JPEG, PNG nor WebP" in reasons[2]
    assert "a web page (HTML) is here" in reasons[3]


def test_a_small_object_is_one_request(s3: S3Place) -> None:
    s3.plant("a.jpg", jpeg(1))
    before = counters().snapshot()
    assert Files(Access(s3.options)).read(s3 / "a.jpg") == jpeg(1)
    assert counters().since(before)["requests"] == 1


def test_a_large_object_that_is_what_it_says_is_read(s3: S3Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "_LARGE", 1000)
    s3.plant("clip.mp4", bytes(5000))
    assert Files(Access(s3.options)).read(s3 / "clip.mp4") == bytes(5000)
    monkeypatch.setattr(files_module, "memory_limit", lambda: 8000)
    with pytest.raises(Unreadable, match=r"5\.0 kB; pack it where there is more memory"):
        Files(Access(s3.options)).read(s3 / "clip.mp4")


def _length(sample: dict[str, Any]) -> dict[str, Any]:
    return {"length": len(sample["jpg"])}


def test_a_large_file_that_is_what_it_says_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(files_module, "_LARGE", 1000)
    (tmp_path / "in/a").mkdir(parents=True)
    grey = image.new("L", (90, 90))
    grey.save(tmp_path / "in/a/pages.tif", save_all=True, append_images=[grey] * 20)
    grey.save(tmp_path / "in/a/frames.png", save_all=True, append_images=[image.new("L", (90, 90), 9)] * 20)
    grey.save(tmp_path / "in/a/long.jpg", exif=b"Exif\0\0" + bytes(60_000), comment=bytes(60_000))
    assert pack(tmp_path / "in", tmp_path / "out", workers=0).samples == 3
    (tmp_path / "list.tsv").write_text("clip.mp4\t1\n")
    (tmp_path / "clip.mp4").write_bytes(b"\0\0\0\x18ftypmp42" + bytes(5000))
    assert pack(tmp_path / "list.tsv", tmp_path / "videos", workers=0).samples == 1
    (tmp_path / "odd.tsv").write_text("odd.jpg\t1\n")
    (tmp_path / "odd.jpg").write_bytes(bytes(5000))
    assert pack(tmp_path / "odd.tsv", tmp_path / "kept", damaged="keep", workers=0).samples == 1
    made = pack(tmp_path / "odd.tsv", tmp_path / "made", transform=_length, workers=0)
    assert made.samples == 1


def test_an_object_that_is_not_the_one_that_was_listed(s3: S3Place, tmp_path: Path) -> None:
    for i in range(8):
        s3.plant(f"in/{i}.jpg", jpeg(i))
    plan = pack_plan(s3.url("in/"), tmp_path / "out", storage=StorageOptions(source=s3.options))
    s3.plant("in/3.jpg", jpeg(3) + b"more")
    for task in plan.tasks:
        task.run()
    assert plan.commit().samples == 7
    reason = f"it has {len(jpeg(3)) + 4} bytes, and had {len(jpeg(3))} when it was listed"
    assert reason in (tmp_path / "out" / "rejects.jsonl").read_text()


# --------------------------------------------------------------------------------------------------------------- kills


def kill_rounds(tmp_path: Path, rounds: int) -> int:
    """Kill the parent or a worker at a random moment, go on, until it gets through; returns how often it was killed."""
    source = photo_list(tmp_path, 3000)
    (tmp_path / "c1" / "00100.jpg").write_bytes(b"no image")
    pack(source, tmp_path / "whole", shard_size="20kB", workers=0, format="tar", dedup=True)
    whole, out = tree(tmp_path / "whole"), tmp_path / "out"
    again = partial(pack, source, out, shard_size="20kB", workers=2, format="tar", dedup=True)
    options = ["--workers", "2", "--shard-size", "20kB", "--format", "tar", "--dedup", "-q"]
    command = [sys.executable, "-m", "shardstream.cli", "pack", str(source), str(out), *options]
    draws, killed = random.Random(7), 0
    for _ in range(rounds):
        with subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            time.sleep(draws.uniform(0.2, 2.5))
            members = session(process.pid)
            victim = draws.choice(members) if members else process.pid
            if process.poll() is None:
                killed += 1
                os.kill(victim, signal.SIGKILL)
            process.wait(60)
            until(lambda leader=process.pid: not session(leader))  # type: ignore[misc]
        check_end(out, whole, again)
    again()
    assert tree(out) == whole
    assert verify(out).ok
    return killed


@pytest.mark.full
def test_killed_at_random_moments_and_always_the_same_in_the_end(tmp_path: Path) -> None:
    assert kill_rounds(tmp_path, 12) >= 6  # test_kill_rounds has record


# -------------------------------------------------------------------------------------------------------- broken things


def test_names_of_all_kinds(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    odd = ["a b.jpg", "ä é.jpg", "line\nend.jpg", "tab\tstop.jpg", 'qu"ote.jpg', "-dash.jpg", "per%20cent.jpg"]
    names = [os.fsencode(name) for name in odd] + [b"caf\xe9.jpg", "日本.jpg".encode()]
    for i, name in enumerate(names):
        path = os.path.join(os.fsencode(folder), b"c%d" % (i % 2), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(os.fsdecode(path)).write_bytes(jpeg(i))
    (folder / "c0" / "loop").symlink_to(folder)
    (folder / "c0" / "broken.jpg").symlink_to("nowhere")
    (folder / "c0" / "folder.jpg").mkdir()
    report = run_pack(folder, tmp_path / "out", PackOptions(), workers=0)
    assert {sample["jpg"] for sample in samples(tmp_path / "out").values()} == {jpeg(i) for i in range(len(names))}
    rejects = [json.loads(line) for line in (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()]
    assert {entry["path"] for entry in rejects} == {"c0/broken.jpg", "c0/loop"}
    assert report.rejects == 2
