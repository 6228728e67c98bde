"""``JsonLines``: an object a row, as C4, FineWeb and Dolma come.

https://jsonlines.org/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from shardstream.errors import UsageError
from shardstream.formats.blocks.compressed import compressed_blocks
from shardstream.formats.blocks.found_blocks import FoundBlocks
from shardstream.formats.contract import LOOKED_AT, Form, ObjectListing, Recognized, SourceFormat, SourceObject
from shardstream.formats.jsonl.columns import JsonRows
from shardstream.formats.jsonl.first_rows import first_rows, names_files, rows_names
from shardstream.formats.jsonl.forms import FORMS
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import ScannedRows
from shardstream.pack.sources.lists.chosen import chooses_files


class JsonLines(SourceFormat):
    """Files of JSON objects, one a line, or all in one list."""

    name: ClassVar[str] = "jsonl"
    title: ClassVar[str] = "JSON lines"
    tables: ClassVar[bool] = True
    options: ClassVar[Mapping[str, str]] = {
        "json": "names of columns, with commas between them, that stay JSON whatever they hold",
        "float": "names of columns whose numbers are float64 though all of a file may be integers",
        "key": "the column with the keys",
    }
    forms: ClassVar[Mapping[str, Form]] = FORMS
    empty: ClassVar[str] = "jsonl.empty"
    unites: ClassVar[str] = (
        "options say what it is in all files: SourceOptions(options={{'float': '{0}'}}) (--format-option float={0}) "
        "that its numbers are float64, json={0} that it stays JSON"
    )

    def recognize(self, listing: ObjectListing, options: Mapping[str, str]) -> Recognized | None:
        if chooses_files(listing.chosen):
            return None
        chosen = frozenset(
            rows_names([one.path for one in listing.ending("") if one.size], named=listing.named, sure=listing.sure)
        )
        found = [one for one in listing.objects if one.path in chosen]
        filled = [one for one in found if one.size][:LOOKED_AT]
        rows = next((rows for one in filled if (rows := first_rows(listing, one))), None)
        if not rows or names_files(rows):
            return None
        about = _about(options)
        return Recognized(tuple(SourceObject(one.path, one.size, about) for one in found))

    def blocks(self, data: ObjectBytes, about: Mapping[str, Any]) -> FoundBlocks | None:
        return compressed_blocks(data, "file")

    def scan(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[ScannedRows]:
        yield from JsonRows(data, self.name, about).scanned()


def _about(options: Mapping[str, str]) -> dict[str, Any]:
    about: dict[str, Any] = {}
    for name, value in options.items():
        if name == "key":
            about[name] = value
        elif name in ("json", "float"):
            about[name] = sorted({one.strip() for one in value.split(",")} - {""})
        if name in JsonLines.options and not about.get(name):
            raise UsageError(f"option {name} of JSON lines names no column", hint=f"give {name}=COLUMN")
    return about
