"""Every error has a page whose example raises it, with the message that the page shows."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from shardstream import errors
from shardstream.cli.app import app
from shardstream.cli.error_pages import PAGES, kinds
from shardstream.images.encode import encode
from shardstream.testing import make_dataset

ELSEWHERE = ("rank",)  # it takes two processes: tests/distributed/test_agreement.py
KINDS = kinds()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    make_dataset(folder / "shards", samples=100, fields={"jpg": "jpg", "cls": "int64", "txt": "str"})
    for i, name in enumerate(("cat", "dog")):
        (folder / "photos" / name).mkdir(parents=True)
        (folder / "photos" / name / "0.jpg").write_bytes(encode(np.full((64, 64, 3), i, np.uint8), "jpg"))
    return folder


def test_every_class_has_a_page() -> None:
    classes = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes = [kind.code for kind in classes if issubclass(kind, errors.ShardStreamError)]
    assert [*PAGES] == [*KINDS] == codes[1:]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("code", [code for code in PAGES if code not in ELSEWHERE])
def test_the_example_raises_it(code: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    if code == "missing-extra":
        monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(KINDS[code]) as caught:
        exec(compile(PAGES[code].example, code, "exec"), {"__name__": "__main__"})
    pattern = ".*".join(map(re.escape, PAGES[code].message.split("...")))
    assert re.fullmatch(pattern, str(caught.value).splitlines()[0])
    assert type(caught.value) is (errors.ChecksumError if code == "data" else KINDS[code])


@pytest.mark.parametrize("name", ["missing-key", "MissingKeyError", "missing-key-error", "ss.errors.MissingKeyError"])
def test_a_page_is_found_by_its_code_and_by_its_class(name: str) -> None:
    found = CliRunner().invoke(app, ["errors", name])
    assert found.exit_code == 0
    assert found.stdout.startswith("missing-key\n")
    assert "Fix. " in found.stdout
    assert '    ss.Reader("shards/").get("cat-17")\n' in found.stdout
    assert max(map(len, found.stdout.splitlines())) <= 80


def test_the_list_and_json() -> None:
    listed = CliRunner().invoke(app, ["errors"]).stdout.splitlines()
    assert [line.split()[0] for line in listed[:-1]] == [*PAGES]
    one = json.loads(CliRunner().invoke(app, ["errors", "batch", "--json"]).stdout)
    assert (one["code"], one["class"]) == ("batch", "BatchError")
    every = json.loads(CliRunner().invoke(app, ["errors", "--json"]).stdout)["errors"]
    assert one in every


def test_a_code_that_there_is_not() -> None:
    found = CliRunner().invoke(app, ["errors", "chcksum"])
    assert found.exit_code == 2
    assert "did you mean 'checksum'?" in found.stderr


def test_messages_end_in_where_to_read_on(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["info", str(tmp_path / "nowhere")])
    assert found.stderr.splitlines()[-1] == "  see: shardstream errors not-found"
