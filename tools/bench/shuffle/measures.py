"""How well an order is shuffled: measures on plain arrays of stored positions, in the order of consumption."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


def batches_of(order: Integers, batch_size: int) -> Integers:
    """The whole batches of an epoch: int64 (batches, batch_size)."""
    return order[: len(order) // batch_size * batch_size].reshape(-1, batch_size)


def class_entropy(batches: Integers, labels: Integers) -> float:
    """Mean entropy of the classes in a batch, in bits; ``labels`` are those of the stored samples."""
    classes = int(labels.max()) + 1
    number, size = batches.shape
    cells = np.arange(number)[:, None] * classes + labels[batches]
    share = np.bincount(cells.ravel(), minlength=number * classes).reshape(number, classes) / size
    bits = -share * np.log2(share, out=np.zeros_like(share), where=share > 0)
    return float(bits.sum(axis=1).mean())


def co_batch_ratio(first: Integers, second: Integers, batch_size: int) -> float:
    """How often two samples of one batch of ``first`` share a batch of ``second`` too; under a full shuffle 1.

    Args:
        first: An epoch's order, a permutation of [0, n).
        second: Another epoch's.
        batch_size: Samples a batch; what fills none at the end of an epoch takes no part.
    """
    batch = [_batch_numbers(order, batch_size) for order in (first, second)]
    both = (batch[0] >= 0) & (batch[1] >= 0)
    before, after = batch[0][both], batch[1][both]
    met_before = _pairs(before)
    met_twice = _pairs(before * (len(first) // batch_size) + after)
    by_chance = (batch_size - 1) / (len(second) // batch_size * batch_size - 1)
    return met_twice / met_before / by_chance


def _batch_numbers(order: Integers, batch_size: int) -> Integers:
    """Which batch each stored sample is in; -1 for none."""
    whole = len(order) // batch_size * batch_size
    numbers = np.full(len(order), -1, np.int64)
    numbers[order[:whole]] = np.arange(whole) // batch_size
    return numbers


def _pairs(groups: Integers) -> int:
    """How many pairs have the same group."""
    _, sizes = np.unique(groups, return_counts=True)
    return int((sizes * (sizes - 1) // 2).sum())


def kendall_tau(first: Integers, second: Integers) -> float:
    """Rank correlation of two orders of the same n samples: 1 if equal, -1 if reversed, about 0 if unrelated."""
    place = np.empty(len(second), np.int64)
    place[second] = np.arange(len(second))
    pairs = len(first) * (len(first) - 1) / 2
    return 1 - 2 * inversions(place[first]) / pairs


def inversions(permutation: Integers) -> int:
    """How many pairs of a permutation of [0, n) stand in the wrong order.

    Bit by bit, from the highest: among values that agree in all higher bits, those with a one that stand before
    those with a zero.
    """
    n = len(permutation)
    count = 0
    values = permutation
    for bit in reversed(range(max(n - 1, 1).bit_length())):
        group = values >> (bit + 1)
        one = values >> bit & 1
        ones_before = np.cumsum(one) - one
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        ones_before -= np.repeat(ones_before[starts], np.diff(starts, append=n))
        count += int(ones_before[one == 0].sum())
        values = values[np.argsort(values >> bit, kind="stable")]
    return count


def displacement(order: Integers) -> Floats:
    """|position in the epoch - position on disk| of every sample, as a share of the data set."""
    shares: Floats = np.abs(np.arange(len(order)) - order) / len(order)
    return shares


def distance_from_full_shuffle(shares: Floats) -> float:
    """Largest difference between the distribution of displacements and that of a full shuffle, 1 - (1 - x)²; 0 to 1."""
    ordered = np.sort(shares)
    full = 1 - (1 - ordered) ** 2
    steps = np.arange(len(ordered) + 1) / len(ordered)
    return float(max(np.abs(full - steps[1:]).max(), np.abs(full - steps[:-1]).max()))
