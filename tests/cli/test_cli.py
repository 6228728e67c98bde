from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import shardstream
from shardstream import cli
from shardstream.cli.app import app
from shardstream.cli.report import duration, plural, size
from shardstream.cli.verbs import pack as pack_verb
from shardstream.cli.verbs import repack as repack_verb
from shardstream.extras import install_command
from shardstream.images.encode import encode
from shardstream.options import options_of
from shardstream.pack.execution import workers as workers_module
from shardstream.pack.writer import ShardWriter
from shardstream.shards.manifest import Manifest


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for i in range(12):
        (tmp_path / f"{i}.jpg").write_bytes(encode(np.full((8, 8, 3), 20 * i, np.uint8), "jpg"))
    path = tmp_path / "list.tsv"
    path.write_text("".join(f"{i}.jpg\t{i % 2}\n" for i in range(12)))
    return path


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    with ShardWriter(tmp_path / "set", shard_size="8kB", classes=["even", "odd"], meta={"by": "me"}) as writer:
        for i in range(10):
            writer.write({"__key__": f"{i}", "raw": bytes(1000), "cls": i % 2})
    return tmp_path / "set"


def test_info_of_a_set_whose_files_were_counted_as_none(source: Path, tmp_path: Path) -> None:
    run("pack", source, tmp_path / "out", "--workers", 0, "--jpeg", "addressable")
    head = tmp_path / "out/dataset.json"
    text = json.loads(head.read_text())
    text["fields"]["jpg"]["kinds"] = {"addressable": 0}
    del text["checksum"]
    head.write_text(json.dumps(text))
    result = run("info", tmp_path / "out")
    assert result.exit_code == 0, result.output


