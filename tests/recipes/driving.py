"""Recipes are run, killed, and gone on with in another shape; what is true of whatever they trained on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import shardstream as ss

from ..distributed.launching import Run

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WATCHED = Path(__file__).with_name("watched.py")
KILLED = 25  # steps; it is killed as it asks for the next batch. Each recipe saves every ten

Epochs = dict[int, list[str]]
"""Keys of each epoch, of all ranks."""


@dataclass(frozen=True)
class Recipe:
    """A script of `examples/`, and the shapes that it is run in.

    Attributes:
        name: Of the script.
        workers: Of the run that is killed, and of the one that goes on.
        ranks: Likewise, under torchrun; None: the script is started by itself. No more than there are GPUs, where there
            are any: NCCL wants one for each.
        launches: Whether the script starts its ranks by itself, as many as `ranks` says.
        saved: Steps after which the last checkpoint may have been made.
        killed: Steps after which it is killed.
    """

    name: str
    workers: tuple[int, int] = (2, 0)
    ranks: tuple[int, int] | None = None
    launches: bool = False
    saved: tuple[int, ...] = (20,)
    killed: int = KILLED

    def run(self, log: Path, arguments: Sequence[str], turn: int, *, kill: bool) -> str:
        """What it printed, in the shape of the first or the second run."""
        given = [str(EXAMPLES / f"{self.name}.py"), *arguments, "--workers", str(self.workers[turn])]
        with watching(log, self.killed if kill else 0):
            if self.ranks is None or self.launches:
                return self._started(given, turn, kill=kill)
            ranks = min(self.ranks[turn], torch.cuda.device_count() or self.ranks[turn])
            with Run(log / "run", WATCHED, given, ranks=ranks) as run:
                if kill:
                    assert run.process.wait(180) != 0, run.output
                else:
                    run.wait()
                run.wait_for_orphans()
                return run.output

    def _started(self, given: list[str], turn: int, *, kill: bool) -> str:
        if self.ranks is not None:
            given = [*given, "--ranks", str(self.ranks[turn])]
        command, environment = [sys.executable, str(WATCHED), *given], os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        assert (done.returncode == 0) is not kill, done.stdout + done.stderr
        return done.stdout


@contextmanager
def watching(log: Path, kill_after: int) -> Iterator[None]:
    """What ``watched.py`` wants to know, for processes that are started inside."""
    log.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDSTREAM_WATCH", str(log))
        patch.setenv("SHARDSTREAM_KILL_AFTER", str(kill_after))
        yield


def steps(log: Path) -> list[list[tuple[int, list[str]]]]:
    """(epoch, keys) of each step of each rank."""
    return [[tuple(json.loads(line)) for line in path.read_text().splitlines()] for path in sorted(log.glob("*.jsonl"))]


def of_all_ranks(log: Path) -> list[tuple[int, list[str]]]:
    """(epoch, keys in sorting order) of each step of all ranks together."""
    return [(ranks[0][0], sorted(key for _, keys in ranks for key in keys)) for ranks in zip(*steps(log), strict=True)]


def by_epoch(ranks: Sequence[Sequence[tuple[int, list[str]]]]) -> Epochs:
    """The keys of all ranks and steps."""
    found: Epochs = {}
    for epoch, keys in (step for rank in ranks for step in rank):
        found.setdefault(epoch, []).extend(keys)
    return found


def stored(data: Path, **view: object) -> list[str]:
    """All keys of a data set, sorted."""
    return sorted(sample["__key__"] for sample in ss.ShardDataset(data, fields=[], **view))


def losses(*outputs: str) -> list[float]:
    """Those that were printed."""
    return [float(loss) for output in outputs for loss in re.findall(r"loss (\d+\.\d+)", output)]


def killed_and_resumed(
    recipe: Recipe, folder: Path, arguments: Sequence[str], *, data: Path, samples: Sequence[str] | int | None = None
) -> str:
    """Run it to its 25th step and kill it; start it again in another shape; compare with what an epoch should be.

    Args:
        recipe: The recipe.
        folder: For what is noted.
        arguments: Of the script, but for its shape.
        data: The data set, there at the end.
        samples: Those of an epoch, or how many different ones; default: all of the data set.

    Returns:
        What both runs printed.
    """
    first = recipe.run(folder / "first", arguments, 0, kill=True)
    second = recipe.run(folder / "second", arguments, 1, kill=False)
    before, after = steps(folder / "first"), by_epoch(steps(folder / "second"))
    expected = sorted(after[1] if isinstance(samples, int) else samples or stored(data))
    assert not isinstance(samples, int) or len(set(expected)) == samples
    assert [len(rank) for rank in before] == [KILLED] * len(before)
    assert {epoch for rank in before for epoch, _ in rank} == {0}
    saved = (len(expected) - len(after[0])) * KILLED // len(by_epoch(before)[0])
    assert saved in recipe.saved
    trained = by_epoch([rank[:saved] for rank in before])[0]
    again = by_epoch([rank[saved:] for rank in before])[0]  # what came after the last checkpoint comes once more
    assert sorted(trained + after[0]) == expected
    assert set(again) <= set(after[0])
    assert len(after) > 1
    assert all(sorted(keys) == expected for epoch, keys in after.items() if epoch > 0)
    assert after[1] != after.get(2)
    return first + second
