"""Sources that can only be read in order: a first pass into temporary shards, then like any other."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardstream import StorageOptions
from shardstream.errors import DuplicateKeyError, SourceError, UsageError
from shardstream.pack.options import PackOptions
from shardstream.pack.plan.pack_plan import pack_plan
from shardstream.pack.run import pack, run_pack
from shardstream.progress import ProgressEvent
from shardstream.shards.manifest import Manifest

from ..storage.places import S3Place
from .making import jpeg, objects, photo_list, samples, tree

SMALL = "10kB"


def write_tar(path: Path, members: list[tuple[str, bytes]], mode: str = "w") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def members(first: int, count: int) -> list[tuple[str, bytes]]:
    found = []
    for i in range(first, first + count):
        found += [(f"a/{i:03d}.jpg", jpeg(i)), (f"a/{i:03d}.cls", b"%d" % (i % 3))]
        found += [(f"a/{i:03d}.seg.png.txt", b"mask"), (f"a/{i:03d}.JSON", b'{"i": %d}' % i)]
    return found


@pytest.fixture
def tars(tmp_path: Path) -> Path:
    for i, mode in enumerate(("w", "w:gz", "w:xz")):
        suffix = ".tar" + mode[1:].replace(":", ".")
        write_tar(tmp_path / "in" / f"part-{i:02d}{suffix}", members(20 * i, 20), mode)
    return tmp_path / "in"


EXPECTED = {
    f"a/{i:03d}": {"jpg": jpeg(i), "cls": i % 3, "seg.png.txt": b"mask", "json": b'{"i": %d}' % i} for i in range(60)
}


@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.full), 2])
def test_tar_files_are_shuffled_together(tars: Path, tmp_path: Path, workers: int) -> None:
    seen: list[ProgressEvent] = []
    options = PackOptions(shard_size=SMALL)
    report = run_pack(f"{tars}/part-*.tar*", tmp_path / "out", options, workers=workers, progress=seen.append)
    assert samples(tmp_path / "out") == EXPECTED
    numbers = [int(key[2:]) for key in samples(tmp_path / "out")]
    assert len({number // 20 for number in numbers[:12]}) == 3
    assert "only be read in order" in report.notes[0]
    assert {event.stage for event in seen} >= {"plan", "pack"}
    assert set(tree(tmp_path / "out")) == objects(report.manifest)  # temporary shards are gone
    once = tree(tmp_path / "out")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert run_pack(f"{tars}/part-*.tar*", tmp_path / "out", options, workers=0).complete
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == times
    pack(f"{tars}/part-*.tar*", tmp_path / "two", shard_size=SMALL, workers=2 - workers)
    assert tree(tmp_path / "two") == once


def test_names_in_braces_and_in_a_store(s3: S3Place, tars: Path, tmp_path: Path) -> None:
    first = (tars / "part-00.tar").read_bytes()
    write_tar(tmp_path / "second.tar", members(20, 5))
    s3.plant("in/part-00.tar", first)
    s3.plant("in/part-01.tar", (tmp_path / "second.tar").read_bytes())
    pack(s3.url("in/part-{00..01}.tar"), tmp_path / "out", storage=StorageOptions(source=s3.options), workers=2)
    assert samples(tmp_path / "out").keys() == {f"a/{i:03d}" for i in range(25)}
    with pytest.raises(SourceError, match="no such tar file") as caught:
        pack(s3.url("in/part-{00..02}.tar"), tmp_path / "other", storage=StorageOptions(source=s3.options))
    assert str(caught.value.place["url"]).endswith("part-02.tar")


def test_the_first_pass_is_not_done_twice(tars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = f"{tars}/part-*.tar*"
    plan = pack_plan(source, tmp_path / "out", shard_size=SMALL)
    plan.tasks[0].run()
    monkeypatch.setattr(tarfile, "open", None)
    report = run_pack(source, tmp_path / "out", PackOptions(shard_size=SMALL), workers=0)
    assert report.kept == 1
    assert samples(tmp_path / "out") == EXPECTED


def test_what_is_broken_in_a_tar_file_is_named(tmp_path: Path) -> None:
    good = [("x.jpg", jpeg(1)), ("y.jpg", jpeg(2)), ("z.jpg", b"no image"), ("noextension", b"1"), ("v.cls", b"dog")]
    write_tar(tmp_path / "1.tar.gz", [*good, ("w.jpg", jpeg(4)), ("w.jpeg", jpeg(5))], "w:gz")
    write_tar(tmp_path / "2.tar", [(f"{i}.jpg", jpeg(i)) for i in range(9)])
    whole = (tmp_path / "2.tar").read_bytes()
    (tmp_path / "2.tar").write_bytes(whole[: 1536 * 4 + 700])
    (tmp_path / "3.tar").write_bytes(b"no tar file at all" * 100)
    report = run_pack(f"{tmp_path}/*.tar*", tmp_path / "out", PackOptions(format="record"), workers=0)
    assert {"x", "y", "w", "0", "1"} <= samples(tmp_path / "out").keys()
    lines = [json.loads(line) for line in (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()]
    reasons = {entry["path"]: entry["reason"] for entry in lines}
    assert "neither JPEG" in reasons["1.tar.gz/z"]
    assert "no extension" in reasons["1.tar.gz/noextension"]
    assert "two members" in reasons["1.tar.gz/w.jpeg"]
    assert "damaged from here on" in reasons["2.tar"]
    assert "damaged from here on" in reasons["3.tar"]
    assert report.rejects == len(lines)
    found = json.loads((tmp_path / "out" / "report.json").read_text())
    assert found["rejects"] == len(lines)


def test_one_key_in_two_tar_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_tar(tmp_path / f"{name}.tgz", members(0, 2), "w:gz")
    with pytest.raises(DuplicateKeyError, match=r"spool-000000\.rec#0 and spool-000001\.rec#0"):
        pack(f"{tmp_path}/*.tgz", tmp_path / "out", workers=0)
    pack(f"{tmp_path}/*.tgz", tmp_path / "out", workers=0, key="line")
    assert sorted(samples(tmp_path / "out")) == [f"{i:010d}" for i in range(1, 5)]


def test_our_own_tar_shards_read_as_any_others(tmp_path: Path) -> None:
    pack(photo_list(tmp_path, 30), tmp_path / "one", workers=0)
    (shard,) = (tmp_path / "one").glob("*.tar")
    pack(shard, tmp_path / "two", workers=0)
    assert samples(tmp_path / "two") == samples(tmp_path / "one")


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_webdataset_writes(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    with webdataset.TarWriter(str(tmp_path / "a.tar")) as writer:
        for i in range(5):
            writer.write({"__key__": f"k{i}", "jpg": jpeg(i), "cls": i, "json": {"i": i}, "txt": "ä"})
    pack(tmp_path / "a.tar", tmp_path / "out", workers=0)
    assert samples(tmp_path / "out")["k3"] == {"jpg": jpeg(3), "cls": 3, "json": b'{"i": 3}', "txt": "ä".encode()}


# ------------------------------------------------------------------------------------------------------- from Python


def dicts(count: int) -> list[dict[str, Any]]:
    return [{"__key__": f"k{i:03d}", "jpg": jpeg(i), "cls": i % 3, "emb": np.full(2, i)} for i in range(count)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [list, iter])
def test_dicts_from_python(tmp_path: Path, kind: Any, workers: int) -> None:
    report = run_pack(kind(dicts(50)), tmp_path / "out", PackOptions(shard_size=SMALL), workers=workers)
    found = samples(tmp_path / "out")
    assert {key: sample["jpg"] for key, sample in found.items()} == {f"k{i:03d}": jpeg(i) for i in range(50)}
    assert list(found) != sorted(found)
    assert report.manifest.fields.keys() == {"jpg", "cls", "emb"}
    assert set(tree(tmp_path / "out")) == objects(report.manifest)
    assert run_pack(kind(dicts(50)), tmp_path / "out", PackOptions(shard_size=SMALL), workers=workers).complete


class Lazy:
    """Pickles to little, and makes its samples where they are read."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {"jpg": jpeg(number), "cls": number}


