"""What a checkpoint holds of a data set: a few integers that say which samples are left, and in which order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from typing import Any

from shardstream.errors import UsageError
from shardstream.order import ORDER_VERSION, ORDER_VERSIONS, OrderParameters, Stop
from shardstream.stream.content import Content
from shardstream.stream.settings import Settings

_PARAMETERS = tuple(field.name for field in fields(OrderParameters) if field.name != "version")
_CHECK = "pass a state as state_dict() returned it"


@dataclass(frozen=True, slots=True)
class Begin:
    """Where an iteration begins.

    Attributes:
        epoch: The epoch.
        position: Everything before it was handed out.
        stops: What was handed out beyond it.
        parameters: The order's parameters; ``None`` for those of the run's own shape, of this version of the order:
        version: That of ``parameters``, where there are any.
        taken: Of a worker's state: positions of its own stream that were handed out from there on.
    """

    epoch: int
    position: int = 0
    stops: tuple[Stop, ...] = ()
    parameters: OrderParameters | None = None
    taken: int = 0
    version: int = ORDER_VERSION

    def as_json(self) -> list[Any]:
        """For other processes."""
        parameters = None if self.parameters is None else values_of(self.parameters)
        return [self.epoch, self.position, [astuple(stop) for stop in self.stops], parameters, self.taken, self.version]

    @classmethod
    def from_json(cls, value: Any) -> Begin:
        """What `as_json` made."""
        epoch, position, stops, parameters, taken, version = value
        found = tuple(_stop_of(stop) for stop in stops)
        return cls(epoch, position, found, None if parameters is None else parameters_of(parameters), taken, version)

    @property
    def fresh(self) -> bool:
        """Whether this is the beginning of an epoch."""
        return not (self.position or self.stops or self.taken)


def values_of(parameters: OrderParameters) -> tuple[int, ...]:
    """The parameters as integers."""
    return astuple(parameters)


def parameters_of(values: Sequence[int]) -> OrderParameters:
    """The parameters that `values_of` made integers of."""
    return OrderParameters(*values)


def _stop_of(values: Sequence[Any]) -> Stop:
    world_size, tail, taken = values
    return Stop(int(world_size), tail, tuple(map(int, taken)))


def make_state(content: Content, settings: Settings, begin: Begin) -> dict[str, Any]:
    """The state that says: go on there. JSON-able, and nothing in it is shared with anything alive."""
    state = {
        "order_version": begin.version if begin.parameters is None else begin.parameters.version,
        "fingerprint": content.fingerprint,
        "data": content.data,
        "versions": list(content.versions),
        "samples": content.samples,
        "seed": settings.seed,
        "shuffle": settings.shuffle,
        "epoch": begin.epoch,
        "position": begin.position,
        **{name: getattr(begin.parameters, name, None) for name in _PARAMETERS},
        "tail": settings.effective_tail,
    }
    return state | stops_entry(begin.stops)


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


def parse_state(state: Any, content: Content, settings: Settings) -> Begin:
    """Where to go on, after a check that this state belongs here.

    Raises:
        UsageError: It is none of ours, or one of other data, another view, seed or order; names both values.
    """
    if not isinstance(state, Mapping):
        raise UsageError(f"a state is a dict, not {type(state).__name__}", hint=_CHECK)
    if "_snapshot" in state or "_iterator_finished" in state:
        raise UsageError("this is the state of a StatefulDataLoader", hint="convert it first: ss.convert_state(state)")
    missing = [name for name in ("order_version", "fingerprint", "epoch", "position", "seed") if name not in state]
    if missing:
        raise UsageError(f"this is no state of a data set: it has no {missing[0]!r}", hint=_CHECK)
    _check_identity(state, content, settings)
    try:
        begin = _begin_of(state)
    except (TypeError, ValueError, KeyError) as error:
        raise UsageError(f"the state is malformed: {error}", hint=_CHECK) from error
    if begin.position and begin.parameters is None:
        raise UsageError("the state has a position, but not the parameters of its order", hint=_CHECK)
    return begin


def _begin_of(state: Mapping[str, Any]) -> Begin:
    for name in ("epoch", "position"):
        if type(state[name]) is not int or state[name] < 0:
            raise ValueError(f"{name} is {state[name]!r}")
    known = {name: int(state[name]) for name in _PARAMETERS if state.get(name) is not None}
    if known and len(known) < len(_PARAMETERS):
        raise ValueError("some of the order's parameters are missing")
    version = state["order_version"]
    stops = tuple(_stop_of(stop) for stop in state.get("stops", ()))
    parameters = OrderParameters(**known, version=version) if known else None
    return Begin(state["epoch"], state["position"], stops, parameters, int(state.get("taken", 0)), version)


def _check_identity(state: Mapping[str, Any], content: Content, settings: Settings) -> None:
    if type(state["order_version"]) is not int or state["order_version"] not in ORDER_VERSIONS:
        known = " and ".join(map(str, ORDER_VERSIONS))
        raise UsageError(
            f"the state is of order version {state['order_version']!r}, known here are versions {known}",
            hint="go on with the version of shardstream that saved it",
        )
    if state["fingerprint"] != content.fingerprint:
        other_view = state.get("data") == content.data
        what = "another view of this data (split, where, take, epoch size, mixture)" if other_view else "other data"
        hint = "open the data set, with the view, that the state was saved with"
        if state.get("versions", list(content.versions)) != list(content.versions):
            hint += f"; its versions were {state['versions']}, here they are {list(content.versions)}: say version="
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
                f"the state was saved with {name}={there}, here it is {name}={here}: the order would be another",
                url=content.url,
                hint=f"pass {name}={there}",
            )


def check_worker(state: Mapping[str, Any], info: Any, shape: Mapping[str, Any], url: str) -> None:
    """Refuse the state of one worker where another worker, or one of another shape, would go on from it.

    Args:
        state: What a worker of a ``StatefulDataLoader`` saved.
        info: Of ``get_worker_info``.
        shape: World size and batch size here.
        url: For messages.

    Raises:
        UsageError: They differ; names both values.
    """
    here = {"worker": 0, "num_workers": 0} if info is None else {"worker": info.id, "num_workers": info.num_workers}
    for name, value in {**here, **shape}.items():
        if state.get(name) != value:
            raise UsageError(
                f"this is the state of one worker of a StatefulDataLoader, saved with {name}={state.get(name)}, "
                f"here it is {name}={value}",
                url=url,
                hint="such a state needs the same shape; ss.convert_state(state) makes one that goes with any",
            )


def check_counts(batches: Any, num_workers: Any) -> int:
    """``num_workers``, where a training loop says how many batches it has received, and from how many workers.

    Raises:
        UsageError: One of the two is no number.
    """
    if type(batches) is not int or batches < 0 or type(num_workers) is not int or num_workers < 0:
        raise UsageError(
            f"batches={batches!r} and num_workers={num_workers!r} must be integers from 0 on",
            hint="pass both: what the loop has received, and the DataLoader's num_workers",
        )
    return num_workers
