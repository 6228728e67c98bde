"""Formats of other distributions: the example of the documents as a plug-in, plug-ins that fail, odd installations."""

from __future__ import annotations

import importlib
import json
import os
import re
import site
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

import shardstream as ss
from shardstream.errors import MissingExtraError, UsageError
from shardstream.formats import plugins, registry
from shardstream.testing import make_dataset
from tests.formats.catalog.making import webdataset

ROOT = Path(__file__).parents[2]
PACKAGE = Path(ss.__file__).parent  # tests of a wheel lie elsewhere
PAGE = (ROOT / "docs/plugins.md").read_text()
MODULE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
PROJECT = tomllib.loads(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0])["project"]
DATA = b"PAIR" + b"\0\0\0\0" + b"\4\0\0\0zero" + b"\1\0\0\0" + b"\3\0\0\0one"

Install = Callable[..., None]


def write_metadata(folder: Path, name: str, version: str, points: Mapping[str, Mapping[str, str]]) -> None:
    """What an installer writes of a distribution with these entry points."""
    place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [
        line for group, some in points.items() for line in [f"[{group}]", *(f"{k} = {v}" for k, v in some.items())]
    ]
    (place / "entry_points.txt").write_text("\n".join(lines) + "\n")


def forget() -> None:
    """Let the next question read entry points again."""
    importlib.invalidate_caches()
    plugins.plugins.cache_clear()
    plugins.recognizers.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a distribution: its name, its entry points, and its modules' text."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(tmp_path / "site")

    def put(name: str, points: Mapping[str, Mapping[str, str]], version: str = "1.0", **modules: str) -> None:
        write_metadata(tmp_path / "site", name, version, points)
        for module, text in modules.items():
            (tmp_path / "site" / f"{module}.py").write_text(text)
        forget()

    yield put
    for name in [name for name, one in sys.modules.items() if str(tmp_path) in str(getattr(one, "__file__", ""))]:
        del sys.modules[name]
    monkeypatch.undo()
    forget()


@pytest.fixture
def pairs(install: Install, tmp_path: Path) -> Path:
    """Data of the format of the documents, which is installed."""
    install(PROJECT["name"], PROJECT["entry-points"], PROJECT["version"], pairs_format=MODULE)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.pairs").write_bytes(DATA)
    return tmp_path / "data"


def test_a_plugin_opens_its_data_in_every_process(pairs: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset = ss.ShardDataset(pairs, batch_size=2)
    assert dataset.manifest.format == "pairs"
    batches = list(ss.Loader(dataset, num_workers=1, multiprocessing_context="forkserver"))
    assert [batch["text"] for batch in batches] == [["zero", "one"]]
    assert not caplog.records


def test_a_catalog_names_its_plugin_which_may_be_gone(pairs: Path) -> None:
    ss.index(pairs)
    ss.index(pairs, beside=True)
    head = json.loads((pairs / "shardstream-catalogue.json").read_text())
    assert (head["source"], head["plugin"]) == (
        "pairs",
        {"format": "pairs_format:Pairs", "package": PROJECT["name"]},
    )
    next((pairs.parent / "site").glob("*.dist-info/entry_points.txt")).write_text("")
    forget()
    says = r"format 'pairs', and its plug-in pairs_format:Pairs, of the package 'pairs-format', is not installed"
    for _ in ("beside", "kept"):
        for opening in ({}, {"reading": ss.SourceOptions(format="pairs")}):
            with pytest.raises(MissingExtraError, match=says) as caught:
                ss.Reader(pairs, **opening)
            assert caught.value.hint == "pip install pairs-format"
            assert caught.value.place["url"] == str(pairs)
        with pytest.raises(ss.errors.FormatError, match="nothing of format 'jsonl' is here"):
            ss.Reader(pairs, reading=ss.SourceOptions(format="jsonl"))
        (pairs / "shardstream-catalogue.json").unlink(missing_ok=True)


def test_a_catalog_cannot_have_anything_imported_or_pasted(pairs: Path) -> None:
    ss.index(pairs, beside=True)
    path = pairs / "shardstream-catalogue.json"
    from shardstream.shards.heads import seal

    for plugin in ({"format": "os:system", "package": "x; rm -rf ~"}, {"format": 3, "package": ""}, {}, ["x"]):
        head = json.loads(path.read_text())
        head["source"], head["plugin"] = "nowhere", plugin
        path.write_bytes(seal(head))
        with pytest.raises(ss.errors.FormatError, match="the manifest is malformed"):
            ss.Reader(pairs)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "shardstream.formats.plugins"]


