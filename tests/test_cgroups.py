from __future__ import annotations

from pathlib import Path

import pytest

from shardstream.cgroups import is_frozen, memory_limit, own_groups, processor_quota


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "250000 100000"}, 2.5),
        ({"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4.0),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
    ],
)
def test_the_quota_of_both_versions(files: dict[str, str], quota: float | None, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert processor_quota(tmp_path) == quota


@pytest.mark.parametrize(
    ("files", "frozen"),
    [
        ({}, False),
        ({"cgroup.events": "populated 1\nfrozen 0"}, False),
        ({"cgroup.events": "populated 1\nfrozen 1"}, True),
        ({"freezer.state": "THAWED"}, False),
        ({"freezer.state": "FROZEN"}, True),
    ],
)
def test_whether_a_group_is_frozen_in_both_versions(files: dict[str, str], frozen: bool, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text + "\n")
    assert is_frozen(tmp_path) == frozen


def test_the_tightest_of_all_groups_counts(tmp_path: Path) -> None:
    inner = own_groups("cpu", tmp_path)[-1]
    inner.mkdir(parents=True, exist_ok=True)
    (tmp_path / "cpu.max").write_text("300000 100000")
    (inner / "cpu.max").write_text("100000 100000")
    assert processor_quota(tmp_path) == 1.0


def test_the_memory_that_a_process_can_have(tmp_path: Path) -> None:
    machine = memory_limit(tmp_path)
    (tmp_path / "memory.max").write_text("max")
    assert memory_limit(tmp_path) == machine
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/memory.limit_in_bytes").write_text("5000")
    assert memory_limit(tmp_path) == 5000
