"""Errors name options as whoever made them writes options: as flags on the command line, in Python otherwise."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import shardstream as ss
from shardstream.cli.app import app
from shardstream.cli.spelling import Spelling
from shardstream.errors import UsageError
from shardstream.options import options_of, spelled
from shardstream.pack.options import PackOptions
from shardstream.pack.run import RunOptions
from tests.pack.making import photo_list

VERBS: list[Callable[..., Any]] = [ss.pack, ss.repack, ss.merge, ss.export]


def context_of(verb: str) -> Any:
    group: Any = typer.main.get_command(app)
    return typer.Context(group.get_command(typer.Context(group), verb))


def options(verb: Any) -> Iterator[tuple[str, str]]:
    """Every option of a verb that has a flag: how it is written in Python, and its flag."""
    tables = [(argument, kind) for argument, kind in verb.groups.items()]
    for argument, kind in tables:
        for name, said in options_of(kind).items():
            if said.taken_by(verb.__name__):
                yield spelled(argument, kind, [name]), said.flag
    for table in (PackOptions, RunOptions):
        for name, said in options_of(table).items():
            if name in inspect.signature(verb).parameters and said.taken_by(verb.__name__):
                yield f"{name}=...", said.flag


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_every_option_that_has_a_flag_becomes_that_flag(verb: Any) -> None:
    spelling = Spelling(context_of(verb.__name__))
    found = list(options(verb))
    assert found
    for python, flag in found:
        flag = flag.partition("/")[0]
        for text in (f"give {python}, or not", f"give {python} ({flag}), or not", f"give {flag} ({python}), or not"):
            told = spelling.in_flags(text)
            assert told.startswith(f"give {flag}"), (python, told)
            assert told.endswith(", or not"), (python, told)
            assert "=..." not in told, (python, told)
            assert told.count(flag) == 1, (python, told)


@pytest.mark.parametrize(
    ("python", "flags"),
    [
        ("reading=SourceOptions(max_rejects='9%') (--max-rejects 9%), or a number", "--max-rejects 9%, or a number"),
        ("say how long: bins=PackedSequences(8192, ...) (--bins 8192)", "say how long: --bins 8192"),
        ("images=ss.ImageOptions(max_side=20, strip=True)", "--max-side 20 --strip"),
        ("shards=ShardOptions(zstd=['txt', 'json'], checksums=False)", "--zstd txt --zstd json --no-checksums"),
        ("`quality` without `max_side` changes nothing", "--quality without --max-side changes nothing"),
        ("storage_options={'anon': True, 'endpoint': ...}", "--storage-option anon=true --storage-option endpoint=..."),
        ('fields={"jpg": "image path"}; overwrite=True', "--field jpg='image path'; --overwrite"),
        ("seed must be an integer; leave `rows` out", "--seed must be an integer; leave --rows out"),
        ("SourceOptions(format='mds' or 'zip') says which", "--source-format mds or zip says which"),
        ("leave loose= (--source-format) out", "leave --source-format out"),
        # What is not of the command stays.
        ("give reads=ReadOptions(threads=1)", "give reads=ReadOptions(threads=1)"),
        ("ImageBatch(classes=1000)", "ImageBatch(classes=1000)"),
        ("--format-option group=key, https://host/?key=1", "--format-option group=key, https://host/?key=1"),
        ("option key=COLUMN; 3 == seed=", "option key=COLUMN; 3 == --seed"),
        ("key='it is cut", "key='it is cut"),
    ],
)  # fmt: skip
def test_values_are_written_as_flags_take_them(python: str, flags: str) -> None:
    assert Spelling(context_of("pack")).in_flags(python) == flags


def test_each_caller_gets_its_own_spelling(tmp_path: Path) -> None:
    source, place = photo_list(tmp_path / "in", 2), str(tmp_path / "out")
    for flags, arguments, told, python in (
        (
            ["--quality", "3"],
            {"images": {"quality": 3}},
            "--quality without --max-side",
            "`quality` without `max_side`",
        ),
        (["--bin-min", "3", "--bins", "8"], {"bins": {"length": 8, "min": 3}}, "--bin-min must", r"bins=PackedSeq"),
        (["--unknown", "reject"], {"reading": {"unknown": "reject"}}, "--unknown reject without", "unknown='reject' w"),
        (["--dest-option", "a=1"], {"storage": {"dest": {"a": "1"}}}, "takes --dest-option", r"Options\(dest=...\)"),
    ):
        done = CliRunner().invoke(app, ["pack", str(source), place, *flags])
        assert done.exit_code == 2, (flags, done.output)
        assert told in done.output
        assert "Options(" not in done.output
        kinds = ss.pack.groups  # type: ignore[attr-defined] # of `takes_flat`
        with pytest.raises(UsageError, match=python):
            ss.pack(source, place, **{name: kinds[name](**values) for name, values in arguments.items()})
