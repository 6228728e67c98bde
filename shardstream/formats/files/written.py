"""How a list is written, by its first records."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import NamedTuple

from shardstream.dataset.lists.decompression import plain_name
from shardstream.formats.files.tables import is_table, rows_of_table
from shardstream.formats.files.text import first_records, text_pieces
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.pack.sources.lists.quotes import COMMA, TAB, tab_quotes
from shardstream.pack.sources.lists.records import CellKind, ends_with_label, list_kind
from shardstream.pack.sources.media import suffix_of

_FIRST = 100  # rows of a table, as many as lines of a text


class Written(NamedTuple):
    """How a list is written.

    Attributes:
        kind: How the columns of a record are told apart.
        head: The first records, with their lines.
        note: What a user should know of its quotes; "" for nothing.
    """

    kind: CellKind
    head: list[tuple[int, bytes]]
    note: str = ""


def written(data: ObjectBytes, *, names: bool, whole: bool, known: CellKind | None = None) -> Written:
    """How a list is written.

    Args:
        data: The list.
        names: Whether labels are names.
        whole: Whether quotes are looked for in all of it, and not in its first lines only.
        known: How the columns of a record are told apart, if that is known already.

    Raises:
        FormatError: It is not text, or what it is compressed with is damaged.
    """
    name = plain_name(data.path.rpartition("/")[2])
    if is_table(name):
        return Written("json", list(islice(rows_of_table(data), _FIRST)))
    head = first_records(data, delimiter=COMMA if suffix_of(name) == "csv" and known is None else None)
    kind = known or list_kind(name, [raw for _, raw in head], partial(ends_with_label, is_name=lambda _: names))
    if kind != "tab":
        return Written(kind, head)
    quotes = tab_quotes(text_pieces(data) if whole else [b"\n".join(raw for _, raw in head)])
    if quotes.csv:
        return Written("tsv", first_records(data, delimiter=TAB), quotes.note)
    return Written(kind, head, quotes.note)
