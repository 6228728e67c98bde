"""Lance: a column is a field. Runs in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from shardstream.formats.isolated.child import RefusedError
from shardstream.formats.packages.columns import NUMBERS, of_arrays, of_numbers, of_values, wanted

_HALVES = {"halffloat": "float16", "float": "float32", "double": "float64"}
_TEXT = frozenset(("string", "large_string", "string_view"))
_BYTES = ("binary", "large_binary", "fixed_size_binary")
_ROWS = 64  # that are read at once: they may be large
_CHOOSE = "choose other fields: --field NAME=NAME (fields=) for each"


def answer(request: Any, ask: Callable[[Any], Any]) -> Iterator[Any]:
    """``describe``: fields with their types, and parts that can be read alone; ``read``: such a part."""
    import lance

    found = lance.dataset(request["path"])
    asked = wanted(request, ask)
    kinds = {field.name: _kind(field) for field in found.schema if asked(field.name)}
    if not kinds:
        raise RefusedError("it has no such columns", hint=f"it has {', '.join(found.schema.names)}")
    fragments = found.get_fragments()
    for fragment in fragments:
        _check_inside(fragment)
    if request["do"] == "describe":
        for name, kind in kinds.items():
            if kind == "file":
                _refuse_paths(name, found.to_table(columns=[name], limit=_ROWS).column(name).to_pylist())
        yield {
            "fields": [[name, None if kind in ("bytes", "file") else kind] for name, kind in kinds.items()],
            "samples": found.count_rows(),
            "parts": _parts(fragments),
        }
        return
    number = request["part"][2]
    fragment = next(one for one in fragments if one.fragment_id == number)
    batches = fragment.to_batches(columns=list(kinds), batch_size=_ROWS)
    for batch in batches:
        yield [batch.num_rows, {name: _column(batch.column(name), kind) for name, kind in kinds.items()}]


def _refuse_paths(name: str, files: Sequence[Any]) -> None:
    """Refuse images and the like of which only the paths are stored, by the first rows."""
    there = [one for one in files if one is not None]
    if any(one["path"] for one in there) and not any(one["bytes"] for one in there):
        raise RefusedError(
            f"column {name!r} has only the paths of files, and not what is in them",
            hint=f"write their contents into the column, or {_CHOOSE}",
        )


def _parts(fragments: Sequence[Any]) -> list[list[int]]:
    """Numbers of the first sample and of the one after the last, and the fragment they are."""
    parts, begin = [], 0
    for one in fragments:
        rows = one.count_rows()
        parts.append([begin, begin + rows, one.fragment_id])
        begin += rows
    return parts


def _check_inside(fragment: Any) -> None:
    """Refuse files that lie elsewhere: a manifest may name any."""
    for file in fragment.data_files():
        path = file.path() if callable(file.path) else file.path
        if "/" in path or "\\" in path or ".." in path or getattr(file, "base_id", None) is not None:
            raise RefusedError(f"a fragment names a file outside of the data set: {path!r}", hint="copy it into it")


def _kind(field: Any) -> str:
    """The type of a field, ``"str"``, ``"bytes"``, or ``"json"`` for what has parts."""
    text = str(field.type)
    if (field.metadata or {}).get(b"lance-encoding:blob") == b"true":
        raise RefusedError(f"column {field.name!r} holds blobs that are read apart", hint=_CHOOSE)
    if _number(text):
        return _number(text)
    if text in _TEXT:
        return "str"
    if text.startswith(_BYTES):
        return "bytes"
    if text.startswith(("fixed_size_list<", "list<", "large_list<")):
        element, size = _number(str(field.type.value_type)), getattr(field.type, "list_size", None)
        if element:
            return f"array:{element}" if size is None else f"array:{element}:{size}"
        return "json"
    if text.startswith("struct<bytes: binary, path: string"):  # a file, as Hugging Face has it
        return "file"
    if "binary" in text:
        raise RefusedError(f"column {field.name!r} is of type {text}, with bytes inside", hint=_CHOOSE)
    if text.startswith(("struct<", "map<", "dictionary<", "timestamp", "date", "time", "decimal")):
        return "json"
    raise RefusedError(f"column {field.name!r} is of type {text}, which is not read", hint=_CHOOSE)


def _number(arrow: str) -> str:
    name = _HALVES.get(arrow, arrow)
    return name if name in NUMBERS else ""


def _column(values: Any, kind: str) -> dict[str, Any]:
    if kind in ("bytes", "str"):
        return of_values(values.to_pylist())
    if kind == "file":
        return of_values([None if one is None else one["bytes"] for one in values.to_pylist()])
    if kind == "json":
        return of_values([None if one is None else _plain(one) for one in values.to_pylist()])
    if not kind.startswith("array:"):
        if values.null_count:
            return of_values(list(map(_scalar, values.to_pylist())))
        return of_numbers(np.asarray(values.to_numpy(zero_copy_only=False)))
    _, dtype, *shape = kind.split(":")
    if shape and not values.null_count and not values.values.null_count:
        return of_numbers(values.flatten().to_numpy(zero_copy_only=False).reshape(len(values), -1).astype(dtype))
    return of_arrays([None if one is None else np.array(one, dtype) for one in values.to_pylist()], dtype)


def _plain(value: Any) -> Any:
    """The same as JSON has it: dates and the like as text."""
    return json.loads(json.dumps(value, default=str))


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
