"""Rows of the samples of a tar."""

from __future__ import annotations

from collections.abc import Callable

from shardstream.errors import FormatError
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import RowBuilder, ScannedRows
from shardstream.formats.tar.headers import TarDamage, TarMember
from shardstream.formats.tar.samples import MOST_FIELDS, TarSample, too_many_fields
from shardstream.shards.field_names import usable_field

LABEL = "cls"
_SAME = {"jpeg": "jpg"}  # as everywhere in this package


class TarRows:
    """Samples as rows; those of an object have `MOST_FIELDS` different fields at most.

    Args:
        data: The object.
        with_label: Is called with each member that is a label, which is then text; ``None``: none is special.
    """

    def __init__(self, data: ObjectBytes, with_label: Callable[[TarMember], None] | None = None) -> None:
        self._data = data
        self._rows = RowBuilder(data)
        self._with_label = with_label
        self._names: dict[str, str] = {}  # of fields, by extension

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, sample: TarSample, label: int | None = None) -> None:
        """The next row.

        Args:
            sample: Its members.
            label: Its label, where no member says it.

        Raises:
            FormatError: It has a field twice, or the object too many.
        """
        rows, names, members = self._rows, self._names, sample.members
        rows.begin(sample.key)
        if label is not None:
            rows.number(LABEL, label)
        for extension, member in members.items():
            name = names.get(extension) or self._name(extension, member)
            if extension == "jpeg" and "jpg" in members:
                name = extension
            kind = None
            if name == LABEL and self._with_label is not None:
                self._with_label(member)
                kind = "str"
            rows.value(name, member.offset, member.size, kind, start=member.start)

    def _name(self, extension: str, member: TarMember) -> str:
        if len(self._names) == MOST_FIELDS:
            raise too_many_fields(self._data, member)
        name = self._names[extension] = usable_field(_SAME.get(extension, extension))
        return name

    def take(self, damage: FormatError | None = None) -> ScannedRows:
        """The rows since the last call."""
        return self._rows.take(damage)


def damage_of(data: ObjectBytes, error: TarDamage, end: int) -> FormatError:
    """What is lost of a tar that ends there."""
    what = f"{error.what} (at {error.offset}): {end - error.lost} bytes from {error.lost} on hold no whole sample"
    return data.damaged(what, error.lost)
