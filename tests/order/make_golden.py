"""Adds the golden vectors of the order that are missing; never changes one that is there.

For each version of the order, ``golden_v1.json`` has epochs, and ``golden_mixtures_v1.json`` epochs of mixtures;
``golden_splits_v1.json`` has the parts of splits, which all versions share, and ``golden_weights_v2.json`` epochs of
draws by weight, of version 2. ``golden_schedules_v2.json`` and ``golden_schedules_v3.json`` have mixtures by schedule.

``python -m tests.order.make_golden`` from the root of the repository. A case once named stays as it is: users' runs
resume by it. New cases get new names; a new order gets a new version and a new file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from .reference import Epoch, Mixture, MixturePosition, Position, Shape, split, split_by_shards
from .reference_schedules import ScheduledMixture
from .reference_weights import weighted_epoch

VERSIONS = (1, 2)
PATHS = {version: Path(__file__).with_name(f"golden_v{version}.json") for version in VERSIONS}
MIXTURES_PATHS = {version: Path(__file__).with_name(f"golden_mixtures_v{version}.json") for version in VERSIONS}
WEIGHTS_PATH = Path(__file__).with_name("golden_weights_v2.json")
SPLITS_PATH = Path(__file__).with_name("golden_splits_v1.json")
SCHEDULES_PATHS = {version: Path(__file__).with_name(f"golden_schedules_v{version}.json") for version in (2, 3)}

Case = dict[str, Any]
Make = Callable[[int], Case]  # from the version of the order


def counts_of(case: Case) -> list[int]:
    """The case's samples per shard, given as a list, or as a rule where there are many shards."""
    rule = case["counts"]
    if isinstance(rule, list):
        return rule
    return [rule["least"] + i * rule["step"] % rule["spread"] for i in range(rule["shards"])]


def shape_of(case: Case) -> Shape:
    return Shape(**case["shape"])


def _stored(shape: Shape) -> Case:
    """The shape as cases hold it: those of version 1 do not name it."""
    return {name: value for name, value in asdict(shape).items() if (name, value) != ("version", 1)}


def _whole(counts: list[int], *, seed: int, epoch: int, shape: Shape) -> Make:
    def make(version: int) -> Case:
        of_version = replace(shape, version=version)
        samples = Epoch(counts, seed=seed, epoch=epoch, shape=of_version).sequence
        return _case(counts, seed, epoch, of_version, list(range(sum(counts))), samples)

    return make


def _some(rule: dict[str, int], positions: list[int], *, seed: int, epoch: int, shape: Shape) -> Make:
    def make(version: int) -> Case:
        of_version = replace(shape, version=version)
        order = Position(counts_of({"counts": rule}), seed=seed, epoch=epoch, shape=of_version)
        return _case(rule, seed, epoch, of_version, positions, [order.locate(p) for p in positions])

    return make


def _case(
    counts: Any, seed: int, epoch: int, shape: Shape, positions: list[int], samples: list[tuple[int, int]]
) -> Case:
    return {
        "counts": counts, "seed": seed, "epoch": epoch, "shape": _stored(shape), "positions": positions,
        "shards": [shard for shard, _ in samples], "rows": [row for _, row in samples],
    }  # fmt: skip


_SMALL = [7, 0, 3, 12, 1, 5, 9]
_HUGE = {"shards": 100_000, "least": 90_000, "step": 7919, "spread": 20_001}

