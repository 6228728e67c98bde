"""What a checkpoint holds of a data set: a few integers that say which samples are left, and in which order."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, fields, replace
from fractions import Fraction
from itertools import chain, zip_longest
from typing import Any

import numpy as np

from shardstream.errors import UsageError
from shardstream.order import (
    BLOCK,
    ORDER_VERSIONS,
    SCHEDULED_VERSION,
    Knot,
    OrderParameters,
    PlaceRange,
    Remaining,
    Schedule,
    Stop,
    joined_ranges,
    plain_knots,
    ranges_in_epoch,
    ranges_of,
    uncovered,
)
from shardstream.stream.iteration.content import Content
from shardstream.stream.iteration.ranks import Rank
from shardstream.stream.iteration.settings import StreamOptions

_PARAMETERS = tuple(field.name for field in fields(OrderParameters) if field.name != "version")
OF_WORKER = ("worker", "num_workers", "world_size", "taken", "batch_size", "of_rank")
"""What a worker adds to the state of the data set that all workers share."""

_CHECK = "pass a state as state_dict() returned it"
_LARGEST = 1 << 62  # sums of two still fit int64
_MOST_LANES = 1 << 24  # 65,536 ranks have as many, and a process holds an array of one entry for each
_MOST_RANKS = 1 << 32
_MOST_UNEVEN = 1 << 22  # blocks
_MOST_STOPS = 1 << 12  # a run that is stopped and begun anew for years has some dozens


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where an iteration begins.

    Attributes:
        epoch: The epoch.
        position: Everything before it was handed out.
        stops: What was handed out beyond it.
        parameters: The order's parameters; ``None`` for those of the run's own shape.
        version: The version of the order, that of ``parameters`` if there are any; ``None`` for that of new runs.
        taken: Of a worker's state: positions of its own stream that were handed out from there on.
        skips: What the run leaves out, of this epoch and others.
        unequal: Of a worker's state: a single sample was dropped before ``taken``, so it fits one rank alone.
    """

    epoch: int
    position: int = 0
    stops: tuple[Stop, ...] = ()
    parameters: OrderParameters | None = None
    taken: int = 0
    version: int | None = None
    skips: tuple[PlaceRange, ...] = ()
    unequal: bool = False

    def as_json(self) -> list[Any]:
        """For other processes."""
        parameters = None if self.parameters is None else astuple(self.parameters)
        stops = [astuple(stop) for stop in self.stops]
        return [self.epoch, self.position, stops, parameters, self.taken, self.version, self.skips, self.unequal]

    @classmethod
    def from_json(cls, value: Any) -> ResumePoint:
        """What `as_json` made."""
        epoch, position, stops, parameters, taken, version, *rest = value  # less of it in pickles of earlier versions
        order = None if parameters is None else OrderParameters(*parameters)
        stopped = tuple(stop_of(*stop) for stop in stops)
        return cls(epoch, position, stopped, order, taken, version, ranges_of(rest[0] if rest else ()), *rest[1:])

    @property
    def fresh(self) -> bool:
        """Whether this is the beginning of an epoch."""
        return not (self.position or self.stops or self.taken)

    def at_beginning_of(self, epoch: int) -> ResumePoint:
        """All of an epoch, of the same run."""
        return replace(self, epoch=epoch, position=0, stops=(), taken=0, unequal=False)

    def parameters_of(self, content: Content, settings: StreamOptions, rank: Rank, num_workers: int) -> OrderParameters:
        """The order's parameters, or those that a run of this shape gives it."""
        return self.parameters or content.parameters(settings, rank, num_workers, self.version)

    def samples_of(self, content: Content, settings: StreamOptions, rank: Rank) -> int:
        """Positions of its epoch that are dealt to ranks: in a mixture by batches, whole rows of lanes."""
        if content.by == "samples":
            return content.samples
        return content.dealt_samples(self.parameters_of(content, settings, rank, 0))

    def order_version(self, content: Content) -> int:
        """The version of the order of this content."""
        return (self.version if self.parameters is None else self.parameters.version) or content.order_version

    def skipping(self, ranges: Sequence[PlaceRange], content: Content) -> ResumePoint:
        """The same of a run of ``content`` that leaves out these, too.

        Raises:
            UsageError: No epoch has one of their places.
        """
        check_ranges(ranges, content)
        return replace(self, skips=joined_ranges(ranges, self.skips))

    def left_of(self, samples: int) -> Remaining:
        """What is left of its epoch, which has so many samples."""
        skips = ranges_in_epoch(self.skips, self.epoch, samples)
        return Remaining(samples, position=self.position, stops=self.stops, skips=skips)


