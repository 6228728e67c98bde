"""Types of fields that nobody declared, from a sample of the source.

Each value could be stored by its own Python type. But JSON writes 1 and 0.5 into one column, and shards with two types
of one field are no data set. So what some 1,000 samples hold decides, for all: a value that does not fit is a reject.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from shardstream.errors import FieldError, SourceError
from shardstream.pack.sources import File, Item, Reject
from shardstream.pack.sources.values import type_of
from shardstream.shards.fields import FieldType

_NUMBERS = frozenset(("int64", "float64"))
_BYTES = frozenset(("image", "bytes"))
_MOST = 0.9  # of the values of a field have one type, or it is not clear what was meant


def infer_types(items: Iterable[Item | Reject], declared: Mapping[str, FieldType], *, url: str) -> dict[str, FieldType]:
    """The types of all fields that these samples have; those of files are left to their names.

    Where nearly all values of a field have one type, that is its type. Whole numbers among others are floats, and image
    files among many bytes that are none are bytes.

    Args:
        items: Some samples.
        declared: Types that are known.
        url: The source, for messages.

    Raises:
        SourceError: Values of one field have types that do not go together; names two lines.
    """
    lines: dict[str, dict[str, list[int]]] = {}
    for item in items:
        if isinstance(item, Item):
            for name, value in item.values.items():
                if name not in declared and value is not None and not isinstance(value, File):
                    with suppress(FieldError):  # the sample will be rejected, and say why
                        kind = str(type_of(name, value))
                        lines.setdefault(name, {}).setdefault(kind, []).append(item.line)
    return {**declared, **{name: _chosen(name, found, url) for name, found in lines.items()}}


def _chosen(name: str, lines: dict[str, list[int]], url: str) -> FieldType:
    if lines.keys() >= _NUMBERS:
        lines = {**lines, "float64": lines["float64"] + lines["int64"]}
        del lines["int64"]
    most, *others = sorted(lines, key=lambda kind: -len(lines[kind]))
    if len(lines[most]) < _MOST * sum(map(len, lines.values())):
        if lines.keys() == _BYTES:
            return FieldType.parse("bytes")
        other = others[0]
        raise SourceError(
            f"the field is {most} in line {lines[most][0]}, but {other} in line {lines[other][0]}",
            url=url,
            field=name,
            line=lines[other][0],
            hint=f"declare its type: --field {name}=COLUMN:{most}, or make all of one type with transform=",
        )
    return FieldType.parse(most)