CASES: dict[str, Make] = {
    "one-lane": _whole(_SMALL, seed=0, epoch=0, shape=Shape(1, 4, 8)),
    "one-lane-next-epoch": _whole(_SMALL, seed=0, epoch=1, shape=Shape(1, 4, 8)),
    "one-lane-next-seed": _whole(_SMALL, seed=1, epoch=0, shape=Shape(1, 4, 8)),
    "explicit-lanes": _whole(_SMALL, seed=5, epoch=2, shape=Shape(5, 2, 3)),
    "virtual-workers": _whole(_SMALL, seed=2**63, epoch=7, shape=Shape(8, 1, 2, 2, 4)),
    "ranks": _whole([10, 20, 30], seed=9, epoch=3, shape=Shape(12, 2, 4, 2, 2, 3)),
    "groups": _whole([11, 6, 0, 14, 8, 21], seed=4, epoch=6, shape=Shape(16, 1, 2, 2, 2, 4, 2)),
    "groups-next-epoch": _whole([11, 6, 0, 14, 8, 21], seed=4, epoch=7, shape=Shape(16, 1, 2, 2, 2, 4, 2)),
    "equal-shards": _whole([12] * 8, seed=2, epoch=0, shape=Shape(8, 2, 3, 2, 2, 2)),
    "equal-shards-next-epoch": _whole([12] * 8, seed=2, epoch=1, shape=Shape(8, 2, 3, 2, 2, 2)),
    "equal-shards-groups": _whole([12] * 8, seed=2, epoch=9, shape=Shape(16, 1, 2, 2, 2, 4, 2)),
    "more-lanes-than-samples": _whole([2, 0, 3], seed=1, epoch=1, shape=Shape(9, 3, 4)),
    "one-sample": _whole([1], seed=3, epoch=0, shape=Shape(1, 1, 1)),
    "last-epoch": _whole([8, 8], seed=2**64 - 1, epoch=2**32 - 1, shape=Shape(2, 2, 3)),
    "wide-windows": _some(
        {"shards": 30, "least": 9_000, "step": 7, "spread": 101}, [0, 1, 5_000, 69_999, 140_000, 271_000],
        seed=6, epoch=5, shape=Shape(3, 10, 80_000),
    ),
    "huge": _some(
        _HUGE, [0, 1, 4, 127, 128, 5 * 10**9, 9_999_899_999, 9_999_900_000], seed=42, epoch=11,
        shape=Shape(4096, 4, 128, 8, 32, 16),
    ),
}  # fmt: skip


def _split(counts: list[int], fractions: dict[str, Any], *, by: str = "samples") -> Case:
    shares = {name: Fraction(str(given)) for name, given in fractions.items()}
    parts = (split if by == "samples" else split_by_shards)(counts, shares)
    ranges = {name: _ranges(rows) for name, rows in parts.items()}
    return {"counts": counts, "fractions": fractions, "by": by, "parts": ranges}


def _ranges(rows: list[tuple[int, int]]) -> list[list[int]]:
    """Shard, first row and number of rows of each shard that the part has rows of."""
    held: dict[int, list[int]] = {}
    for shard, row in rows:
        held.setdefault(shard, []).append(row)
    return [[shard, min(some), len(some)] for shard, some in held.items()]


_MANY = [97 + i * 31 % 17 for i in range(40)]

SPLITS: dict[str, Callable[[], Case]] = {
    "two-parts": lambda: _split([10, 10, 0, 7, 1, 13, 60], {"train": 0.9, "val": 0.1}),
    "three-parts": lambda: _split(_MANY, {"train": 0.96, "val": 0.03, "test": 0.01}),
    "thirds": lambda: _split([1, 0, 2, 5, 3, 1, 1, 8], {"a": "1/3", "b": "1/3", "c": "1/3"}),
    "long-decimals": lambda: _split(_MANY, {"kept": 0.8765432109876543, "rest": 0.1234567890123457}),
    "shards": lambda: _split([4, 0, 2, 9, 1, 1, 3, 5, 2, 7], {"train": 0.7, "val": 0.2, "test": 0.1}, by="shards"),
}


def _mixture(
    counts: list[list[int]],
    quotas: list[int],
    samples: int,
    *,
    seed: int,
    epoch: int,
    shape: Shape,
    by: str = "samples",
) -> Make:
    run = {"quotas": quotas, "samples": samples, "seed": seed}

    def make(version: int) -> Case:
        of_version = replace(shape, version=version)
        found = Mixture(counts, **run, shape=of_version, by=by, epochs=epoch + 1).epochs[epoch]
        return _mixture_case(counts, run, epoch, of_version, by, list(range(len(found))), found)

    return make


def _mixture_some(
    rules: list[dict[str, int]],
    quotas: list[int],
    samples: int,
    positions: list[int],
    *,
    seed: int,
    epoch: int,
    shape: Shape,
) -> Make:
    run = {"quotas": quotas, "samples": samples, "seed": seed}

    def make(version: int) -> Case:
        of_version = replace(shape, version=version)
        counts = [counts_of({"counts": rule}) for rule in rules]
        order = MixturePosition(counts, **run, epoch=epoch, shape=of_version)
        return _mixture_case(rules, run, epoch, of_version, "samples", positions, [order.locate(p) for p in positions])

    return make


