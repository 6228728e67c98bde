"""The order of an epoch, in all its versions, once more: slow, in Python integers and lists, straight from the design.

Shares nothing with the package but the raw random words. ``Epoch`` builds a whole small epoch as lists, dealing chunks
as cards are dealt; ``Position`` computes single positions of epochs of any size from the formulas. ``Mixture`` and
``MixturePosition`` do the same for mixtures. The golden vectors of this folder come from here, so nothing in this file
may change what it returns.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, count, pairwise

from shardstream import rng

STEP = (math.isqrt(5 * 2**256) - 2**128) // 2**65  # (√5 - 1) / 2 of 2**64


def permutation(n: int, *, seed: int, domain: int, epoch: int, a: int = 0, b: int = 0) -> list[int]:
    mask = 2 ** math.ceil(math.log2(n)) - 1 if n > 1 else 0
    raw = rng.words(n, seed=seed, domain=rng.Domain(domain), epoch=epoch, a=a, b=b).tolist()
    return [word & mask for word in sorted((word & ~mask) | i for i, word in enumerate(raw))]


@dataclass(frozen=True)
class Shape:
    """Λ, c, w, V, m, R₀, G and the version of the order under the names that the package gives them."""

    lanes: int
    chunk: int
    window: int
    virtual: int = 1
    sublanes: int = 1
    ranks: int = 1
    groups: int = 1
    version: int = 1

    @property
    def spread(self) -> bool:
        return self.lanes == self.ranks * self.virtual * self.sublanes

    def span_of_lane(self, lane: int) -> int:
        """As long as nothing is dealt, as in version 1."""
        if not self.spread:
            return lane  # explicit lanes
        u, i = lane // self.sublanes, lane % self.sublanes
        group = (u % self.ranks) * self.groups // self.ranks
        workers = self.ranks * self.virtual // self.groups  # virtual workers a group
        # the rank of u among the group's virtual workers: the whole rounds of ranks before u each hold ranks/groups of
        # them, and those of its own round stand before it
        per_round = self.ranks // self.groups
        rank_in_group = (u // self.ranks) * per_round + (u % self.ranks) - group * per_round
        return group * self.lanes // self.groups + i * workers + rank_in_group

    def spans_of_lanes(self, *, seed: int, epoch: int, together: bool = False) -> list[int]:
        """The span that each lane reads; ``together``: where the lanes of a virtual worker stay together."""
        if together and self.version > 1:
            return self._handed(seed=seed, epoch=epoch)
        spans = [self.span_of_lane(lane) for lane in range(self.lanes)]
        if self.version == 1:
            return spans
        decks: dict[tuple[int, int], list[int]] = {}
        for lane in sorted(range(self.lanes), key=lambda lane: spans[lane]):
            sublane = lane % self.sublanes if self.spread else 0
            decks.setdefault((spans[lane] * self.groups // self.lanes, sublane), []).append(lane)
        dealt = list(spans)
        for (group, sublane), lanes in decks.items():
            cards = permutation(len(lanes), seed=seed, domain=11, epoch=epoch, a=group, b=sublane)
            for lane, card in zip(lanes, cards, strict=True):
                dealt[lane] = spans[lanes[card]]
        return dealt

    def _handed(self, *, seed: int, epoch: int) -> list[int]:
        first = self.spans_of_lanes(seed=seed, epoch=0)
        handed = list(first)
        sublanes = self.sublanes if self.spread else 1
        ranks = self.ranks if self.spread else 1
        for group in range(self.groups):
            workers = [u for u in range(self.lanes // sublanes) if u % ranks * self.groups // ranks == group]
            hands = permutation(len(workers), seed=seed, domain=11, epoch=epoch, a=group, b=sublanes)
            for worker, hand in zip(workers, hands, strict=True):
                for sublane in range(sublanes):
                    handed[worker * sublanes + sublane] = first[workers[hand] * sublanes + sublane]
        return handed

    def turn(self, samples: int, group: int, *, seed: int, epoch: int) -> int:
        """With how many of its samples behind it the line of a group begins."""
        if self.version == 1 or samples == 0:
            return 0
        (first,) = rng.words(1, seed=seed, domain=rng.Domain(12), a=group).tolist()
        (word,) = rng.words(1, seed=seed, domain=rng.Domain(12), epoch=epoch, a=group, b=1).tolist()
        spans = self.lanes // self.groups
        part = Fraction((first + epoch * STEP) % 2**64, 2**64)
        return math.floor((word * spans // 2**64 + part) * samples / spans)

    def windows(self, n: int, lane: int, *, seed: int, epoch: int) -> list[tuple[int, range]]:
        """Number, and places in the span of the lane, of each window in the order in which they are read."""
        if self.version == 1:
            bounds = self.window_bounds(n)
            first = self.first_window(lane, len(bounds), seed=seed, epoch=epoch)
            return [(k, range(*bounds[k])) for k in [*range(first, len(bounds)), *range(first)]]
        if 2 * n < 3 * self.window:
            return [(0, range(n))]
        head = 1 + self.first_window(lane, n - self.window // 2, seed=seed, epoch=epoch)
        ends = [*range(n, n - head, -self.window), n - head]  # of the stretch that is read first, backwards
        read = [range(low, high) for low, high in pairwise(ends[::-1])]
        late = self.window_bounds(n - head) if head < n else []
        return list(enumerate(read + [range(*bounds) for bounds in late]))

    def window_bounds(self, n: int) -> list[tuple[int, int]]:
        count = max(1, (n + self.window // 2) // self.window)
        return [(k * self.window, n if k == count - 1 else (k + 1) * self.window) for k in range(count)]

    def first_window(self, lane: int, count: int, *, seed: int, epoch: int) -> int:
        (word,) = rng.words(1, seed=seed, domain=rng.Domain(4), epoch=epoch, a=lane).tolist()
        return word * count // 2**64


class Epoch:
    """A whole epoch as lists; ``together``: where the lanes of a virtual worker stay together."""

    def __init__(self, counts: list[int], *, seed: int, epoch: int, shape: Shape, together: bool = False) -> None:
        self.counts, self.seed, self.epoch, self.shape = counts, seed, epoch, shape
        self.samples = sum(counts)
        self.spans = shape.spans_of_lanes(seed=seed, epoch=epoch, together=together)

    @cached_property
    def line(self) -> list[tuple[int, int]]:
        """(shard, row) of each position of the line."""
        shards = len(self.counts)
        if self.shape.groups == 1:
            order = self._shards()
            return self._turned([(shard, row) for shard in order for row in range(self.counts[shard])], 0)
        fixed = permutation(shards, seed=self.seed, domain=1, epoch=0)
        whole = [(shard, row) for shard in fixed for row in range(self.counts[shard])]
        line: list[tuple[int, int]] = []
        for group in range(self.shape.groups):
            low, high = (g * self.samples // self.shape.groups for g in (group, group + 1))
            pieces: list[list[tuple[int, int]]] = []
            for sample in whole[low:high]:
                if not pieces or pieces[-1][0][0] != sample[0]:
                    pieces.append([])
                pieces[-1].append(sample)
            order = permutation(len(pieces), seed=self.seed, domain=2, epoch=self.epoch, a=group)
            line += self._turned([sample for piece in order for sample in pieces[piece]], group)
        return line

    def _shards(self) -> list[int]:
        return permutation(len(self.counts), seed=self.seed, domain=1, epoch=self.epoch)

    def _turned(self, line: list[tuple[int, int]], group: int) -> list[tuple[int, int]]:
        turn = self.shape.turn(len(line), group, seed=self.seed, epoch=self.epoch)
        return line[turn:] + line[:turn]

    @cached_property
    def lanes(self) -> list[list[int]]:
        """The positions on the line that each lane reads, in the order in which it reads them."""
        return [self._lane(lane) for lane in range(self.shape.lanes)]

    def _lane(self, lane: int) -> list[int]:
        span = self.spans[lane]
        begin, end = (s * self.samples // self.shape.lanes for s in (span, span + 1))
        visited: list[int] = []
        for window, places in self.shape.windows(end - begin, lane, seed=self.seed, epoch=self.epoch):
            order = permutation(len(places), seed=self.seed, domain=3, epoch=self.epoch, a=lane, b=window)
            visited += [begin + places[i] for i in order]
        return visited

    @cached_property
    def dealt(self) -> list[tuple[int, int]]:
        """(lane, offset) of each position of the epoch."""
        chunk, lanes = self.shape.chunk, self.shape.lanes
        full = self.samples // lanes // chunk  # chunks that every lane can give
        dealt = [(lane, turn * chunk + i) for turn in range(full) for lane in range(lanes) for i in range(chunk)]
        lane_of_span = {span: lane for lane, span in enumerate(self.spans)}
        for span in range(lanes):  # the ragged last row: what is left of each span, in the order of the line
            lane = lane_of_span[span]
            dealt += [(lane, offset) for offset in range(full * chunk, len(self.lanes[lane]))]
        return dealt

    @cached_property
    def sequence(self) -> list[tuple[int, int]]:
        """(shard, row) of each position of the epoch."""
        return [self.line[self.lanes[lane][offset]] for lane, offset in self.dealt]


class Position:
    """Single positions of an epoch of any size, by the formulas. One group only."""

    def __init__(self, counts: list[int], *, seed: int, epoch: int, shape: Shape) -> None:
        self.counts, self.seed, self.epoch, self.shape = counts, seed, epoch, shape
        self.order = permutation(len(counts), seed=seed, domain=1, epoch=epoch)
        self.ends = list(accumulate(counts[shard] for shard in self.order))
        self.spans = shape.spans_of_lanes(seed=seed, epoch=epoch)

    def lane_of(self, p: int) -> tuple[int, int]:
        n, lanes, c = self.ends[-1], self.shape.lanes, self.shape.chunk
        q_full = (n // lanes) // c
        body = q_full * c * lanes
        if p < body:
            j, r = divmod(p, c)
            return j % lanes, (j // lanes) * c + r
        rem, q = n - body, p - body
        span = -(-(q + 1) * lanes // rem) - 1
        offset = q_full * c + q - span * rem // lanes
        return self.spans.index(span), offset

    def locate(self, p: int) -> tuple[int, int]:
        return self.locate_in_lane(*self.lane_of(p))

    def locate_in_lane(self, lane: int, offset: int) -> tuple[int, int]:
        n, lanes = self.ends[-1], self.shape.lanes
        span = self.spans[lane]
        begin, end = span * n // lanes, (span + 1) * n // lanes
        for window, places in self.shape.windows(end - begin, lane, seed=self.seed, epoch=self.epoch):
            if offset < len(places):
                order = permutation(len(places), seed=self.seed, domain=3, epoch=self.epoch, a=lane, b=window)
                at = (begin + places[order[offset]] + self.shape.turn(n, 0, seed=self.seed, epoch=self.epoch)) % n
                break
            offset -= len(places)
        piece = bisect_right(self.ends, at)
        shard = self.order[piece]
        return shard, at - (self.ends[piece] - self.counts[shard])


def steps(
    *, samples: int, start: int, rank: int, world_size: int, batch_size: int | None, tail: str
) -> list[tuple[list[int], list[bool]]]:
    """Positions and validity of each step of a rank."""
    b, left = batch_size or 64, max(0, samples - start)
    whole, rest = divmod(left, world_size * b)
    rows = [[list(range(start + (t * world_size + r) * b, start + (t * world_size + r + 1) * b))
             for r in range(world_size)] for t in range(whole)]  # fmt: skip
    if rest:
        begin = start + whole * world_size * b
        if tail == "drop" and batch_size is None:
            each = rest // world_size
            rows.append([list(range(begin + r * each, begin + (r + 1) * each)) for r in range(world_size)])
        elif tail != "drop":
            rows.append([list(range(begin + r * b, begin + (r + 1) * b)) for r in range(world_size)])
    mine = [row[rank] for row in rows]
    if tail == "exact":
        mine = [[p for p in step if p < samples] for step in mine]
    result = []
    for step in mine:
        if not step:
            continue
        shown = [p if p < samples else p - world_size * b if p >= world_size * b else p % samples for p in step]
        result.append((shown, [p < samples for p in step]))
    return result


def worker_streams(
    *, samples: int, start: int, rank: int, world_size: int, workers: int, tail: str
) -> list[list[tuple[int, bool]]]:
    """Positions, and whether they are valid, of each worker's stream of single samples."""
    streams: list[list[tuple[int, bool]]] = [[] for _ in range(workers)]
    run = {"samples": samples, "start": start, "rank": rank, "world_size": world_size}
    for number, (positions, valid) in enumerate(steps(**run, batch_size=None, tail=tail)):
        streams[number % workers] += zip(positions, valid, strict=True)
    return streams


