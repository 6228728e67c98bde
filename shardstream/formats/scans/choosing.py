"""Which columns of a scan are wanted, and what they are called then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shardstream.errors import FieldError
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Column


def choose(columns: tuple[Column, ...], chosen: Mapping[str, str], url: str) -> tuple[Column, ...]:
    """The fields that are wanted, under their new names: ``{"label": "cls", "text": "caption:str"}``; empty: all.

    Raises:
        FieldError: There is no such field, or it cannot be of that type.
    """
    if not chosen:
        return columns
    there = {column.name: column for column in columns}
    out = []
    for name, text in chosen.items():
        source, _, kind = text.partition(":")
        column = there.get(source)
        if column is None:
            continue  # in other objects; `united` says where it is in none
        out.append(replace(column, name=name, type=_as(column, kind, url) if kind else column.type))
    return tuple(out)


def _as(column: Column, text: str, url: str) -> FieldType:
    kind = FieldType.parse(text)
    if kind != column.type and (kind.kind != "payload" or column.type.kind != "payload" or column.codec != "none"):
        raise FieldError(
            f"the field is {column.type}, and cannot be read as {kind}",
            url=url,
            field=column.name,
            hint="leave the type out",
        )
    return kind