def stop_of(world_size: object, tail: Any, taken: Sequence[object]) -> Stop:
    """The stop of these numbers; ValueError or TypeError where no run stops like that."""
    ranks = integer("the number of ranks of a stop", world_size)
    handed = tuple(integer("what a worker has handed out", one) for one in taken)
    # Workers take turns, so none is ahead of the others by more than the loop's batch.
    if ranks > _MOST_RANKS or (handed and (max(handed) - min(handed)) // BLOCK * len(handed) > _MOST_UNEVEN):
        raise ValueError(f"a stop of {ranks} ranks, after which {len(handed)} workers are too far apart")
    return Stop(ranks, tail, handed)


def stops_of(state: Mapping[str, Any]) -> tuple[Stop, ...]:
    """The stops in a state; ValueError or TypeError where they are none."""
    stops = state.get("stops", [])
    if len(stops) > _MOST_STOPS:
        raise ValueError(f"{len(stops)} stops")
    return tuple(stop_of(*stop) for stop in stops)


def integer(name: str, value: object) -> int:
    """An integer out of a state, which anybody may have written; ValueError for floats, bools, text, and huge ones."""
    if type(value) is not int or abs(value) > _LARGEST:
        raise ValueError(f"{name} is {_shown(value)}")
    return value


def _shown(value: object) -> str:
    try:
        return reprlib.repr(value)
    except ValueError:  # Python writes no integer of thousands of digits
        return "an integer of thousands of digits"


@contextmanager
def reading() -> Iterator[None]:
    """Whatever is wrong inside of a state is one error.

    Raises:
        UsageError: Something is.
    """
    try:
        yield
    except UsageError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, MemoryError) as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else error
        raise UsageError(f"the state is malformed: {what}", hint=_CHECK) from error


def make_state(content: Content, settings: StreamOptions, resume_point: ResumePoint) -> dict[str, Any]:
    """The state that says: go on there. JSON-able, and nothing in it is shared with anything alive."""
    state = {
        "order_version": resume_point.order_version(content),
        "fingerprint": content.fingerprint,
        "data": content.data,
        "versions": list(content.versions),
        "samples": content.samples,
        "seed": settings.seed,
        "shuffle": settings.shuffle,
        "epoch": resume_point.epoch,
        "position": resume_point.position,
        **{name: getattr(resume_point.parameters, name, None) for name in _PARAMETERS},
        "tail": settings.effective_tail,
    }
    skips = resume_point.skipping(settings.skip, content).skips
    if skips:
        state["skip"] = [[list(begin), list(end)] for begin, end in skips]
    return state | moving_entries(content, resume_point)


def moving_entries(content: Content, resume_point: ResumePoint) -> dict[str, Any]:
    """What there is besides, and grows with the position: stops, and what a schedule was up to there."""
    found = stops_entry(resume_point.stops)
    if content.schedule is not None:
        found["schedule"] = plain_knots(content.schedule.past(_reached(resume_point, content)))
    return found


def whole_schedule(content: Content) -> dict[str, Any]:
    """The entry for all knots of a schedule; none where there is no schedule."""
    return {} if content.schedule is None else {"schedule": plain_knots(content.schedule.knots)}


