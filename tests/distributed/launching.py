"""Real ranks: jobs under torchrun that can be killed, and functions run on forked ranks, which start in no time."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, Self

import torch
import torch.distributed as dist

from ..processes import MARK, marked

CONSUME = Path(__file__).with_name("consume.py")

# How long anything here may take before it counts as hanging.
PATIENCE = 180.0


class Run:
    """A script under torchrun, with all the processes that come of it.

    Args:
        folder: A new folder for what it prints.
        script: What each rank runs.
        arguments: Of the script.
        ranks: Processes.
        restarts: How often torchrun may start all ranks again after one has failed.
        patience: Seconds after which it counts as hanging.
    """

    def __init__(
        self,
        folder: Path,
        script: Path,
        arguments: Sequence[str],
        *,
        ranks: int,
        restarts: int = 0,
        patience: float = PATIENCE,
    ) -> None:
        folder.mkdir(parents=True)
        self.patience = patience
        self.folder = folder
        self.mark = uuid.uuid4().hex
        # Not below `folder`: names of sockets, which torch's workers have there, may be 107 characters long.
        self.temporary = Path(tempfile.mkdtemp(prefix="ddp-"))
        environment = os.environ | {MARK: self.mark, "TMPDIR": str(self.temporary), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command += [f"--max-restarts={restarts}"]
        with (folder / "output.txt").open("wb") as output:
            self.process = subprocess.Popen(
                [*command, str(script), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.kill()
        shutil.rmtree(self.temporary, ignore_errors=True)

    @property
    def output(self) -> str:
        return (self.folder / "output.txt").read_text(errors="replace")

    def pids(self) -> list[int]:
        """Living processes of this run, orphans too."""
        return marked(self.mark)

    def rank_pids(self) -> list[int]:
        """The ranks themselves: children of torchrun."""
        return [pid for pid in self.pids() if _parent(pid) == self.process.pid]

    def kill(self, pids: Sequence[int] | None = None) -> None:
        """SIGKILL for these processes, by default all; and torchrun has ended when this returns."""
        while targets := self.pids() if pids is None else pids:
            for pid in targets:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if pids is not None:
                break
        self.process.wait(PATIENCE)

    def kill_one(self, pid: int) -> None:
        """SIGKILL for one process; torchrun sees to the rest."""
        os.kill(pid, signal.SIGKILL)

    def wait(self) -> None:
        """Until the run ends, which it must do well."""
        try:
            status = self.process.wait(self.patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the run hangs\n{self.output}") from None
        assert status == 0, self.output

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Until the condition holds, while the run is alive."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None, f"the run ended early\n{self.output}"
            assert time.monotonic() < deadline, f"the run hangs\n{self.output}"
            time.sleep(0.005)

    def wait_for_orphans(self) -> None:
        """Until not even a DataLoader worker of it lives; torch's watchdog ends those within five seconds."""
        deadline = time.monotonic() + PATIENCE
        while self.pids():
            assert time.monotonic() < deadline, "processes outlive the run that they work for"
            time.sleep(0.02)


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return -1


class Job(Run):
    """A run of ``consume.py``; its lines can be read while it goes on, and after it was killed.

    Args:
        folder: A new folder.
        data: The data set.
        ranks: Processes.
        run: Number of this run in its chain.
        checkpoint: Where rank 0 saves, and all ranks load from if it is there.
        dataset: Arguments of ``ShardDataset``, ``batch_size`` among them.
        workers: DataLoader workers a rank.
        epochs: Epoch to stop before.
        save_every: Steps between two checkpoints.
        pause: Seconds that a step takes.
        gate: A file without which ranks do not go on after ten steps.
        restarts: See `Run`.
    """

    def __init__(
        self,
        folder: Path,
        data: Path | str,
        *,
        ranks: int,
        run: int = 0,
        checkpoint: Path | None = None,
        dataset: dict[str, Any],
        workers: int,
        epochs: int = 1,
        save_every: int = 3,
        pause: float = 0.0,
        gate: Path | None = None,
        restarts: int = 0,
        field: str = "id",
    ) -> None:
        self.ranks = ranks
        self.run = run
        self.checkpoint = checkpoint or folder / "checkpoint.json"
        job = {
            "folder": str(folder),
            "data": str(data),
            "checkpoint": str(self.checkpoint),
            "run": run,
            "dataset": dataset,
            "field": field,
            "loader": {"num_workers": workers},
            "gate": gate and str(gate),
            "epochs": epochs,
            "save_every": save_every,
            "pause": pause,
        }
        super().__init__(folder, CONSUME, [json.dumps(job)], ranks=ranks, restarts=restarts)

    def lines(self, rank: int) -> list[tuple[int, int, list[int]]]:
        """(epoch, step, ids) of each batch that a rank consumed; half a line at the end was not written in time."""
        try:
            text = (self.folder / f"rank-{rank}.jsonl").read_text()
        except FileNotFoundError:
            return []
        return [tuple(json.loads(line)) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def steps(self) -> list[tuple[int, list[int]]]:
        """(epoch, ids of all ranks in the order of ranks) of each step that every rank wrote down."""
        ranks = [self.lines(rank) for rank in range(self.ranks)]
        assert all([step for _, step, _ in lines] == list(range(len(lines))) for lines in ranks)
        assert max(map(len, ranks)) - min(map(len, ranks)) <= 1, "one rank ran ahead of another"
        steps = []
        for batches in zip(*ranks, strict=False):
            (epoch,) = {epoch for epoch, _, _ in batches}
            steps.append((epoch, [i for _, _, ids in batches for i in ids]))
        return steps

    def saved_steps(self) -> int:
        """How many steps of this run the checkpoint holds."""
        if not self.checkpoint.exists():
            return 0
        saved = json.loads(self.checkpoint.read_text())
        return saved["steps"] if saved["run"] == self.run else 0


def on_ranks(folder: Path, ranks: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """``function(rank, *arguments)`` on forked processes that make up a gloo group, and what each returned.

    An exception is returned in the place of a result.
    """
    folder.mkdir(parents=True, exist_ok=True)
    meeting = folder / f"meeting-{uuid.uuid4().hex}"
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=_on_rank, args=(meeting, rank, ranks, function, arguments)) for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    deadline = time.monotonic() + PATIENCE
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
    hanging = [rank for rank, process in enumerate(processes) if process.is_alive()]
    for process in processes:
        process.kill()
        process.join()
    assert not hanging, f"ranks {hanging} hang"
    results = []
    for rank in range(ranks):
        result = meeting.with_name(f"{meeting.name}.{rank}")
        assert result.exists(), f"rank {rank} ended without a result"
        results.append(pickle.loads(result.read_bytes()))
    return results


def _on_rank(meeting: Path, rank: int, ranks: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    # That of an earlier test, which the parent started, is no child of this process, and Python would wait for it.
    forkserver._forkserver.__init__()  # type: ignore[attr-defined,misc]
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks, timeout=timedelta(seconds=PATIENCE)
    )
    try:
        result = function(rank, *arguments)
    except Exception as error:
        traceback.print_exc()
        result = error
    meeting.with_name(f"{meeting.name}.{rank}").write_bytes(pickle.dumps(result))
    # A group is not taken down together: a rank that failed has nobody to wait for.
    os._exit(0)
