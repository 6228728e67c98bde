"""Which sample comes when: pure functions of integers. No files, no torch, nothing held per sample.

Module map, from the outside in::

    parameters.py  OrderParameters (what makes two runs see one order), their defaults, ORDER_VERSION
    steps.py       which positions a rank's step (or block of samples) takes, and how many steps there are
    remaining.py   Remaining: the positions that are left after runs stopped, as a line to take further steps on
    skipping.py    ranges of positions that a run leaves out
    subsets.py     which rows of each shard a part of a split, or the first n samples, consist of
    mixing.py      MixedOrder: EpochOrder for several sources, or for an endless walk through one; its parameters
    quotas.py      the weights of a mixture as integers
    schedule.py    weights that change with the position; scheduled.py, which source a position then has
    walks.py       endless paths through the spans, epoch after epoch, that use every sample evenly
    sized.py       SizedOrder: epochs of another size, as pieces of an endless walk through the data set's own
    draws.py       WeightedDraws: rows that come as often as their weights say, in the place of samples of each shard
    epoch.py       EpochOrder: position in the epoch -> (shard, row); ties the parts below together
    sequence.py    position -> (lane, offset): chunks dealt to the lanes in turn, then the ragged last row
    lanes.py       lane -> its span of the line, and back
    windows.py     (lane, offset) -> position on the line: the shuffle buffer, as permutations of windows
    held.py        the permutations of windows and of labels that are in use, within a bound in bytes
    line.py        position on the line -> (shard, row): shards laid end to end

A *position* counts the samples of an epoch in the order of consumption, over all ranks. The *line* is the epoch's
shards laid end to end; *lanes* read far-apart *spans* of it side by side, each through *windows* that are permuted.
All chance comes from ``shardstream.rng``, keyed by seed, epoch, lane and window, so any position can be entered
directly and every process computes the same answer.
"""

from __future__ import annotations

from shardstream.order.draws import WEIGHT_BITS, WeightedDraws
from shardstream.order.epoch import EpochOrder
from shardstream.order.line import epoch_line
from shardstream.order.mixing import MixBy, MixedOrder, mixing_parameters, schedule_in_effect
from shardstream.order.parameters import (
    ORDER_VERSION,
    ORDER_VERSIONS,
    SCHEDULED_VERSION,
    OrderParameters,
    default_parameters,
)
from shardstream.order.quotas import as_fraction, quotas_of
from shardstream.order.remaining import Remaining, Stop, taken_by_batches, worker_samples
from shardstream.order.schedule import Knot, Schedule, plain_knots
from shardstream.order.sized import SizedOrder
from shardstream.order.skipping import Place, PlaceRange, joined_ranges, ranges_in_epoch, ranges_of, uncovered
from shardstream.order.steps import BLOCK, Tail, sample_count, step_count, step_positions
from shardstream.order.subsets import SplitBy, split_ranges, take_counts

__all__ = [
    "BLOCK",
    "ORDER_VERSION",
    "ORDER_VERSIONS",
    "SCHEDULED_VERSION",
    "WEIGHT_BITS",
    "EpochOrder",
    "Knot",
    "MixBy",
    "MixedOrder",
    "OrderParameters",
    "Place",
    "PlaceRange",
    "Remaining",
    "Schedule",
    "SizedOrder",
    "SplitBy",
    "Stop",
    "Tail",
    "WeightedDraws",
    "as_fraction",
    "default_parameters",
    "epoch_line",
    "joined_ranges",
    "mixing_parameters",
    "plain_knots",
    "quotas_of",
    "ranges_in_epoch",
    "ranges_of",
    "sample_count",
    "schedule_in_effect",
    "split_ranges",
    "step_count",
    "step_positions",
    "take_counts",
    "taken_by_batches",
    "uncovered",
    "worker_samples",
]
