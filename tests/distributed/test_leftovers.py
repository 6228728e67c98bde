"""Nothing of ours has a global name on the host: killed runs leave nothing, and runs side by side never meet."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import pytest

from ..stream.making import numbered, write_dataset
from .launching import Job

ROOT = Path(__file__).resolve().parents[2]

TEMPORARY = re.escape(tempfile.gettempdir())
# Not ours, and named by those who make them:
TORCH = re.compile(
    r"/dev/shm/torch_\d+_\d+_\d+"  # a tensor on its way between processes; its name is gone as soon as both hold it
    r"|/dev/shm/(sem\.)?mp-\w+|/dev/shm/sem\.\w+"  # a lock of Python's multiprocessing, while it is being made
    rf"|{TEMPORARY}/(ddp-\w+/)?pymp-\w+(/.*)?"  # sockets through which its workers hand over file descriptors
    rf"|{TEMPORARY}/(ddp-\w+/)?torchelastic_\w+(/.*)?"  # what torchrun keeps of each rank's output and error
    rf"|{TEMPORARY}/(ddp-\w+/)?torchinductor_\w+(/.*)?"  # a folder that torch makes when it is imported
    rf"|{TEMPORARY}/ddp-\w+"  # folders for temporary files of these tests
)
DATASET = {"batch_size": 16, "seed": 3}


def ids_of(folder: Path, first: int, count: int) -> Path:
    shards = numbered([first, count], raw=lambda n: bytes(2000))[1:]
    return write_dataset(folder, [shards[0][: count // 2], shards[0][count // 2 :]])


def names(*folders: Path) -> set[str]:
    """Everything that lies there."""
    return {str(path) for folder in folders for path in folder.iterdir()}


def opened(pids: list[int]) -> set[str]:
    """All that processes have open or mapped."""
    found = set()
    for pid in pids:
        try:
            links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
            maps = re.findall(r" (/.*)$", Path(f"/proc/{pid}/maps").read_text(), re.MULTILINE)
        except OSError:  # it ended while we looked
            continue
        found |= {name.strip().removesuffix(" (deleted)") for name in [*links, *maps]}
    return found


def killed_in_mid_epoch(folder: Path, work: Path) -> tuple[set[str], set[str]]:
    """What a run had open or mapped, and which names there are after it was killed that were not there before."""
    places = [Path("/dev/shm"), Path("/tmp")]
    before = names(*places)
    with Job(work, folder, ranks=2, dataset=DATASET, workers=2, pause=0.01) as job:
        job.wait_for(lambda: len(job.lines(0)) >= 5)
        used = opened(job.pids())
        job.kill()
        after = names(*places, job.temporary) - {str(job.temporary)}
    # what a run reads, what this test has it write, and Python itself, which may lie in a folder for temporary files
    known = (f"{folder}/", f"{work}/rank-", f"{work}/output.txt", f"{sys.prefix}/", f"{ROOT}/")
    assert any(name.startswith("/memfd:shardstream") for name in used), "batches in shared memory were not seen"
    used = {name for name in used if name.startswith(("/dev/shm/", "/tmp/", "/var/tmp/", "/run/"))}
    return {name for name in used if not name.startswith(known)}, after - before


@pytest.mark.full
def test_a_killed_run_had_and_leaves_no_name_of_ours(tmp_path: Path) -> None:
    folder = ids_of(tmp_path / "data", 0, 1_000)
    strange: set[str] = set()
    for attempt in range(3):  # others on this host come and go at the same time; what were ours would come each time
        used, left = killed_in_mid_epoch(folder, tmp_path / f"run-{attempt}")
        strange = {name for name in used | left if not TORCH.fullmatch(name)}
        if not strange:
            break
    assert not strange


@pytest.mark.full
def test_two_runs_side_by_side_and_one_again_after_a_kill(tmp_path: Path) -> None:
    """Each gets all of its own data set; the second is killed and started again at once, while the first goes on."""
    one, two = ids_of(tmp_path / "a", 0, 960), ids_of(tmp_path / "b", 5_000, 960)

    gate = tmp_path / "gate"  # until this is there, a run that looks for it does not get beyond its tenth step

    def start(name: str, folder: Path, gate: Path | None) -> Job:
        return Job(tmp_path / name, folder, ranks=2, dataset=DATASET, workers=1, gate=gate)

    with start("one", one, gate) as first, start("two", two, gate) as second:
        for job in (first, second):
            job.wait_for(lambda job=job: len(job.lines(0)) >= 10)  # type: ignore[misc]
        second.kill([*second.rank_pids(), second.process.pid])
        with start("again", two, None) as again:
            again.wait()
        gate.touch()
        first.wait()
        second.wait_for_orphans()
    for job, begin in ((first, 0), (again, 5_000)):
        assert len(job.steps()) == 30
        assert sorted(i for _, ids in job.steps() for i in ids) == list(range(begin, begin + 960))
    whole = again.steps()
    assert second.steps() == whole[: len(second.steps())]
