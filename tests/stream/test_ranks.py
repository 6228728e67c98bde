"""Where rank and world size come from."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss
from shardstream.stream.iteration import ranks
from shardstream.stream.iteration.ranks import find_groups, find_rank

from .making import numbered, write_dataset


def test_explicit_values_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert find_rank((2, 4)) == (2, 4, "arguments")
    assert find_rank() == (1, 2, "RANK and WORLD_SIZE")


def test_alone_without_any_sign_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert find_rank() == (0, 1, "single process")


@pytest.mark.parametrize(("rank", "world"), [("x", "2"), ("2", "2"), ("-1", "2")])
def test_nonsense_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch, rank: str, world: str) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world)
    with pytest.raises(ss.errors.UsageError, match="WORLD_SIZE"):
        find_rank()


def test_it_is_looked_up_when_an_iteration_begins(ids: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    dataset = ss.ShardDataset(ids, fields=["id"], batch_size=100)
    assert dataset.rank_source == "single process"
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert dataset.rank_source == "RANK and WORLD_SIZE"
    assert [int(batch["id"][0]) for batch in dataset] == [100, 300, 500, 700, 900]


SCRIPT = """
import json, sys
import torch.distributed as dist
import shardstream as ss

dataset = ss.ShardDataset(sys.argv[1], fields=["id"], shuffle=True, seed=4, batch_size=30)
dist.init_process_group("gloo")
assert dataset.rank_source == "torch.distributed"
ids = [batch["id"].tolist() for batch in ss.Loader(dataset, num_workers=1)]
with open(f"{sys.argv[2]}/{dist.get_rank()}.json", "w") as file:
    json.dump(ids, file)
dist.destroy_process_group()
"""


@pytest.mark.full
def test_torchrun_ranks_share_an_epoch(ids: Path, tmp_path: Path) -> None:
    """Two real ranks take equal steps, and no sample comes twice."""
    import json

    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(tmp_path / "script.py"), str(ids), str(tmp_path)], capture_output=True, text=True, timeout=170
    )
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert [len(rank) for rank in ranks] == [16, 16]
    seen = [i for rank in ranks for batch in rank for i in batch]
    assert len(seen) == len(set(seen)) == 960


LAUNCHERS = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"]
LAUNCHERS += ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS_PER_NODE"]
LAUNCHERS += [f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes the environment that of a launcher, and of no other."""
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    ranks._no_groups.cache_clear()

    def launch(**variables: int) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))

    return launch


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({"SLURM_PROCID": 3, "SLURM_NTASKS": 8}, (3, 8, "SLURM_PROCID and SLURM_NTASKS")),
        (
            {"SLURM_PROCID": 0, "SLURM_NTASKS": 8, "SLURM_STEP_NUM_TASKS": 1},
            (0, 1, "SLURM_PROCID and SLURM_STEP_NUM_TASKS"),
        ),
        (
            {"OMPI_COMM_WORLD_RANK": 1, "OMPI_COMM_WORLD_SIZE": 4},
            (1, 4, "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"),
        ),
        ({"SLURM_PROCID": 1, "SLURM_NTASKS": 2, "RANK": 5, "WORLD_SIZE": 16}, (5, 16, "RANK and WORLD_SIZE")),
        ({"RANK": 1}, (0, 1, "single process")),
    ],
)
def test_launchers_in_their_order(
    launched: Callable[..., None], variables: dict[str, int], found: tuple[int, int, str]
) -> None:
    launched(**variables)
    assert find_rank() == found


def test_a_node_is_so_many_consecutive_ranks_as_the_launcher_says(launched: Callable[..., None]) -> None:
    launched(RANK=5, WORLD_SIZE=8, LOCAL_RANK=1, LOCAL_WORLD_SIZE=4)
    assert find_groups(find_rank(), "node") == 2
    assert find_groups(find_rank((5, 8)), "node") == 2
    assert find_groups(find_rank(), "none") == find_groups(find_rank(), None) == 1


def test_one_process_has_no_groups(launched: Callable[..., None]) -> None:
    launched()
    assert find_groups(find_rank(), "node") == 1


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"RANK": 5, "WORLD_SIZE": 8, "LOCAL_RANK": 2, "LOCAL_WORLD_SIZE": 4}, "cyclic"),
        ({"RANK": 5, "WORLD_SIZE": 8}, "unknown"),
        ({"RANK": 5, "WORLD_SIZE": 9, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 4}, "not a multiple"),
    ],
)
def test_where_nodes_are_not_known_there_is_one_group_and_it_is_said(
    launched: Callable[..., None], caplog: pytest.LogCaptureFixture, variables: dict[str, int], said: str
) -> None:
    launched(**variables)
    for _ in range(2):
        assert find_groups(find_rank(), "node") == 1
    assert caplog.text.count(said) == 1


def test_explicit_ranks_of_another_size_than_the_launcher_have_no_nodes(
    launched: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    launched(RANK=5, WORLD_SIZE=8, LOCAL_RANK=1, LOCAL_WORLD_SIZE=4)
    assert find_groups(find_rank((1, 4)), "node") == 1
    assert "not those of the launcher" in caplog.text


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("affinity", "least", "most"), [("node", 0.95, 1.0), (None, 0.0, 0.7)])
def test_affinity_keeps_the_shards_of_a_node(
    launched: Callable[..., None], tmp_path: Path, affinity: Any, least: float, most: float
) -> None:
    folder = write_dataset(tmp_path / "d", numbered([200] * 20))

    def read(node: int, epoch: int) -> Counter[int]:
        counts: Counter[int] = Counter()
        for local in range(2):
            launched(RANK=2 * node + local, WORLD_SIZE=4, LOCAL_RANK=local, LOCAL_WORLD_SIZE=2)
            dataset = ss.ShardDataset(
                folder, fields=["id"], shuffle=True, batch_size=4, order=ss.OrderOptions(affinity=affinity)
            )
            dataset.set_epoch(epoch)
            counts.update(number // 200 for batch in dataset for number in batch["id"].tolist())
        return counts

    for node in range(2):
        counts = read(node, 0) + read(node, 1) + read(node, 2)
        # half of the shards, and one that lies across the cut; the rest is the ragged end of each epoch
        share = sum(count for _, count in counts.most_common(11)) / counts.total()
        assert least <= share <= most


def test_tensor_parallel_ranks_read_the_same(launched: Callable[..., None], ids: Path) -> None:
    """Eight processes, two to a replica: the data-parallel rank is what counts."""
    read = []
    for process in range(8):
        launched(RANK=process, WORLD_SIZE=8)
        dataset = ss.ShardDataset(ids, fields=["id"], shuffle=True, batch_size=10, ranks=(process // 2, 4))
        read.append([batch["id"].tolist() for batch in dataset])
    assert all(read[i] == read[i + 1] for i in range(0, 8, 2))
    assert len({number for replica in read[::2] for batch in replica for number in batch}) == 1000
