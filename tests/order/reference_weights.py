"""Epochs of draws by weight once more: in fractions and lists, from the design. Golden vectors come from here."""

from __future__ import annotations

import math
from fractions import Fraction

from shardstream import rng

from .reference import STEP, Epoch, Shape


def draws_moved(samples: int, *, seed: int, epoch: int) -> Fraction:
    """How far the draws of an epoch are moved: a part of their distance, as a number of 2^-k."""
    places = 2 ** (52 - samples.bit_length())
    (word,) = rng.words(1, seed=seed, domain=rng.Domain(13), epoch=0).tolist()
    return Fraction((word + epoch * STEP) % 2**64 * places // 2**64, places)


def laid(weights: list[int], keys: list[int], shard: int) -> list[int]:
    """The rows of a shard as they lie on the line."""
    rows = sorted(range(len(weights)), key=lambda row: (keys[row], row))
    before = sum(weights) * (shard * STEP % 2**64) // 2**64
    firsts = (first for first in range(len(rows)) if sum(weights[row] for row in rows[:first]) >= before)
    first = next(firsts, 0)
    return rows[first:] + rows[:first]


def drawn_rows(
    weights: list[list[int]], samples: int, *, seed: int, epoch: int, alike: list[list[int]] | None = None
) -> list[list[int]]:
    """The rows of each shard that the draws of an epoch take, each as often as it comes."""
    moved = draws_moved(samples, seed=seed, epoch=epoch)
    distance = Fraction(sum(map(sum, weights)), samples)
    drawn, before = [], 0
    for shard, (of_shard, keys) in enumerate(zip(weights, alike or weights, strict=True)):
        times = [0] * len(of_shard)
        for row in laid(of_shard, keys, shard):
            after = before + of_shard[row]
            times[row] = math.ceil(after / distance - moved) - math.ceil(before / distance - moved)
            before = after
        drawn.append([row for row, often in enumerate(times) for _ in range(often)])
    return drawn


def weighted_epoch(
    weights: list[list[int]],
    samples: int,
    *,
    seed: int,
    epoch: int,
    shape: Shape,
    alike: list[list[int]] | None = None,
) -> list[tuple[int, int]]:
    """(shard, row) of each position of an epoch of draws."""
    drawn = drawn_rows(weights, samples, seed=seed, epoch=epoch, alike=alike)
    order = Epoch([len(one) for one in drawn], seed=seed, epoch=epoch, shape=shape)
    return [(shard, drawn[shard][number]) for shard, number in order.sequence]
