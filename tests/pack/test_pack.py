from __future__ import annotations

import json
import os
import subprocess
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardstream import ImageOptions, ShardOptions
from shardstream.errors import SourceError, StorageError, UsageError
from shardstream.pack.execution import workers as workers_module
from shardstream.pack.run import pack
from shardstream.progress import ProgressEvent
from shardstream.shards.framings import framing_of
from shardstream.shards.manifest import Manifest

from .making import PYTHON, jpeg, photo_list, photos, samples, tree

SMALL = "10kB"


def rejects(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "rejects.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("format", ["tar", "record"])
def test_every_sample_is_there_shuffled(tmp_path: Path, format: Any) -> None:
    manifest = pack(photo_list(tmp_path, 100), tmp_path / "out", format=format, shard_size=SMALL, workers=0)
    found = samples(tmp_path / "out")
    assert manifest.samples == 100
    assert manifest.shards > 3
    assert {name: kind.name for name, kind in manifest.fields.items()} == {"cls": "int64", "jpg": "jpg"}
    assert found == {f"c{i % 3}/{i:05d}": {"jpg": jpeg(i), "cls": i % 3} for i in range(100)}
    numbers = [int(key[-5:]) for key in found]
    assert numbers != sorted(numbers)
    assert manifest.seed == 0
    assert len(manifest.plan or "") == 32
    assert manifest.table.samples.max() - manifest.table.samples.min() < manifest.shards + 1


@pytest.mark.one_in(2)
@pytest.mark.parametrize("format", ["tar", "record"])
def test_bytes_do_not_depend_on_workers_place_or_executor(tmp_path: Path, format: Any) -> None:
    source = photo_list(tmp_path / "in", 60)
    (tmp_path / "in" / "c0" / "00003.jpg").write_bytes(b"")
    trees = []
    options: Any = {"format": format, "shard_size": SMALL, "meta": {"a": [1]}, "shards": ShardOptions(rows=True)}
    for name, workers in (("a", 0), ("b", 1), ("c/d", 2), ("e", None)):
        with ThreadPoolExecutor(2) as pool:
            where: Any = {"on": pool} if workers is None else {"workers": workers}
            pack(source, tmp_path / name, **options, **where)
        trees.append(tree(tmp_path / name))
    moved = tmp_path / "moved"
    (tmp_path / "in").rename(moved)
    pack(moved / "list.tsv", tmp_path / "f", **options, workers=0)
    trees.append(tree(tmp_path / "f"))
    assert {"rejects.jsonl", "rows.parquet"} <= trees[0].keys()
    assert all(one == trees[0] for one in trees)


def test_the_seed_changes_order_and_names_only(tmp_path: Path) -> None:
    source = photo_list(tmp_path, 40)
    one = pack(source, tmp_path / "1", workers=0)
    two = pack(source, tmp_path / "2", seed=1, workers=0)
    plain = pack(source, tmp_path / "3", shuffle=False, workers=0)
    assert one.plan != two.plan
    assert one.naming != two.naming
    assert list(samples(tmp_path / "1")) != list(samples(tmp_path / "2"))
    assert samples(tmp_path / "1") == samples(tmp_path / "2")
    assert plain.seed is None
    assert [key[-5:] for key in samples(tmp_path / "3")] == [f"{i:05d}" for i in range(40)]


def test_a_folder_of_class_folders(tmp_path: Path) -> None:
    photos(tmp_path / "in", 12)
    manifest = pack(tmp_path / "in", tmp_path / "out", workers=0)
    assert manifest.classes == ("c0", "c1", "c2")
    assert {key: sample["cls"] for key, sample in samples(tmp_path / "out").items()} == {
        f"c{i % 3}/{i:05d}": i % 3 for i in range(12)
    }


def test_all_kinds_of_files(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", np.arange(3))
    (tmp_path / "a.JPEG").write_bytes(jpeg(1))
    (tmp_path / "b.txt").write_text("grüezi")
    (tmp_path / "c.json").write_text('{"a": 1}')
    (tmp_path / "e.xyz").write_bytes(b"\0\1")
    (tmp_path / "list.txt").write_text("a.JPEG\nb.txt\nc.json\nd.npy\ne.xyz\n")
    manifest = pack(tmp_path / "list.txt", tmp_path / "out", workers=0, classes=["x"], meta={"by": "me"})
    kinds = {name: kind.name for name, kind in manifest.fields.items()}
    assert kinds == {"jpg": "jpg", "txt": "str", "json": "json", "npy": "array", "xyz": "bytes"}
    assert samples(tmp_path / "out")["b"] == {"txt": "grüezi".encode()}
    assert manifest.classes == ("x",)
    assert manifest.meta == {"by": "me"}


def test_what_cannot_be_read_is_listed(tmp_path: Path) -> None:
    good = photos(tmp_path, 30)
    (tmp_path / "folder.jpg").mkdir()
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("no image")
    (tmp_path / "cut.jpg").write_bytes(jpeg(0)[:30])
    (tmp_path / "wrong.txt").write_bytes(b"\xff\xfe")
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "loop.jpg").symlink_to("loop.jpg")
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "secret.jpg").write_bytes(jpeg(0))
    bad = {
        "missing.jpg": "no such file",
        "folder.jpg": "directory",
        "empty.jpg": "empty",
        "text.jpg": "neither JPEG",
        "cut.jpg": "JPEG",
        "wrong.txt": "UTF-8",
        "bad.json": "json",
        "loop.jpg": "symbolic links",
        "pipe.jpg": "not a regular file",
        "noextension": "no extension",
        "a\x01.b c": "cannot be the name",
        "": "no path",
        "x" * 300 + ".jpg": "too long",
    }
    lines = good + list(bad)
    text = "".join(f"{path}\t0\n" for path in lines)
    (tmp_path / "list.tsv").write_text(text)
    manifest = pack(tmp_path / "list.tsv", tmp_path / "out", shard_size=SMALL, workers=0)
    assert manifest.samples == 30
    assert {key[-5:] for key in samples(tmp_path / "out")} == {f"{i:05d}" for i in range(30)}
    found = rejects(tmp_path / "out")
    assert [entry["line"] for entry in found] == list(range(31, 44))
    for entry, (path, reason) in zip(found, bad.items(), strict=True):
        assert entry["path"] == path
        assert reason in entry["reason"], path


