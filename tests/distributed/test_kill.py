"""Jobs killed with SIGKILL at random moments and started again in other shapes: no repeats, no gaps, one order."""

from __future__ import annotations

import gzip
import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ..formats.catalog.making import tar
from ..stream.making import numbered, write_dataset
from .chain import SEED, Chain, uninterrupted
from .launching import Job

SAMPLES = 4_003


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = [900, 1, 0, 1_500, 602, 1_000]
    assert sum(sizes) == SAMPLES
    return write_dataset(tmp_path_factory.mktemp("ids"), numbered(sizes))


# Ranks, batch size and workers. The batch sizes of one chain differ, too; the first shape is one that has many lanes.
SHAPES = ((4, 8, 2), (2, 16, 1), (3, 5, 3), (1, 24, 0))


def kill_rounds(
    folder: Path,
    work: Path,
    *,
    rounds: int,
    epochs: int,
    draws: random.Random,
    shapes: Sequence[tuple[int, int, int]] = SHAPES,
    field: str = "id",
) -> None:
    with Chain(folder, work, samples=SAMPLES, epochs=epochs, first=shapes[0][:2], field=field) as chain:
        for number in range(rounds):
            ranks, batch_size, workers = shapes[number % 4] if number < 4 else draws.choice(shapes)
            job = chain.start(ranks=ranks, batch_size=batch_size, workers=workers, pause=0.01)
            lines = draws.randrange(1, 30)
            job.wait_for(lambda job=job, lines=lines: len(job.lines(0)) >= lines)  # type: ignore[misc]
            time.sleep(draws.uniform(0, 0.03))
            match number % 3:
                case 0:  # the machine goes
                    job.kill()
                case 1:  # the ranks and torchrun; workers find out by themselves, while the next run already begins
                    job.kill([*job.rank_pids(), job.process.pid])
                case _:  # one rank; torchrun ends the others
                    job.kill([draws.choice(job.rank_pids())])
            chain.check(job, batch_size=batch_size)
        ranks, batch_size, workers = shapes[rounds % 4]
        job = chain.start(ranks=ranks, batch_size=batch_size, workers=workers, pause=0)
        job.wait()
        chain.check(job, batch_size=batch_size, complete=True)
        chain.wait_for_orphans()


@pytest.mark.full
@pytest.mark.parametrize("kind", ["tar.gz", "json lines"])
def test_data_of_other_libraries_is_killed_and_resumed_too(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On eight ranks, which find no catalogue at first."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    data, begin = tmp_path / "data", 0
    for number, samples in enumerate((1_000, 3, 2_000, 1_000)):
        ids = range(begin, begin + samples)
        begin += samples
        if kind == "json lines":
            data.mkdir(exist_ok=True)
            (data / f"part-{number}.jsonl").write_text(
                "".join(f'{{"cls": {one}, "text": "no {one}"}}\n' for one in ids)
            )
            continue
        path = data / f"part-{number}.tar"
        tar(path, [f"{one:05d}" for one in ids], cls=ids.__getitem__, txt=lambda row: f"number {row}")
        (data / f"part-{number}.tar.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert begin == SAMPLES
    work = tmp_path / "work"
    work.mkdir()
    shapes = [(8, 4, 1), *SHAPES[1:]]
    kill_rounds(data, work, rounds=2, epochs=2, draws=random.Random(5), shapes=shapes, field="cls")


@pytest.mark.full
def test_torchrun_restarts_the_ranks_by_itself(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Or ranks may find the addresses of the start before in torch's store (github.com/pytorch/pytorch/issues/135712).
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    dataset = {"seed": SEED, "batch_size": 8}
    expected = uninterrupted(folder, 0, samples=SAMPLES, ranks=2, batch_size=8)
    with Job(tmp_path / "run", folder, ranks=2, dataset=dataset, workers=1, pause=0.005, restarts=1) as job:
        job.wait_for(lambda: len(job.lines(0)) >= 7)
        job.kill_one(job.rank_pids()[1])
        job.wait()
    begins = [[i for i, (_, step, _) in enumerate(job.lines(rank)) if step == 0] for rank in range(2)]
    assert [len(starts) for starts in begins] == [2, 2]
    parts: list[list[list[int]]] = []
    for first, last in ((0, 1), (1, None)):
        lines = [job.lines(rank)[starts[first] : starts[last] if last else None] for rank, starts in enumerate(begins)]
        parts.append([[i for _, _, ids in batches for i in ids] for batches in zip(*lines, strict=False)])
    before, after = parts
    steps = [expected[begin : begin + 16] for begin in range(0, SAMPLES - 15, 16)]
    assert before == steps[: len(before)]
    saved = len(steps) - len(after)
    assert after == steps[saved:]
    assert 6 <= saved <= len(before)
    assert saved % 3 == 0


@pytest.mark.full
def test_killed_at_random_moments_and_resumed_in_other_shapes(folder: Path, tmp_path: Path) -> None:
    """Four rounds; ``tools/drills/kills`` has hundreds."""
    kill_rounds(folder, tmp_path, rounds=4, epochs=3, draws=random.Random(1))
