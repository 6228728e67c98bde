"""What ``where=`` says: values of columns, comparisons, callables, keys.

Values are compared whenever a shard is opened (``view``). All else is decided once, by the process that opens the data
set, and kept as a `RowSet`.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.selected.rows import Rows, listed
from shardstream.dataset.view import exact_of, in_column, plain, scalar_type
from shardstream.errors import ShardStreamError, TransformError, UsageError
from shardstream.shards.fields import FieldType
from shardstream.shards.index import ShardIndex
from shardstream.shards.manifest import Manifest
from shardstream.sizes import plural

Where: TypeAlias = "Mapping[Any, Any] | Rows | Sequence[Mapping[Any, Any] | Rows]"
"""By column: values, a comparison, a list of these, or a callable; by a tuple of columns: a callable. Or rows."""
Keys: TypeAlias = "Collection[str] | str | os.PathLike[str]"
"""A list of keys, or a file that has one a line: a path or a URL."""

KEY = "__key__"
_COMPARES: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OPERATORS = (*_COMPARES, "!=")
_ARRAYS = "it gets a NumPy array for each column: write `lambda w, h: (w > 9) & (h > 9)`, not `and`"
_EXAMPLE = 'for example where={"width": (">=", 256)}, or [(">=", 256), ("<", 512)] for both'


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """What one entry of ``where=`` asks of samples, beside values.

    Attributes:
        columns: The columns that it looks at.
        text: It in a few words.
        operator: Of a comparison, or ``""``.
        operand: What is compared with.
        function: A user's callable in place of a comparison.
    """

    columns: tuple[str, ...]
    text: str
    operator: str = ""
    operand: Any = None
    function: Callable[..., Any] | None = None

    def test_of(self, manifest: Manifest) -> RowTest:
        """What finds the rows of a shard that meet it.

        Raises:
            FieldError: A column that is not stored, or is not a number in the index; a value that does not fit it.
        """
        kinds = [scalar_type(name, manifest) for name in self.columns]
        if self.function is not None:
            return RowTest(self, self._called)
        (name,), (kind,) = self.columns, kinds
        if self.operator == "!=":
            values = in_column(name, exact_of(name, self.operand), manifest, option="where")
            return RowTest(self, lambda _, column: ~np.isin(column, values))
        assert kind.dtype is not None
        compare, bound = bound_of(self.operator, self.operand, kind)
        return RowTest(self, lambda _, column: compare(column, bound))

    def _called(self, index: ShardIndex, *columns: NDArray[Any]) -> NDArray[np.bool_]:
        assert self.function is not None
        place = {"url": index.url or None, "shard": index.path}
        try:
            found = np.asarray(self.function(*columns))
        except ShardStreamError:
            raise
        except Exception as error:  # whatever a user's code raises gets its place, with the original chained
            what = f"where, {self.text}, raised {type(error).__name__}: {error}"
            hint = _ARRAYS if isinstance(error, ValueError) else "the traceback shows the line in your code"
            raise TransformError(what, hint=hint, **place) from error
        if found.dtype != np.bool_ or found.shape != (len(columns[0]),):
            raise UsageError(
                f"where, {self.text}, must return a bool for each of {len(columns[0])} samples, got {found.dtype} "
                f"{list(found.shape)}",
                hint=_ARRAYS,
                **place,
            )
        return found


@dataclass(frozen=True, slots=True, eq=False)
class RowTest:
    """A `Condition`, understood for one data set.

    Attributes:
        condition: The condition.
        function: Called with the index, and the columns' values: which of them are meant.
    """

    condition: Condition
    function: Callable[..., NDArray[np.bool_]]

    def narrowed(self, index: ShardIndex, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of the rows of a shard that meet the condition; never one that lacks a value."""
        columns = [index.columns.get(name) for name in self.condition.columns]
        values = []
        for column in columns:
            if column is None:
                return rows[:0]
            valid = column.valid_rows(rows)
            rows = rows if valid is None else rows[valid]
        for column in columns:
            assert column is not None
            assert column.values is not None
            values.append(column.values[rows])
        return rows[self.function(index, *values)] if len(rows) else rows


def bound_of(sign: str, value: Any, kind: FieldType) -> tuple[Callable[[Any, Any], Any], Any]:
    """The comparison of a column with any number, exactly, as one with a number of the column's own dtype.

    A float is rounded to the dtype of a column of floats, as it was when it was stored.
    """
    dtype = kind.dtype
    assert dtype is not None
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            try:
                held = dtype.type(value)
            except OverflowError:  # an integer beyond all floats
                held = dtype.type(math.inf if value > 0 else -math.inf)
        rounded = isinstance(value, float) and math.isfinite(held)
        own: Any = value if rounded else _whole(float(held))
    else:
        low, high = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
        whole = value if isinstance(value, int) or math.isinf(value) else math.floor(value)
        own = int(min(max(whole, low), high))
        held = dtype.type(own)
    if own < value:  # nothing lies between the two
        sign = ">" if ">" in sign else "<="
    elif own > value:
        sign = ">=" if ">" in sign else "<"
    return _COMPARES[sign], held