def _mixture_case(
    counts: Any,
    run: Case,
    epoch: int,
    shape: Shape,
    by: str,
    positions: list[int],
    samples: list[tuple[int, int, int]],
) -> Case:
    return {
        "counts": counts, **run, "epoch": epoch, "shape": _stored(shape), "by": by, "positions": positions,
        "sources": [source for source, _, _ in samples], "shards": [shard for _, shard, _ in samples],
        "rows": [row for _, _, row in samples],
    }  # fmt: skip


_LARGE = {"shards": 1000, "least": 90_000, "step": 7919, "spread": 20_001}

MIXTURES: dict[str, Make] = {
    "two-sources": _mixture([[40, 0, 61], [33, 50]], [3, 1], 70, seed=1, epoch=0, shape=Shape(4, 2, 5)),
    "two-sources-later": _mixture([[40, 0, 61], [33, 50]], [3, 1], 70, seed=1, epoch=5, shape=Shape(4, 2, 5)),
    "one-source-more-positions": _mixture([[30, 13]], [1], 100, seed=2, epoch=2, shape=Shape(5, 1, 3)),
    "one-source-fewer-positions": _mixture([[30, 13]], [1], 17, seed=2, epoch=4, shape=Shape(5, 1, 3)),
    "a-small-source": _mixture(
        [[70, 30], [0, 2, 0, 5]], [2, 1], 90, seed=3, epoch=1, shape=Shape(8, 1, 4, 2, 4)
    ),
    "by-batches": _mixture(
        [[60, 40], [90]], [2, 1], 75, seed=4, epoch=3, shape=Shape(8, 2, 4, 2, 4), by="batches"
    ),
    "groups": _mixture(
        [[60, 50, 70], [99, 80]], [1, 2], 80, seed=5, epoch=2, shape=Shape(16, 1, 2, 2, 2, 4, 2)
    ),
    "equal-shards": _mixture([[12] * 6, [10] * 4], [2, 1], 60, seed=7, epoch=3, shape=Shape(8, 1, 3, 2, 2, 2)),
    "equal-shards-by-batches": _mixture(
        [[12] * 6, [10] * 4], [2, 1], 60, seed=7, epoch=3, shape=Shape(8, 1, 3, 2, 2, 2), by="batches"
    ),
    "one-source-of-one-sample": _mixture([[1], [0, 12]], [1, 4], 30, seed=6, epoch=1, shape=Shape(2, 2, 2)),
    "huge": _mixture_some(
        [_HUGE, _LARGE], [9, 1], 10**9, [0, 1, 127, 128, 5 * 10**8, 999_999_999], seed=42, epoch=11,
        shape=Shape(4096, 4, 128, 8, 32, 16),
    ),
}  # fmt: skip


def _weighted(
    weights: list[list[int]],
    samples: int,
    *,
    seed: int,
    epoch: int,
    shape: Shape,
    alike: list[list[int]] | None = None,
) -> Callable[[], Case]:
    def make() -> Case:
        of_version = replace(shape, version=2)
        run: Case = {"samples": samples, "seed": seed, "epoch": epoch}
        found = weighted_epoch(weights, **run, shape=of_version, alike=alike)
        return {
            "weights": weights, "alike": alike, **run, "shape": _stored(of_version),
            "shards": [shard for shard, _ in found], "rows": [row for _, row in found],
        }  # fmt: skip

    return make


