from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardstream.errors import DestinationError, StorageError
from shardstream.pack.encode.sample import SampleEncoder
from shardstream.pack.output.destination import Destination
from shardstream.pack.run import pack
from shardstream.pack.writer import ShardWriter
from shardstream.shards.manifest import Manifest

from .making import jpeg, objects, photo_list, photos, samples, tree

SMALL = "10kB"


def test_the_same_plan_again_writes_nothing(tmp_path: Path) -> None:
    source = photo_list(tmp_path, 30)
    one = pack(source, tmp_path / "out", shard_size=SMALL, workers=0)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    two = pack(source, tmp_path / "out", shard_size=SMALL, workers=0)
    assert two.fingerprint == one.fingerprint
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == times


def test_another_plan_is_refused(tmp_path: Path) -> None:
    source = photo_list(tmp_path, 30)
    pack(source, tmp_path / "out", workers=0)
    before = tree(tmp_path / "out")
    for options in ({"seed": 1}, {"format": "record"}, {"meta": {"a": 1}}, {"key": "line"}):
        with pytest.raises(DestinationError, match="already holds another data set, of 30 samples") as caught:
            pack(source, tmp_path / "out", workers=0, **options)  # type: ignore[arg-type]
        assert "--overwrite" in str(caught.value)
    photos(tmp_path, 1, start=30)
    with source.open("a") as file:
        file.write("c0/00030.jpg\t0\n")
    with pytest.raises(DestinationError):
        pack(source, tmp_path / "out", workers=0)
    assert tree(tmp_path / "out") == before


def test_other_files_under_the_same_names_are_another_plan(tmp_path: Path) -> None:
    one = photo_list(tmp_path / "a", 5)
    two = photo_list(tmp_path / "b", 5)
    (tmp_path / "b" / "c0" / "00000.jpg").write_bytes(jpeg(0) + b"more")
    assert pack(one, tmp_path / "1", workers=0).plan != pack(two, tmp_path / "2", workers=0).plan


@pytest.mark.parametrize("options", [{"seed": 1}, {"format": "record"}, {}], ids=str)
def test_overwriting_leaves_the_new_one_only(tmp_path: Path, options: dict[str, object]) -> None:
    source = photo_list(tmp_path, 30)
    out = tmp_path / "out"
    pack(source, out, shard_size=SMALL, workers=0)
    (out / "notes.txt").write_text("mine")
    (out / "folder").mkdir()
    (out / "folder" / "shard-000000.tar").write_text("mine too")
    (tmp_path / "c0" / "00000.jpg").unlink()
    new = pack(source, out, shard_size=SMALL, workers=0, overwrite=True, **options)  # type: ignore[arg-type]
    assert len(samples(out)) == 29
    expected = objects(new) | {"rejects.jsonl"}
    assert set(tree(out)) == expected | {"notes.txt", "folder/shard-000000.tar"}


def test_rejects_of_an_older_set_do_not_stay(tmp_path: Path) -> None:
    source = photo_list(tmp_path, 10)
    (tmp_path / "c0" / "00000.jpg").rename(tmp_path / "away.jpg")
    pack(source, tmp_path / "out", workers=0)
    (tmp_path / "away.jpg").rename(tmp_path / "c0" / "00000.jpg")
    pack(source, tmp_path / "out", workers=0, overwrite=True)
    assert not (tmp_path / "out" / "rejects.jsonl").exists()


def test_a_failed_overwrite_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = photo_list(tmp_path, 30)
    out = tmp_path / "out"
    pack(source, out, shard_size=SMALL, workers=0)
    before = tree(out)

    def fail(*_args: object) -> None:
        raise StorageError("disk full")

    monkeypatch.setattr(SampleEncoder, "load", fail)
    with pytest.raises(StorageError, match="disk full"):
        pack(source, out, shard_size=SMALL, workers=0, overwrite=True)
    assert tree(out) == before


@pytest.mark.one_in(2)
@pytest.mark.parametrize("again", ["same", "other"])
def test_killed_before_the_switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str) -> None:
    """As after SIGKILL: nothing of the run's own cleaning happens."""
    source = photo_list(tmp_path, 30)
    out = tmp_path / "out"
    pack(source, out, shard_size=SMALL, workers=0)
    before = tree(out)
    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            pack(source, out, shard_size=SMALL, workers=0, seed=1, overwrite=True)
    assert before.items() < tree(out).items()
    assert len(samples(out)) == 30
    if again == "same":
        pack(source, out, shard_size=SMALL, workers=0)
        assert tree(out) == before
    else:
        new = pack(source, out, shard_size=SMALL, workers=0, seed=2, overwrite=True)
        assert set(tree(out)) == objects(new)


