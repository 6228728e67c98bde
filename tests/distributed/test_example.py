"""``examples/train_ddp.py`` as users start it: killed, told to stop, and gone on with in other shapes."""

from __future__ import annotations

import importlib.util
import math
import os
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path
from types import ModuleType

import pytest
import torch

import shardstream as ss

from ..stream.making import photograph
from .launching import Run, on_ranks

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "train_ddp.py"
PHOTOGRAPHS = 240  # 216 of them for training: nine steps of 24 an epoch, and nothing left over
BATCH = 24
EPOCHS = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("photos")
    for number in range(PHOTOGRAPHS):
        path = work / "photos" / ("cat", "dog", "owl")[number % 3] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(photograph(number))
    ss.pack(work / "photos", work / "out", workers=0)
    return work / "out"


class Training(Run):
    """A start of the example; its log of keys is in a folder of its own."""

    def __init__(self, work: Path, name: str, folder: Path, *options: str, ranks: int, workers: int) -> None:
        self.log = work / name / "keys"
        self.ranks = ranks
        self.checkpoint = work / "checkpoints" / "checkpoint.pt"
        arguments = ["--data", str(folder), "--checkpoints", str(self.checkpoint.parent), "--log-keys", str(self.log)]
        arguments += ["--workers", str(workers), "--batch-size", str(BATCH), "--size", "32", *options]
        super().__init__(work / name, SCRIPT, arguments, ranks=ranks)

    def steps(self, rank: int) -> dict[int, tuple[int, list[str]]]:
        """Epoch and keys of each step that this rank wrote down."""
        path = self.log / f"rank-{rank}.tsv"
        if not path.exists():
            return {}
        lines = [line.split("\t") for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return {int(step): (int(epoch), keys.split()) for epoch, step, keys in lines}

    def saved_step(self) -> int:
        return int(torch.load(self.checkpoint, weights_only=True)["step"]) if self.checkpoint.exists() else 0


@pytest.mark.full
def test_killed_then_told_to_stop_then_finished(folder: Path, tmp_path: Path) -> None:
    options = ("--epochs", str(EPOCHS), "--save-every", "5")
    with Training(tmp_path, "killed", folder, *options, ranks=2, workers=1) as killed:
        killed.wait_for(lambda: len(killed.steps(0)) >= 7)
        killed.kill()
    saved_by_killed = killed.saved_step()
    assert saved_by_killed >= 5
    assert saved_by_killed % 5 == 0 or saved_by_killed % 9 == 0  # as asked, and at the end of an epoch

    # SIGTERM to torchrun, which passes it on to each rank and its workers.
    options = ("--epochs", str(EPOCHS), "--save-every", "1000")
    with Training(tmp_path, "told", folder, *options, ranks=3, workers=2) as told:
        told.wait_for(lambda: len(told.steps(0)) >= 4)
        told.process.terminate()
        told.process.wait(60)
        assert not told.pids(), "ranks or workers outlive torchrun"
    saved_by_told = told.saved_step()
    assert [max(told.steps(rank)) for rank in range(3)] == [saved_by_told] * 3, told.output
    assert min(told.steps(0)) == saved_by_killed + 1
    assert "DataLoader worker" not in told.output

    with Training(tmp_path, "finished", folder, *options, ranks=1, workers=0) as finished:
        finished.wait()
    assert min(finished.steps(0)) == saved_by_told + 1
    assert max(finished.steps(0)) == EPOCHS * 9
    assert f"epoch {EPOCHS - 1}  accuracy" in finished.output

    consumed: dict[int, list[str]] = defaultdict(list)
    for run, last in ((killed, saved_by_killed), (told, saved_by_told), (finished, math.inf)):
        for rank in range(run.ranks):
            for step, (epoch, keys) in run.steps(rank).items():
                if step <= last:
                    consumed[epoch] += keys
    training = ss.ShardDataset(folder, fields=["cls"], split=("train", {"train": 0.9, "val": 0.1}))
    expected = sorted(sample["__key__"] for sample in training)
    assert len(expected) == 216
    for epoch in range(EPOCHS):
        assert sorted(consumed[epoch]) == expected


@pytest.mark.full
def test_ranks_of_one_replica_read_the_same_and_one_rank_tells_all_to_stop(folder: Path, tmp_path: Path) -> None:
    options = ("--tensor-parallel", "2", "--epochs", "1000", "--save-every", "1000")
    with Training(tmp_path, "run", folder, *options, ranks=4, workers=1) as run:
        run.wait_for(lambda: len(run.steps(0)) >= 11)
        os.kill(run.rank_pids()[-1], signal.SIGTERM)
        run.wait()
    one, same, two, too = (run.steps(rank) for rank in range(4))
    assert max(one) == max(two) == run.saved_step()
    assert one == same
    assert two == too
    keys = [key for steps in (one, two) for epoch, keys in steps.values() for key in keys if epoch == 0]
    assert len(keys) == len(set(keys)) == 216


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("shardstream_example_train_ddp", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def told_to_stop(worker: int) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    example().outlive_sigterm(worker)


def noticed(rank: int, folder: Path) -> list[bool]:
    preemption = example().Preemption()
    dataset = ss.ShardDataset(folder, fields=["cls"], batch_size=8)
    loader = ss.Loader(dataset, num_workers=2, worker_init_fn=told_to_stop)
    assert len(list(loader)) == 30
    before = preemption.agreed()
    os.kill(os.getpid(), signal.SIGTERM)
    deadline = time.monotonic() + 30
    while not (after := preemption.agreed()) and time.monotonic() < deadline:
        time.sleep(0.01)  # a thread that does not block the signal may take it, once it gets a processor
    return [before, after]


def test_workers_that_are_told_to_stop_as_they_begin_go_on(folder: Path, tmp_path: Path) -> None:
    assert on_ranks(tmp_path, 1, noticed, folder) == [[False, True]]


class AlwaysCats(torch.nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.tensor([1.0, 0.0, 0.0]).expand(len(images), 3)


def accuracy(rank: int, folder: Path) -> float:
    fields = {"jpg": ss.decode.CenterCrop(32, resize=36), "cls": None}
    loader = ss.Loader(ss.ShardDataset(folder, fields=fields, tail="pad", batch_size=7).take(61), num_workers=0)
    return example().validate(AlwaysCats(), loader, torch.device("cpu"), None)


def test_validation_counts_every_sample_once(folder: Path, tmp_path: Path) -> None:
    """61 samples on 3 ranks in batches of 7 are three steps with two repeated samples, and those must not count."""
    labels = [sample["cls"] for sample in ss.ShardDataset(folder, fields=["cls"]).take(61)]
    assert on_ranks(tmp_path, 3, accuracy, folder) == pytest.approx([labels.count(0) / 61] * 3)
