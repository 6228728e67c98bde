"""``Agreement``: what ranks have said, under one key of a store, about what they read.

The value under the key is one JSON object: what the loader is, where its two newest iterations begin, and the first
difference that a rank found. Ranks change it by ``compare_set`` alone, so no rank waits for another: a rank that comes
first leaves its entry, and ranks that come later compare theirs with it. The value drops old entries by itself, so that
nobody has to delete a key that another rank may still ask for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import xxhash

from shardstream.order import OrderParameters
from shardstream.stream.iteration.rank_entries import is_current, make_entry

_NEWEST = 2  # iterations whose entries stay
_TRIES = 100  # each one that fails is an entry of another rank, and there are few
_LONGEST = 400  # characters of one compared value: a schedule may have megabytes

# What no loaded state and no `set_epoch` changes. The fingerprint is another one after a state of another version.
_FIXED = frozenset(("fingerprint", "seed", "shuffle", "tail", "batch_size", "world_size"))
# What follows from that: it is no news where something of that differs.
_ORDER = frozenset(one.name for one in fields(OrderParameters)) - {"version"}
_DERIVED = _ORDER | {"data"}
_DERIVED_FROM_DATA = frozenset(("position", "stops"))

Plan = Mapping[str, Any]


class Agreement:
    """What the ranks that share a key have said about one iteration, as one of them sees it.

    Each method returns the text of the first difference that any rank has found, or ``None``, and makes one round trip
    to the store; another one if the value has changed in between.

    Args:
        key: The key.
        who: This rank, for messages.
        started: When this process began: older entries are of an earlier start of the job.
    """

    def __init__(self, key: str, who: str, started: float) -> None:
        self._key = key
        self._who = who
        self._started = started
        self._raw = ""  # the value as this rank saw it last

    def begin(self, store: Any, plan: Plan, *, fixed: bool) -> str | None:
        """An iteration begins: compare what the loader is.

        Args:
            store: A ``torch.distributed.Store``.
            plan: What this rank reads, JSON-able values by name.
            fixed: Whether only that part of it counts that stays the same for the life of a loader.
        """
        mine = _plain(plan)
        value = self._change(store, lambda value: {"loader": self._entry(mine)} | value)
        return self._result(store, value, value["loader"], mine, _fixed if fixed else _differing)

    def compare(self, store: Any, number: int, plan: Plan) -> str | None:
        """Compare all of the iteration with this number.

        An iteration that is older than the newest two is compared with none.
        """
        mine, name = _plain(plan), str(number)

        def add(value: dict[str, Any]) -> dict[str, Any]:
            iterations = value.get("iterations", {})
            newest = max(map(int, iterations), default=number)
            if name in iterations or number <= newest - _NEWEST:
                return value
            oldest = max(newest, number) - _NEWEST
            kept = {old: entry for old, entry in iterations.items() if int(old) > oldest}
            return value | {"iterations": kept | {name: self._entry(mine)}}

        value = self._parse(self._raw)
        if name not in value.get("iterations", {}):  # else it was there already when this iteration began
            value = self._change(store, add)
        return self._result(store, value, value.get("iterations", {}).get(name), mine, _differing)

    def look(self, store: Any) -> str | None:
        """Only look whether a rank has found a difference."""
        return _found(self._change(store, lambda value: value))

    def publish(self, store: Any, text: str) -> str:
        """Tell all ranks of a difference; the text of the first one is kept, and returned."""
        value = self._change(store, lambda value: {"differs": make_entry(self._who, text)} | value)
        return str(_found(value))

    def _result(
        self, store: Any, value: dict[str, Any], entry: Any, mine: Plan, differing: Callable[[Plan, Plan], list[str]]
    ) -> str | None:
        text = _found(value)
        if text is None and entry is not None:
            _, other, theirs = entry
            names = differing(mine, theirs)
            if names:
                text = self.publish(store, _text(names, mine, theirs, self._who, other))
        return text

    def _entry(self, plan: Plan) -> list[Any]:
        return make_entry(self._who, plan)

    def _change(self, store: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        """The value in the store after a change, which other ranks may make as well, and before this one."""
        new = change(self._parse(self._raw))
        for _ in range(_TRIES):
            raw = json.dumps(new) if new != self._parse(self._raw) else self._raw
            answer = store.compare_set(self._key, self._raw, raw).decode()
            if answer == raw:
                self._raw = raw
                return new
            self._raw = "" if answer == self._raw else answer  # a key that is not there answers what was expected
            value = self._parse(self._raw)
            new = change(value)
            if new == value:
                return value
        raise RuntimeError(f"{self._key} has changed {_TRIES} times while it was to be written")

    def _parse(self, raw: str) -> dict[str, Any]:
        """The value without what an earlier start of the job has left."""
        value = json.loads(raw) if raw else {}
        iterations = self._current(value.pop("iterations", {}))
        value = self._current(value)
        return value | ({"iterations": iterations} if iterations else {})

    def _current(self, entries: dict[str, Any]) -> dict[str, Any]:
        return {name: entry for name, entry in entries.items() if is_current(entry, self._started)}


def _plain(plan: Plan) -> dict[str, Any]:
    """The values as another rank gets them; of those that are very long, the beginning and a digest."""
    plain: dict[str, Any] = json.loads(json.dumps(plan))
    for name, value in plain.items():
        text = json.dumps(value, sort_keys=True) if isinstance(value, str | list | dict) else ""
        if len(text) > _LONGEST:
            plain[name] = f"{text[:_LONGEST]}... ({xxhash.xxh3_64_hexdigest(text.encode())})"
    return plain


def _found(value: Mapping[str, Any]) -> str | None:
    return value["differs"][2] if "differs" in value else None


def _differing(mine: Plan, theirs: Plan) -> list[str]:
    return [name for name in dict.fromkeys((*mine, *theirs)) if mine.get(name) != theirs.get(name)]


def _fixed(mine: Plan, theirs: Plan) -> list[str]:
    """All that differs, if something of it stays the same for the life of a loader."""
    names = _differing(mine, theirs)
    fixed = _FIXED - {"fingerprint"} if "versions" in names else _FIXED
    return names if fixed & set(names) else []


def _text(names: list[str], mine: Plan, theirs: Plan, me: str, other: str) -> str:
    """What differs, in words, with both values; other data first, since the rest may follow from that."""
    what = ""
    if _FIXED & set(names):
        names = [name for name in names if name not in _DERIVED]
    elif _ORDER & set(names):
        what = "another order: "
    if "fingerprint" in names:
        same = mine.get("data") == theirs.get("data")
        what = f"another dataset{' (another view of the same data)' if same else ''}: "
        names = ["fingerprint", *(name for name in names if name not in {"fingerprint", *_DERIVED_FROM_DATA})]
    values = [f"{name} is {mine.get(name)!r} on {me} and {theirs.get(name)!r} on {other}" for name in names]
    return what + "; ".join(values)
