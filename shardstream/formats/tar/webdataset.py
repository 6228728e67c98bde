"""WebDataset: tar files in which members that follow one another and share their name are a sample."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from shardstream.dataset.lists.decompression import MAGIC_BYTES, compression_of
from shardstream.errors import UsageError
from shardstream.formats.blocks.compressed import compressed_blocks, not_read
from shardstream.formats.blocks.found_blocks import FoundBlocks
from shardstream.formats.contract import ObjectListing, Recognized, SourceFormat, SourceObject
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import PIECE, ScannedRows
from shardstream.formats.tar.headers import TarDamage, TarMember
from shardstream.formats.tar.names import (
    energon_notes,
    energon_split,
    found_tars,
    holds_tars,
)
from shardstream.formats.tar.rows import LABEL, TarRows, damage_of
from shardstream.formats.tar.samples import TarSamples
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Column
from shardstream.sizes import plural

_KIND = "tar file"
_INTEGER = re.compile(rb"\s*[+-]?[0-9]{1,19}\s*")


class WebDataset(SourceFormat):
    """Tar files of WebDataset, Energon, img2dataset and of our own without our manifest."""

    name: ClassVar[str] = "webdataset"
    title: ClassVar[str] = "WebDataset"
    options: ClassVar[Mapping[str, str]] = {
        "group": "'key': members of one key are a sample wherever they lie in a tar"
    }
    window: ClassVar[int] = 1 << 20

    def recognize(self, listing: ObjectListing, options: Mapping[str, str]) -> Recognized | None:
        group = options.get("group", "")
        if group not in ("", "key"):
            raise UsageError(f"group={group!r} is not a way to group members", hint="give group=key, or leave it out")
        found = found_tars(listing)
        if found is None or found.nested:
            return None
        about = {"group": group} if group else {}
        split = None if listing.named else energon_split(listing)
        tars = [one for one in found.tars if split is None or one.path in split]
        others = len(found.tars) - len(tars)
        left_out = (f"{plural(others, 'tar file')} that split.yaml does not name left out",) if others else ()
        objects = tuple(SourceObject(one.path, one.size, about) for one in tars)
        return Recognized(objects, notes=(*found.notes, *left_out, *energon_notes(listing)))

    def blocks(self, data: ObjectBytes, about: Mapping[str, Any]) -> FoundBlocks | None:
        return compressed_blocks(data, _KIND)

    def scan(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[ScannedRows]:
        if holds_tars(data):
            raise data.unsupported(
                "it holds tar files, and is compressed", 0, hint="decompress it: a tar of tars is read then"
            )
        labels = _Labels()
        rows = TarRows(data, labels.add)
        damage = None
        samples = TarSamples(data, joined=about.get("group") == "key")
        try:
            for sample in samples:
                if len(rows) == PIECE:
                    yield from labels.with_piece(rows.take())
                rows.add(sample)
        except TarDamage as error:
            damage = damage_of(data, error, data.size)
            if not len(rows):
                how = compression_of(data.get(0, min(MAGIC_BYTES, data.size)))
                raise (not_read(data.url, _KIND, how) if how else damage) from None
        samples.strays.log(data.url)
        if len(rows):
            yield from labels.with_piece(rows.take(damage))
        yield from labels.rest()


class _Labels:
    """The field ``cls``: numbers where all of them in an object are integers in decimal digits, else text.

    Whether they are is known at the end of the object, or at the first one that is none. So pieces are held back until
    then: all pieces of an object have the same type.
    """

    def __init__(self) -> None:
        self._held: list[tuple[ScannedRows, list[int]]] = []
        self._numbers: list[int] = []  # of the piece that is being made
        self._whole = True

    def add(self, member: TarMember) -> None:
        """The label of a row."""
        number = _integer(member) if self._whole else None
        if number is None:
            self._whole = False
        else:
            self._numbers.append(number)

    def with_piece(self, rows: ScannedRows) -> Iterator[ScannedRows]:
        """The pieces that may go out now, after this one was made."""
        self._held.append((rows, self._numbers))
        self._numbers = []
        if not self._whole or not any(numbers for _, numbers in self._held):
            yield from (held for held, _ in self._held)
            self._held = []

    def rest(self) -> Iterator[ScannedRows]:
        """The pieces that are still held, at the end of the object."""
        for rows, numbers in self._held:
            columns = [_as_numbers(one, numbers, len(rows.keys)) if one.name == LABEL else one for one in rows.columns]
            yield dataclasses.replace(rows, columns=tuple(columns))


def _integer(member: TarMember) -> int | None:
    if member.size > len(member.start) or not _INTEGER.fullmatch(member.start):
        return None
    number = int(member.start)
    return number if -(1 << 63) <= number < 1 << 63 else None


def _as_numbers(column: Column, numbers: list[int], count: int) -> Column:
    rows = np.arange(count, dtype=np.int64)
    has = column.valid_rows(rows)
    values = np.zeros(count, "<i8")
    values[rows if has is None else rows[has]] = numbers
    return Column(column.name, FieldType.parse("int64"), valid=column.valid, values=values)