def test_pack_reports_and_says_what_next(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run("pack", source, out, "--workers", 0)
    assert result.exit_code == 0
    assert re.search(
        r"out: 12 samples in 1 shard, [\d.]+ kB in [\d.]+ s \([\d,]+ samples/s, [\d.]+ .B/s\)", result.stdout
    )
    assert result.stdout.splitlines()[-1] == f"next: shardstream info {out}"
    assert not result.stderr
    again = run("pack", source, out, "--workers", 0)
    assert again.exit_code == 0
    assert "already complete, nothing was written: 12 samples" in again.stdout


def test_pack_in_json(source: Path, tmp_path: Path) -> None:
    source.write_text(source.read_text() + "gone.jpg\t0\n")
    result = run("pack", source, tmp_path / "out", "--workers", 0, "--json")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 1
    found = json.loads(result.stdout)
    manifest = Manifest.load(tmp_path / "out")
    assert found["samples"] == 12
    assert found["rejects"] == 1
    assert found["rejects_url"] == str(tmp_path / "out" / "rejects.jsonl")
    assert found["fields"] == {"cls": "int64", "jpg": "jpg"}
    assert (found["plan"], found["fingerprint"], found["already_complete"]) == (
        manifest.plan,
        manifest.fingerprint,
        False,
    )


def test_pack_shows_rejects_and_notes(source: Path, tmp_path: Path) -> None:
    text = "path,cls,width\n" + "".join(f"{i}.jpg,0,1\n" for i in range(14))
    (tmp_path / "list.csv").write_text(text)
    result = run("pack", tmp_path / "list.csv", tmp_path / "out", "--workers", 0)
    assert result.exit_code == 0
    assert "2 samples could not be read, see" in result.stdout
    assert "line 14, 12.jpg: there is no such file" in result.stdout
    assert "note: Columns that are not packed: width." in result.stderr


OWN = {"context", "transport", "as_json", "quiet", "verbose", "log_level"}


@pytest.mark.parametrize(
    ("verb", "command", "python", "own"),
    [
        (shardstream.pack, pack_verb.pack, {"progress", "meta"}, {"dry_run"}),
        (shardstream.repack, repack_verb.repack, {"progress", "meta", "on"}, set()),
    ],
)
def test_every_option_is_a_flag_with_the_same_default(verb: Any, command: Any, python: set[str], own: set[str]) -> None:
    keywords = {
        name: one.default
        for name, one in inspect.signature(verb).parameters.items()
        if name not in {*verb.groups, *python, "flat"}
    }
    for table in verb.groups.values():
        plain = {one.name: one.default for one in dataclasses.fields(table)}
        keywords |= {
            said.was: plain[name]
            for name, said in options_of(table).items()
            if not said.verbs or verb.__name__ in said.verbs
        }
    flags = inspect.signature(command).parameters
    assert {name: flags[name].default for name in keywords} == keywords
    assert set(flags) - set(keywords) == OWN | own | {"meta"}


def test_repack_takes_a_file_of_rows(source: Path, tmp_path: Path) -> None:
    out, rows = tmp_path / "out", tmp_path / "rows"
    assert run("pack", source, out).exit_code == 0
    shardstream.find_rows(str(out), lambda sample: sample["cls"] == 1, fields=["cls"], workers=0, out=rows)
    result = run("repack", out, tmp_path / "again", "--where", rows, "--workers", 0)
    assert result.exit_code == 0, result.output
    assert {sample["cls"] for sample in shardstream.Reader(tmp_path / "again")} == {1}
    rows.write_text("k1")
    result = run("repack", out, tmp_path / "more", "--where", rows)
    assert result.exit_code != 0
    assert "not a file of rows" in result.stderr


def test_repack_and_a_transform_by_name(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_transform.py").write_text("def odd(sample):\n    return sample if sample['cls'] else None\n")
    assert run("pack", source, tmp_path / "out", "--transform", "my_transform:odd", "--meta", '{"a": 1}').exit_code == 0
    result = run("repack", "out", "again", "--format", "record", "--field", "cls", "--take", 4, "--workers", 0)
    assert result.exit_code == 0, result.output
    assert "again: 4 samples in 1 shard" in result.stdout
    manifest = Manifest.load(tmp_path / "again")
    assert (manifest.framing, manifest.meta, list(manifest.fields)) == ("record", {"a": 1}, ["cls"])
    for wrong, message in (("odd", "wants MODULE:NAME"), ("nowhere:odd", "nowhere"), ("my_transform:even", "even")):
        refused = run("pack", source, tmp_path / "other", "--transform", wrong)
        assert (refused.exit_code, message in refused.stderr) == (2, True)


def test_fields_and_groups(source: Path, tmp_path: Path) -> None:
    found = run("pack", source, tmp_path / "out", "--field", "jpg=0", "--field", "y=1:int8", "--key", "line", "--json")
    assert json.loads(found.stdout.splitlines()[-1])["fields"] == {"jpg": "jpg", "y": "int8"}
    for wrong, message in (("jpg", "NAME=COLUMN"), ("jpg=nowhere", "nowhere"), ("a b=0", "field name")):
        refused = run("pack", source, tmp_path / "other", "--field", wrong)
        assert (refused.exit_code, message in refused.stderr) == (2, True)
    assert "given twice" in run("pack", source, tmp_path / "other", "--field", "a=0", "--field", "a=1").stderr
    for i in range(12):
        (tmp_path / f"{i}.txt").write_text(f"caption {i}")
    found = run("pack", tmp_path / "*.[jt][px][gt]", tmp_path / "grouped", "--group", "stem", "--json")
    told = json.loads(found.stdout.splitlines()[-1])
    assert (told["samples"], told["fields"]) == (12, {"jpg": "jpg", "txt": "str"})


def test_json_tells_of_progress_now_and_then(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardstream.cli.packing._JSON_EVERY_S", 0.0)
    monkeypatch.setattr(workers_module, "TICK_S", 0.0)
    found = run("pack", source, tmp_path / "out", "--workers", 0, "--json")
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    assert [line["event"] for line in lines] == ["progress"] * (len(lines) - 1) + ["done"]
    assert lines[-2]["samples"] == lines[-2]["total"] == 12
    assert lines[-2]["seconds_left"] == 0
    assert lines[-2]["bottleneck"] in ("reading", "preparing", "writing")
    assert {line["stage"] for line in lines[:-1]} == {"plan", "pack"}


def test_every_flag_arrives(source: Path, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("even\nodd\n")
    flags = ["--format", "record", "--shard-size", "3000", "--seed", "7", "--no-shuffle", "--jpeg", "keep", "--key"]
    flags += ["line", "--labels", "int", "--classes", str(tmp_path / "names.txt"), "--meta", '{"a": 1}']
    flags += ["--no-checksums", "--workers", "2", "--zstd", "jpg"]
    result = run("pack", source, tmp_path / "out", *flags)
    assert result.exit_code == 0, result.output
    manifest = Manifest.load(tmp_path / "out")
    assert (manifest.framing, manifest.classes, manifest.meta, manifest.seed) == (
        "record",
        ("even", "odd"),
        {"a": 1},
        None,
    )
    assert manifest.shards > 1
    assert manifest.codecs == {"jpg": "zstd"}
    refused = run("pack", source, tmp_path / "out", "--workers", 0)
    assert refused.exit_code == 2
    assert run("pack", source, tmp_path / "out", "--workers", 0, "--overwrite").exit_code == 0
    assert Manifest.load(tmp_path / "out").framing == "tar"


def test_classes_of_another_data_set(source: Path, tmp_path: Path) -> None:
    assert run("pack", source, tmp_path / "train", "--labels", "name").exit_code == 0
    source.write_text("1.jpg\t1\n2.jpg\tcow\n")
    flags = ["--classes", tmp_path / "train", "--labels", "name"]
    refused = run("pack", source, tmp_path / "val", *flags)
    assert refused.exit_code == 2
    assert refused.stderr.splitlines()[:3] == [
        "error: the label 'cow' is not in the list of classes",
        f"  url: {source}",
        "  line: 2",
    ]
    assert run("pack", source, tmp_path / "val", *flags, "--unknown", "reject").exit_code == 0
    found = Manifest.load(tmp_path / "val")
    assert (found.samples, found.classes) == (1, Manifest.load(tmp_path / "train").classes)
    shown = run("info", tmp_path / "val").stdout
    assert "all of them: ds.classes, or `classes` in dataset.json" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["pack", "{list}", "{out}", "--shard-size", "big"], 2, "--shard-size must"),
        (["pack", "{list}", "{out}", "--format", "zip"], 2, "zip"),
        (["pack", "{list}", "{out}", "--workers", "-1"], 2, "--workers"),
        (["pack", "{list}", "{out}", "--meta", "{"], 2, "--meta"),
        (["pack", "{list}", "{out}", "--meta", "3"], 2, "--meta"),
        (["pack", "{list}", "{out}", "--classes", "nowhere"], 2, "--classes"),
        (["pack", "{list}"], 2, "DEST"),
        (["pack", "{out}", "{out}"], 3, "no such list or folder"),
        (["info", "{out}"], 3, "no data set"),
        (["verify", "{out}"], 3, "no data set"),
        (["nonsense"], 2, "nonsense"),
    ],
    ids=str,
)
def test_errors_are_one_block_and_a_code(
    source: Path, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    result = run(*(text.replace("{list}", str(source)).replace("{out}", str(tmp_path / "out")) for text in arguments))
    assert result.exit_code == code
    assert message in result.stderr
    assert not result.stdout
    assert "Traceback" not in result.stderr


def test_an_error_says_what_where_and_what_to_do(source: Path, tmp_path: Path) -> None:
    source.write_text("1.jpg\tcat\n2.jpg\tdog\n")
    result = run("pack", source, tmp_path / "out")
    assert result.exit_code == 3
    assert result.stderr.splitlines() == [
        "error: the label 'cat' is not a 64-bit integer",
        f"  url: {source}",
        "  line: 1",
        "  hint: --labels name numbers names in sorting order and keeps them as the classes",
        "  see: shardstream errors source",
    ]
    assert "Traceback" in run("--debug", "pack", source, tmp_path / "out").stderr


def test_info(packed: Path) -> None:
    result = run("info", packed)
    assert result.exit_code == 0
    assert not result.stderr
    assert "samples     10" in result.stdout
    assert "classes     2: even, odd" in result.stdout
    assert 'meta        {"by": "me"}' in result.stdout
    assert re.search(r"raw +bytes +plain +1\.0 kB +all", result.stdout)
    assert result.stdout.splitlines()[-1] == f"next: shardstream verify {packed}"
    assert all(len(line) <= 80 for line in result.stdout.splitlines() if str(packed) not in line)


def test_info_in_json(packed: Path) -> None:
    found = json.loads(run("info", packed, "--json").stdout)
    assert found["samples"] == 10
    raw = {"name": "raw", "type": "bytes", "codec": "none", "mean_bytes": 1000.0, "present": 1.0, "kinds": {}}
    assert found["fields"][1] == raw


@pytest.mark.parametrize("packed", [True, False])
def test_info_lists_the_splits_of_a_directory(source: Path, tmp_path: Path, *, packed: bool) -> None:
    above = tmp_path / "above"
    for number, split in enumerate(("train", "val"), 1):
        (above / split / "cat").mkdir(parents=True)
        for i in range(number):
            (above / split / "cat" / f"{i}.jpg").write_bytes((source.parent / f"{i}.jpg").read_bytes())
        if packed:
            shardstream.pack(above / split, tmp_path / "packed" / split, workers=0)
    where = tmp_path / "packed" if packed else above
    result = run("info", f"{where}/")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == f"data set    {where}/: 2 splits"
    assert [line.split()[:2] for line in lines[1:3]] == [["train", "1"], ["val", "2"]]
    assert lines[3] == f"next: shardstream info {where}/train"
    found = json.loads(run("info", where, "--json").stdout)["splits"]
    assert {name: one["samples"] for name, one in found.items()} == {"train": 1, "val": 2}


def test_pack_says_which_image_formats_there_are(source: Path, tmp_path: Path) -> None:
    (tmp_path / "list.tsv").write_text("0.jpg\t0\n1.jpg\t1\n")
    assert "images: " not in run("pack", source, tmp_path / "one").stdout
    (tmp_path / "x.png").write_bytes(encode(np.zeros((8, 8, 3), np.uint8), "png"))
    (tmp_path / "list.tsv").write_text("x.png\t0\n1.jpg\t1\n")
    said = run("pack", source, tmp_path / "two").stdout
    assert "images: jpg, png, a field each; the field image is the first of these that a sample has" in said


def test_verify(packed: Path) -> None:
    result = run("verify", packed)
    assert result.exit_code == 0
    assert ": sound (" in result.stdout
    found = json.loads(run("verify", packed, "--json").stdout)
    assert found["ok"] is True
    assert found["problems"] == []


def test_verify_finds_and_exits_with_1(packed: Path) -> None:
    path = packed / Manifest.load(packed).shard_name(0)
    data = bytearray(path.read_bytes())
    data[600] ^= 1  # in the first value, or its number
    path.write_bytes(data)
    result = run("verify", packed)
    assert result.exit_code == 1
    assert f"{path.name}: the object is not the one that was written" in result.stdout
    assert "problem" in result.stdout
    assert "restore" in result.stdout.splitlines()[-1]
    found = run("verify", packed, "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout)["problems"][0]["check"] == "checksum"


def test_verify_seals_what_was_edited_by_hand(packed: Path) -> None:
    head = packed / "dataset.json"
    head.write_text(head.read_text().replace('"even"', '"straight"'))
    result = run("verify", packed)
    assert result.exit_code == 3
    assert "dataset.json differs from what was written" in result.stderr
    assert f"shardstream verify --reseal {packed}" in result.stderr
    result = run("verify", packed, "--reseal")
    assert result.exit_code == 0
    assert result.stdout.startswith("dataset.json: checksum written anew\n")
    assert "sound" in result.stdout
    assert json.loads(run("verify", packed, "--reseal", "--json").stdout)["resealed"] == []
    assert Manifest.load(packed).classes == ("straight", "odd")


def test_many_problems_are_cut_short(tmp_path: Path) -> None:
    with ShardWriter(tmp_path) as writer:
        for i in range(50):
            writer.write({"__key__": f"{i}", "raw": b"\1" * 100})
    path = tmp_path / Manifest.load(tmp_path).shard_name(0)
    path.write_bytes(path.read_bytes().replace(b"\1" * 100, b"\2" * 100))
    lines = run("verify", tmp_path).stdout.splitlines()
    assert len(lines) == 23
    assert lines[20] == "... and 31 more; --json lists all"


def test_version_help_and_codes() -> None:
    assert run("--version").stdout == f"shardstream {shardstream.__version__}\n"
    help_text = run("--help").stdout
    assert "Exit codes" in help_text
    assert "--install-completion" in help_text
    assert all(verb in help_text for verb in ("pack", "info", "verify"))
    pack_help = run("pack", "--help").stdout
    assert "--shard-size" in pack_help
    assert "(default: one a core)" in " ".join(pack_help.replace("│", " ").split())


def test_without_typer_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    assert install_command("pack") in capsys.readouterr().err


def test_without_typer_the_package_run_as_a_program_says_so(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ImportError('not installed')")
    program = [sys.executable, "-m", "shardstream", "--version"]
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(program, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": paths}, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "error: the package 'typer' is needed for the command shardstream, but cannot be imported (not installed)",
        f"  hint: {install_command('pack')}",
    ]


def test_the_command_in_a_pipe(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-W", "error", "-m", "shardstream"]
    done = subprocess.run([*command, "pack", source, out], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert done.stdout.splitlines()[1:2] == ["jpg: 0 addressable; kept as they are: 12 too small"]
    assert done.stdout.splitlines()[2] == "samples: most are of 512 B to 1.0 kB"
    assert len(done.stdout.splitlines()) == 4


def test_starting_imports_no_torch() -> None:
    heavy = ("torch", "PIL", "simplejpeg", "numba")
    program = f"import sys, shardstream.cli.app; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"


def test_a_complete_data_set_is_no_progress(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shardstream.cli.progress._LINE_EVERY_S", 0.0)
    assert "packing" in run("pack", source, tmp_path / "out", "--workers", 0).stderr
    again = run("pack", source, tmp_path / "out", "--workers", 0)
    assert "already complete" in again.stdout
    assert not again.stderr


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (size(0), "0 B"),
        (size(999), "999 B"),
        (size(1000), "1.0 kB"),
        (size(999_960), "1.0 MB"),
        (size(3.5e15), "3500.0 TB"),
        (plural(1, "shard"), "1 shard"),
        (plural(6000, "sample"), "6,000 samples"),
        (duration(0.71), "0.7 s"),
        (duration(59), "59 s"),
        (duration(200), "3 min 20 s"),
        (duration(7500), "2 h 5 min"),
    ],
)
def test_numbers_for_people(text: str, value: str) -> None:
    assert text == value
