"""Keyed random words: raw Philox output, the only source of chance in the package.

numpy promises that the raw output of a bit generator never changes, but makes no such promise for the methods of
``Generator``; so everything here is built from raw 64-bit words (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", SC 2011). The key says what the words are for, so no two purposes ever share a stream::

    key = (seed, domain << 32 | epoch)      counter = (0, a, b, 0)
"""

from __future__ import annotations

import threading
from enum import IntEnum
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

_MASK64 = (1 << 64) - 1
ALL_RANKS = _MASK64  # in the place of a rank: the key of a whole epoch (`Domain.BATCH`), the same on each


class Domain(IntEnum):
    """What random words are for. Values are part of every order version and never change."""

    SHARDS = 1  # the permutation of the shards of an epoch
    PIECES = 2  # the permutation of pieces inside an affinity group
    WINDOW = 3  # the permutation inside one window: a = lane, b = window
    WINDOW_START = 4  # the window, since order version 2 the place, that a lane begins with: a = lane
    MIXTURE = 5  # the labels of one block of a mixture: a = lane, b = block
    AUGMENT = 6  # a sample's augmentation: a = position, b = the output's stream
    PACK = 7  # the write-time shuffle
    TRANSFORM = 8  # seeds for users' callables: a = position
    SOURCE = 9  # the seed of one source of a mixture: a = its number, from 1 on
    BATCH = 10  # the key of a batch, and what is drawn for it: a = its position or the operation, b = the rank
    DEAL = 11  # the spans of a sub-lane, dealt to virtual workers: a = affinity group, b = sub-lane
    TURN = 12  # how far the line of an affinity group is turned: a = its number
    DRAWS = 13  # how far the draws of epoch 0 are moved, where samples are drawn by weight
    LOOK = 14  # which samples of a data set are looked at
    BINS = 15  # the order of the bins of a window: a = the shard's number, b = the window's
    SCHEDULE = 16  # the phases of the lanes at a node of a mixture by schedule: a = the node


def words(
    count: int, *, seed: int, domain: Domain, epoch: int = 0, a: int = 0, b: int = 0, skip: int = 0
) -> NDArray[np.uint64]:
    """``count`` raw 64-bit words, the same for the same arguments on every machine and numpy version.

    ``seed`` is taken modulo 2**64; ``epoch`` must be in [0, 2**32). The first ``skip`` words are passed over, at no
    cost: any in [0, 2**66).

        >>> int(words(1, seed=0, domain=Domain.SHARDS)[0]) == int(words(2, seed=0, domain=Domain.SHARDS)[0])
        True
    """
    if not 0 <= epoch < 1 << 32:
        raise ValueError(f"epoch must be in [0, 2**32), got {epoch}")
    bits, state = _generator()
    state["state"]["key"][:] = seed & _MASK64, int(domain) << 32 | epoch
    blocks, inside = divmod(skip, 4)  # words of one value of the counter
    state["state"]["counter"][:] = blocks, a & _MASK64, b & _MASK64, 0
    bits.state = state
    return bits.random_raw(count + inside)[inside:]


_local = threading.local()


def _generator() -> tuple[np.random.Philox, Any]:
    """This thread's bit generator, and a state without buffered words: making one anew costs 5 times more."""
    held: tuple[np.random.Philox, Any] | None = getattr(_local, "held", None)
    if held is None:
        bits = np.random.Philox(key=0)
        state: Any = bits.state
        state["buffer_pos"] = len(state["buffer"])
        state["has_uint32"] = 0
        _local.held = held = (bits, state)
    return held


def permutation(raw: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The permutation of n integers that n words encode: their ranks, ties broken by position; of each row of words.

    ``sort((raw & ~mask) | i) & mask`` with the mask of the smallest power of two that holds n: one sort, no argsort.
    """
    n = raw.shape[-1]
    mask = np.uint64((1 << max(n - 1, 0).bit_length()) - 1)
    tagged = raw & ~mask
    tagged |= np.arange(n, dtype=np.uint64)
    tagged.sort()
    tagged &= mask
    return tagged.view(np.int64)


@overload
def unit(word: int) -> float: ...
@overload
def unit(word: NDArray[np.uint64]) -> NDArray[np.float64]: ...
def unit(word: Any) -> Any:
    """A word, or an array of words, as floats in [0, 1): the top 53 bits."""
    return (word >> 11) * 2.0**-53


@overload
def below(word: int, n: int) -> int: ...
@overload
def below(word: NDArray[np.uint64], n: int | NDArray[np.uint64]) -> NDArray[np.uint64]: ...
def below(word: Any, n: Any) -> Any:
    """A word, or an array of words, as integers in [0, n) for n < 2**32: the top 32 bits times n (bias < 2**-32 n)."""
    return (word >> 32) * n >> 32
