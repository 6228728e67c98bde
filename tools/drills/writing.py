"""What the drills of kills and of crash points write: small data sets, and every verb that makes something of them."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import shardstream as ss
from shardstream.pack.export.run import ExportFormat

STATE = "export.json"
"""Of an export: what it is of, and whether it is complete."""
FIELDS = {"id": "id:int64", "text": "text:str"}

Tree = dict[str, bytes]


def tree(folder: Path) -> Tree:
    """The content of every file below a folder, by its relative path."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


@dataclass(frozen=True)
class Verb:
    """One way to write.

    Attributes:
        name: Of the verb, and of what it writes.
        call: Does it in this process, in the destination that it is given.
        flags: Does it as ``shardstream ... DEST``; without the destination.
        begin: What is in the destination before; nothing by default.
        grows: It changes a data set that is there, which is whole before and after.
        has_workers: It takes ``--workers``.
    """

    name: str
    call: Callable[[Path], object]
    flags: tuple[str, ...]
    begin: Path | None = None
    grows: bool = False
    has_workers: bool = True

    def prepare(self, out: Path) -> None:
        """The destination as it is before."""
        shutil.rmtree(out, ignore_errors=True)
        if self.begin is not None:
            shutil.copytree(self.begin, out)

    def quiet(self, out: Path) -> Tree:
        """What a run leaves that nobody disturbs."""
        self.prepare(out)
        self.call(out)
        return tree(out)


@dataclass(frozen=True)
class Found:
    """What is wrong with a destination after a run was ended, if anything.

    Attributes:
        whole: The data set, or the export, is complete.
        problems: Each in a sentence.
    """

    whole: bool
    problems: list[str]


def look(verb: Verb, out: Path, quiet: Mapping[str, bytes]) -> Found:
    """Whether the data set is the old or the new one, and what is called like something finished is finished."""
    there = tree(out) if out.exists() else {}
    before = tree(verb.begin) if verb.begin is not None else {}
    manifest = there.get("dataset.json")
    problems = [
        f"{name} is neither as it was nor as it is to be"
        for name, content in there.items()
        if name in quiet and name != STATE and content not in (quiet[name], before.get(name))
    ]
    whole = manifest == quiet["dataset.json"] if "dataset.json" in quiet else there == quiet
    if verb.grows or whole:
        try:
            report = ss.verify(str(out))
            problems += [str(one) for one in report.problems]
        except ss.errors.ShardStreamError as error:
            if "dataset.json" in quiet:
                problems.append(str(error))
    return Found(whole, problems)


def make_data(folder: Path, *, samples: int, shard_size: str) -> None:
    """Two lists and the data sets of them, in a new folder.

    Args:
        folder: The folder.
        samples: Of each.
        shard_size: Of the data sets.
    """
    draws = random.Random(0)
    folder.mkdir(parents=True)
    for number, name in enumerate(("first", "second")):
        ids = range(number * samples, (number + 1) * samples)
        lines = [f"{one},{draws.randbytes(draws.randrange(1, 60)).hex()}" for one in ids]
        source = folder / f"{name}.csv"
        source.write_text("\n".join(["id,text", *lines]) + "\n")
        ss.pack(source, folder / name, workers=0, shard_size=shard_size, key="id", fields=FIELDS)


def verbs_on(folder: Path, *, shard_size: str) -> list[Verb]:
    """Every verb that writes, on what `make_data` has made."""
    first, second, more = folder / "first", folder / "second", folder / "second.csv"
    options: dict[str, Any] = {"key": "id", "fields": FIELDS, "shard_size": shard_size}
    columns = [f"--field={name}={column}" for name, column in FIELDS.items()]
    flags = ("--key", "id", *columns, "--shard-size", shard_size)
    verbs = [
        Verb(
            "pack",
            lambda out: ss.pack(folder / "first.csv", out, workers=0, **options),
            ("pack", f"{folder}/first.csv", *flags),
        ),
        Verb(
            "append",
            lambda out: ss.pack(more, out, append=True, workers=0, **options),
            ("pack", str(more), "--append", *flags),
            begin=first,
            grows=True,
        ),
        Verb(
            "repack",
            lambda out: ss.repack(first, out, shard_size=shard_size, format="record", workers=0),
            ("repack", str(first), "--shard-size", shard_size, "--format", "record"),
        ),
        Verb(
            "merge",
            lambda out: ss.merge([first, second], out),
            ("merge", str(first), str(second)),
            has_workers=False,
        ),
    ]
    return verbs + [_export(first, kind) for kind in get_args(ExportFormat)]


def _export(source: Path, kind: ExportFormat) -> Verb:
    return Verb(
        f"export to {kind}",
        lambda out: ss.export(source, out, to=kind, workers=0),
        ("export", str(source), "--to", kind),
    )