@pytest.mark.full
def test_a_map_style_data_set_is_read_by_the_workers(tmp_path: Path) -> None:
    pack(Lazy(40), tmp_path / "out", shard_size=SMALL, workers=2)
    found = samples(tmp_path / "out")
    assert sorted(found) == [f"{i:010d}" for i in range(40)]  # without keys of their own, samples are numbered
    assert all(sample["jpg"] == jpeg(int(key)) for key, sample in found.items())
    part = pack_plan(Lazy(40), tmp_path / "other").tasks[0].part
    assert type(part).__name__ == "PickledPart"


def test_large_lists_travel_as_samples(tmp_path: Path) -> None:
    large = [{"raw": bytes(100_000) + b"%d" % i} for i in range(30)]
    plan = pack_plan(large, tmp_path / "out", shard_size="500kB")
    assert type(plan.tasks[0].part).__name__ == "SamplesPart"
    for task in plan.tasks:
        task.run()
    assert plan.commit().samples == 30


class Structs:
    """As Hugging Face's data sets hold images."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> dict[str, Any]:
        image = {"bytes": jpeg(number) if number else b"none", "path": f"{number}.jpg"}
        return {"image": image, "mask": {"bytes": jpeg(9), "path": None}, "text": "hi", "none": None}


def test_image_structs_become_images(tmp_path: Path) -> None:
    pack(Structs(), tmp_path / "out", workers=0)
    assert samples(tmp_path / "out")["0000000001"] == {"jpg": jpeg(1), "mask.jpg": jpeg(9), "text": b"hi"}
    assert samples(tmp_path / "out")["0000000000"] == {"image": b"none", "mask.jpg": jpeg(9), "text": b"hi"}


def test_faults_of_samples_are_rejects(tmp_path: Path) -> None:
    broken: list[Any] = [*dicts(3), "text", {"jpg": jpeg(1)}, {"__key__": "x", "emb": object()}]
    for kind in (list, iter):
        report = run_pack(kind(broken), tmp_path / kind.__name__, PackOptions(), workers=0)
        assert (report.manifest.samples, report.rejects) == (3, 3)
        assert len(report.reasons) == 3
        assert {"it is a str, not a dict of fields", "its … is None, not a non-empty str"} < set(report.reasons)
        assert any("a object" in reason for reason in report.reasons)


def test_what_is_no_source_of_samples(tmp_path: Path) -> None:
    for wrong in ({"a": 1}, b"bytes", 3, None, object()):
        with pytest.raises(UsageError, match="must be a path, a URL or samples"):
            pack(wrong, tmp_path / "out")
    for empty in ([], iter(())):
        with pytest.raises(SourceError, match="holds no samples"):
            pack(empty, tmp_path / "out", workers=0)
    for kind in (list, iter):
        with pytest.raises(DuplicateKeyError):
            pack(kind([*dicts(2), dicts(1)[0]]), tmp_path / "out", workers=0)
    with pytest.raises(UsageError, match="key='cls'"):
        pack(dicts(2), tmp_path / "out", key="cls")


def endless() -> Iterator[dict[str, Any]]:
    yield from dicts(20)
    raise RuntimeError("the source broke")


def test_an_error_of_the_iterable_is_the_error_of_the_run(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the source broke"):
        pack(endless(), tmp_path / "out", workers=0)
    assert not (tmp_path / "out" / "dataset.json").exists()
    pack(dicts(5), tmp_path / "out", workers=0)
    assert Manifest.load(tmp_path / "out").samples == 5
    assert not (tmp_path / "out" / ".pack").exists()
