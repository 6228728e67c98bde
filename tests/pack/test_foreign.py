"""Data of other libraries, packed through their catalogue: what is in shards is what is read in place."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import shardstream as ss
from shardstream.cli.app import app
from shardstream.errors import DuplicateKeyError, FieldError, FormatError, SourceError, UsageError
from shardstream.formats.catalog import scanning
from shardstream.formats.sources import foreign
from shardstream.pack.options import PackOptions
from shardstream.pack.plan.pack_plan import pack_plan
from shardstream.pack.run import pack, run_pack
from shardstream.pack.sources import look
from shardstream.pack.sources.opening import open_source
from shardstream.progress import ProgressEvent
from shardstream.storage.cache.tier import CATALOGUES

from ..storage.places import S3Place
from .foreign import COUNT, GOLDEN, WRITERS, members, stored, tar_bytes, text_recognition, webdataset, zipped
from .making import jpeg, photos, samples, tree, types

READ = (
    "litdata/every",
    "litdata/tokens",
    "mds/every",
    "mds/merged",
    "tfrecord/imagenet",
    "tfrecord/lists/lists.tfrecord",
    "tfrecord/tfds",
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def tars(tmp_path: Path) -> Path:
    return webdataset(tmp_path / "in")


def rejects(out: Path) -> list[dict[str, Any]]:
    path = out / "rejects.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# ------------------------------------------------------------------------------------------------- what is in shards


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", WRITERS)
def test_shards_hold_what_is_read_in_place(name: str, tmp_path: Path) -> None:
    source = WRITERS[name](tmp_path / "in")
    pack(source, tmp_path / "out", images=ss.ImageOptions(jpeg="keep"), workers=0, shard_size="10kB")
    found, kinds = stored(tmp_path / "out")
    assert (found, kinds) == stored(source)
    assert not rejects(tmp_path / "out")
    assert list(found) != sorted(found), "it was shuffled"


@pytest.mark.parametrize("name", READ)
def test_golden_files_of_other_libraries(name: str, tmp_path: Path) -> None:
    pack(GOLDEN / name, tmp_path / "out", images=ss.ImageOptions(jpeg="keep"), workers=0)
    assert stored(tmp_path / "out") == stored(GOLDEN / name)


def test_pairs_of_text_recognition_are_samples(tmp_path: Path) -> None:
    pack(text_recognition(tmp_path / "in"), tmp_path / "out", images=ss.ImageOptions(jpeg="keep"), workers=0)
    found = samples(tmp_path / "out")
    assert len(found) == COUNT
    assert sorted(sample["txt"] for sample in found.values())[0] == b"word 1"


@pytest.mark.full
def test_workers_and_places_change_no_byte(tars: Path, tmp_path: Path, home: Path) -> None:
    pack(tars, tmp_path / "one", workers=0, shard_size="10kB")
    pack(tars, tmp_path / "two", workers=2, shard_size="10kB")
    moved = shutil.copytree(tars, tmp_path / "elsewhere")
    plan = pack_plan(moved, tmp_path / "three", shard_size="10kB")
    shutil.rmtree(home)  # a worker on another machine makes the catalogue there
    for task in plan.tasks:
        task.run()
    plan.commit()
    assert tree(tmp_path / "one") == tree(tmp_path / "two") == tree(tmp_path / "three")


@pytest.mark.parametrize("what", ["part-*.tar", "part-{0..1}.tar", "*", "part-?.tar"])
def test_a_folder_and_the_files_in_it(tars: Path, tmp_path: Path, what: str) -> None:
    if what == "*":
        (tars / "README.md").unlink()
    pack(f"{tars}/{what}", tmp_path / "out", workers=0)
    assert samples(tmp_path / "out").keys() == {f"a/{i:03d}" for i in range(2 * COUNT)}


def test_files_of_several_folders(tmp_path: Path) -> None:
    for number, folder in enumerate(("a", "b")):
        (tmp_path / "in" / folder).mkdir(parents=True)
        (tmp_path / "in" / folder / "x.tar").write_bytes(tar_bytes(members(number * 5, 5)))
    pack(f"{tmp_path}/in/{{a,b}}/x.tar", tmp_path / "out", workers=0)
    assert len(samples(tmp_path / "out")) == 10
    pack(f"{tmp_path}/in/**/*.tar", tmp_path / "again", workers=0)
    assert samples(tmp_path / "again") == samples(tmp_path / "out")


def test_a_bucket(s3: S3Place, tars: Path, tmp_path: Path) -> None:
    for path in tars.iterdir():
        s3.plant(f"in/{path.name}", path.read_bytes())
    pack(tars, tmp_path / "local", workers=0)
    for number, what in enumerate(("in/", "in/part-*.tar")):
        out = tmp_path / str(number)
        pack(s3.url(what), out, storage=ss.StorageOptions(source=s3.options), workers=2)
        assert tree(out) == tree(tmp_path / "local")


def test_samples_that_are_packed_before_are_in_no_second_pass(tars: Path, tmp_path: Path) -> None:
    report = run_pack(tars, tmp_path / "out", PackOptions(), workers=0)
    assert not any("only be read in order" in note for note in report.notes)
    assert run_pack(tars, tmp_path / "out", PackOptions(), workers=0).complete


# ---------------------------------------------------------------------------------------------------------- the index


def test_the_index_is_the_first_part_of_a_run_and_is_kept(
    tars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    seen: list[ProgressEvent] = []
    monkeypatch.setattr(scanning, "_PROBE_S", 0.0)

    def killed(event: ProgressEvent) -> None:
        seen.append(event)
        if event.phase == "index" and event.detail["objects"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_pack(tars, tmp_path / "out", PackOptions(), workers=0, progress=killed)
    assert (seen[-1].phase, seen[-1].total, seen[-1].unit) == (
        "index",
        sum(path.stat().st_size for path in tars.glob("*.tar")),
        "bytes",
    )
    seen.clear()
    run_pack(tars, tmp_path / "out", PackOptions(), workers=0, progress=seen.append)
    assert {event.detail["total_objects"] for event in seen if event.phase == "index"} == {1}
    assert list((home / "shardstream" / CATALOGUES).iterdir())
    seen.clear()
    assert len(ss.Reader(tars)) == 2 * COUNT
    run_pack(tars, tmp_path / "other", PackOptions(), workers=0, progress=seen.append)
    assert not [event for event in seen if event.phase == "index"]


def test_indexing_for_a_pack_has_no_limit_of_time(tars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "_PROBE_S", 0.0)
    clock = iter(range(0, 10_000_000, 1000))
    monkeypatch.setattr(scanning.time, "monotonic", lambda: float(next(clock)))
    source = open_source(tars)
    assert len(source) == 2 * COUNT


def test_what_is_sent_to_workers_is_small(tars: Path, tmp_path: Path) -> None:
    import pickle

    source = open_source(tars)
    part = source.part(np.arange(3))
    assert len(pickle.dumps(part)) < 2000
    assert [item.key for item in pickle.loads(pickle.dumps(part))] == ["a/000", "a/001", "a/002"]


def test_an_object_that_is_replaced_meanwhile_is_noticed(tars: Path, tmp_path: Path) -> None:
    plan = pack_plan(tars, tmp_path / "out")
    (tars / "part-0.tar").write_bytes(tar_bytes(members(0, COUNT - 1)))
    with pytest.raises(ss.errors.ShardStreamError, match=r"written again|changed"):
        plan.tasks[0].run()


# ---------------------------------------------------------------------------------------------- keys, fields, classes


def test_keys(tars: Path, tmp_path: Path) -> None:
    pack(tars, tmp_path / "stem", key="stem", workers=0)
    assert "007" in samples(tmp_path / "stem")
    pack(tars, tmp_path / "line", key="line", workers=0)
    assert f"{2 * COUNT:010d}" in samples(tmp_path / "line")
    with pytest.raises(UsageError, match="nor a field") as caught:
        pack(tars, tmp_path / "none", key="clss")
    assert "did you mean 'cls'?" in str(caught.value)


def test_keys_and_names_of_classes_that_stand_in_fields(tmp_path: Path) -> None:
    texts = [("b7", "wolf"), ("b8", "ape"), ("b9", "wolf"), (None, "ape"), ("c1", None), ("/c", "ape")]
    files = {f"{i}.jpg": jpeg(i) for i in range(len(texts))}
    files |= {f"{i}.id": text.encode() for i, (text, _) in enumerate(texts) if text is not None}
    files |= {f"{i}.kind": text.encode() for i, (_, text) in enumerate(texts) if text is not None}
    source = tmp_path / "a.tar"
    source.write_bytes(tar_bytes(dict(sorted(files.items()))))
    options: dict[str, Any] = {"key": "id", "labels": "name", "fields": {"jpg": "jpg", "cls": "kind"}}
    manifest = pack(source, tmp_path / "out", workers=0, **options)
    assert manifest.classes == ("ape", "wolf")
    assert samples(tmp_path / "out") == {
        "b7": {"jpg": jpeg(0), "cls": 1},
        "b8": {"jpg": jpeg(1), "cls": 0},
        "b9": {"jpg": jpeg(2), "cls": 1},
    }
    reasons = [json.loads(line)["reason"] for line in (tmp_path / "out/rejects.jsonl").read_text().splitlines()]
    assert len(reasons) == 3
    assert "a key cannot begin" in reasons.pop()
    assert reasons == ["it has no key", "it has no label"]
    other = pack(source, tmp_path / "given", workers=0, classes=["wolf", "dog", "ape"], **options)
    assert other.classes == ("wolf", "dog", "ape")
    assert samples(tmp_path / "given")["b8"]["cls"] == 2
    with pytest.raises(DuplicateKeyError, match="sample 1 and sample 3"):
        pack(source, tmp_path / "same", workers=0, key="kind")
    with pytest.raises(UsageError, match="needs a label"):
        pack(source, tmp_path / "none", workers=0, labels="name")


def test_equal_keys_are_refused_or_numbered(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.tar").write_bytes(tar_bytes(members(0, 2)))
    with pytest.raises(DuplicateKeyError, match=r"a\.tar#0 and b\.tar#0"):
        pack(f"{tmp_path}/*.tar", tmp_path / "out", workers=0)
    report = run_pack(f"{tmp_path}/*.tar", tmp_path / "out", PackOptions(key="auto"), workers=0)
    assert samples(tmp_path / "out").keys() == {"a/000", "a/001", "a/000-2", "a/001-2"}
    assert any("numbered" in note for note in report.notes)


def test_fields_are_chosen_and_renamed(tars: Path, tmp_path: Path) -> None:
    given = {"image": "jpg", "label": "cls:float32", "caption": "txt", "again": "cls"}
    pack(tars, tmp_path / "out", fields=given, workers=0, images=ss.ImageOptions(jpeg="keep"))
    found = samples(tmp_path / "out")
    assert types(tmp_path / "out") == {"again": "int64", "caption": "str", "image": "jpg", "label": "float32"}
    assert found["a/007"] == {"image": jpeg(7), "label": 1.0, "caption": b"text 7", "again": 1}
    with pytest.raises(FieldError, match=r"no field 'jpq'[\s\S]*did you mean 'jpg'"):
        pack(tars, tmp_path / "none", fields={"image": "jpq"})
    with pytest.raises(UsageError, match="no paths of files"):
        pack(tars, tmp_path / "none", fields={"image": "jpg:file"})


def test_text_becomes_numbers_where_that_is_asked(tmp_path: Path) -> None:
    data = {"a.n": b"12", "b.n": b"x"}
    (tmp_path / "a.tar").write_bytes(tar_bytes(data))
    pack(tmp_path / "a.tar", tmp_path / "text", fields={"n": "n:str"}, workers=0)
    (tmp_path / "b.tar").write_bytes(tar_bytes({"a.txt": b"12", "b.txt": b"x"}))
    pack(tmp_path / "b.tar", tmp_path / "out", fields={"n": "txt:int"}, workers=0)
    assert samples(tmp_path / "out") == {"a": {"n": 12}}
    (line,) = rejects(tmp_path / "out")
    assert (line["line"], line["path"]) == (2, "b.tar/b")


def test_a_type_alone_is_that_of_the_field(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_bytes({"a.tokens": np.arange(4, dtype="<u2").tobytes()}))
    pack(tmp_path / "a.tar", tmp_path / "out", fields={"tokens": "values:uint16"}, workers=0)
    (sample,) = ss.Reader(tmp_path / "out")
    assert sample["tokens"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("unknown", ["error", "reject"])
def test_labels_that_are_names(tmp_path: Path, unknown: Any) -> None:
    data = {f"{i}.cls": label for i, label in enumerate((b"dog\n", b"cat", b"1", b"cow"))}
    (tmp_path / "a.tar").write_bytes(tar_bytes(data))
    given = {"classes": ["cat", "dog"], "reading": ss.SourceOptions(unknown=unknown), "workers": 0}
    if unknown == "error":
        with pytest.raises(UsageError, match="'cow'"):
            pack(tmp_path / "a.tar", tmp_path / "out", **given)
        return
    manifest = pack(tmp_path / "a.tar", tmp_path / "out", **given)
    assert {key: sample["cls"] for key, sample in samples(tmp_path / "out").items()} == {"0": 1, "1": 0, "2": 1}
    assert manifest.classes == ("cat", "dog")
    (line,) = rejects(tmp_path / "out")
    assert "cow" in line["reason"]


def test_a_transform_gets_what_is_stored(tars: Path, tmp_path: Path) -> None:
    pack(tars, tmp_path / "out", transform=_shout, workers=0)
    assert samples(tmp_path / "out")["a/003"]["txt"] == b"TEXT 3"


def _shout(sample: dict[str, Any]) -> dict[str, Any]:
    return {"txt": sample["txt"].upper(), "cls": sample["cls"] + 1}


def test_pictures_are_told_by_names_where_some_are_none(tmp_path: Path) -> None:
    data = {f"{i:02d}.{name}": jpeg(i) for i in range(20) for name in ("jpg", "image", "photo")}
    data |= {"03.jpg": b"no picture", "04.image": b"no picture"} | {f"{i:02d}.photo": b"raw" for i in range(10)}
    (tmp_path / "a.tar").write_bytes(tar_bytes(data))
    pack(tmp_path / "a.tar", tmp_path / "out", workers=0)
    assert stored(tmp_path / "out")[1] == {"jpg": "jpg", "image": "image", "photo": "bytes"}
    assert sorted(line["path"] for line in rejects(tmp_path / "out")) == ["a.tar/03", "a.tar/04"]


# -------------------------------------------------------------------------------------------------------------- damage


def test_a_damaged_tar_is_one_reject_and_its_whole_samples_are_packed(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.tar").write_bytes(tar_bytes({f"{number}{i}.jpg": jpeg(i) for i in range(9)}))
    whole = (tmp_path / "1.tar").read_bytes()
    (tmp_path / "1.tar").write_bytes(whole[: 1536 * 4 + 700])
    (tmp_path / "2.tar").write_bytes(b"no tar file at all" * 100)
    for out in ("one", "two"):  # the second finds the catalogue
        report = run_pack(f"{tmp_path}/*.tar", tmp_path / out, PackOptions(), workers=0)
        assert set(samples(tmp_path / out)) == {f"0{i}" for i in range(9)} | {"10", "11", "12", "13"}
        first, second = rejects(tmp_path / out)
        assert (report.rejects, first["path"], second["path"]) == (2, "1.tar", "2.tar")
        assert f"offset {1536 * 4}" in first["reason"]
        assert "700 bytes" in first["reason"]
        assert first["line"] == 14
    (tmp_path / "0.tar").write_bytes(tar_bytes({"new.jpg": jpeg(3)}))  # the others are known from before
    run_pack(f"{tmp_path}/*.tar", tmp_path / "three", PackOptions(), workers=0)
    assert [line["path"] for line in rejects(tmp_path / "three")] == ["1.tar", "2.tar"]


def test_who_streams_what_was_packed_in_spite_of_damage_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = tar_bytes(members(0, 4))
    (tmp_path / "a.tar").write_bytes(whole[: len(whole) // 2])
    pack(tmp_path / "a.tar", tmp_path / "out", workers=0)
    caplog.clear()
    ss.Reader(tmp_path / "a.tar")
    assert "a.tar" in caplog.text


def test_nothing_that_can_be_packed(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"no tar file at all" * 100)
    with pytest.raises(FormatError, match=r"no sample in any object[\s\S]*a\.tar: .*offset 0"):
        pack(tmp_path / "a.tar", tmp_path / "out", workers=0)


# ------------------------------------------------------------------------------------------------------------- folders


@pytest.mark.parametrize(
    ("files", "hint"),
    [
        (("a.parquet", "b.parquet"), "name the files: {}/*.parquet"),
        (("x/a.arrow", "x/b.arrow"), r"name the files: {}/**/*.arrow"),
        (("a.tar.gz", "b.tar.gz", "notes.txt"), "name the files: {}/*.tar.gz"),
        (("data/0.lance", "data/1.lance"), "--source-format"),
        (("a.h5",), "--source-format"),
    ],
)
def test_containers_are_never_packed_as_files(tmp_path: Path, files: tuple[str, ...], hint: str) -> None:
    for name in files:
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(b"x" * 100)
    with pytest.raises(SourceError, match="many samples") as caught:
        pack(tmp_path / "in", tmp_path / "out", workers=0)
    assert hint.format(tmp_path / "in") in str(caught.value)
    assert files[0] in str(caught.value)
    with pytest.raises(SourceError, match="many samples"):
        pack(f"{tmp_path}/in/**", tmp_path / "out", workers=0)


def test_containers_behind_many_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "_LOOKED_AT", 3)
    (tmp_path / "in").mkdir()
    for i in range(20):
        (tmp_path / "in" / f"{i}.txt").write_text("x")
    (tmp_path / "in" / "z.zip").write_bytes(b"x")
    with pytest.raises(SourceError, match=r"many samples[\s\S]*z\.zip"):
        pack(tmp_path / "in", tmp_path / "out", workers=0)


def test_a_folder_of_pictures_is_looked_at_and_not_listed_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos(tmp_path / "in", 60)
    (tmp_path / "in/c1/set.zip").write_bytes(b"x")
    seen = []
    entries_of = look.entries_of
    monkeypatch.setattr(look, "_LOOKED_AT", 10)
    monkeypatch.setattr(look, "_OF_ONE", 5)
    monkeypatch.setattr(look, "entries_of", lambda folder: (seen.append(one) or one for one in entries_of(folder)))
    monkeypatch.setattr(foreign, "find_or_make", None)
    pack(tmp_path / "in", tmp_path / "out", workers=0)
    assert len(samples(tmp_path / "out")) == 60
    assert len(seen) < 25
    assert [line["path"] for line in rejects(tmp_path / "out")] == ["c1/set.zip"]


def test_arrays_in_folders_and_patterns_are_values(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for i in range(3):
        np.save(tmp_path / "in" / f"{i}.npy", np.full((2, 2), i))
    for number, what in enumerate(("in", "in/*.npy")):
        pack(tmp_path / what, tmp_path / str(number), workers=0)
        assert len(samples(tmp_path / str(number))) == 3
    pack(tmp_path / "in/1.npy", tmp_path / "rows", workers=0)
    assert [row["1"].tolist() for row in ss.Reader(tmp_path / "rows")] == [[1, 1], [1, 1]]


def test_several_splits_are_never_mixed(tmp_path: Path) -> None:
    for name in ("train-0", "train-1", "test-0"):
        (tmp_path / f"{name}.tar").write_bytes(tar_bytes(members(0, 2)))
    with pytest.raises(UsageError, match=r"several splits here[\s\S]*train\*\.tar"):
        pack(tmp_path, tmp_path.parent / "out", workers=0)


def test_a_data_set_of_ours_is_for_repack(tars: Path, tmp_path: Path) -> None:
    pack(tars, tmp_path / "ours", workers=0)
    with pytest.raises(SourceError, match="packed data set"):
        pack(tmp_path / "ours", tmp_path / "out")


def test_a_destination_inside_of_what_is_packed_is_refused(tars: Path) -> None:
    with pytest.raises(UsageError):
        pack(tars, tars / "out", workers=0)


# ------------------------------------------------------------------------------------------------- formats and options


def test_the_format_and_its_options_can_be_named(tmp_path: Path) -> None:
    split = {f"{i}.jpg": jpeg(i) for i in range(3)} | {f"{i}.txt": b"x" for i in range(3)}
    (tmp_path / "in.tar").write_bytes(tar_bytes(split))
    with pytest.raises(FormatError, match=r"members '0\.jpg'[\s\S]*group=key"):
        pack(tmp_path / "in.tar", tmp_path / "out", workers=0)
    reading = ss.SourceOptions(format="webdataset", options={"group": "key"})
    pack(tmp_path / "in.tar", tmp_path / "out", reading=reading, images=ss.ImageOptions(jpeg="keep"), workers=0)
    assert samples(tmp_path / "out")["1"] == {"jpg": jpeg(1), "txt": b"x"}
    shutil.copy(tmp_path / "in.tar", tmp_path / "odd name")
    with pytest.raises(FormatError, match="nothing of format 'mds'"):
        pack(tmp_path / "in.tar", tmp_path / "none", reading=ss.SourceOptions(format="mds"))
    with pytest.raises(UsageError, match="no source format 'webdatset'"):
        pack(tmp_path / "in.tar", tmp_path / "none", reading=ss.SourceOptions(format="webdatset"))
    with pytest.raises(UsageError, match="for files"):
        pack([{"cls": 1}], tmp_path / "none", reading=ss.SourceOptions(format="mds"))


def test_labels_from_folders_of_a_zip(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for i in range(6):
            archive.writestr(f"{'cat' if i % 2 else 'dog'}/{i}.jpg", jpeg(i))
    out, reading = tmp_path / "out", ss.SourceOptions(options={"labels": "folder"})
    assert pack(tmp_path / "a.zip", out, reading=reading, workers=0).classes == ("cat", "dog")
    assert samples(out, ["cls"])["dog/0"] == {"cls": 1}


def test_what_is_not_there_or_of_no_format(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such tar file"):
        pack(tmp_path / "none.tar", tmp_path / "out")
    with pytest.raises(SourceError, match="no such file"):
        pack(tmp_path / "none.rec", tmp_path / "out")
    with pytest.raises(SourceError, match="no such"):
        pack(f"{tmp_path}/*.zip", tmp_path / "out")
    (tmp_path / "a.zip").write_bytes(b"nothing")
    with pytest.raises(SourceError, match="no format that is known"):
        pack(tmp_path / "a.zip", tmp_path / "out")
    with pytest.raises(UsageError, match="group='stem'"):
        pack(zipped(tmp_path / "zip"), tmp_path / "out", reading=ss.SourceOptions(group="stem"))


def test_compressed_files_are_packed_as_they_are_read(tmp_path: Path) -> None:
    pack(GOLDEN / "tfrecord/gzip", tmp_path / "out", workers=0)
    there = ss.Reader(GOLDEN / "tfrecord/gzip")
    assert {one["__key__"] for one in ss.Reader(tmp_path / "out")} == {one["__key__"] for one in there}


# -------------------------------------------------------------------------------------------------- the command line


def test_the_command_takes_them_with_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardstream.cli.packing._JSON_EVERY_S", 0.0)
    split = {f"{i}.jpg": jpeg(i) for i in range(3)} | {f"{i}.cls": b"%d" % i for i in range(3)}
    (tmp_path / "in.tar").write_bytes(tar_bytes(split))
    flags = ["--source-format", "webdataset", "--format-option", "group=key", "--field", "image=jpg", "--workers", "0"]
    done = CliRunner().invoke(app, ["pack", str(tmp_path / "in.tar"), str(tmp_path / "out"), *flags, "--json"])
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line.get("stage") for line in lines} >= {"index", "pack"}
    assert lines[-1]["fields"] == {"image": "jpg"}


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_one_file_of_arrays_in_a_folder_holds_many_samples(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "in").mkdir()
    values = np.arange(60, dtype=np.float32).reshape(20, 3)
    save = {"npy": np.save, "npz": np.savez}[suffix]
    save(tmp_path / f"in/x.{suffix}", **({"arr": values} if suffix == "npy" else {"x": values}))
    (tmp_path / "in/README.md").write_text("Vectors.")
    assert ss.pack(tmp_path / "in", tmp_path / "out", workers=0).samples == 20
    for number in range(2):
        save(tmp_path / f"in/y{number}.{suffix}", **({"arr": values} if suffix == "npy" else {"x": values}))
    (tmp_path / "in/README.md").unlink()
    assert ss.pack(tmp_path / "in", tmp_path / "several", workers=0).samples == 3
