"""Which sample comes when: pure functions of integers. No files, no torch, nothing held per sample.

Module map, from the outside in::

    parameters.py  OrderParameters (what makes two runs see one order), their defaults, ORDER_VERSION
    steps.py       which positions a rank's step (or block of samples) takes, and how many steps there are
    epoch.py       EpochOrder: position in the epoch -> (shard, row); ties the four parts below together
    sequence.py    position -> (lane, offset): chunks dealt to the lanes in turn, then the ragged last row
    lanes.py       lane -> its span of the line, and back
    windows.py     (lane, offset) -> position on the line: the shuffle buffer, as permutations of windows
    line.py        position on the line -> (shard, row): shards laid end to end

A *position* counts the samples of an epoch in the order of consumption, over all ranks. The *line* is the epoch's
shards laid end to end; *lanes* read far-apart *spans* of it side by side, each through *windows* that are permuted.
All chance comes from ``shardstream.rng``, keyed by seed, epoch, lane and window, so any position can be entered
directly and every process computes the same answer.
"""

from __future__ import annotations

from shardstream.order.epoch import EpochOrder
from shardstream.order.parameters import ORDER_VERSION, OrderParameters, default_parameters
from shardstream.order.steps import BLOCK, Tail, sample_count, step_count, step_positions

__all__ = [
    "BLOCK",
    "ORDER_VERSION",
    "EpochOrder",
    "OrderParameters",
    "Tail",
    "default_parameters",
    "sample_count",
    "step_count",
    "step_positions",
]