def handed_out(*, samples: int, start: int, world_size: int, tail: str, taken: list[int]) -> set[int]:
    """The positions that a run over single samples had handed out, on all ranks, when it stopped."""
    run = {"samples": samples, "start": start, "world_size": world_size, "tail": tail}
    given: set[int] = set()
    for rank in range(world_size):
        for stream, size in zip(worker_streams(**run, rank=rank, workers=len(taken)), taken, strict=True):
            given |= {position for position, valid in stream[:size] if valid}
    return given


def batches_in_turn(lengths: list[int], batch_size: int) -> list[int]:
    """The worker of each batch of a loader that batches its workers' streams itself."""
    left, turn = list(lengths), []
    while any(left):
        for worker, samples in enumerate(left):
            if samples:
                turn.append(worker)
                left[worker] = max(0, samples - batch_size)
    return turn


def split(counts: list[int], shares: dict[str, Fraction]) -> dict[str, list[tuple[int, int]]]:
    """(shard, row) of each sample of each part of a split, in stored order."""
    left = [[(shard, row) for row in range(n)] for shard, n in enumerate(counts)]
    names, parts = list(shares), {}
    for name in names[:0:-1]:
        f = shares[name] / sum(shares[earlier] for earlier in names[: names.index(name) + 1])
        seen, part = 0, []
        for rows in left:
            take = math.floor(f * (seen + len(rows))) - math.floor(f * seen)
            seen += len(rows)
            part += [rows.pop() for _ in range(take)]
        parts[name] = sorted(part)
    parts[names[0]] = [sample for rows in left for sample in rows]
    return parts