def test_a_name_that_is_no_utf8_is_packed_and_rejected_alike(tmp_path: Path) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.jpg")
    Path(name).write_bytes(jpeg(1))
    (tmp_path / "list.tsv").write_bytes(b"caf\xe9.jpg\t1\nth\xe9.jpg\t1\n")
    pack(tmp_path / "list.tsv", tmp_path / "out", workers=0)
    assert list(samples(tmp_path / "out")) == ["caf%E9"]
    assert rejects(tmp_path / "out") == [
        {"path": "th%E9.jpg", "line": 2, "kind": "missing", "reason": "there is no such file"}
    ]


def test_a_shard_of_rejects_only(tmp_path: Path) -> None:
    lines = [*photos(tmp_path, 1), *(f"missing/{i}.jpg" for i in range(20))]
    (tmp_path / "list.tsv").write_text("\n".join(lines))
    manifest = pack(tmp_path / "list.tsv", tmp_path / "out", shard_size=4000, workers=0, shuffle=False)
    assert manifest.samples == 1
    assert 0 in manifest.table.samples
    assert len(samples(tmp_path / "out")) == 1


@pytest.mark.parametrize("count", [3, 1500])
@pytest.mark.parametrize("workers", [0, 2])
def test_no_readable_file_leaves_nothing(tmp_path: Path, count: int, workers: int) -> None:
    (tmp_path / "list.tsv").write_text("".join(f"gone/{i}.jpg\t0\n" for i in range(count)))
    with pytest.raises(SourceError, match="can be read") as caught:
        pack(tmp_path / "list.tsv", tmp_path / "out", workers=workers)
    assert "gone/" in str(caught.value)
    assert caught.value.place["url"] == str(tmp_path / "list.tsv")
    assert not (tmp_path / "out").exists()


def test_nothing_but_broken_images_leaves_nothing(tmp_path: Path) -> None:
    for i in range(40):
        (tmp_path / f"{i}.jpg").write_bytes(b"no image, but some bytes" * 40)
    (tmp_path / "list.tsv").write_text("".join(f"{i}.jpg\t0\n" for i in range(40)))
    with pytest.raises(SourceError, match="no sample can be packed"):
        pack(tmp_path / "list.tsv", tmp_path / "out", shard_size=SMALL, workers=0)
    assert not tree(tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "zip"}, "zip.*"),
        ({"shard_size": "big"}, "shard_size"),
        ({"shard_size": 0}, "shard_size"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"images": "keep"}, "images must be ImageOptions, got 'keep'"),
        ({"labels": "float"}, "labels must be 'int' or 'name', got 'float'"),
        ({"key": ""}, "key is empty"),
        ({"workers": -1}, "workers"),
        ({"workers": 1.0}, "workers"),
        ({"shards": ShardOptions(zstd=["txt"])}, "tar shards"),
        ({"shards": ShardOptions(zstd="txt"), "format": "record"}, "collection"),
        ({"meta": {"a": {1}}}, "meta"),
        ({"classes": "abc"}, "classes"),
        ({"labels": "name", "classes": ["a"]}, "classes"),
    ],
    ids=str,
)
def test_bad_arguments_are_named(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    source = photo_list(tmp_path, 2)
    with pytest.raises(UsageError, match=message) as caught:
        pack(source, tmp_path / "out", **options)
    assert caught.value.hint
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jpeg": "lossy"}, "jpeg must be 'addressable' or 'keep', got 'lossy'"),
        ({"segment_width": 4}, "segment_width must be an integer from 8 to 65535, got 4"),
        ({"max_side": 0}, "max_side must be an integer from 1 to 65535, got 0"),
        ({"max_side": 512, "quality": 101}, "quality must be an integer from 1 to 100, got 101"),
        ({"quality": 90}, "`quality` without `max_side`"),
    ],
    ids=str,
)
def test_bad_options_of_images_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        ImageOptions(**options)
    assert caught.value.hint