def test_killed_after_the_switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = photo_list(tmp_path, 30)
    out = tmp_path / "out"
    pack(source, out, shard_size=SMALL, workers=0)
    with monkeypatch.context() as patch:
        patch.setattr(Destination, "clean", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            pack(source, out, shard_size=SMALL, workers=0, seed=1, overwrite=True)
    assert len(samples(out)) == 30
    new = pack(source, out, shard_size=SMALL, workers=0, seed=1)
    assert set(tree(out)) == objects(new)


def test_half_written_objects_are_swept(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / ".shardstream-dead").write_bytes(b"half")
    pack(photo_list(tmp_path, 3), out, workers=0)
    assert not list(out.glob(".shardstream-*"))


def test_a_damaged_complete_set_is_not_called_complete(tmp_path: Path) -> None:
    source = photo_list(tmp_path, 30)
    manifest = pack(source, tmp_path / "out", shard_size=SMALL, workers=0)
    (tmp_path / "out" / manifest.shard_name(1)).unlink()
    with pytest.raises(StorageError, match="missing") as caught:
        pack(source, tmp_path / "out", shard_size=SMALL, workers=0)
    assert caught.value.place["shard"] == manifest.shard_name(1)
    pack(source, tmp_path / "out", shard_size=SMALL, workers=0, overwrite=True)
    assert len(samples(tmp_path / "out")) == 30


def test_foreign_files_are_never_touched(tmp_path: Path) -> None:
    source, out = photo_list(tmp_path, 3), tmp_path / "out"
    out.mkdir()
    (out / "shard-000000.tar").write_bytes(b"somebody else's")
    for overwrite in (False, True):
        with pytest.raises(DestinationError, match=r"shard-000000\.tar.*not written by shardstream"):
            pack(source, out, workers=0, overwrite=overwrite)
        with pytest.raises(DestinationError), ShardWriter(out, overwrite=overwrite):
            pass
    assert tree(out) == {"shard-000000.tar": b"somebody else's"}
    (out / "shard-000000.tar").unlink()
    (out / "dataset.json").write_text(json.dumps({"name": "somebody else's"}))
    with pytest.raises(DestinationError, match="not ours"):
        pack(source, out, workers=0, overwrite=True)
    assert list(tree(out)) == ["dataset.json"]


def test_the_source_folder_is_no_destination(tmp_path: Path) -> None:
    photos(tmp_path / "in", 6)
    for out in (tmp_path / "in", tmp_path / "in" / "out"):
        with pytest.raises(DestinationError, match="lies in the folder"):
            pack(tmp_path / "in", out, workers=0)
    with pytest.raises(DestinationError, match="is a file"):
        pack(tmp_path / "in", tmp_path / "in" / "c0" / "00000.jpg", workers=0)
    assert len(tree(tmp_path / "in")) == 6


def test_somebody_else_removing_shards_is_noticed_before_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = photo_list(tmp_path, 30), tmp_path / "out"
    commit = Destination.commit

    def remove_then_commit(self: Destination, manifest: Manifest, *beside: bytes) -> Manifest:
        self.store.delete(manifest.shard_name(0))
        return commit(self, manifest, *beside)

    monkeypatch.setattr(Destination, "commit", remove_then_commit)
    with pytest.raises(StorageError, match="missing"):
        pack(source, out, shard_size=SMALL, workers=0)
    assert not (out / "dataset.json").exists()


@pytest.mark.full
def test_the_same_plan_redone_gives_the_same_files(tmp_path: Path) -> None:
    """Overwriting leaves no trace of what was there: the result is that of a first run."""
    source = photo_list(tmp_path / "in", 40)
    pack(source, tmp_path / "once", shard_size=6000, workers=0)
    for _ in range(2):
        pack(source, tmp_path / "twice", shard_size=6000, workers=0, overwrite=True)
    assert tree(tmp_path / "once") == tree(tmp_path / "twice")


def test_redoing_a_plan_repairs_a_damaged_shard(tmp_path: Path) -> None:
    source = photo_list(tmp_path / "in", 40)
    manifest = pack(source, tmp_path / "out", shard_size=6000, workers=0)
    before = tree(tmp_path / "out")
    shard = tmp_path / "out" / manifest.shard_name(0)
    data = bytearray(shard.read_bytes())
    data[600] ^= 1
    shard.write_bytes(data)
    pack(source, tmp_path / "out", shard_size=6000, workers=0, overwrite=True)
    assert tree(tmp_path / "out") == before
