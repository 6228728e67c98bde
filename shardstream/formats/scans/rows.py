"""What a scan gives: rows of places, as columns. `RowBuilder` puts them together row by row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FormatError
from shardstream.faults import REST_IS_LOST, FaultKind
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.shards.fields import IMAGE, FieldType, type_of_extension
from shardstream.shards.index import Column, bitmap_of
from shardstream.sizes import plural

PIECE = 4096
"""Samples that a scan gives at a time: an object of more is several shards, so that no index is large."""
SNIFFED = 16
"""First values of a column whose first bytes are looked at, beside every 64th."""
START = 12
"""First bytes of a value that tell whether it is an image, see `image_type`."""
_PACKED = re.compile(r"\.(zstd|zst|gz|br|bz2|snappy|xz)(?=(\.[^.]+)?$)")
_COUNT = re.compile(r"\{(values|files):([^{}]+)\}")


class Loss(NamedTuple):
    """Samples of an object that cannot be read.

    Attributes:
        what: The reason, with the byte where it is.
        samples: Number of samples lost; ``None`` if it cannot be known.
        line: Line of the object, from 1, if this is a single line of text; else 0.
        kind: What is at fault.
    """

    what: str
    samples: int | None = None
    line: int = 0
    kind: FaultKind = "damaged"

    @property
    def told(self) -> str:
        """The reason, with the number of samples lost unless it is a single line or none at all."""
        if self.line or self.samples == 0:
            return self.what
        return f"{self.what}; {told_count(self.samples)}"


def told_count(samples: int | None) -> str:
    """How many samples are lost, in words."""
    if samples is None:
        return REST_IS_LOST
    return f"{plural(samples, 'sample')} {'is' if samples == 1 else 'are'} lost"


def told_losses(losses: Sequence[Loss]) -> str:
    """All losses of an object in one sentence: the worst one, and how many samples are lost together."""
    first = next((one for one in losses if one.samples is None), losses[0])
    if len(losses) == 1:
        return first.told
    known = sum(one.samples or 0 for one in losses)
    rest = ", and the rest of the file, number of samples unknown" if first.samples is None else ""
    return f"{first.what}; {told_count(known)}{rest}"


class Remark(NamedTuple):
    """What a user should know of values that were read, for one sentence about all objects.

    Attributes:
        text: The sentence, with ``{values:box}``, ``{files:file}`` and ``{first}`` where the others belong.
        values: How many values it is about.
        files: In how many files.
        first: The first of these.
    """

    text: str
    values: int = 0
    files: int = 0
    first: str = ""


def merged(remarks: Iterable[Remark]) -> list[Remark]:
    """Remarks of several objects, or files: one of those that differ in numbers only."""
    sums: dict[str, Remark] = {}
    for one in remarks:
        known = sums.get(one.text, Remark(one.text, first=one.first))
        sums[one.text] = Remark(one.text, known.values + one.values, known.files + one.files, known.first)
    return list(sums.values())


def sentences(remarks: Iterable[Remark]) -> tuple[str, ...]:
    """The sentences of all remarks."""
    return tuple(map(_sentence, merged(remarks)))


def _sentence(one: Remark) -> str:
    counts = {"values": one.values, "files": one.files}
    numbered = _COUNT.sub(lambda match: plural(counts[match[1]], match[2]), one.text)
    return numbered.replace("{first}", one.first)


@dataclass(frozen=True, slots=True, eq=False)
class ScannedRows:
    """Some samples of an object, in order: one shard of a catalogue.

    Attributes:
        keys: Their keys, n of them, see `usable_key`.
        columns: Their fields. Offsets are in the object; a ``codec`` may be the name of a form.
        damage: The error after these rows, if nothing behind it can be read.
        classes: Names of the classes, with the first rows, where only the scan finds them.
        lost: Number of samples that ``damage`` costs; ``None`` if the format cannot know it.
        broken: Single samples of the object that cannot be read, while those behind them can.
        remarks: What a user should know of these rows.
        lines: Where each stands in a list, from 1. Default: the format has no lines.
    """

    keys: Sequence[str]
    columns: tuple[Column, ...]
    damage: FormatError | None = None
    classes: tuple[str, ...] | None = None
    lost: int | None = None
    broken: tuple[Loss, ...] = ()
    remarks: tuple[Remark, ...] = ()
    lines: Sequence[int] = ()


def image_type(start: bytes | memoryview) -> str | None:
    """``jpg``, ``png`` or ``webp`` of a value's first 12 bytes; ``None`` for all else."""
    if start[:3] == b"\xff\xd8\xff":
        return "jpg"
    if start[:8] == b"\x89PNG\r\n\x1a\n":
        return "png"
    return "webp" if start[:4] == b"RIFF" and start[8:12] == b"WEBP" else None


def usable_key(text: str) -> str:
    """A key that `check_key` takes, of a name in a foreign file: slashes at its ends go, double ones become single.

    What is not UTF-8, and was decoded with ``surrogateescape``, stands as ``%XX``. Empty only where ``text`` was.
    """
    key = (re.sub("/+", "/", text) if "//" in text else text).strip("/")
    if key.isascii():
        return key
    return "".join(f"%{ord(one) - 0xDC00:02X}" if "\udc80" <= one <= "\udcff" else one for one in key)


def numbered_keys(path: str, first: int, count: int) -> list[str]:
    """Keys for samples that have none: the object's name without its last extension, and the row.

    What says that it is compressed goes as well: samples have the same keys when it is not.

    >>> numbered_keys("train/shard.00000.mds", 12, 2)
    ['train/shard.00000/00000012', 'train/shard.00000/00000013']
    """
    folder, slash, base = path.rpartition("/")
    base = _PACKED.sub("", base) or base
    stem = base.rpartition(".")[0] or base
    prefix = usable_key(f"{folder}{slash}{stem}")
    return [f"{prefix}/{row:08d}" for row in range(first, first + count)]