def test_plugins_that_cannot_be_used_are_one_warning_each(
    install: Install, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    points = {
        "mds": "pairs_format:Pairs",
        "Capital.s": "pairs_format:Pairs",
        "gone": "no_such_module:Gone",
        "wrong": "wrong_format",
        "number": "wrong_format:NUMBER",
        "other": "pairs_format:Pairs",
        "half": "wrong_format:Half",
        "raises": "raising",
    }
    wrong = "from shardstream.formats.contract import SourceFormat\nNUMBER = 3\n"
    wrong += "class Half(SourceFormat):\n    name = 'half'\n"
    files = {"pairs_format": MODULE, "wrong_format": wrong, "raising": "1 / 0"}
    install("bad-formats", {"shardstream.formats": points}, "2.3", **files)
    install("first", {"shardstream.formats": {"pairs": "pairs_format:Pairs"}})
    install("second", {"shardstream.formats": {"pairs": "pairs_format:Pairs"}})
    webdataset(tmp_path / "data", tars=1, samples=2)
    for _ in range(2):
        (tmp_path / "data" / f"{_}.txt").touch()  # so that it is recognized again
        assert ss.ShardDataset(tmp_path / "data").manifest.format == "webdataset"
    expected = {
        "mds": "a built-in format is called 'mds'; give it another name",
        "Capital.s": "'Capital.s' is no name: use lower-case letters, digits, '-' and '_'",
        "gone": "it cannot be imported: ModuleNotFoundError: No module named 'no_such_module'",
        "wrong": "it cannot be imported: TypeError: it is no subclass of",
        "number": "it cannot be imported: TypeError: it is no subclass of shardstream.formats.contract.",
        "other": "it cannot be imported: TypeError: its name is 'pairs'",
        "half": "it cannot be imported: TypeError: it lacks ",
        "raises": "it cannot be imported: ZeroDivisionError: division by zero",
    }
    found = warnings(caplog)
    for name, why in expected.items():
        (told,) = [one for one in found if f"'{name}' of bad-formats 2.3" in one]
        assert f"({points[name]}) is left out: {why}" in told
    assert "the plug-in 'pairs' of second 1.0 (pairs_format:Pairs) is left out: 'pairs' of first 1.0" in " ".join(found)
    assert len(found) == len(expected) + 1
    with pytest.raises(MissingExtraError, match=r"'gone' of bad-formats 2.3 .* cannot be imported here") as caught:
        ss.ShardDataset(tmp_path / "data", reading=ss.SourceOptions(format="gone")).manifest  # noqa: B018 - it opens
    assert str(caught.value.hint).startswith("pip install bad-formats")


def test_entry_points_are_read_once_and_only_for_data_of_others(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(plugins, "entry_points", lambda **group: asked.append(group) or [])
    make_dataset(tmp_path / "ours", samples=4, fields={"id": "int64"})
    for name in ("tars", "more", "others"):
        webdataset(tmp_path / name, tars=1, samples=2)
    assert len(ss.Reader(tmp_path / "ours")) == 4
    assert len(ss.Reader(tmp_path / "tars", reading=ss.SourceOptions(format="webdataset"))) == 2
    assert len(ss.Reader(tmp_path / "tars")) == 2  # by the catalog that the line above made
    assert not asked
    assert len(ss.Reader(tmp_path / "more")) == len(ss.Reader(tmp_path / "others")) == 2
    assert asked == [{"group": "shardstream.formats"}]


def test_registering(pairs: Path) -> None:
    from pairs_format import Pairs

    class Local(Pairs):
        name = "local"

    with pytest.raises(UsageError, match="other processes cannot find a class that is inside of a function"):
        registry.register(Local)
    with pytest.raises(UsageError, match="a built-in format is called 'mds'"):
        registry.register(type("Mds", (Pairs,), {"name": "mds"}))
    with pytest.raises(UsageError, match="it is no subclass of"):
        registry.register(int)


def test_recognizers_of_sources(install: Install, caplog: pytest.LogCaptureFixture) -> None:
    text = "class Good:\n    def recognize(self, place, wanted): return None\nclass Bad: pass\n"
    install("sources", {"shardstream.sources": {"a": "mine:Good", "b": "mine:Bad", "c": "gone:C"}}, mine=text)
    assert [one.plugin.name for one in plugins.recognizers()] == ["a"]
    assert len(warnings(caplog)) == 2
    assert "'b' of sources 1.0 (mine:Bad) is left out: it has no method recognize(place, wanted)" in warnings(caplog)[0]


FAILING = """
from shardstream.errors import FormatError
from shardstream.formats.contract import SourceFormat

class Fails(SourceFormat):
    name, title = "fails", "what fails"

    def recognize(self, listing, options):
        return self.answer(listing)

    def scan(self, data, about):
        return ()

    def answer(self, listing):
        raise KeyError("no such entry")

class Odd(Fails):
    name = "odd"

    def answer(self, listing):
        return ["a.pairs"]

class Refuses(Fails):
    name = "refuses"

    def answer(self, listing):
        if any(one.path.endswith(".refused") for one in listing.objects):
            raise FormatError("a part is missing", url=listing.url)

class Source:
    def recognize(self, place, wanted):
        return 1 / 0
"""


def test_a_plugin_that_fails_to_recognize_is_one_warning_and_others_are_asked(
    install: Install, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = {"fails": "failing:Fails", "odd": "failing:Odd", "refuses": "failing:Refuses"}
    install("failing", {"shardstream.formats": names, "shardstream.sources": {"s": "failing:Source"}}, failing=FAILING)
    for number in range(2):
        webdataset(tmp_path / f"data{number}", tars=1, samples=2)
        assert ss.ShardDataset(tmp_path / f"data{number}").manifest.format == "webdataset"
    (tmp_path / "list.txt").write_text("")
    for _ in range(2):
        with pytest.raises(ss.errors.SourceError):  # of the recognizer that is asked last
            ss.pack(tmp_path / "list.txt", tmp_path / "out", workers=0)
    failed = "failed to recognize a source, and the next is asked"
    assert warnings(caplog) == [
        f"the plug-in 'fails' of failing 1.0 (failing:Fails) {failed}: KeyError: 'no such entry'",
        f"the plug-in 'odd' of failing 1.0 (failing:Odd) {failed}: AttributeError: "
        "'list' object has no attribute 'objects'",
        f"the plug-in 's' of failing 1.0 (failing:Source) {failed}: ZeroDivisionError: division by zero",
    ]
    with pytest.raises(KeyError):  # the user asks for this one
        ss.Reader(tmp_path / "data0", reading=ss.SourceOptions(format="fails"))
    (tmp_path / "data1/a.refused").touch()  # errors about data are of the user's concern
    with pytest.raises(ss.errors.FormatError, match="a part is missing"):
        ss.Reader(tmp_path / "data1")


# ------------------------------------------------------------------------------------------------- odd installations

PROGRAM = """
import sys
from importlib import metadata
import shardstream as ss
ours, tars = sys.argv[1:]
try:
    print(metadata.version("shardstream"))
except metadata.PackageNotFoundError:
    print("no metadata")
print(ss.__file__)
print(len(ss.Reader(ours)), len(ss.Reader(tars)), ss.diagnose.info(tars).format)  # without torch, which takes long
print([int(sample["cls"]) for sample in ss.Reader(tars)[:4]])
"""


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that is installed here but this package."""
    folder = tmp_path_factory.mktemp("others")
    for place in filter(os.path.isdir, site.getsitepackages()):  # Debian names some that are not there
        for path in Path(place).iterdir():
            if "shardstream" not in path.name and path.suffix != ".pth" and not (folder / path.name).exists():
                (folder / path.name).symlink_to(path)
    return folder


def run(tmp_path: Path, *path: Path) -> tuple[list[str], str]:
    """What the program prints, and its log, with these places alone on ``sys.path``."""
    make_dataset(tmp_path / "ours", samples=4, fields={"id": "int64"})
    webdataset(tmp_path / "tars", tars=1, samples=4)
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM, "ours", "tars"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "XDG_CACHE_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[2:] == ["4 4 webdataset", "[0, 1, 2, 3]"]
    return lines, done.stderr


def test_a_checkout_on_the_path_without_metadata(tmp_path: Path, others: Path) -> None:
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout/shardstream").symlink_to(PACKAGE)
    lines, log = run(tmp_path, tmp_path / "checkout", others)
    assert lines[0] == "no metadata"
    assert not log


def test_a_stale_editable_install(tmp_path: Path, others: Path) -> None:
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout/shardstream").symlink_to(PACKAGE)
    points = {"webdataset": "shardstream.shards.foreign.tar.webdataset:WebDataset", "old": "shardstream.old:Old"}
    write_metadata(tmp_path / "stale", "shardstream", "0.0.1", {"shardstream.formats": points})
    lines, log = run(tmp_path, tmp_path / "checkout", tmp_path / "stale", others)
    assert lines[0] == "0.0.1"
    assert [line.split(" is left out: ")[0] for line in log.splitlines()] == [
        "the plug-in 'webdataset' of shardstream 0.0.1 (shardstream.shards.foreign.tar.webdataset:WebDataset)",
        "the plug-in 'old' of shardstream 0.0.1 (shardstream.old:Old)",
    ]


def test_a_zipped_application(tmp_path: Path, others: Path) -> None:
    with zipfile.ZipFile(tmp_path / "application.zip", "w") as archive:
        for path in PACKAGE.rglob("*.py"):
            archive.write(path, path.relative_to(PACKAGE.parent))
    lines, log = run(tmp_path, tmp_path / "application.zip", others)
    assert "application.zip" in lines[1]
    assert not log