def split_by_shards(counts: list[int], shares: dict[str, Fraction]) -> dict[str, list[tuple[int, int]]]:
    parts = split([1] * len(counts), shares)
    return {name: [(s, row) for s, _ in chosen for row in range(counts[s])] for name, chosen in parts.items()}


def source_seed(seed: int, source: int) -> int:
    return rng.words(1, seed=seed, domain=rng.Domain(9), a=source).tolist()[0] if source else seed


def own_shape(samples: int, mixed_samples: int, shape: Shape) -> Shape | None:
    """The shape of a source that has too few samples for the lanes of the mixture; ``None`` where it has enough."""
    if samples >= shape.groups and (samples >= mixed_samples or samples >= 8 * shape.chunk * shape.lanes):
        return None
    lanes = shape.lanes
    while lanes > 1 and (shape.lanes % lanes or samples < 8 * shape.chunk * lanes):
        lanes -= 1
    return Shape(lanes, shape.chunk, max(shape.window, min(4096, math.ceil(samples / lanes))), version=shape.version)


def spans_walked(walk: int, shape: Shape, groups: int) -> Iterator[int]:
    """The span that a walk reads in epoch 0, 1, 2, ...: the next one of its group, around."""
    size = shape.lanes // groups
    group = walk // size
    spans = list(range(group * size, (group + 1) * size))
    for epoch in count():
        yield spans[(walk - group * size + epoch) % size]