def _whole(value: float) -> float:
    """A float as an integer, which is compared with other integers exactly."""
    return value if math.isinf(value) else int(value)


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """A ``where=``, taken apart.

    Attributes:
        exact: Allowed values by column, for `ViewSpec.where`.
        conditions: All else that is asked of columns.
        keys: The keys that are asked for, as they were given; of several, samples need one of each.
        rows: Rows that samples have to be among, all of them.
    """

    exact: tuple[tuple[str, tuple[Any, ...]], ...]
    conditions: tuple[Condition, ...]
    keys: tuple[Keys, ...] = ()
    rows: tuple[Rows, ...] = ()

    @classmethod
    def of(cls, where: Any) -> Filter:
        """What a user wrote: a dict of what must be true of each column, rows, or a list of such.

        Raises:
            UsageError: It is not of the right form.
        """
        given = listed(where)
        if given is None:
            hint = 'for example where={"cls": [1, 5, 9]}'
            if callable(where):
                hint = (
                    'name the columns that it looks at: where={"width": f}, where={("width", "height"): f}; '
                    "for other values, where=ss.find_rows(url, f)"
                )
            raise UsageError(f"where must be a dict, rows, or a list of these, got {where!r}", hint=hint)
        rows, dicts = given
        exact, conditions, keys = [], list[Condition](), []
        for name, asked in (entry for one in dicts for entry in one.items()):
            if name == KEY:
                if asked is None:
                    hint = 'for example where={"__key__": ["a/1", "a/2"]}'
                    raise UsageError("where= must list keys, got None", hint=hint)
                keys.append(asked)
                continue
            found = _conditions(name, asked)
            conditions += found
            if not found:
                exact.append((str(name), exact_of(str(name), asked)))
        return cls(tuple(exact), tuple(conditions), tuple(keys), tuple(rows))

    @property
    def texts(self) -> tuple[str, ...]:
        """What it asks for beside values, in a few words."""
        keys = (
            "the keys of a file" if isinstance(one, str | os.PathLike) else plural(len(one), "key") for one in self.keys
        )
        return (*(one.text for one in self.conditions), *keys, *(plural(len(one), "chosen row") for one in self.rows))

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that it looks at."""
        named = [name for name, _ in self.exact]
        return tuple(dict.fromkeys([*named, *(name for one in self.conditions for name in one.columns)]))


def _conditions(name: Any, asked: Any) -> list[Condition]:
    """What is asked of a column, or of several; nothing where values are listed."""
    columns = tuple(map(str, name)) if isinstance(name, tuple) else (str(name),)
    if callable(asked) and columns:
        called = getattr(asked, "__qualname__", type(asked).__qualname__)
        return [Condition(columns, f"{', '.join(columns)} by {called}", function=asked)]
    if isinstance(name, tuple):
        hint = 'where={("width", "height"): lambda w, h: w > h}; for one column, write its name alone'
        raise UsageError(f"several columns, {name!r}, need a callable, got {asked!r}", hint=hint)
    if _is_comparison(asked):
        return [_comparison(columns[0], *asked)]
    if isinstance(asked, list) and any(map(_is_comparison, asked)):
        if not all(map(_is_comparison, asked)):
            raise UsageError(f"where of {name!r} lists values and comparisons, {asked!r}", field=name, hint=_EXAMPLE)
        return [_comparison(columns[0], *one) for one in asked]
    return []


def _is_comparison(asked: Any) -> bool:
    return isinstance(asked, tuple) and len(asked) == 2 and isinstance(asked[0], str) and _is_sign(asked[0])


def _is_sign(text: str) -> bool:
    return bool(text) and not set(text) - set("<>=!")


def _comparison(name: str, sign: str, value: Any) -> Condition:
    value = plain(value)
    if sign not in _OPERATORS:
        hint = f'where={{"{name}": {value!r}}} is equality; {_EXAMPLE}'
        raise UsageError(f"where knows {', '.join(_OPERATORS)}, not {sign!r}", field=name, hint=hint)
    if sign != "!=" and (not isinstance(value, bool | int | float) or value != value):
        what = f"where can compare {name!r} by {sign} with a number, not with {value!r}"
        raise UsageError(what, field=name, hint=_EXAMPLE)
    return Condition((name,), f"{name} {sign} {value!r}", sign, value)
