"""Adds the golden vectors of order version 1 that are missing; never changes one that is there.

``python -m tests.order.make_golden`` from the root of the repository. A case once named stays as it is: users' runs
resume by it. New cases get new names; a new order gets a new version and a new file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .reference import Epoch, Position, Shape

PATH = Path(__file__).with_name("golden_v1.json")

Case = dict[str, Any]


def counts_of(case: Case) -> list[int]:
    """The case's samples per shard, given as a list, or as a rule where there are many shards."""
    rule = case["counts"]
    if isinstance(rule, list):
        return rule
    return [rule["least"] + i * rule["step"] % rule["spread"] for i in range(rule["shards"])]


def shape_of(case: Case) -> Shape:
    return Shape(**case["shape"])


def _whole(counts: list[int], *, seed: int, epoch: int, shape: Shape) -> Case:
    samples = Epoch(counts, seed=seed, epoch=epoch, shape=shape).sequence
    return _case(counts, seed, epoch, shape, list(range(sum(counts))), samples)


def _some(rule: dict[str, int], positions: list[int], *, seed: int, epoch: int, shape: Shape) -> Case:
    order = Position(counts_of({"counts": rule}), seed=seed, epoch=epoch, shape=shape)
    return _case(rule, seed, epoch, shape, positions, [order.locate(p) for p in positions])


def _case(
    counts: Any, seed: int, epoch: int, shape: Shape, positions: list[int], samples: list[tuple[int, int]]
) -> Case:
    return {
        "counts": counts, "seed": seed, "epoch": epoch, "shape": asdict(shape), "positions": positions,
        "shards": [shard for shard, _ in samples], "rows": [row for _, row in samples],
    }  # fmt: skip


_SMALL = [7, 0, 3, 12, 1, 5, 9]
_HUGE = {"shards": 100_000, "least": 90_000, "step": 7919, "spread": 20_001}

CASES: dict[str, Callable[[], Case]] = {
    "one-lane": lambda: _whole(_SMALL, seed=0, epoch=0, shape=Shape(1, 4, 8)),
    "one-lane-next-epoch": lambda: _whole(_SMALL, seed=0, epoch=1, shape=Shape(1, 4, 8)),
    "one-lane-next-seed": lambda: _whole(_SMALL, seed=1, epoch=0, shape=Shape(1, 4, 8)),
    "explicit-lanes": lambda: _whole(_SMALL, seed=5, epoch=2, shape=Shape(5, 2, 3)),
    "virtual-workers": lambda: _whole(_SMALL, seed=2**63, epoch=7, shape=Shape(8, 1, 2, 2, 4)),
    "ranks": lambda: _whole([10, 20, 30], seed=9, epoch=3, shape=Shape(12, 2, 4, 2, 2, 3)),
    "groups": lambda: _whole([11, 6, 0, 14, 8, 21], seed=4, epoch=6, shape=Shape(16, 1, 2, 2, 2, 4, 2)),
    "groups-next-epoch": lambda: _whole([11, 6, 0, 14, 8, 21], seed=4, epoch=7, shape=Shape(16, 1, 2, 2, 2, 4, 2)),
    "more-lanes-than-samples": lambda: _whole([2, 0, 3], seed=1, epoch=1, shape=Shape(9, 3, 4)),
    "one-sample": lambda: _whole([1], seed=3, epoch=0, shape=Shape(1, 1, 1)),
    "last-epoch": lambda: _whole([8, 8], seed=2**64 - 1, epoch=2**32 - 1, shape=Shape(2, 2, 3)),
    "wide-windows": lambda: _some(
        {"shards": 30, "least": 9_000, "step": 7, "spread": 101}, [0, 1, 5_000, 69_999, 140_000, 271_000],
        seed=6, epoch=5, shape=Shape(3, 10, 80_000),
    ),
    "huge": lambda: _some(
        _HUGE, [0, 1, 4, 127, 128, 5 * 10**9, 9_999_899_999, 9_999_900_000], seed=42, epoch=11,
        shape=Shape(4096, 4, 128, 8, 32, 16),
    ),
}  # fmt: skip


class GoldenChangedError(Exception):
    """A committed case differs from what the reference gives now."""


def merged(stored: dict[str, Case], made: dict[str, Case]) -> dict[str, Case]:
    """``stored`` with the cases of ``made`` that it lacks."""
    changed = [name for name, case in made.items() if name in stored and stored[name] != case]
    if changed:
        raise GoldenChangedError(f"refusing to rewrite {', '.join(changed)}: version 1 never changes")
    return {**made, **stored}


def load() -> dict[str, Case]:
    return json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {}


def main() -> None:
    cases = merged(load(), {name: make() for name, make in CASES.items()})
    lines = [f"  {json.dumps(name)}: {json.dumps(case, separators=(',', ':'))}" for name, case in sorted(cases.items())]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