_LIGHT = [[3, 0, 1, 4], [], [1, 5, 9, 2, 6], [0], [5, 3, 5]]
_HEAVY = [[(1 << 56) // (row + shard + 1) for row in range(5)] for shard in range(4)]
_LABELS = [[0, 1, 0, 2, 0, 1, 1, 0], [2, 0, 0, 1, 0, 0, 0, 2]]

WEIGHTS: dict[str, Callable[[], Case]] = {
    "one-lane": _weighted(_LIGHT, 12, seed=0, epoch=0, shape=Shape(1, 4, 1)),
    "next-epoch": _weighted(_LIGHT, 12, seed=0, epoch=1, shape=Shape(1, 4, 8)),
    "more-draws": _weighted(_LIGHT, 90, seed=1, epoch=3, shape=Shape(4, 2, 5)),
    "fewer-draws": _weighted(_LIGHT, 5, seed=2, epoch=2**32 - 1, shape=Shape(2, 1, 3)),
    "one-draw": _weighted(_LIGHT, 1, seed=3, epoch=7, shape=Shape(1, 1, 1)),
    "alike": _weighted([[2] * 6, [2] * 5], 11, seed=4, epoch=2, shape=Shape(3, 1, 4)),
    "heavy": _weighted(_HEAVY, 70, seed=5, epoch=9, shape=Shape(8, 1, 4, 2, 2, 2)),
    "labels": _weighted(
        [[(3, 5, 8)[label] for label in one] for one in _LABELS], 40, seed=2**64 - 1, epoch=4,
        shape=Shape(8, 2, 3, 2, 2, 2), alike=_LABELS,
    ),
    "groups": _weighted(_LIGHT, 64, seed=6, epoch=5, shape=Shape(16, 1, 2, 2, 2, 4, 2)),
}  # fmt: skip


def _scheduled(
    counts: list[list[int]], knots: list[list[Any]], samples: int, *, seed: int, epoch: int, shape: Shape
) -> Make:
    def make(version: int) -> Case:
        of_version = replace(shape, version=version)
        run: Case = {"knots": knots, "samples": samples, "seed": seed}
        found = ScheduledMixture(counts, **run, shape=of_version, epochs=epoch + 1).epochs[epoch]
        return {
            "counts": counts, **run, "epoch": epoch, "shape": _stored(of_version),
            "sources": [source for source, _, _ in found], "shards": [shard for _, shard, _ in found],
            "rows": [row for _, _, row in found],
        }  # fmt: skip

    return make


_THREE = [[40, 0, 61], [33, 50], [70]]
_JUMPS = [[0, [1, 0, 1]], [37, [1, 0, 1]], [37, [0, 1, 1]], [150, [0, 1, 1]], [150, [1, 0, 0]]]
_RAMPS = [[0, [3, 1, 0]], [90, [1, 1, 1]], [90, [0, 2, 1]], [201, ["0.125", 1, 2]], [333, [7, 0, 1]]]

SCHEDULES: dict[str, Make] = {
    "jumps": _scheduled(_THREE, _JUMPS, 203, seed=1, epoch=0, shape=Shape(8, 3, 5, 2, 2, 2)),
    "jumps-in-a-later-epoch": _scheduled(_THREE, _JUMPS, 67, seed=2, epoch=2, shape=Shape(8, 3, 5, 2, 2, 2)),
    "ramps": _scheduled(_THREE, _RAMPS, 400, seed=3, epoch=0, shape=Shape(4, 8, 5)),
    "ramps-of-groups": _scheduled(_THREE, _RAMPS, 131, seed=4, epoch=2, shape=Shape(16, 2, 3, 2, 2, 4, 2)),
    "one-source": _scheduled([[30, 13]], [[0, [1]]], 50, seed=5, epoch=1, shape=Shape(5, 2, 3)),
}  # fmt: skip


def made_by(makers: dict[str, Make], version: int) -> dict[str, Callable[[], Case]]:
    """The same for one version."""
    return {name: partial(make, version) for name, make in makers.items()}


FILES: dict[Path, dict[str, Callable[[], Case]]] = {
    **{path: made_by(CASES, version) for version, path in PATHS.items()},
    **{path: made_by(MIXTURES, version) for version, path in MIXTURES_PATHS.items()},
    **{path: made_by(SCHEDULES, version) for version, path in SCHEDULES_PATHS.items()},
    SPLITS_PATH: SPLITS,
    WEIGHTS_PATH: WEIGHTS,
}


class GoldenChangedError(Exception):
    """A committed case differs from what the reference gives now."""


def merged(stored: dict[str, Case], made: dict[str, Case]) -> dict[str, Case]:
    """``stored`` with the cases of ``made`` that it lacks."""
    changed = [name for name, case in made.items() if name in stored and stored[name] != case]
    if changed:
        raise GoldenChangedError(f"refusing to rewrite {', '.join(changed)}: a version never changes")
    return {**made, **stored}


def load(path: Path) -> dict[str, Case]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def main() -> None:
    for path, makers in FILES.items():
        cases = merged(load(path), {name: make() for name, make in makers.items()})
        lines = [
            f"  {json.dumps(name)}: {json.dumps(case, separators=(',', ':'))}" for name, case in sorted(cases.items())
        ]
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