class Mixture:
    """Several epochs of a mixture as lists of (source, shard, row)."""

    def __init__(
        self, counts: list[list[int]], *, quotas: list[int], samples: int, seed: int, shape: Shape, by: str, epochs: int
    ) -> None:
        self.counts, self.quotas, self.samples, self.seed, self.shape = counts, quotas, samples, seed, shape
        if by == "batches":
            self.samples -= samples % (shape.lanes * shape.chunk)
        self.held: dict[tuple[int, int], Epoch] = {}
        self.shared: dict[tuple[int, int], tuple[list[tuple[int, int, int]], Iterator[tuple[int, int, int]]]] = {}
        held: dict[tuple[int, int, int], tuple[int, int, int]] = {}
        together = by == "batches" and len(counts) > 1
        if together:
            self._walk_by_batches(held, epochs)
        else:
            self._walk(held, epochs)
        # each epoch's cards are dealt like those of an epoch of one shard
        deals = [Epoch([self.samples], seed=seed, epoch=e, shape=shape, together=together) for e in range(epochs)]
        self.epochs = [
            [held[epoch, deal.spans[lane], offset] for lane, offset in deal.dealt] for epoch, deal in enumerate(deals)
        ]

    def _span_length(self, span: int) -> int:
        return (span + 1) * self.samples // self.shape.lanes - span * self.samples // self.shape.lanes

    def _labels(self, key: int) -> Iterator[int]:
        multiset = [source for source, quota in enumerate(self.quotas) for _ in range(quota)]
        for block in count():
            for i in permutation(len(multiset), seed=self.seed, domain=5, epoch=0, a=key, b=block):
                yield multiset[i]

    def _walk(self, held: dict[tuple[int, int, int], tuple[int, int, int]], epochs: int) -> None:
        for walk in range(self.shape.lanes):
            labels = self._labels(walk)
            streams = [self._source(source, walk) for source in range(len(self.counts))]
            for epoch, span in zip(range(epochs), spans_walked(walk, self.shape, self.shape.groups), strict=False):
                for offset in range(self._span_length(span)):
                    held[epoch, span, offset] = next(streams[next(labels)])

    def _walk_by_batches(self, held: dict[tuple[int, int, int], tuple[int, int, int]], epochs: int) -> None:
        m, c = self.shape.sublanes, self.shape.chunk
        streams = [
            [self._source(source, walk) for walk in range(self.shape.lanes)] for source in range(len(self.counts))
        ]
        walks = self.shape.spans_of_lanes(seed=self.seed, epoch=0)
        for worker in range(self.shape.lanes // m):
            labels = self._labels(worker)
            for epoch in range(epochs):
                for turn in range(self.samples // (self.shape.lanes * c)):
                    source = next(labels)
                    for span in walks[worker * m : (worker + 1) * m]:
                        for i in range(c):
                            held[epoch, span, turn * c + i] = next(streams[source][span])

    def _source(self, source: int, walk: int) -> Iterator[tuple[int, int, int]]:
        """The samples of a source that one walk of the mixture gets, without end."""
        shape = own_shape(sum(self.counts[source]), self.samples, self.shape)
        if shape is None:
            yield from self._on_walk(source, walk, self.shape)
            return
        sharers = self.shape.lanes // shape.lanes
        key = (source, walk // sharers)
        if key not in self.shared:
            self.shared[key] = ([], self._on_walk(*key, shape))
        drawn, more = self.shared[key]
        for turn in count():  # neighbours take a sample each, in turn
            while len(drawn) <= turn * sharers + walk % sharers:
                drawn.append(next(more))
            yield drawn[turn * sharers + walk % sharers]

    def _on_walk(self, source: int, walk: int, shape: Shape) -> Iterator[tuple[int, int, int]]:
        for epoch, span in enumerate(spans_walked(walk, shape, shape.groups)):
            order = self._source_epoch(source, epoch, shape)
            yield from ((source, *order.line[at]) for at in order.lanes[order.spans.index(span)])

    def _source_epoch(self, source: int, epoch: int, shape: Shape) -> Epoch:
        if (source, epoch) not in self.held:
            make = Epoch if shape is self.shape else _WithoutEmptyShards
            self.held[source, epoch] = make(self.counts[source], seed=self._seed(source), epoch=epoch, shape=shape)
        return self.held[source, epoch]

    def _seed(self, source: int) -> int:
        return source_seed(self.seed, source)


class _WithoutEmptyShards(Epoch):
    """Only shards that hold something are permuted."""

    def _shards(self) -> list[int]:
        full = [shard for shard, n in enumerate(self.counts) if n]
        return [full[i] for i in permutation(len(full), seed=self.seed, domain=1, epoch=self.epoch)]


class MixturePosition:
    """Single positions of mixtures by samples of any size, by the formulas. One group, and no small sources."""

    def __init__(
        self, counts: list[list[int]], *, quotas: list[int], samples: int, seed: int, epoch: int, shape: Shape
    ) -> None:
        self.counts, self.quotas, self.seed, self.epoch, self.shape = counts, quotas, seed, epoch, shape
        self.samples = samples
        self.deal = Position([samples], seed=seed, epoch=epoch, shape=shape)

    def begin(self, samples: int, walked: int) -> int:
        """Where span 0, 1, 2, ... begins, if all epochs lie one behind the other."""
        epoch, span = divmod(walked, self.shape.lanes)
        return epoch * samples + span * samples // self.shape.lanes

    def locate(self, p: int) -> tuple[int, int, int]:
        lanes, size = self.shape.lanes, sum(self.quotas)
        lane, offset = self.deal.lane_of(p)
        walk = (self.deal.spans[lane] - self.epoch) % lanes
        place = self.begin(self.samples, walk + self.epoch) - self.begin(self.samples, walk) + offset
        block, inside = divmod(place, size)
        multiset = [source for source, quota in enumerate(self.quotas) for _ in range(quota)]
        order = permutation(size, seed=self.seed, domain=5, epoch=0, a=walk, b=block)
        labels = [multiset[i] for i in order][: inside + 1]
        source = labels.pop()
        samples = sum(self.counts[source])
        at = self.begin(samples, walk) + block * self.quotas[source] + labels.count(source)
        walked = at * lanes // samples
        while self.begin(samples, walked + 1) <= at:
            walked += 1
        epoch = Position(
            self.counts[source], seed=source_seed(self.seed, source), epoch=walked - walk, shape=self.shape
        )
        lane = epoch.spans.index(walked % lanes)
        return source, *epoch.locate_in_lane(lane, at - self.begin(samples, walked))
