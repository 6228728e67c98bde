"""Zarr, versions 2 and 3: an array is a field, and its first axis counts samples. Runs in a process of its own."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from shardstream.errors import AccessError
from shardstream.formats.isolated.child import RefusedError
from shardstream.formats.packages.codecs import unknown_codec
from shardstream.formats.packages.columns import MESSAGE, NUMBERS, of_numbers, of_values, wanted
from shardstream.storage.local.links import refuse_planted_link
from shardstream.text import in_one_line

_STREAM = 64 << 20  # bytes of samples that are read by one process, at least
_LARGEST_CHUNK = 512 << 20  # bytes that are sent at once, so that a chunk is inflated once
_LARGEST_META = 16 << 20
_FILL = 16  # times what its chunks can hold may be announced: chunks of fill values alone aren't written
_SHOWN = 6
_CHOOSE = "choose those that belong together: --field NAME=NAME (fields=) for each"


class _Array(NamedTuple):
    """An array: where it lies, and its metadata."""

    name: str
    path: str
    version: Literal[2, 3]
    shape: tuple[int, ...]
    chunk: int


def answer(request: Any, ask: Callable[[Any], Any]) -> Iterator[Any]:
    """``describe``: fields with their types, and parts that can be read alone; ``read``: such a part."""
    described = _arrays(request["path"], wanted(request, ask))
    if request["do"] == "describe":
        for one in described:
            _refuse_planted_links(one)
    arrays = [_opened(one) for one in described]
    if request["do"] == "describe":
        _check_held(arrays)
        yield _described(arrays)
    else:
        yield from _read(arrays, *request["part"])


def _arrays(root: str, asked: Callable[[str], bool]) -> list[_Array]:
    """The arrays below a folder that are wanted, by their metadata, which is checked before the package sees it."""
    found = []
    for folder, folders, files in os.walk(root):
        folders.sort()
        name = os.path.relpath(folder, root).replace(os.sep, ".")
        name = os.path.basename(root.rstrip("/")).partition(".")[0] if name == "." else name
        for file in ("zarr.json", ".zarray"):
            if file not in files:
                continue
            array = _array(name, folder, os.path.join(folder, file))
            if array is None:
                continue
            folders.clear()  # chunks
            if asked(name):
                found.append(array)
    if not found:
        raise RefusedError("it has no arrays with samples", hint="look at it with zarr: print(zarr.open(PATH).tree())")
    lengths = {one.shape[0] for one in found}
    if len(lengths) > 1:
        told = [f"{one.name} {one.shape[0]}" for one in found]
        shown = ", ".join(told[:_SHOWN]) + (f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else "")
        raise RefusedError(f"its arrays are of different numbers of samples: {shown}", hint=_CHOOSE)
    return found


def _refuse_planted_links(array: _Array) -> None:
    """Refuse an array of which a file is a link that must not be followed: the package opens them by name."""
    for folder, folders, files in os.walk(array.path):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            if os.path.islink(path):
                try:
                    refuse_planted_link(path, os.stat(path))
                except AccessError as error:
                    raise RefusedError(f"{in_one_line(path)}: {error.what}", hint=error.hint or "") from error
                except OSError:
                    continue  # it leads nowhere: a chunk that is not there


def _array(name: str, folder: str, file: str) -> _Array | None:
    """An array with a first axis; ``None`` for a group, and a single value."""
    if os.path.getsize(file) > _LARGEST_META:
        raise RefusedError(f"the metadata of {name!r} are too large", hint=_CHOOSE)
    try:
        with open(file, encoding="utf-8") as data:
            meta: Mapping[str, Any] = json.load(data)
        if meta.get("node_type") == "group":
            return None
        wrong = unknown_codec(meta)
        shape = tuple(int(size) for size in meta["shape"])
        chunks = meta["chunks"] if meta["zarr_format"] == 2 else meta["chunk_grid"]["configuration"]["chunk_shape"]
        version: Literal[2, 3] = 2 if meta["zarr_format"] == 2 else 3
        if not shape:
            return None
        chunk = int(chunks[0])
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise RefusedError(f"the metadata of {name!r} cannot be read: {error!r}") from error
    if wrong is not None:
        raise RefusedError(f"array {name!r} is {wrong}", hint="write it again as numbers, text or bytes")
    return _Array(name, folder, version, shape, max(chunk, 1))


class _Opened(NamedTuple):
    """An array and what the package makes of it."""

    about: _Array
    array: Any
    type: str


def _opened(one: _Array) -> _Opened:
    import zarr

    found = zarr.open_array(one.path, mode="r", zarr_format=one.version)
    name, kind = found.dtype.name, found.dtype.kind
    if name in NUMBERS:
        axes = ",".join(map(str, one.shape[1:]))
        if 0 in one.shape[1:]:
            raise RefusedError(f"array {one.name!r} has empty samples", hint=_CHOOSE)
        return _Opened(one, found, f"array:{name}:{axes}" if axes else name)
    if kind in "UTSO" and len(one.shape) == 1:
        return _Opened(one, found, "bytes" if kind == "O" and _holds_bytes(found) else "str")
    what = f"array {one.name!r} holds {found.dtype}" + (f", {list(one.shape[1:])} a sample" if one.shape[1:] else "")
    raise RefusedError(f"{what}, which is not read", hint="choose other fields: --field NAME=NAME (fields=) for each")


def _holds_bytes(array: Any) -> bool:
    """Whether an array of objects holds bytes: its one encoding of objects is that of bytes."""
    return (
        "bytes"
        in repr([*getattr(array, "filters", ()), getattr(array, "serializer", None), array.metadata.dtype]).lower()
    )


def _check_held(arrays: Sequence[_Opened]) -> None:
    """Refuse samples that the chunks there cannot hold: a few bytes of metadata may announce any number of them."""
    samples = arrays[0].about.shape[0]
    announced, held = samples * sum(map(_width, arrays)), 0
    for size in itertools.chain.from_iterable(map(_chunk_sizes, arrays)):
        if announced <= max(_STREAM, _FILL * held):
            return
        held += size
    if announced > max(_STREAM, _FILL * held):
        raise RefusedError(
            f"it announces {samples} samples of {announced // samples} bytes, and its chunks hold at most {held} bytes",
            hint="copy all of its chunks; chunks of fill values are written with write_empty_chunks=True",
        )


def _chunk_sizes(one: _Opened) -> Iterator[int]:
    """What the files of each folder of an array hold, inflated."""
    size = one.array.dtype.itemsize * math.prod(getattr(one.array, "shards", None) or one.array.chunks)
    for _, _, files in os.walk(one.about.path):
        yield size * sum(name != "zarr.json" and not name.startswith(".") for name in files)


def _described(arrays: Sequence[_Opened]) -> dict[str, Any]:
    samples = arrays[0].about.shape[0]
    width = sum(_width(one) for one in arrays)
    # Chunks of the largest array are read once; those of others may be read twice where parts meet.
    step = max(arrays, key=_width).about.chunk
    rows = -(-max(1, _STREAM // max(width, 1)) // step) * step
    return {
        "fields": [[one.about.name, one.type] for one in arrays],
        "samples": samples,
        "parts": [[begin, min(begin + rows, samples)] for begin in range(0, samples, rows)],
    }


def _width(one: _Opened) -> int:
    size: int = one.array.dtype.itemsize
    return size * math.prod(one.about.shape[1:])


def _read(arrays: Sequence[_Opened], begin: int, end: int) -> Iterator[Any]:
    chunks, width = max(one.about.chunk for one in arrays), max(sum(map(_width, arrays)), 1)
    rows = max(1, MESSAGE // width)
    if rows > chunks:
        rows -= rows % chunks
    elif chunks * width <= _LARGEST_CHUNK:
        rows = chunks  # else a chunk is inflated for each part of it
    for first in range(begin, end, rows):
        last = min(first + rows, end)
        yield [last - first, {one.about.name: _column(one, first, last) for one in arrays}]


def _column(one: _Opened, begin: int, end: int) -> dict[str, Any]:
    found = np.asarray(one.array[begin:end])
    if one.type not in ("str", "bytes"):
        return of_numbers(found)
    values = found.tolist()
    if found.dtype.kind == "S":
        values = [value.decode("utf-8") for value in values]
    if not all(isinstance(value, str | bytes) for value in values):
        raise RefusedError(f"array {one.about.name!r} holds objects that are neither text nor bytes", hint=_CHOOSE)
    return of_values(values)
