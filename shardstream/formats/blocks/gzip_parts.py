"""The parts of a large gzip file: access points some MB apart, each of which inflates alone, so each is a block.

The package indexed_gzip finds the points, and nothing else is needed to read from them (`storage.blocks.gzip_points`).
Its format: https://github.com/pauldmccarthy/indexed_gzip
"""

from __future__ import annotations

import io
import itertools
import struct
from typing import NamedTuple

import xxhash

from shardstream.errors import DecodeError, FormatError, MissingExtraError, UnsupportedError
from shardstream.extras import install_command, require
from shardstream.formats.blocks import BlockList
from shardstream.formats.blocks.codecs import CODECS, LARGEST, inflate
from shardstream.formats.blocks.found_blocks import LARGEST_WHOLE, PACK, FoundBlocks, small_block, too_large
from shardstream.formats.blocks.gzip_points import WINDOW, last_part, setting_of
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.sizes import size as sized
from shardstream.storage.base.ranged import RangedFile

SPACING = 4 << 20
"""Inflated bytes between two access points, at least."""
_WHOLE = 2 * SPACING  # inflated bytes of a file that is one block
_MOST = 64 << 30  # inflated bytes of a file: the points of it are held in memory
_STEP = 1 << 30  # of inflating, between looks at how much it is
_READ = 1 << 20
_DECOMPRESS = "decompress it, or write several files"
_HEAD = struct.Struct("<5sBBQQIII")  # magic, version, flags, sizes, spacing, window, points
_POINT = struct.Struct("<QQBB")  # where it is stored and inflated, bits, whether there is a window


class _Point(NamedTuple):
    """An access point: where it is stored and inflated, how many bits of the byte before it has, and the window."""

    stored: int
    inflated: int
    bits: int
    window: bytes


def gzip_blocks(data: ObjectBytes) -> FoundBlocks:
    """The blocks of a gzip file: one of a small file, else parts.

    Where the package indexed_gzip is not installed, a file is one block up to `LARGEST_WHOLE`. Of one that is cut off,
    they are what is left, as far as the package is there.

    Raises:
        FormatError: It is damaged, or too large.
        StorageError: It cannot be read.
    """
    try:
        small = small_block(data, "gzip", _WHOLE)
    except FormatError as error:
        return _cut_off(data, error)
    if small is not None:
        return small
    try:
        return _parts(data, _points(data))
    except MissingExtraError as error:
        whole = small_block(data, "gzip", LARGEST_WHOLE)
        if whole is None:
            raise too_large(
                data, "gzip", LARGEST_WHOLE, hint=f"{install_command('gzip')} reads it in parts; {PACK}"
            ) from error
        return whole


def _cut_off(data: ObjectBytes, error: FormatError) -> FoundBlocks:
    """What is left of a small file, if it is only cut off."""
    try:
        return _parts(data, _points(data))
    except (FormatError, MissingExtraError):
        raise error from None


def _parts(data: ObjectBytes, points: list[_Point]) -> FoundBlocks:
    out, first, damage = BlockList(), None, None
    for point, behind in itertools.pairwise([*points, None]):
        assert point is not None
        begin, end = point.stored - bool(point.bits), data.size if behind is None else behind.stored
        setting = setting_of(point.bits, point.window)
        stored = data.get(begin, end - begin)
        try:
            if behind is None:
                last = last_part(stored, setting, LARGEST_WHOLE)
                if last is None:
                    raise too_large(data, "gzip", LARGEST_WHOLE)
                made, whole = last
                damage = None if whole else data.damaged("the gzip file is cut off", data.size)
            else:
                made = inflate(CODECS["gzip-part"], stored, behind.inflated - point.inflated, setting)
        except DecodeError as error:
            raise data.damaged(error.what, begin) from error
        out.add("gzip-part", begin, end - begin, len(made), xxhash.xxh3_64_intdigest(made), setting)
        first = first or made
    return FoundBlocks(out.of(data.size), first, damage=damage)


def _points(data: ObjectBytes) -> list[_Point]:
    """The access points of a file, in order; the first is its beginning.

    Raises:
        FormatError: It is damaged, or inflates to more than is read.
        MissingExtraError: indexed_gzip is not installed.
        StorageError: It cannot be read.
    """
    package = require("indexed_gzip", extra="gzip", purpose="to read large gzip files in parts")
    out, file = io.BytesIO(), RangedFile(data.size, data.get)
    try:
        inflated = package.IndexedGzipFile(
            fileobj=file,
            spacing=SPACING,
            window_size=WINDOW,
            readbuf_size=_READ,
            buffer_size=_READ,
        )
        for end in range(_STEP, _MOST + 2 * _STEP, _STEP):
            if inflated.seek(end) < end:
                break
            data.reached(file.tell() / data.size)
        else:
            what = f"it is compressed with gzip, and larger than {sized(_MOST)} when it is inflated"
            raise UnsupportedError(what, url=data.url, hint=_DECOMPRESS)
        inflated.build_full_index()
        inflated.export_index(fileobj=out)
    except (OSError, EOFError) as error:  # the package's own is one
        raise data.damaged(f"the gzip file does not inflate: {error}", 0) from error
    return _parsed(data, out.getvalue())


def _parsed(data: ObjectBytes, index: bytes) -> list[_Point]:
    *_, window, count = _HEAD.unpack_from(index)
    places = [_POINT.unpack_from(index, _HEAD.size + _POINT.size * number) for number in range(count)]
    at = _HEAD.size + _POINT.size * count
    points: list[_Point] = []
    for stored, inflated, bits, has_window in places:
        before = index[at : at + window] if has_window else b""
        at += len(before)
        if points and inflated - points[-1].inflated > LARGEST:
            what = f"a part of it inflates to more than {sized(LARGEST)}"
            raise data.unsupported(what, points[-1].stored, hint=_DECOMPRESS)
        if stored < data.size and (not points or inflated > points[-1].inflated):
            points.append(_Point(stored, inflated, bits, before[-inflated:]))
    if not points:
        raise data.damaged("the gzip file does not inflate", 0)
    return points
