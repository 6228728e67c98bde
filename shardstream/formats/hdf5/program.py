"""Asks HDF5's own library where the data sets of a file lie; runs in a process of its own, see `apart`.

Nothing is followed that leads out of the file, or elsewhere in it: every component of a name is looked at before it is
opened. The library sees the file through `_Pages` only.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5f, h5fd, h5g, h5o, h5p, h5t

from shardstream.formats.hdf5.compact import compact_place
from shardstream.formats.isolated.child import RefusedError

_PAGE = 16 << 10
_PAGES = 512  # that are kept
_DEEPEST = 32
_MOST_OBJECTS = 100_000
_LEAST = 8  # bytes of a file that tell of a chunk, at least
_LAYOUTS = {h5d.COMPACT: "compact", h5d.CONTIGUOUS: "contiguous", h5d.CHUNKED: "chunked", h5d.VIRTUAL: "virtual"}
_LINKS = {1: "a soft link", 64: "an external link"}  # H5L_TYPE_SOFT, H5L_TYPE_EXTERNAL
_HARD = 0
_REFERENCE = 16  # bytes that a value of any length takes in its data set; the library tells what it takes in memory


class _Pages(io.RawIOBase):
    """The file: pages that the host is asked for."""

    def __init__(self, size: int, ask: Callable[[Any], Any]) -> None:
        self._size = size
        self._ask = ask
        self._at = 0
        self._pages: OrderedDict[int, bytes] = OrderedDict()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = begin + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view) and self._at < self._size:
            number, begin = divmod(self._at, _PAGE)
            part = self._page(number)[begin : begin + len(view) - done]
            view[done : done + len(part)] = part
            done += len(part)
            self._at += len(part)
        return done

    def _page(self, number: int) -> bytes:
        found = self._pages.pop(number, None)
        if found is None:
            begin = number * _PAGE
            found = self._ask([begin, min(_PAGE, self._size - begin)])
        self._pages[number] = found
        if len(self._pages) > _PAGES:
            self._pages.popitem(last=False)
        return found


def answer(request: Any, ask: Callable[[Any], Any]) -> Iterator[Any]:
    """What each data set is, and where it lies.

    Args:
        request: ``size`` of the file, and ``chosen``: whether not all data sets are wanted.
        ask: Gives bytes of the file, of an offset and a length; and whether a name is of what is wanted, or above it.
    """
    properties = h5p.create(h5p.FILE_ACCESS)
    pages = _Pages(request["size"], ask)
    properties.set_fileobj_driver(h5fd.fileobj_driver, pages)
    try:
        file = h5f.open(b"file", h5f.ACC_RDONLY, properties)
    except OSError as error:
        raise RefusedError(f"HDF5 does not open it: {error}") from error
    try:
        wanted = ask if request["chosen"] else None
        yield from _Walk(request["size"], wanted, lambda begin, length: ask([begin, length])).group(
            h5g.open(file, b"/"), ()
        )
    finally:
        file.close()


class _Walk:
    """Goes through groups.

    Args:
        size: Bytes of the file.
        wanted: Whether a name is of what is wanted, or above it; ``None``: all is.
        read: Gives bytes of the file: of an offset, so many.
    """

    def __init__(self, size: int, wanted: Callable[[str], bool] | None, read: Callable[[int, int], bytes]) -> None:
        self._size = size
        self._read = read
        self._wanted = wanted
        self._seen = 0

    def group(self, group: Any, path: tuple[str, ...]) -> Iterator[Any]:
        """The data sets below a group."""
        if len(path) > _DEEPEST:
            raise RefusedError(
                f"groups are nested more than {_DEEPEST} deep, at {'/'.join(path)[:200]}", hint="nest them less deep"
            )
        for raw in list(group):
            self._seen += 1
            if self._seen > _MOST_OBJECTS:
                raise RefusedError(
                    f"there are more than {_MOST_OBJECTS} data sets and groups", hint="keep samples in few data sets"
                )
            name = raw.decode("utf-8", "backslashreplace")
            place = (*path, name)
            shown = "/".join(place)
            if self._wanted is not None and not self._wanted(shown):
                continue
            if b"/" in raw or raw in (b"", b".", b".."):
                raise RefusedError(f"a name that none can be: {shown!r}", hint="rename it")
            kind = group.links.get_info(raw).type
            if kind != _HARD:
                raise RefusedError(
                    f"{shown!r} is {_LINKS.get(kind, 'a link of a kind of its own')}, and links are not followed",
                    hint="name those to read: SourceOptions(options={'fields': 'NAME,NAME'}) "
                    "(--format-option fields=NAME,NAME), or copy it to where the link is",
                )
            found = h5o.open(group, raw)
            if isinstance(found, h5g.GroupID):
                yield from self.group(found, place)
            elif isinstance(found, h5d.DatasetID):
                yield self._dataset(found, place)

    def _dataset(self, found: Any, place: tuple[str, ...]) -> dict[str, Any]:
        properties = found.get_create_plist()
        name = "/".join(place)
        if properties.get_external_count():
            raise RefusedError(
                f"{name!r} lies in other files, which it names itself (external storage)", hint="copy it into the file"
            )
        layout = _LAYOUTS.get(properties.get_layout(), "unknown")
        if layout == "virtual":
            raise RefusedError(
                f"{name!r} is virtual: it lies in other data sets, which it names itself", hint="copy it into the file"
            )
        shape = found.shape
        out = {
            "name": list(place),
            "shape": None if shape is None else list(shape),
            "type": _type(found.get_type()),
            "layout": layout,
            "offset": found.get_offset(),
            "stored": found.get_storage_size(),
            "filters": [_filter(properties, i) for i in range(properties.get_nfilters())],
            "fill": _fill(properties, found),
        }
        if layout == "chunked":
            out |= self._chunks(found, properties.get_chunk(), name)
        if layout == "compact":
            out["offset"] = self._compact(found, name)
        return out

    def _compact(self, found: Any, name: str) -> int:
        """Where the values of a data set with compact layout begin."""
        place = compact_place(self._read, h5o.get_info(found).addr)
        if place is None or place.length != found.get_storage_size():
            raise RefusedError(
                f"{name!r} keeps its values in its object header, where they were not found (compact layout)",
                hint=f"write it again with another layout: h5repack -l {name}:CONTI OLD NEW",
            )
        return place.offset

    def _chunks(self, found: Any, chunk: tuple[int, ...], name: str) -> dict[str, Any]:
        """Offsets, stored bytes, masks and corners of all chunks that were written, as bytes of ``<u8``."""
        rows: list[tuple[int, ...]] = []

        def note(info: Any) -> None:
            if len(rows) * _LEAST > self._size:
                raise RefusedError(f"{name!r} has more chunks than there can be in a file of {self._size} bytes")
            rows.append((info.byte_offset, info.size, info.filter_mask, *info.chunk_offset))

        found.chunk_iter(note)
        table = np.array(rows, "<u8").reshape(len(rows), 3 + len(chunk))
        return {"chunk": list(chunk), "chunks": table.tobytes()}


def _filter(properties: Any, number: int) -> list[Any]:
    code, _, values, name = properties.get_filter(number)
    return [code, [int(value) for value in values], name.decode("ascii", "replace")]


def _fill(properties: Any, found: Any) -> bytes | None:
    """The value that stands where nothing was written; empty for zeros, ``None`` where it is not known."""
    kind = found.dtype
    defined = properties.fill_value_defined()
    if defined == h5d.FILL_VALUE_UNDEFINED:
        return b""
    if kind.kind not in "iufbSV" or kind.hasobject:
        return None if defined == h5d.FILL_VALUE_USER_DEFINED else b""
    value = np.zeros((), kind)
    properties.get_fill_value(value)
    return value.tobytes() if any(value.tobytes()) else b""


def _type(kind: Any, depth: int = 0) -> dict[str, Any]:
    """What elements are, as far as it matters to us."""
    out: dict[str, Any] = {"size": kind.get_size()}
    if depth > _DEEPEST:
        raise RefusedError("types are nested too deep", hint="nest them less deep")
    if isinstance(kind, h5t.TypeEnumID):
        members = {kind.get_member_name(i): kind.get_member_value(i) for i in range(min(kind.get_nmembers(), 3))}
        boolean = members == {b"FALSE": 0, b"TRUE": 1}
        return out | ({"class": "bool"} if boolean else _type(kind.get_super(), depth + 1))
    if isinstance(kind, h5t.TypeIntegerID | h5t.TypeFloatID):
        return out | {"class": "number", "dtype": _dtype(kind)}
    if isinstance(kind, h5t.TypeStringID):
        if kind.is_variable_str():
            return {"class": "text", "size": _REFERENCE}
        return out | {"class": "fixed text", "padding": kind.get_strpad()}
    if isinstance(kind, h5t.TypeOpaqueID):
        return out | {"class": "opaque"}
    if isinstance(kind, h5t.TypeVlenID):
        return {"class": "list", "size": _REFERENCE, "base": _type(kind.get_super(), depth + 1)}
    if isinstance(kind, h5t.TypeArrayID):
        return out | {"class": "array", "base": _type(kind.get_super(), depth + 1), "shape": kind.get_array_dims()}
    if isinstance(kind, h5t.TypeCompoundID):
        parts = [
            [
                kind.get_member_name(i).decode("utf-8", "backslashreplace"),
                kind.get_member_offset(i),
                _type(kind.get_member_type(i), depth + 1),
            ]
            for i in range(kind.get_nmembers())
        ]
        return out | {"class": "compound", "members": parts}
    names = {h5t.REFERENCE: "references", h5t.TIME: "times", h5t.BITFIELD: "bit fields"}
    return out | {"class": names.get(kind.get_class(), "an unknown type")}


def _dtype(kind: Any) -> str:
    """The type in numpy if it is one whose elements lie as numpy has them; else empty."""
    try:
        found = kind.dtype
        same = h5t.py_create(found).equal(kind)
    except TypeError:
        return ""
    return found.str if same else ""


if not hasattr(h5d.DatasetID, "chunk_iter"):
    found = f"h5py {h5py.version.version} with HDF5 {h5py.version.hdf5_version}"
    raise ImportError(f"{found} is too old: h5py 3.10 is needed, with HDF5 1.12.3 or newer", name="h5py")
