"""Where rank and world size come from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import shardstream as ss
from shardstream.stream.ranks import find_rank


def test_explicit_values_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert find_rank(2, 4) == (2, 4, "arguments")
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