def _reached(resume_point: ResumePoint, content: Content, of_worker: Mapping[str, Any] | None = None) -> int:
    """The position of the run up to which a schedule must stay as it was.

    Args:
        resume_point: Where the run continues.
        content: What is streamed.
        of_worker: The state of one worker, if it is one: its iteration began at ``resume_point``.
    """
    if resume_point.order_version(content) < SCHEDULED_VERSION:
        return _reached_by_lanes(resume_point, content)
    left = resume_point.left_of(content.samples)
    reached = left.reached
    if of_worker is not None and resume_point.taken:
        steps = -(-resume_point.taken // (of_worker["batch_size"] or BLOCK))
        row = of_worker["world_size"] * (of_worker["batch_size"] or BLOCK)
        beyond = left.start + (of_worker["worker"] + max(of_worker["num_workers"], 1) * (steps - 1) + 1) * row
        last = left.positions(np.array([min(beyond, left.samples) - 1]))
        reached = max(reached, int(last[0]) + 1)
    return resume_point.epoch * content.samples + reached


def _reached_by_lanes(resume_point: ResumePoint, content: Content) -> int:
    """The same where knots act at whole rows: lanes run ahead of the position by a chunk."""
    beyond = sum(stop.world_size * len(stop.taken) * (max(stop.taken) + BLOCK) for stop in resume_point.stops)
    reached = resume_point.epoch * content.samples + resume_point.position + beyond
    if resume_point.parameters is None:
        return reached
    row = resume_point.parameters.lanes * resume_point.parameters.chunk
    return (-(-reached // row) + (resume_point.epoch > 0)) * row  # lanes of later epochs begin a place apart


def stops_entry(stops: Sequence[Stop]) -> dict[str, Any]:
    """The entry for blocks that were handed out in part; none where there are none."""
    return {"stops": [[stop.world_size, stop.tail, list(stop.taken)] for stop in stops]} if stops else {}


def content_of(state: Any, content: Content) -> Content:
    """What a state is of: ``content``, or the same at the versions of its data sets that the state was saved at.

    Raises:
        StorageError: An old version cannot be read.
    """
    versions = state.get("versions") if isinstance(state, Mapping) else None
    if (
        not isinstance(versions, list)
        or not all(type(one) is int for one in versions)
        or versions == list(content.versions)
        or state.get("fingerprint") == content.fingerprint
    ):
        return content
    with suppress(UsageError):  # also FieldError; `parse_state` says that the state is of other data
        found = content.at(versions)
        if found.fingerprint == state.get("fingerprint"):
            return found
    return content


def parse_state(state: Any, content: Content, settings: StreamOptions) -> ResumePoint:
    """Where to go on, after a check that this state belongs here.

    Raises:
        UsageError: It is none of ours, or one of other data, another view, seed or order; names both values.
    """
    if not isinstance(state, Mapping):
        raise UsageError(f"a state must be a dict, got {type(state).__name__}", hint=_CHECK)
    if "_snapshot" in state or "_iterator_finished" in state:
        raise UsageError("this is the state of a StatefulDataLoader", hint="convert it first: ss.convert_state(state)")
    missing = [name for name in ("order_version", "fingerprint", "epoch", "position", "seed") if name not in state]
    if missing:
        raise UsageError(f"not the state of a data set: it has no {missing[0]!r}", hint=_CHECK)
    _check_version(state, content, (*ORDER_VERSIONS, SCHEDULED_VERSION))
    with reading():
        resume_point = begin_of(state)
    _check_identity(state, content, settings)
    _check_version(state, content, content.order_versions)
    if content.schedule is not None:
        with reading():
            of_worker = state if "worker" in state else None
            _check_schedule(state, content, _reached(resume_point, content, of_worker))
    if resume_point.position and resume_point.parameters is None:
        raise UsageError("the state has a position, but not the parameters of its order", hint=_CHECK)
    with reading():
        left = _check_inside(resume_point, state, content)
    skipping = resume_point.skipping(settings.skip, content)
    added = uncovered(settings.skip, resume_point.skips)
    if added:
        _check_to_come(added, resume_point.epoch, left, state, content)
    return skipping


def check_entries(state: Mapping[str, Any]) -> None:
    """Compare the types of what a state holds, whichever of it there is; ValueError where one is another."""
    for name in ("epoch", "position", "samples", *OF_WORKER):
        known = state.get(name) is not None if name in OF_WORKER else name in state
        if known and integer(name, state[name]) < 0:
            raise ValueError(f"{name} is {state[name]}")
    for name, kind in (("seed", int), ("shuffle", bool), ("fingerprint", str), ("tail", str)):
        if name in state and type(state[name]) is not kind:
            raise ValueError(f"{name} is {_shown(state[name])}")


def begin_of(state: Mapping[str, Any]) -> ResumePoint:
    """Where to go on, as a state says, of whatever data; `reading` says what is wrong with it."""
    check_entries(state)
    values = {name: integer(name, state[name]) for name in _PARAMETERS if state.get(name) is not None}
    if values and len(values) < len(_PARAMETERS):
        raise ValueError("some of the order's parameters are missing")
    for name, value in values.items():
        if value < 1 or (name == "lanes" and value > _MOST_LANES):
            raise ValueError(f"{name} must be at least 1, and lanes at most {_MOST_LANES}, got {value}")
    version = state["order_version"]
    parameters = OrderParameters(**values, version=version) if values else None
    stops, skips, taken = stops_of(state), ranges_of(state.get("skip", ())), state.get("taken") or 0
    unequal = state.get("of_rank") is not None
    return ResumePoint(state["epoch"], state["position"], stops, parameters, taken, version, skips, unequal)


def _check_inside(resume_point: ResumePoint, state: Mapping[str, Any], content: Content) -> Remaining:
    """Refuse what lies beyond the epoch: it would be read as one of which nothing is left."""
    samples = content.samples if resume_point.parameters is None else content.dealt_samples(resume_point.parameters)
    if state.get("samples", content.samples) != content.samples:
        raise ValueError(f"samples is {_shown(state['samples'])}, but this data has {content.samples}")
    if resume_point.position > samples or (content.samples and not samples):
        raise ValueError(f"position is {resume_point.position} in an epoch of {samples} samples")
    if resume_point.taken > samples + (state.get("batch_size") or BLOCK):  # its last batch may be filled up
        raise ValueError(f"taken is {resume_point.taken} in an epoch of {samples} samples")
    if resume_point.epoch >= 1 << 32:
        raise ValueError(f"epoch is {resume_point.epoch}")
    check_ranges(resume_point.skips, content)
    return resume_point.left_of(samples)


def check_ranges(ranges: Sequence[PlaceRange], content: Content) -> None:
    """Refuse ranges with places that no epoch has.

    Raises:
        UsageError: Names the place.
    """
    for epoch, position in chain(*ranges):
        if position > content.samples or (content.endless and epoch):
            size = "one epoch without end" if content.endless else f"epochs of {content.samples:,} samples"
            raise UsageError(
                f"skip names position {position:,} of epoch {epoch}, and there are {size}",
                url=content.url,
                hint="epochs and positions are those of state_dict(); ss.positions counts them from a state",
            )


def _check_to_come(
    added: Sequence[PlaceRange], epoch: int, left: Remaining, state: Mapping[str, Any], content: Content
) -> None:
    """Refuse to skip what the run has handed out: nobody can take it back."""
    (begin, end), reached = added[0], (epoch, left.reached)
    if "worker" in state:
        raise UsageError(
            f"skip has a range that this state of one worker of a StatefulDataLoader does not know: {begin} to {end}",
            url=content.url,
            hint="convert the whole state: ss.convert_state(state) makes one that goes with skip",
        )
    if begin < reached:
        raise UsageError(
            f"skip begins at position {begin[1]:,} of epoch {begin[0]}, but the run has already come to position "
            f"{reached[1]:,} of epoch {reached[0]}",
            url=content.url,
            hint="load a state from before that place, or begin the range behind it",
        )


def _check_version(state: Mapping[str, Any], content: Content, allowed: Sequence[int]) -> None:
    if type(state["order_version"]) is not int or state["order_version"] not in allowed:
        *most, last = map(str, content.order_versions)
        known = f"{', '.join(most)} and {last}"
        raise UsageError(
            f"the state is of order version {_shown(state['order_version'])}, known here are versions {known}",
            hint="go on with the version of shardstream that saved it",
        )


def _check_identity(state: Mapping[str, Any], content: Content, settings: StreamOptions) -> None:
    if content.sources_of(state["fingerprint"]) is None:
        view = "another view of this data (split, where, take, weights, epoch size, mixture)"
        what = view if state.get("data") == content.data else "other data"
        hint = "open the data set, with the view, that the state was saved with"
        if state.get("versions", list(content.versions)) != list(content.versions):
            hint += (
                f"; its versions were {_shown(state['versions'])}, here they are {list(content.versions)}: say version="
            )
        raise UsageError(
            f"the state is of {what}: its fingerprint is {state['fingerprint']} with {state.get('samples')} samples, "
            f"here it is {content.fingerprint} with {content.samples} samples",
            url=content.url,
            hint=hint,
        )
    for name, here in (("seed", settings.seed), ("shuffle", settings.shuffle)):
        there = state.get(name, here)
        if there != here:
            raise UsageError(
                f"the state was saved with {name}={_shown(there)}, here it is {name}={here}: another order",
                url=content.url,
                hint=f"pass {name}={_shown(there)}",
            )


def _check_schedule(state: Mapping[str, Any], content: Content, reached: int) -> None:
    """Refuse another past; what comes behind it may change, and sources that had no share yet may have joined."""
    assert content.schedule is not None
    joined = [0] * (len(content.parts) - (content.sources_of(state["fingerprint"]) or 0))
    knots = [_knot_of(at, [*weights, *joined]) for at, weights in state["schedule"]]
    there, here = (plain_knots(one.past(reached)) for one in (Schedule(tuple(knots)), content.schedule))
    if there != here:
        differ = next(pair for pair in zip_longest(there, here) if pair[0] != pair[1])
        raise UsageError(
            f"the state was saved with another schedule: {_told(differ[0])} there, {_told(differ[1])} here, and "
            f"{reached:,} positions have passed",
            url=content.url,
            hint="what has passed stays as it was, and so does a ramp that is under way: change what comes behind it",
        )


def _knot_of(position: object, weights: Sequence[object]) -> Knot:
    whole = [integer("a weight", one) for one in weights]
    return Knot(integer("a knot", position), tuple(Fraction(one, sum(whole)) for one in whole))


def _told(knot: list[Any] | None) -> str:
    return "no knot" if knot is None else f"{':'.join(map(str, knot[1]))} at {knot[0]:,}"


def check_worker(state: Mapping[str, Any], info: Any, rank: Rank, batch_size: int | None, url: str) -> None:
    """Refuse the state of one worker where another worker, or one of another shape, would go on from it.

    Args:
        state: What a worker of a ``StatefulDataLoader`` saved.
        info: Of ``get_worker_info``.
        rank: This rank.
        batch_size: Samples a batch here.
        url: For messages.

    Raises:
        UsageError: They differ; names both values.
    """
    worker = (0, 0) if info is None else (info.id, info.num_workers)
    here = dict(zip(("worker", "num_workers"), worker, strict=True))
    for name, value in (here | {"world_size": rank.world_size, "batch_size": batch_size}).items():
        if state.get(name) != value:
            raise UsageError(
                f"this is the state of one worker of a StatefulDataLoader, saved with {name}={state.get(name)}, "
                f"here it is {name}={value}",
                url=url,
                hint="such a state needs the same shape; ss.convert_state(state) makes one that goes with any",
            )
    if state.get("of_rank", rank.rank) != rank.rank:
        raise UsageError(
            f"rank {state['of_rank']} saved this state after it dropped single samples, and this is rank {rank.rank}",
            url=url,
            hint="save and load the state of each rank by itself, or set batch_size=",
        )


def check_counts(batches: Any, num_workers: Any) -> int:
    """``num_workers``, where a training loop says how many batches it has received, and from how many workers.

    Raises:
        UsageError: One of the two is not a number.
    """
    if type(batches) is not int or batches < 0 or type(num_workers) is not int or num_workers < 0:
        raise UsageError(
            f"batches={batches!r} and num_workers={num_workers!r} must be integers from 0 on",
            hint="pass both: what the loop has received, and the DataLoader's num_workers",
        )
    return num_workers
