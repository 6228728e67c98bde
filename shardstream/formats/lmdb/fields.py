"""SampleFields of the objects that pickles and msgpack hold, one a sample, as fields.

What a part is, is decided by the first samples of a database, so that all of it is read alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardstream.formats.lmdb.packed import read_packed
from shardstream.formats.lmdb.pickled import read_pickle
from shardstream.formats.lmdb.values import Blob, Nested, NotUnderstood, StoredArray
from shardstream.formats.scans.rows import START, RowBuilder, image_type
from shardstream.shards.field_names import usable_field

HEAD = 16
"""Samples at the beginning of a database that its fields are decided by."""
_SPREAD = 16  # parts of a list that become a field each; longer ones are a field
_LABELS = ("label", "target", "class")  # names that mean the class, where a number is called so
_NUMBERS = {bool: "bool", int: "int64", float: "float64"}
_FITTING: dict[str, tuple[type, ...]] = {"bool": (bool,), "int64": (int,), "float64": (int, float)}


@dataclass(frozen=True, slots=True)
class Encoding:
    """How values of a database are written.

    Attributes:
        name: ``pickle`` or ``msgpack``.
        read: What a value says.
    """

    name: str
    read: Callable[[memoryview], Any]


PICKLE = Encoding("pickle", read_pickle)
MSGPACK = Encoding("msgpack", read_packed)


@dataclass(frozen=True, slots=True)
class _How:
    """What becomes of a part: a field of a name and type, of numbers, or of bytes as they lie or a form gives them."""

    name: str
    kind: str
    codec: str = "none"
    numeric: bool = False


class SampleFields:
    """Fields of the samples of one database.

    Args:
        encoding: How they are written.
        head: The first samples, each with the bytes that it is read from.
        shapes: The type of each part that is an array of one dtype and shape in all samples.
    """

    def __init__(
        self, encoding: Encoding, head: Sequence[tuple[memoryview, Any]], shapes: Mapping[str, str | None]
    ) -> None:
        self._encoding = encoding
        self._shapes = shapes
        self._names: dict[str, str] = {}
        self._how: dict[str, _How] = {}
        seen: dict[str, list[tuple[memoryview, Any]]] = {}
        for data, sample in head:
            for place, found in parts_of(sample):
                seen.setdefault(place, []).append((data, found))
        if head:
            self._names = _names(*head[0])
        for place, found in seen.items():
            present = [(data, one) for data, one in found if one is not None]
            if present:
                self._how[place] = self._decided(place, present)

    def add(self, rows: RowBuilder, at: int, data: memoryview, sample: Any) -> None:
        """The fields of the sample that was begun last, which lies at ``at`` of the object.

        Raises:
            NotUnderstood: A part is something else than in the samples before.
            FormatError: As `RowBuilder` says.
        """
        for place, found in parts_of(sample):
            if found is None:
                continue
            how = self._how.get(place)
            if how is None:
                how = self._how[place] = self._decided(place, [(data, found)])
            self._put(rows, at, data, how, found)

    def _put(self, rows: RowBuilder, at: int, data: memoryview, how: _How, found: Any) -> None:
        if how.numeric:
            if type(found) not in _FITTING[how.kind] or (type(found) is int and not -(1 << 63) <= found < 1 << 63):
                raise _other(how, found)
            rows.number(how.name, found, how.kind)
            return
        if how.codec != "none" and not how.codec.startswith("lmdb.pickle-bytes"):
            wanted = StoredArray if "-array" in how.codec else list | tuple | dict
            if not isinstance(found, wanted):
                raise _other(how, found)
            rows.value(how.name, at, len(data), how.kind, how.codec)
            return
        fixed = isinstance(found, StoredArray) and how.kind.startswith("array:")
        raw = found if how.kind == "msgpack" else found.raw if fixed else _raw(found)
        if how.kind.startswith("array:") and not (isinstance(found, StoredArray) and found.addressed == how.kind):
            raise _other(how, found)
        if not isinstance(raw, Nested if how.kind == "msgpack" else Blob):
            raise _other(how, found)
        if isinstance(raw, Blob) and (
            (raw.kind == "latin1") != (how.codec != "none") or (how.kind == "str" and raw.kind != "text")
        ):
            raise _other(how, found)
        if how.codec != "none":
            rows.value(how.name, at, len(data), how.kind, how.codec)
        else:
            rows.value(how.name, at + raw.offset if raw.length else at, raw.length, how.kind)

    # ------------------------------------------------------------------------------------------------ what a part is

    def _decided(self, place: str, present: list[tuple[memoryview, Any]]) -> _How:
        name = self._names.get(place) or usable_field(place[1:]) or "value"
        _, first = present[0]
        if isinstance(first, bool | int | float):
            kinds = {_NUMBERS[type(one)] for _, one in present if isinstance(one, bool | int | float)}
            kind = "float64" if kinds == {"int64", "float64"} else _NUMBERS[type(first)]
            return _How(name, kind, numeric=True)
        if isinstance(first, Nested):
            return _How(name, "msgpack")
        if isinstance(first, list | tuple | dict):
            return _How(name, "json", self._form("json", place))
        raws = [(data, raw) for data, one in present if (raw := _raw(one)) is not None]
        images = {_image(data, raw) for data, raw in raws}
        image = images.pop() if len(images) == 1 else "image" if images and None not in images else None
        if isinstance(first, StoredArray) and image is None:
            fixed = self._shapes.get(place)
            return _How(name, fixed) if fixed else _How(name, "array", self._form("array", place))
        raw = _raw(first)
        if raw is None:
            raise NotUnderstood(f"field {name!r} is nothing that can be read ({type(first).__name__})", 0)
        kind = image or ("str" if all(_is_text(data, one) for data, one in raws) else "bytes")
        return _How(name, kind, self._form("bytes", place) if raw.kind == "latin1" else "none")

    def _form(self, form: str, place: str) -> str:
        codec = f"lmdb.{self._encoding.name}-{form}"
        return f"{codec}:{place}" if place else codec


def _other(how: _How, found: Any) -> NotUnderstood:
    return NotUnderstood(f"field {how.name!r} is {how.kind} in other samples, and {_described(found)} here", 0)


def _described(found: Any) -> str:
    if isinstance(found, StoredArray):
        return f"an array of {found.dtype.name} {list(found.shape)}"
    if isinstance(found, Blob):
        return "text" if found.kind == "text" else "bytes"
    return "a number that it has no room for" if isinstance(found, int) else f"a {type(found).__name__}"


def parts_of(sample: Any) -> Iterable[tuple[str, Any]]:
    """The parts of a sample, with their places as `values.part` takes them."""
    if isinstance(sample, Mapping):
        return [(f"/{name}", found) for name, found in sample.items()]
    if isinstance(sample, list | tuple) and 0 < len(sample) <= _SPREAD:
        return [(f"/{number}", found) for number, found in enumerate(sample)]
    return [("", sample)]


def shapes_of(samples: Iterable[tuple[memoryview, Any]]) -> dict[str, str | None]:
    """The type of each part that is an array everywhere, and of one dtype and shape; ``None`` for other arrays."""
    found: dict[str, str | None] = {}
    for _, sample in samples:
        for place, one in parts_of(sample):
            if isinstance(one, StoredArray):
                kind = one.addressed
                if found.setdefault(place, kind) != kind:
                    found[place] = None
    return found


def has_arrays(head: Sequence[tuple[memoryview, Any]]) -> bool:
    """Whether a part of some sample is an array that is not an image file."""
    parts = ((data, one) for data, sample in head for _, one in parts_of(sample))
    return any(isinstance(one, StoredArray) and _image(data, _raw(one)) is None for data, one in parts)


def _raw(found: Any) -> Blob | None:
    """Where the bytes of bytes, text, or an array of bytes in a row lie."""
    if isinstance(found, StoredArray):
        return found.raw if found.dtype.str == "|u1" and len(found.shape) == 1 else None
    return found if isinstance(found, Blob) else None


def _is_text(data: memoryview, raw: Blob) -> bool:
    """Whether this is text: what older writers of msgpack call so may be bytes."""
    if raw.kind != "text":
        return False
    try:
        raw.read(data).decode()
    except UnicodeDecodeError:
        return False
    return True


def _image(data: memoryview, raw: Blob | None) -> str | None:
    if raw is None:
        return None
    if raw.kind != "latin1":
        return image_type(data[raw.offset : raw.offset + min(raw.length, START)])
    start = bytes(data[raw.offset : raw.offset + min(raw.length, 2 * START)])
    return image_type(start.decode(errors="ignore").encode("latin1", "ignore")[:START])


def _names(data: memoryview, sample: Any) -> dict[str, str]:
    """Names of the fields of a first sample, by their places."""
    parts = list(parts_of(sample))
    if isinstance(sample, Mapping):
        return {place: _name_in_dict(place[1:], one, sample) for place, one in parts}
    names: dict[str, str] = {}
    integers = [place for place, one in parts if type(one) is int]
    texts = [place for place, one in parts if isinstance(one, Blob) and one.kind == "text" and not _image(data, one)]
    for place, one in parts:
        image = _image(data, _raw(one))
        name = image or ("cls" if integers == [place] else "txt" if texts == [place] else place[1:])
        if not place:
            name = image or ("txt" if texts else "bin" if isinstance(one, Blob) else "value")
        names[place] = place[1:] if name in names.values() else name
    return names


def _name_in_dict(name: str, found: Any, sample: Mapping[str, Any]) -> str:
    if name in _LABELS and type(found) is int and "cls" not in sample and sum(key in sample for key in _LABELS) == 1:
        return "cls"
    return usable_field(name)
