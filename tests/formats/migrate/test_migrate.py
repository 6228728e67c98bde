"""``migrate``: facts of a data set, programs before and after that run, and what packing would gain."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import shardstream as ss
from shardstream.cli.app import app
from shardstream.errors import NotFoundError, StorageError, UsageError
from shardstream.formats.migrate import Gain, Migration, migrate
from shardstream.formats.migrate.facts import in_braces
from shardstream.testing import MemoryStore
from tests.diagnose.programs import batches, same_samples, seen, theirs
from tests.formats.catalog.every import SETS
from tests.formats.catalog.making import jpeg, tar, webdataset

NO_BEFORE = {"lmdb", "tar-of-tars", "megatron", "memmap", "yolo"}  # no program that everybody writes, of these sets


def told(url: Any, **options: Any) -> Migration:
    """Without a measurement, and for programs that start no processes."""
    return migrate(url, **{"seconds": 0, "workers": 0, "crop": 8, **options})


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", SETS)
def test_programs_of_every_format(name: str, tmp_path: Path) -> None:
    """The one with this library runs and gives all samples; the other one compiles."""
    made = SETS[name]
    expected = made.make(tmp_path)
    options = dict(made.options) or None
    found = told(tmp_path, reading=ss.SourceOptions(options=options, format=name if options else None))
    assert found.format == name
    assert found.before is None or compile(found.before, "before.py", "exec")
    assert (found.before is None) == (found.library is None) == (name in NO_BEFORE)
    if name in ("litdata", "arrow"):  # pixels of all modes, and pictures that are none
        return
    got = batches(found.after)
    assert sum(len(batch[0]) for batch in got) == found.samples
    if "images, labels" in found.after and expected and "cls" in expected[0]:
        labels = sorted(int(one) for batch in got for one in batch[1])
        assert labels == sorted(one["cls"] for one in expected)
        assert f"num_classes = {max(labels) + 1}" in found.after


def test_webdataset_gives_the_same_samples_before_and_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("webdataset")
    webdataset(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    for url in ("data", "data/part-{0..2}.tar"):
        found = told(url, batch_size=8)
        assert found.library == "webdataset"
        assert found.before is not None
        assert "part-{0..2}.tar" in found.before
        with theirs():
            before = seen(found.before)
        after = seen(found.after)
        assert len(after) == 72
        assert same_samples(before, after)


def test_names_of_tars_are_listed_where_they_do_not_count_up(tmp_path: Path) -> None:
    for name in ("a", "b", "x-007"):
        tar(tmp_path / f"{name}.tar", [f"{name}/{row}" for row in range(4)], jpg=jpeg, cls=lambda row: row)
    found = told(tmp_path)
    assert found.before is not None
    assert f'"{tmp_path}/x-007.tar",\n' in found.before
    one = told(tmp_path / "a.tar")
    assert one.before is not None
    assert f'urls = "{tmp_path}/a.tar"' in one.before
    assert f'    "{tmp_path}/a.tar",\n' in one.after
    with theirs():
        before = seen(found.before)
    assert same_samples(before, seen(found.after))


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (["a-08.tar", "a-09.tar", "a-10.tar"], "a-{08..10}.tar"),
        (["a8.tar.bz2", "a9.tar.bz2", "a10.tar.bz2"], "a{8..10}.tar.bz2"),
        (["x/1/a.tar", "x/2/a.tar"], "x/{1..2}/a.tar"),
        (["one.tar"], "one.tar"),
        (["a-1.tar", "a-3.tar"], None),
        (["a-1.tar", "b-2.tar"], None),
        (["a-1.tar", "a-02.tar"], None),
        (["1-1.tar", "2-2.tar"], None),
        (["{1.tar", "{2.tar"], None),
        (["a", "b"], None),
        ([], None),
    ],
)
def test_names_in_braces(names: list[str], pattern: str | None) -> None:
    assert in_braces(tuple(names)) == pattern


def test_text_without_pictures(tmp_path: Path) -> None:
    tar(tmp_path / "a.tar", [f"{row}" for row in range(6)], txt=lambda row: f"text {row}", json=lambda row: row)
    found = told(tmp_path)
    assert 'texts = batch["txt"]  # a list of 6' in found.after
    (batch,) = batches(found.after)
    assert sorted(batch[0]) == [f"text {row}" for row in range(6)]
    assert "torchvision" not in (found.before or "torchvision")


def test_names_from_data_stay_in_quotes(tmp_path: Path) -> None:
    """What a hostile name might do in a program: nothing."""
    folder = tmp_path / 'a"\n__import__("os").abort()\n"'
    tar(folder / "x.tar", [f"{row}" for row in range(3)], jpg=jpeg, cls=lambda row: row)
    found = told(folder)
    assert len(seen(found.after)) == 3
    assert compile(found.before or "", "before.py", "exec")


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("name", "line", "titles"),
    [
        ("list.tsv", "{}.jpg\t{}\n", ""),
        ("list.txt", "{}.jpg {}\n", ""),
        ("list.lst", "0\t{1}.0\t{0}.jpg\n", ""),
        ("list.csv", "{}.jpg,{}\n", "image,label\n"),
        ("names.csv", "{}.jpg,kind{}\n", "image,label\n"),
    ],
)
def test_a_list_of_files(tmp_path: Path, name: str, line: str, titles: str) -> None:
    for row in range(6):
        (tmp_path / f"{row}.jpg").write_bytes(jpeg(row))
    (tmp_path / name).write_text(titles + "".join(line.format(row, row % 3) for row in range(6)))
    found = told(tmp_path / name)
    assert (found.library, found.classes) == ("a Dataset of a list", 3)
    with theirs():
        before = seen(found.before or "")
    assert same_samples(before, seen(found.after))


def test_options_are_those_that_were_given(tmp_path: Path) -> None:
    webdataset(tmp_path, tars=1)
    found = told(tmp_path, reading=ss.SourceOptions(format="webdataset", options={"group": "key"}))
    assert '    reading=ss.SourceOptions(format="webdataset", options={"group": "key"}),\n' in found.after
    assert "--source-format webdataset --format-option group=key" in found.pack
    assert len(seen(found.after)) == 24


# ------------------------------------------------------------------------------------------------------- measurement


def test_what_packing_gains_is_measured_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    webdataset(tmp_path / "data")
    found = told(tmp_path / "data", seconds=0.5, batch_size=8)
    assert found.gain is not None, found.not_measured
    assert len(found.gain.in_place) == len(found.gain.packed) == 3
    assert 16 <= found.gain.samples <= 72
    assert found.gain.crop == 8
    assert found.gain.bytes > 1000
    assert min(found.gain.ratios) <= found.gain.ratio <= max(found.gain.ratios)
    assert not list((tmp_path / "temporary").iterdir())


def test_what_is_written_is_bounded_by_what_samples_have(tmp_path: Path) -> None:
    """A list says nothing of the sizes of its files."""
    for row in range(40):
        (tmp_path / f"{row}.jpg").write_bytes(jpeg(row) + bytes(20_000))
    (tmp_path / "list.tsv").write_text("".join(f"{row}.jpg\t{row % 3}\n" for row in range(40)))
    found = told(tmp_path / "list.tsv", seconds=0.5, batch_size=4, disk="300kB")
    assert found.gain is not None, found.not_measured
    assert found.gain.samples <= 15
    assert found.bytes is None


def test_whether_a_difference_is_sure() -> None:
    def measured(*pairs: tuple[float, float]) -> Gain:
        before, after = zip(*pairs, strict=True)
        return Gain(10, before, after, 10, 1.0, None, 0)

    assert measured((1, 2), (1, 1.5), (1, 3)).sure
    assert measured((1, 2), (1, 1.5), (1, 3)).ratio == 2
    assert measured((2, 1), (2, 1), (3, 2)).sure
    assert not measured((1, 2), (1, 0.9), (1, 3)).sure


def test_why_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    webdataset(tmp_path / "data", tars=1)
    assert told(tmp_path / "data").not_measured == "it was not asked for"
    assert "may be written" in told(tmp_path / "data", seconds=1, disk=1000).not_measured
    files = {path.name: path.read_bytes() for path in (tmp_path / "data").iterdir()}
    assert "not on this machine" in told(MemoryStore(files), seconds=1).not_measured
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10}))
    assert "has only 10 B left" in told(tmp_path / "data", seconds=1).not_measured


def test_a_part_that_cannot_be_packed_does_not_hide_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tar(tmp_path / "a.tar", [f"{row}" for row in range(8)], jpg=lambda row: b"\xff\xd8\xff\xe0 no picture", cls=str)
    found = told(tmp_path, seconds=0.5)
    assert found.gain is None
    assert "a.tar" in found.not_measured
    assert "ss.ShardDataset(" in found.after


@pytest.mark.parametrize("name", ["jpg", "photo.bin"])
def test_images_of_which_some_are_broken_stay_in_the_programs(tmp_path: Path, name: str) -> None:
    keys = [f"{row:03d}" for row in range(40)]
    tar(tmp_path / "a.tar", keys, **{name: lambda row: b"<html>" if row == 7 else jpeg(row), "txt": str})
    found = told(tmp_path, batch_size=8, seconds=0.5)
    assert found.gain is not None, found.not_measured
    assert found.before is None or "image" in found.before
    assert "RandomResizedCrop" in found.after
    assert sum(len(batch[0]) for batch in batches(found.after)) == 39


def test_a_reason_and_its_hint_are_lines_of_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gain(*_: Any, **__: Any) -> Any:
        raise StorageError("the disk is full", url="x", hint="free some space")

    monkeypatch.setattr("shardstream.formats.migrate.run.gain", gain)
    webdataset(tmp_path / "data", tars=1)
    result = CliRunner().invoke(app, ["migrate", str(tmp_path / "data")])
    assert "packing     not measured: the disk is full [url x]\n            hint: free some space\n" in result.stdout


# ---------------------------------------------------------------------------------------------------------- refusals


def test_refusals(tmp_path: Path) -> None:
    with ss.ShardWriter(tmp_path / "ours") as writer:
        writer.write({"__key__": "a", "cls": 1})
    with pytest.raises(UsageError, match="of ours already"):
        told(tmp_path / "ours")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFoundError):
        told(tmp_path / "empty")
    webdataset(tmp_path / "data", tars=1, samples=2)
    wrong: list[dict[str, Any]] = [{"seconds": -1}, {"seconds": float("nan")}, {"crop": 0}, {"batch_size": 0}]
    for options in [*wrong, {"disk": "much"}]:
        with pytest.raises(UsageError):
            told(tmp_path / "data", **options)


# ------------------------------------------------------------------------------------------------------- the command


def test_the_command_prints_programs_that_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    webdataset(tmp_path / "data", tars=2)
    arguments = ["migrate", str(tmp_path / "data"), "--no-bench", "--workers", "0", "--crop", "8"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    for line in (
        "format      WebDataset, 2 files, ",
        "samples     48\n",
        "classes     10\n",
        "packing     not measured",
    ):
        assert line in result.stdout
    head, _, after = result.stdout.partition("# ---- after\n")
    program, _, last = after.rpartition("next: ")
    assert "# ---- before, with webdataset\n\nimport webdataset as wds\n" in head
    assert last.strip() == f"shardstream pack {tmp_path / 'data'} DEST"
    assert len(seen(program)) == 48

    values = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert values["after"].strip() == program.strip()
    assert values["fields"][0]["name"] == "cls"
    assert CliRunner().invoke(app, ["migrate", str(tmp_path / "nothing")]).exit_code == 3


def test_the_command_prints_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    gain = Gain(600, (100.0, 110.0, 90.0), (150.0, 143.0, 180.0), 25_000_000, 2.5, 224, 2)
    fields: dict[str, Any] = {"url": "d", "format": "mds", "title": "MosaicML MDS", "samples": 9, "objects": 1}
    fields |= {"bytes": 9, "fields": (), "classes": None, "notes": ("Something\nwas left out.",), "not_measured": ""}
    fields |= {"library": None, "before": None, "after": "import shardstream", "pack": "shardstream pack d DEST"}
    for one, text in (
        (gain, "packing     1.50 times as fast (1.30 to 2.00 in 3 rounds)\n"),
        (Gain(600, (1.0,), (1.0,), 9, 1.0, None, 0), "packing     no difference that this machine shows: 1.00 times"),
    ):
        monkeypatch.setattr(
            "shardstream.formats.migrate.migrate", lambda *_, one=one, **__: Migration(gain=one, **fields)
        )
        result = CliRunner().invoke(app, ["migrate", "d"])
        assert result.exit_code == 0, result.output
        assert text in result.stdout
        assert "note        Something" in result.stdout
        assert "before" not in result.stdout
    assert np.isclose(gain.ratio, 1.5)
