"""What every command says of itself, and what all of them have in common."""

from __future__ import annotations

import logging
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from shardstream.cli.app import VERBS, app
from shardstream.cli.logs import logged
from tests.cli.captured import captured

GROUPS = {"Source", "Samples", "Images", "Output", "Run", "Options", "Store"}
OWN_GROUPS = {"Measuring", "Loader", "Training", "Checks", "Cache"}


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its words."""
    root: Any = typer.main.get_command(app)
    for name in VERBS:
        verb = root.get_command(None, name)
        yield from (
            ((f"{name} {one}", found) for one, found in verb.commands.items())
            if hasattr(verb, "commands")
            else [(name, verb)]
        )


COMMANDS = dict(commands())


@pytest.fixture(params=COMMANDS, ids=str)
def words(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("verb", VERBS)
def test_pages_are_those_that_were_looked_at(verb: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = CliRunner().invoke(app, [verb, "--help"]).stdout.strip() + "\nexit code 0\n"
    assert text == captured(f"{verb}-help-{columns}", text)


@pytest.mark.parametrize("columns", [80, 120])
def test_help_fits_its_columns(words: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = CliRunner().invoke(app, [*words.split(), "--help"]).stdout
    assert max(map(len, text.splitlines())) <= columns
    if columns == 120:
        assert max(map(len, text.splitlines())) > 80
    assert "range" not in text
    assert not re.search(r"<\w+>", text.replace("<TAB>", ""))


def test_examples_come_first_and_store_options_last(words: str) -> None:
    text = CliRunner().invoke(app, [*words.split(), "--help"]).stdout
    headings = re.findall(r"^(\w+):$", text, re.MULTILINE)
    assert headings[0] == "Examples"
    assert "Store" not in headings[:-1]
    assert "Run" in headings
    assert set(headings) <= GROUPS | OWN_GROUPS | {"Examples", "Arguments"}


def test_every_example_is_a_command_that_is_understood(words: str) -> None:
    for line in COMMANDS[words].callback.examples:
        program, *given = shlex.split(line, comments=True)
        assert program == "shardstream"
        own = words.split() if given[: len(words.split())] == words.split() else words.split()[:1]
        if given[:2] == ["bench", "decode"] and words != "bench decode":
            continue  # it is proposed there
        assert given[: len(own)] == own
        COMMANDS[words].make_context(words, given[len(own) :]).close()


def test_every_command_has_the_same_flags_of_a_run(words: str) -> None:
    flags = {flag for one in COMMANDS[words].params for flag in one.opts}
    assert {"--json", "--quiet", "-q", "--verbose", "-v", "--log-level"} <= flags


def test_every_option_with_a_value_names_it(words: str) -> None:
    for one in COMMANDS[words].params:
        assert one.help, one.name
        if one.param_type_name == "option" and not one.is_flag and not one.count:
            assert one.metavar, one.name


def test_the_list_of_verbs_is_all_that_help_needs() -> None:
    program = (
        "import sys\nfrom shardstream.cli import main\nsys.argv[1:] = ['--help']\n"
        "try: main()\nfinally: print([name for name in sys.modules if 'cli.verbs.' in name])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    text = " ".join(done.stdout.split())
    assert all(verb.summary in text for verb in VERBS.values())


def test_a_wrong_name_is_answered_with_the_right_one() -> None:
    found = CliRunner().invoke(app, ["verfy", "shards/"])
    assert found.exit_code == 2
    assert "Did you mean 'verify'?" in found.stderr


def test_what_is_logged_is_printed_from_a_level_on(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("shardstream.storage.somewhere")
    for level in ("warning", "info"):
        with logged(level):
            logger.info("asked\x1b[2J again")
            logger.warning("slow")
    assert capsys.readouterr().err.splitlines() == [
        "warning: slow [shardstream.storage.somewhere]",
        "info: asked\\x1b[2J again [shardstream.storage.somewhere]",
        "warning: slow [shardstream.storage.somewhere]",
    ]
    assert not logging.getLogger("shardstream").handlers


@pytest.mark.parametrize(
    ("flags", "expected"), [([], "warning"), (["-v"], "info"), (["-vvv"], "debug"), (["--log-level", "error"], "error")]
)
def test_the_level_that_is_asked_for(
    flags: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def noted(level: str) -> Any:
        seen.append(level)
        return logged(level)

    monkeypatch.setattr("shardstream.cli.commands.logged", noted)
    assert CliRunner().invoke(app, ["info", str(tmp_path), *flags]).exit_code == 3
    assert seen == [expected]
