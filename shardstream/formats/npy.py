"""numpy's files: an array is a field, and its first axis counts samples. ``.npy``: one; ``.npz``: those of a zip."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FieldError, FormatError, UnsupportedError, UsageError
from shardstream.formats.contract import ObjectListing, Recognized, SourceFormat, SourceObject
from shardstream.formats.scans.names import accompanies
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import ScannedRows, numbered_keys, pieces
from shardstream.formats.zip.directory import (
    CHECKSUMS,
    check_stored,
    located,
    read_directory,
    wrong_members,
)
from shardstream.shards.arrays import NPY_HEAD, NPY_MAGIC, npy_head
from shardstream.shards.field_names import usable_field
from shardstream.shards.fields import SCALAR_TYPES, FieldType
from shardstream.shards.index import Column
from shardstream.storage import Store
from shardstream.storage.base.store import ObjectMeta

_RAW = (".dat", ".mmap", ".memmap", ".raw")  # what says nothing by itself
_MOST_BESIDE = 64  # arrays of one data set
_ZIP = b"PK\3\4"
_SAY_SHARDS = "give the URL of one of them, or files=shards where each holds many samples"


class Npy(SourceFormat):
    """``.npy`` and uncompressed ``.npz``: arrays whose first axis counts samples."""

    name: ClassVar[str] = "npy"
    title: ClassVar[str] = "numpy arrays (.npy, .npz)"
    options: ClassVar[Mapping[str, str]] = {
        "files": "'shards': several .npz files are shards of one data set, with the same arrays in each"
    }
    window: ClassVar[int] = 64 << 10

    def recognize(self, listing: ObjectListing, options: Mapping[str, str]) -> Recognized | None:
        found = listing.only(".npy", ".npz")
        if not found:
            return None
        if listing.first_that(found, lambda start: start.startswith((NPY_MAGIC, _ZIP))) is None:
            return None
        if len(found) > 1 and all(_is_npy(one.path) for one in found):
            fields = fields_of_samples(listing.store, [one.path for one in found])
            if fields is not None:
                metas = {one.path: one for one in found}
                first, *beside = (metas[path] for path in fields)
                about = {"beside": [[one.path, one.size, one.version] for one in beside]}
                return Recognized((SourceObject(first.path, first.size, about),))
        _check_one_data_set(listing, found, options.get("files"))
        return Recognized(tuple(SourceObject(one.path, one.size) for one in found))

    def scan(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[ScannedRows]:
        if not _is_npy(data.path):
            yield from _rows(data, list(_members(data)), None)
            return
        array = _Array.of(data, _field_of(data.path), 0, data.size)
        if "beside" in about:
            others = [data.beside(path, size) for path, size, _ in about["beside"]]
            arrays = [array, *(_Array.of(one, _field_of(one.path), 0, one.size) for one in others)]
            for one in arrays:
                if one.missing > 0:
                    raise one.data.damaged(f"the array announces {one.missing} bytes more", one.data.size)
            yield from _rows(data, arrays, None)
            return
        count, damage = array.samples, None
        if array.missing > 0:
            count = (data.size - array.begin) // array.width
            what = f"the array announces {array.missing} bytes more: {array.samples - count} of {array.samples} samples"
            damage = data.damaged(f"{what} are lost", data.size)
        if damage and not count:
            raise damage
        yield from _rows(data, [array], damage, count)

    def announced(self, data: ObjectBytes, about: Mapping[str, Any]) -> int | None:
        if not _is_npy(data.path):
            return None
        return _Array.of(data, _field_of(data.path), 0, data.size).samples

    def checksums(self, one: SourceObject) -> str:
        return CHECKSUMS if not _is_npy(one.path) else ""

    def differences(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[FormatError]:
        return iter(()) if _is_npy(data.path) else wrong_members(data)


@dataclass(frozen=True, slots=True)
class _Array:
    """A field: where the array of an NPY file begins, and what it is.

    Attributes:
        data: The object that it is in.
        name: The field.
        kind: Its type: a scalar, or a fixed array.
        samples: Length of the first axis.
        begin: Where the elements begin in the object.
        missing: Bytes that the file should have beyond those that it has.
    """

    data: ObjectBytes
    name: str
    kind: FieldType
    samples: int
    begin: int
    missing: int

    @property
    def width(self) -> int:
        """Bytes of a sample."""
        return self.kind.width

    @staticmethod
    def of(data: ObjectBytes, name: str, at: int, size: int) -> _Array:
        """The array of an NPY file that lies at a place of the object."""
        try:
            head = npy_head(data.get(at, min(size, NPY_HEAD)))
        except UnsupportedError as error:
            raise data.unsupported(f"{name!r} cannot be read: {error.what}", at, hint=_PLAIN) from error
        except (ValueError, TypeError) as error:
            raise data.damaged(f"{name!r} cannot be read: {error}", at) from error
        kind = _type_of(data, name, at, head.dtype, head.shape, head.fortran)
        missing = head.shape[0] * kind.width - (size - head.start)
        if missing < 0:
            raise data.damaged(f"there are {-missing} bytes after the array {name!r}", at + size + missing)
        return _Array(data, name, kind, head.shape[0], at + head.start, missing)

    def column(self, begin: int, end: int) -> Column:
        """Rows ``[begin, end)`` of it."""
        place = self.begin + begin * self.width
        if self.kind.kind == "fixed":
            return Column(self.name, self.kind, base=place)
        return Column(self.name, self.kind, values=_numbers(self.data, self.kind, place, end - begin))


class Memmap(SourceFormat):
    """Files of ``numpy.memmap``: nothing but an array, whose dtype and shape only the options say."""

    name: ClassVar[str] = "memmap"
    title: ClassVar[str] = "raw arrays (numpy.memmap)"
    options: ClassVar[Mapping[str, str]] = {
        "dtype": "of the numbers, as float16",
        "shape": "of the array, as 1000000,768; -1 for as many samples as the file holds",
        "field": "what the field is called; default: as the file",
    }
    required: ClassVar[Sequence[str]] = ("dtype", "shape")
    window: ClassVar[int] = 64 << 10

    def recognize(self, listing: ObjectListing, options: Mapping[str, str]) -> Recognized | None:
        named = [one for one in listing.objects if not accompanies(one.path)]
        found = named if listing.sure else listing.only(*_RAW)
        if not found or any(name not in options for name in self.required):
            return None
        try:
            dtype = np.dtype(options["dtype"])
            samples, *axes = (int(axis) for axis in options["shape"].strip("()[] ").rstrip(",").split(","))
            kind = FieldType.parse(f"array:{dtype.name}:{','.join(map(str, axes))}" if axes else dtype.name)
        except (ValueError, TypeError, FieldError) as error:
            given = f"dtype={options['dtype']!r}, shape={options['shape']!r}"
            hint = "give them as dtype=float16 and shape=-1,768, numbers in little-endian"
            what = error.what if isinstance(error, FieldError) else str(error)
            raise UsageError(f"{given}: there is no such array: {what}", hint=hint) from error
        if dtype.name not in SCALAR_TYPES or dtype.str.startswith(">") or (samples >= 0 and len(found) > 1):
            what = (
                f"dtype={options['dtype']!r}"
                if len(found) == 1
                else f"shape={options['shape']!r} of {len(found)} files"
            )
            raise UsageError(
                f"{what} cannot be read", hint="plain little-endian numbers are; several files take -1 samples"
            )
        if len(found) > 1 and "field" not in options:
            raise UsageError(f"{len(found)} files are to be one field", hint="name it: field=embedding")
        about = {"type": str(kind), "samples": samples, "field": options.get("field") or _field_of(found[0].path)}
        return Recognized(tuple(SourceObject(one.path, one.size, about) for one in found))

    def scan(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[ScannedRows]:
        data.refuse_placeholder()
        kind, samples = FieldType.parse(about["type"]), about["samples"]
        there = data.size // kind.width
        if data.size % kind.width or samples not in (-1, there):
            wanted = f"{samples} samples" if samples >= 0 else "samples"
            raise data.unsupported(
                f"{data.size} bytes are not {wanted} of {kind.width} bytes ({kind})",
                data.size,
                hint="correct dtype= and shape=; if they are right, the file was cut off: write it again",
            )
        yield from _rows(data, [_Array(data, about["field"], kind, there, 0, 0)], None)


_PLAIN = "arrays of plain numbers are read: write it as one, without Python objects and structures"


def _type_of(
    data: ObjectBytes, name: str, at: int, dtype: np.dtype[Any], shape: tuple[int, ...], fortran: bool
) -> FieldType:
    if not shape:
        raise data.unsupported(f"{name!r} is a single value, without an axis of samples", at, hint="pack it")
    if dtype.name not in SCALAR_TYPES:
        raise data.unsupported(f"{name!r} is an array of {dtype.name}", at, hint=_PLAIN)
    if dtype.str.startswith(">"):
        raise data.unsupported(
            f"{name!r} is big-endian, and values are read where they lie", at, hint="write it in little-endian"
        )
    if fortran and len(shape) > 1:
        raise data.unsupported(
            f"{name!r} is in Fortran order: its samples do not lie one after another",
            at,
            hint="write it in C order (numpy.ascontiguousarray)",
        )
    if not math.prod(shape[1:]):
        raise data.unsupported(f"samples of {name!r} are empty: its shape is {list(shape)}", at, hint="leave it out")
    try:
        axes = ",".join(map(str, shape[1:]))
        return FieldType.parse(f"array:{dtype.name}:{axes}" if axes else dtype.name)
    except FieldError as error:
        raise data.unsupported(f"{name!r}: {error.what}", at, hint="pack it with smaller samples") from error


def _numbers(data: ObjectBytes, kind: FieldType, place: int, count: int) -> NDArray[Any]:
    assert kind.dtype is not None
    if kind.dtype.kind != "b":
        return data.array(kind.dtype.str, count, place).copy()
    stored = data.array("|u1", count, place)
    if np.any(stored > 1):
        raise data.damaged("bytes that are neither true nor false", place + int((stored > 1).argmax()))
    return stored.astype(np.bool_)


def _is_npy(path: str) -> bool:
    return path.lower().endswith(".npy")


def _field_of(path: str) -> str:
    return usable_field(os.path.splitext(path.rpartition("/")[2])[0])


def fields_of_samples(store: Store, paths: Sequence[str]) -> list[str] | None:
    """Files of arrays that are fields of the same samples, the first of them the only one whose samples are arrays.

    ``None`` if they may be anything else, as a sample each: a directory of spectrograms, or of waves.
    """
    if not 1 < len(paths) <= _MOST_BESIDE or len({_field_of(path) for path in paths}) < len(paths):
        return None
    shapes = {path: _shape(store, path) for path in paths}
    wide = [path for path, shape in shapes.items() if len(shape) > 1]
    if len(wide) != 1 or not all(shapes.values()) or len({shape[0] for shape in shapes.values()}) > 1:
        return None
    return [*wide, *(path for path in paths if path not in wide)]


def _shape(store: Store, path: str) -> tuple[int, ...]:
    """The shape of an array; nothing if it cannot be told."""
    try:
        return npy_head(store.get(path, 0, min(NPY_HEAD, store.size(path)))).shape
    except (ValueError, TypeError, UnsupportedError):
        return ()


def _check_one_data_set(listing: ObjectListing, found: Sequence[ObjectMeta], files: str | None) -> None:
    if files not in (None, "shards"):
        raise UsageError(f"files={files!r} is not known", hint="files=shards, or leave it out")
    if len(found) == 1:
        return
    names = ", ".join(one.path for one in found[:5]) + (", ..." if len(found) > 5 else "")
    if any(_is_npy(one.path) for one in found):
        raise FormatError(
            f"each .npy file is a data set, and there are {len(found)} files: {names}",
            url=listing.url,
            hint="give the URL of one, or a pattern of those that are fields of the same samples: one array of several "
            "axes, others of one axis and as long; or write the arrays into one .npz (numpy.savez)",
        )
    if files is None:
        raise FormatError(f"there are {len(found)} .npz files: {names}", url=listing.url, hint=_SAY_SHARDS)


def _members(data: ObjectBytes) -> Iterator[_Array]:
    """The arrays of an ``.npz``."""
    directory = read_directory(data)
    taken: set[str] = set()
    for number, begin in located(data, directory):
        member = directory.members[number]
        check_stored(data, member, "write it with numpy.savez, which does not compress")
        name = usable_field(member.name[:-4])
        if not _is_npy(member.name) or name in taken:
            raise data.damaged(
                f"{member.name!r} is not an array, or one of two that become the field {name!r}", member.header
            )
        taken.add(name)
        array = _Array.of(data, name, begin, member.size)
        if array.missing:
            raise data.damaged(f"the array {name!r} announces {array.missing} bytes more than its member has", begin)
        yield array


def _rows(
    data: ObjectBytes, arrays: Sequence[_Array], damage: FormatError | None, count: int | None = None
) -> Iterator[ScannedRows]:
    if len({array.samples for array in arrays}) > 1:
        lengths = ", ".join(f"{array.name} {array.samples}" for array in arrays)
        raise data.unsupported(
            f"its arrays are of different numbers of samples: {lengths}",
            0,
            hint="write those that belong together into one file",
        )
    count = arrays[0].samples if arrays and count is None else count or 0
    arrays = sorted(arrays, key=lambda array: array.name)
    for begin, end in pieces(count):
        columns = tuple(array.column(begin, end) for array in arrays)
        last = damage if end == count else None
        yield ScannedRows(numbered_keys(data.path, begin, end - begin), columns, last)