def pieces(count: int) -> Iterator[tuple[int, int]]:
    """Begin and end of runs of rows of nearly equal length, at most `PIECE` each; none of no rows."""
    parts = -(-count // PIECE)
    for part in range(parts):
        yield count * part // parts, count * (part + 1) // parts


def sniffed_type(data: ObjectBytes, offsets: NDArray[Any], lengths: NDArray[Any], otherwise: str) -> FieldType:
    """The type of a column of bytes by the first bytes of some of its values: all JPEG, PNG or WebP, or any of them."""
    count = len(offsets)
    chosen = sorted({*range(min(count, SNIFFED)), *range(0, count, 64)})
    found = set()
    for offset, length in zip(offsets[chosen].tolist(), lengths[chosen].tolist(), strict=True):
        found.add(image_type(data.get(offset, min(length, START))))
    return common_type(found, otherwise)


def common_type(found: set[str | None], otherwise: str) -> FieldType:
    """The type of a field whose values begin as these (`image_type`); ``otherwise`` where they are not images."""
    if not found or None in found:
        kind = FieldType.parse(otherwise)
        return FieldType.parse("bytes") if kind.is_image and found else kind
    return FieldType.parse(found.pop() if len(found) == 1 else IMAGE)  # type: ignore[arg-type] # no None


@dataclass(slots=True)
class _Values:
    """The values of a field so far: the rows that have one, and where they lie, or numbers."""

    rows: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    numbers: list[int | float] = field(default_factory=list)
    kind: str | None = None
    codec: str = "none"
    kinds: set[str | None] = field(default_factory=set)  # of images among those that were looked at


class RowBuilder:
    """Collects rows in order; a format calls `begin` for each, then `value` or `number` for each field it has.

    Args:
        data: The object.

    Example::

        rows = RowBuilder(data)
        rows.begin("n01/0001")
        rows.value("jpg", 512, 1000)
        rows.number("cls", 3)
        found = rows.take()
    """

    def __init__(self, data: ObjectBytes) -> None:
        self._data = data
        self._size = data.size
        self._keys: list[str] = []
        self._fields: dict[str, _Values] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def begin(self, key: str) -> None:
        """The next sample, with its key, see `usable_key`."""
        self._keys.append(key)

    def value(
        self,
        name: str,
        offset: int,
        length: int,
        kind: str | None = None,
        codec: str = "none",
        start: bytes | None = None,
    ) -> None:
        """A value of the sample that was begun last.

        Args:
            name: The field, see `usable_field`.
            offset: Where it lies in the object.
            length: Its bytes.
            kind: Its type; ``None``: an image by its first bytes, else what the name's last extension says.
            codec: The form it is stored in, as a column's codec.
            start: Its first 12 bytes or more, where they are at hand; ``None``: they are read where they are needed.

        Raises:
            FormatError: It is not inside of the object, the sample has one already, or the field had another type.
        """
        values, row = self._fields.get(name), len(self._keys) - 1
        if values is None or values.kind != kind or values.codec != codec or (values.rows and values.rows[-1] == row):
            values = self._of(name, offset, kind, codec)
        if length < 0 or offset < 0 or offset + length > self._size:
            raise self._data.damaged(f"a value of {length} bytes ({name}) reaches past the end of the object", offset)
        if kind is None and (row & 63 == 63 or len(values.rows) < SNIFFED):
            begins = self._data.get(offset, min(length, START)) if start is None else start[:length]
            values.kinds.add(image_type(begins))
        values.rows.append(row)
        values.offsets.append(offset)
        values.lengths.append(length)

    def number(self, name: str, value: int | float, kind: str = "int64") -> None:
        """A number of the sample that was begun last, which is kept in the index; raises as `value`."""
        values = self._of(name, 0, kind, "none")
        values.rows.append(len(self._keys) - 1)
        values.numbers.append(value)

    def _of(self, name: str, offset: int, kind: str | None, codec: str) -> _Values:
        values = self._fields.get(name)
        if values is None:
            values = self._fields[name] = _Values(kind=kind, codec=codec)
        if (values.kind, values.codec) != (kind, codec):
            raise self._data.damaged(f"field {name!r} is {kind or 'bytes'} here, and was {values.kind}", offset)
        if values.rows and values.rows[-1] == len(self._keys) - 1:
            raise self._data.damaged(f"sample {self._keys[-1]!r} has two values of {name!r}", offset)
        return values

    def take(self, damage: FormatError | None = None) -> ScannedRows:
        """The rows since the last call; then the builder is empty."""
        columns = tuple(self._column(name, values) for name, values in sorted(self._fields.items()))
        found = ScannedRows(self._keys, columns, damage)
        self._keys, self._fields = [], {}
        return found

    def _column(self, name: str, values: _Values) -> Column:
        count, rows = len(self._keys), values.rows
        has = np.zeros(count, np.bool_)
        has[rows] = True
        valid = bitmap_of(has)
        extension = type_of_extension(name.rpartition(".")[2]).name
        kind = common_type(values.kinds, extension) if values.kind is None else FieldType.parse(values.kind)
        if kind.kind == "scalar":
            numbers = np.zeros(count, kind.dtype)
            numbers[rows] = values.numbers
            return Column(name, kind, valid=valid, values=numbers)
        offsets, lengths = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
        offsets[rows], lengths[rows] = values.offsets, values.lengths
        return Column(
            name,
            kind,
            codec=values.codec,
            valid=valid,
            offsets=offsets,
            lengths=None if kind.kind == "fixed" else lengths,
        )
