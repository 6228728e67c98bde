"""Every file that is written outside of a dataset: planted links are not written through, and a FIFO ends nothing."""

from __future__ import annotations

import ast
import os
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

import shardstream as ss
from shardstream.cli.verbs.bench_sweep import plot_sweep
from shardstream.cli.verbs.view_page import show_page
from shardstream.diagnose import SweepReport
from shardstream.diagnose.sweep import Trial
from shardstream.errors import ShardStreamError, StorageError, UsageError
from shardstream.storage import open_store
from shardstream.storage.local.output_files import check_regular

from ..stream.making import numbered, write_dataset

MINE = "what was there before"
PACKAGE = Path(ss.__file__).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("numbers"), numbered([20]))


def stats(folder: Path, file: Path) -> None:
    list(ss.Loader(ss.ShardDataset(folder, batch_size=5), num_workers=0, stats_file=file, stats_every=0))


def traced(folder: Path, file: Path) -> None:
    with ss.trace(file):
        list(ss.Loader(ss.ShardDataset(folder, batch_size=5), num_workers=0))


def plotted(folder: Path, file: Path) -> None:
    check_regular(file)  # as `bench` does before it measures
    trial = Trial(workers=0, batch_size=1, prefetch_factor=None, samples_per_second=1.0, limit="")
    plot_sweep(SweepReport(str(folder), 1, None, 1, (), (trial,), trial, "", ()), file)


WRITERS: dict[str, Callable[[Path, Path], object]] = {
    "stats.json": stats,
    "stats.prom": stats,
    "trace.json": traced,
    "sweep.svg": plotted,
    "page.html": lambda folder, file: ss.view(folder, samples=2).save(file),
    "shown.html": lambda folder, file: show_page("<p>", "a page", file, None),
    "few.rows": lambda folder, file: ss.find_rows(ss.ShardDataset(folder), bool, workers=0).save(file),
    "found.rows": lambda folder, file: ss.find_rows(ss.ShardDataset(folder), bool, workers=0, out=file),
}
of_each = pytest.mark.parametrize("name", WRITERS)


@of_each
def test_a_planted_link_is_not_written_through(folder: Path, tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text(MINE)
    (tmp_path / name).symlink_to(victim)
    if name == "found.rows":  # it is added to, so another file may not take its place
        with pytest.raises(UsageError, match=rf"a symbolic link is not followed.*\[url {tmp_path}/{name}\]"):
            WRITERS[name](folder, tmp_path / name)
    else:
        WRITERS[name](folder, tmp_path / name)
        assert not (tmp_path / name).is_symlink()
        assert (tmp_path / name).stat().st_size > 2
    assert victim.read_text() == MINE
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "victim"])


@of_each
@pytest.mark.parametrize("linked", [False, True])
def test_a_fifo_or_a_device_is_refused(folder: Path, tmp_path: Path, name: str, linked: bool) -> None:
    if linked:
        (tmp_path / name).symlink_to("/dev/null")
    else:
        os.mkfifo(tmp_path / name)
    kind = "device" if linked else "FIFO"
    with pytest.raises(UsageError, match=rf"a {kind} cannot hold what is written here \[url {tmp_path}/{name}\]"):
        WRITERS[name](folder, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@of_each
def test_whoever_guesses_the_name_of_the_unfinished_file_gains_nothing(
    folder: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "found.rows":
        return
    victim = tmp_path / "victim"
    victim.write_text(MINE)
    monkeypatch.setattr(secrets, "token_hex", lambda _: "guessed")
    (tmp_path / ".shardstream-guessed").symlink_to(victim)
    if name.startswith("stats"):
        WRITERS[name](folder, tmp_path / name)  # a warning
    else:
        with pytest.raises(ShardStreamError, match="exists"):
            WRITERS[name](folder, tmp_path / name)
    assert victim.read_text() == MINE
    assert not (tmp_path / name).exists()


def test_a_directory_of_receipts_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    for target in (tmp_path / "elsewhere", tmp_path / "gone"):
        out = tmp_path / f"out-{target.name}"
        out.mkdir()
        (out / ".pack").symlink_to(target)
        with pytest.raises(UsageError, match=rf"a symbolic link below a destination.*\[url {out}/.pack\]"):
            ss.pack([{"__key__": "1", "n": 1}], out, workers=0)
    assert not list((tmp_path / "elsewhere").iterdir())
    assert not (tmp_path / "gone").exists()


def test_an_export_writes_no_file_through_a_link(tmp_path: Path) -> None:
    ss.pack([{"__key__": "a/1", "txt": "text"}], tmp_path / "set", workers=0)
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    elsewhere.mkdir()
    out.mkdir()
    (out / "a").symlink_to(elsewhere)
    with pytest.raises(UsageError, match="a symbolic link below a destination"):
        open_store(out).put("a/1.txt", b"text")
    with pytest.raises(ShardStreamError):
        ss.export(tmp_path / "set", out, to="files", workers=0)
    assert not list(elsewhere.iterdir())


def test_a_directory_in_the_place_of_a_file_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "t.json").mkdir()
    with (
        pytest.raises(UsageError, match=r"the trace .* cannot be written: Is a directory"),
        ss.trace(tmp_path / "t.json"),
    ):
        pass
    with pytest.raises(StorageError, match="directory"):
        open_store(tmp_path).put("t.json", b"")
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]


WRITE_FILES = {  # modules that may make or change files by name, and why
    "storage/local/output_files.py": "the functions that all others use",
    "storage/cache/folder.py": "directories of a cache, held by their descriptors",
    "storage/clients/fsspec_client.py": "objects of a store that is not local",
}
MODES = {f"'{first}{rest}'" for first in "wax" for rest in ("", "b", "+", "b+", "+b")}


def writes(node: ast.AST) -> bool:
    """Whether this makes or changes a file by its name."""
    if isinstance(node, ast.Attribute):
        return node.attr in ("O_CREAT", "write_text", "write_bytes")
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        return False
    called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
    if not called.endswith(("open", "FileIO")) or ast.unparse(node.func) == "os.fdopen":
        return False
    text, values = ast.unparse(node), [*node.args, *(word.value for word in node.keywords)]
    return "closefd" not in text and "open_to_extend" not in text and any(ast.unparse(one) in MODES for one in values)


def test_no_module_writes_files_in_another_way() -> None:
    modules = {str(path.relative_to(PACKAGE)): path for path in PACKAGE.rglob("*.py")}
    found = {
        name
        for name, path in modules.items()
        if not name.startswith("testing/") and any(map(writes, ast.walk(ast.parse(path.read_text()))))
    }
    assert found == set(WRITE_FILES)
