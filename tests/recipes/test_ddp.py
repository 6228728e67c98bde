"""``examples/ddp.py`` as users start it: killed, told to stop, and gone on with in other shapes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch

import shardstream as ss

from ..distributed.launching import Run
from ..stream.making import photograph
from .driving import EXAMPLES, WATCHED, Recipe, by_epoch, killed_and_resumed, steps, stored, watching

PHOTOGRAPHS, VALIDATED = 800, 80  # 720 for training: thirty steps of 24 an epoch, and nothing left over
TRAIN = ("train", {"train": 0.9, "val": 0.1})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("photos") / "out"
    with ss.ShardWriter(out, fields={"jpg": "jpg", "cls": "int64"}, classes=["cat", "dog"]) as writer:
        for number in range(PHOTOGRAPHS):
            writer.write({"__key__": f"{number}", "jpg": photograph(number), "cls": number % 2})
    return out


@pytest.mark.full
def test_killed_and_gone_on_with_by_one_rank(data: Path, tmp_path: Path) -> None:
    recipe = Recipe("ddp", workers=(1, 0), ranks=(2, 1))
    arguments = [str(data), "--checkpoint", str(tmp_path / "run.pt")]
    printed = killed_and_resumed(recipe, tmp_path, arguments, data=data, samples=stored(data, split=TRAIN))
    assert printed.count(f"% of {VALIDATED}\n") == 3


class Told(Run):
    """A start of the recipe that is told to stop."""

    def __init__(self, data: Path, folder: Path, *, ranks: int, workers: int) -> None:
        self.log, self.checkpoint = folder / "keys", folder / "run.pt"
        given = [str(EXAMPLES / "ddp.py"), str(data), "--checkpoint", str(self.checkpoint), "--workers", str(workers)]
        with watching(self.log, 0):
            super().__init__(folder / "run", WATCHED, given, ranks=ranks)

    def wait_for_steps(self, number: int) -> None:
        self.wait_for(
            lambda: any((self.log / "rank-0.jsonl").exists() and len(rank) >= number for rank in self.steps())
        )

    def steps(self) -> list[list[tuple[int, list[str]]]]:
        return steps(self.log)

    def saved_step(self) -> int:
        return int(torch.load(self.checkpoint, weights_only=True)["step"])


@pytest.mark.full
def test_sigterm_to_torchrun_ends_all_ranks_after_the_same_step(data: Path, tmp_path: Path) -> None:
    with Told(data, tmp_path / "told", ranks=3, workers=2) as told:
        told.wait_for_steps(4)
        told.process.terminate()  # passed on to each rank and its workers
        told.process.wait(60)
        assert not told.pids(), "ranks or workers outlive torchrun"
    assert [len(rank) for rank in told.steps()] == [told.saved_step()] * 3, told.output
    assert "DataLoader worker" not in told.output

    recipe = Recipe("ddp", workers=(2, 0), ranks=(3, 1))
    recipe.run(tmp_path / "left", [str(data), "--checkpoint", str(told.checkpoint)], 1, kill=False)
    consumed, left = by_epoch(told.steps()), by_epoch(steps(tmp_path / "left"))
    expected = stored(data, split=TRAIN)
    for epoch in range(3):
        assert sorted(consumed.get(epoch, []) + left.get(epoch, [])) == expected


@pytest.mark.full
def test_one_rank_that_is_told_stops_all(data: Path, tmp_path: Path) -> None:
    with Told(data, tmp_path / "told", ranks=2, workers=1) as told:
        told.wait_for_steps(4)
        os.kill(told.rank_pids()[-1], signal.SIGTERM)
        told.wait()
    assert [len(rank) for rank in told.steps()] == [told.saved_step()] * 2, told.output