def test_workers_and_executor_exclude_each_other(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool, pytest.raises(UsageError, match="exclude"):
        pack(photo_list(tmp_path, 2), tmp_path / "out", workers=1, on=pool)


def test_the_public_name_is_the_function(tmp_path: Path) -> None:
    import shardstream

    manifest = shardstream.pack(photo_list(tmp_path, 2), tmp_path / "out", workers=0)
    assert manifest.fingerprint == Manifest.load(tmp_path / "out").fingerprint
    assert shardstream.pack is pack


@pytest.mark.one_in(2)
@pytest.mark.parametrize("workers", [0, 2])
def test_progress_ends_at_the_total(tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "TICK_S", 0.0)
    seen: list[ProgressEvent] = []
    pack(photo_list(tmp_path, 50), tmp_path / "out", shard_size=SMALL, workers=workers, progress=seen.append)
    assert seen[0].stage == "plan"
    assert {event.total for event in seen if event.stage == "pack"} == {50}
    counts = [event.tally.samples for event in seen]
    assert counts == sorted(counts)
    assert counts[-1] == 50
    assert seen[-1].tally.bytes == sum(len(jpeg(i)) for i in range(50))


def test_an_error_of_a_worker_is_the_error_of_the_run(tmp_path: Path) -> None:
    source = photo_list(tmp_path, 50)
    out = tmp_path / "out"

    def break_it(event: ProgressEvent) -> None:
        if event.stage == "pack" and not event.tally.samples:
            os.utime(source, ns=(1, 1))

    with pytest.raises(SourceError, match="changed while it was being packed") as caught:
        pack(source, out, shard_size=SMALL, workers=2, progress=break_it)
    assert caught.value.place["url"] == str(source)
    assert "dataset.json" not in tree(out)


@pytest.mark.full
def test_a_script_need_not_be_written_for_workers(tmp_path: Path) -> None:
    source = photo_list(tmp_path, 50)
    script = tmp_path / "script.py"
    script.write_text(
        f"import shardstream as ss\nprint(ss.pack({str(source)!r}, 'out', shard_size='10kB', workers=2).samples)\n"
    )
    done = subprocess.run([*PYTHON, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("50\n", "")


def test_an_error_in_the_progress_function_stops_the_workers(tmp_path: Path) -> None:
    def stop(event: ProgressEvent) -> None:
        if event.stage == "pack":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(photo_list(tmp_path, 50), tmp_path / "out", shard_size=SMALL, workers=2, progress=stop)
    assert not tree(tmp_path / "out")


def test_a_destination_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        pack(photo_list(tmp_path, 4), tmp_path / "file" / "out", workers=0)


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    photo_list(tmp_path, 30)
    (tmp_path / "c0" / "00000.jpg").rename(tmp_path / "c0" / "a.b.jpg")
    text = (tmp_path / "list.tsv").read_text().replace("c0/00000.jpg", "c0/a.b.jpg")
    (tmp_path / "list.tsv").write_text(text)
    pack(tmp_path / "list.tsv", tmp_path / "out", shard_size=SMALL, workers=0)
    return tmp_path / "out"


def test_tar_and_tarfile_read_it(packed: Path) -> None:
    names = []
    for path in sorted(packed.glob("*.tar")):
        listed = subprocess.run(["tar", "tf", path], check=True, capture_output=True, text=True)
        assert not listed.stderr
        with tarfile.open(path) as archive:
            assert archive.getnames() == listed.stdout.splitlines()
            names += archive.getnames()
            member = next(name for name in archive.getnames() if name.endswith(".jpg"))
            assert archive.extractfile(member).read()[:2] == b"\xff\xd8"  # type: ignore[union-attr]
    assert "c0/a%2Eb.jpg" in names
    assert len([name for name in names if name.endswith(".cls")]) == 30


@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")  # its open files
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_webdataset_reads_it(packed: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    urls = [str(path) for path in sorted(packed.glob("*.tar"))]
    found = {
        sample["__key__"].replace("%2E", "."): {"jpg": sample["jpg"], "cls": int(sample["cls"])}
        for sample in webdataset.WebDataset(urls, shardshuffle=False)
    }
    assert found == samples(packed)
    assert list(found) == list(samples(packed))


def test_indices_of_all_shards_fit_what_the_manifest_says(packed: Path) -> None:
    manifest = Manifest.load(packed)
    from shardstream.storage import open_store

    for i, count in enumerate(manifest.table.samples.tolist()):
        index = framing_of("tar").scan(open_store(packed), manifest.shard_name(i), index_bytes=manifest.index_bytes)
        assert index.samples == count
