"""The members of a zip file: its central directory, and where each member's bytes begin.

Python's zipfile takes the first end record that it meets, believes its counts, lets members overlap, and looks at local
headers only when a member is opened. Here each of these is checked, so that a zip has one meaning or none.

https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from shardstream.errors import FormatError
from shardstream.formats.blocks.codecs import LARGEST
from shardstream.formats.scans.object_bytes import ObjectBytes

_END = struct.Struct("<4s4H2IH")
_LOCATOR = struct.Struct("<4sIQI")
_END64 = struct.Struct("<4sQ2H2I4Q")
_ENTRY = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_MAX16, _MAX32 = 0xFFFF, 0xFFFFFFFF
_LARGEST_COMMENT = 0xFFFF
_DESCRIPTOR, _UTF8 = 1 << 3, 1 << 11
_ENCRYPTED = 1 << 0 | 1 << 6 | 1 << 13
_MOST_DEFLATED = 1032  # bytes that one byte may stand for
_ZIP64, _UNICODE_NAME = 0x0001, 0x7075  # kinds of extra data
_UNPACK = "unpack the zip, or write it again without compression (zip -0)"
DEFLATE = 8
"""The method of members that are compressed in the usual way."""
_METHODS = {
    1: "shrink",
    6: "implode",
    DEFLATE: "deflate",
    9: "deflate64",
    12: "bzip2",
    14: "LZMA",
    20: "zstd",
    93: "zstd",
    94: "MP3",
    95: "xz",
    96: "JPEG recompression",
    97: "WavPack",
    98: "PPMd",
    99: "AES",
}

CHECKSUMS = "CRC-32 of members"
"""What zip files keep of their members, for messages."""
_PART = 16 << 20  # bytes whose CRC-32 is made at once


class ZipMember(NamedTuple):
    """An entry of the central directory.

    Attributes:
        name: Its name; bytes that are not UTF-8 where they should be stand as ``surrogateescape`` has them.
        raw: The name as it is stored.
        flags: General purpose flags.
        method: How it is compressed; 0: not at all.
        stored: Its bytes in the zip.
        size: Its bytes when inflated.
        header: Offset of its local header.
        crc: CRC-32 of its bytes when inflated.
    """

    name: str
    raw: bytes
    flags: int
    method: int
    stored: int
    size: int
    header: int
    crc: int

    @property
    def deflated(self) -> bool:
        """Whether it is compressed in the usual way."""
        return self.method == DEFLATE


class Directory(NamedTuple):
    """The central directory of a zip.

    Attributes:
        members: In the directory's order.
        start: Where it begins, which is where members end.
    """

    members: list[ZipMember]
    start: int


def check_stored(data: ObjectBytes, member: ZipMember, remedy: str = _UNPACK) -> None:
    """Refuse members whose bytes do not lie in the zip as they are: encrypted and compressed ones."""
    if member.flags & _ENCRYPTED or member.method == 99:
        raise data.unsupported(
            f"{member.name!r} is encrypted", member.header, hint="encrypted zip files are not read: decrypt it first"
        )
    if member.method:
        how = _METHODS.get(member.method, f"method {member.method}")
        raise data.unsupported(
            f"{member.name!r} is compressed ({how}); members are read where they lie, uncompressed",
            member.header,
            hint=remedy,
        )
    if member.stored != member.size:
        raise data.damaged(f"{member.name!r} has {member.stored} bytes, and {member.size} uncompressed", member.header)


def check_deflated(data: ObjectBytes, member: ZipMember) -> None:
    """Refuse members that neither lie in the zip as they are nor can be inflated alone, such as encrypted ones."""
    if not member.deflated or member.flags & _ENCRYPTED:
        check_stored(data, member)
    elif member.size > min(LARGEST, _MOST_DEFLATED * member.stored):
        raise data.unsupported(
            f"{member.name!r} announces {member.size} bytes in {member.stored}; at most {LARGEST} are read, "
            f"and deflate holds {_MOST_DEFLATED} a byte",
            member.header,
            hint=_UNPACK,
        )


def read_directory(data: ObjectBytes) -> Directory:
    """All members of a zip.

    Raises:
        FormatError: It is damaged, part of a zip in several parts, or could be read in two ways.
        StorageError: It cannot be read.
    """
    count, start, end = _ending(data)
    members: list[ZipMember] = []
    place = start
    while place < end:
        if len(members) == count:
            raise data.damaged(f"the directory has more than the {count} entries that it announces", place)
        member, place = _entry(data, place, end)
        if member.header + _LOCAL.size + len(member.raw) + member.stored > start:
            raise data.damaged(f"{member.name!r} reaches into the zip's directory", member.header)
        members.append(member)
    if len(members) != count:
        raise data.damaged(f"the directory announces {count} entries, and has {len(members)}", start)
    return Directory(members, start)


def located(data: ObjectBytes, directory: Directory) -> Iterator[tuple[int, int]]:
    """Number in the directory, and where its bytes begin, for each member: in the order in which they lie in the zip.

    Raises:
        FormatError: A local header contradicts the directory, or members overlap.
    """
    headers = np.array([one.header for one in directory.members], np.uint64)
    order = np.argsort(headers, kind="stable").tolist()
    for place, number in enumerate(order):
        member = directory.members[number]
        begin = _begin(data, member)
        limit = directory.members[order[place + 1]].header if place + 1 < len(order) else directory.start
        if begin + member.stored > limit:
            other = f"{directory.members[order[place + 1]].name!r}" if place + 1 < len(order) else "the directory"
            raise data.damaged(
                f"{member.name!r} and {other} overlap", limit, hint="such a zip is made to deceive: do not use it"
            )
        yield number, begin


def wrong_members(data: ObjectBytes) -> Iterator[FormatError]:
    """Members that are stored as they are, but do not have the CRC-32 that the directory says.

    Raises:
        FormatError: As `read_directory` and `located`.
    """
    directory = read_directory(data)
    for number, begin in located(data, directory):
        member = directory.members[number]
        if member.method or member.flags & _ENCRYPTED:
            continue
        found = 0
        for at in range(begin, begin + member.stored, _PART):
            found = zlib.crc32(data.get(at, min(_PART, begin + member.stored - at)), found)
        if found != member.crc:
            yield data.damaged(
                f"the CRC-32 of {member.name!r} is {found:08x}, and the zip says {member.crc:08x}", begin
            )


def _ending(data: ObjectBytes) -> tuple[int, int, int]:
    """Number of entries, begin and end of the directory."""
    first = max(0, data.size - _END.size - _LARGEST_COMMENT)
    tail = bytes(data.get(first, data.size - first))
    found, problem = [], None
    place = tail.find(b"PK\5\6")
    while 0 <= place <= len(tail) - _END.size:
        # Its comment reaches exactly to the end of the file, or this is not an end record but part of a comment.
        if place + _END.size + int.from_bytes(tail[place + 20 : place + 22], "little") == len(tail):
            try:
                found.append(_end_record(data, first + place, tail[place : place + _END.size]))
            except FormatError as error:
                problem = problem or error
        place = tail.find(b"PK\5\6", place + 1)
    if len(found) > 1:
        raise data.damaged(
            "it has two end records, each with a directory",
            found[1][2],
            hint="such a zip is made to deceive: do not use it",
        )
    if not found:
        raise problem or data.damaged("it does not end as a zip does: it was cut off, or something follows", first)
    return found[0]


def _end_record(data: ObjectBytes, place: int, record: bytes) -> tuple[int, int, int]:
    _, disk, directory_disk, here, count, length, start, _ = _END.unpack(record)
    end, disks = place, {disk, directory_disk}
    if place >= _LOCATOR.size and bytes(data.get(place - _LOCATOR.size, 4)) == b"PK\6\7":
        end, wide = _end_record_64(data, place - _LOCATOR.size)
        narrow = (disk, directory_disk, here, count, length, start)
        limits = (_MAX16,) * 4 + (_MAX32,) * 2
        if any(small not in (limit, large) for small, large, limit in zip(narrow, wide, limits, strict=True)):
            raise data.damaged("its two end records (zip and zip64) contradict each other", place)
        disk, directory_disk, here, count, length, start = wide
        disks = {disk, directory_disk}
    if disks != {0} or here != count:
        raise data.unsupported(
            "it is one part of a zip in several parts",
            place,
            hint="join the parts: zip -s 0 FIRST.zip --out WHOLE.zip",
        )
    if start + length < end and bytes(data.get(end - length, min(length, 4))) == b"PK\1\2"[:length]:
        what = f"{end - start - length} bytes stand before the zip, as before those that unpack themselves"
        raise data.unsupported(what, 0, hint="take them off: zip -J FILE.zip, or unpack it")
    if start + length != end:
        raise data.damaged(
            f"its directory should be {length} bytes from {start} on, and ends at {end}: something stands before or "
            "inside of the zip",
            place,
        )
    if count * _ENTRY.size > length:
        raise data.damaged(f"{count} entries cannot be in a directory of {length} bytes", place)
    return count, start, end


def _end_record_64(data: ObjectBytes, place: int) -> tuple[int, tuple[int, ...]]:
    """Where the directory must end, and disk, disk of the directory, entries here, entries, length and start."""
    _, _, start, disks = _LOCATOR.unpack(data.get(place, _LOCATOR.size))
    if disks > 1:
        hint = "join them: zip -s 0 FILE.zip --out NEW.zip"
        raise data.unsupported(f"the zip is one of {disks} parts", place, hint=hint)
    if start + _END64.size > place:
        raise data.damaged(f"the zip64 end record cannot be at {start}", place)
    magic, length, _, _, *numbers = _END64.unpack(data.get(start, _END64.size))
    if magic != b"PK\6\6" or start + 12 + length != place:
        raise data.damaged("there is no zip64 end record where it should be", start)
    return start, tuple(numbers)


def _entry(data: ObjectBytes, place: int, end: int) -> tuple[ZipMember, int]:
    """The entry at a place of the directory, and where the next one begins."""
    if place + _ENTRY.size > end:
        raise data.damaged("the directory ends inside of an entry", place)
    fields = _ENTRY.unpack(data.get(place, _ENTRY.size))
    magic, _, _, flags, method, _, _, crc, stored, size, name_length, extra_length, comment, disk, _, _, header = fields
    following = place + _ENTRY.size + name_length + extra_length + comment
    if magic != b"PK\1\2" or following > end:
        raise data.damaged("this is not an entry of a zip's directory", place)
    rest = bytes(data.get(place + _ENTRY.size, name_length + extra_length))
    raw = rest[:name_length]
    if _MAX32 in (stored, size, header) or disk == _MAX16:
        wide = _extra(data, rest[name_length:], _ZIP64, place) or b""
        numbers = iter(struct.unpack(f"<{len(wide) // 8}Q", wide[: len(wide) // 8 * 8]))
        try:
            size = next(numbers) if size == _MAX32 else size
            stored = next(numbers) if stored == _MAX32 else stored
            header = next(numbers) if header == _MAX32 else header
        except StopIteration:
            raise data.damaged("an entry without the sizes that zip64 should give", place) from None
        disk = int.from_bytes(wide[-4:], "little") if disk == _MAX16 and len(wide) % 8 == 4 else disk
    if disk:
        raise data.unsupported("an entry lies in another part of the zip", place, hint="join the parts of the zip")
    if not raw or b"\0" in raw:
        raise data.damaged("a member's name is empty, or has a zero byte", place)
    return ZipMember(
        _name(data, raw, flags, rest[name_length:], place), raw, flags, method, stored, size, header, crc
    ), following


def _name(data: ObjectBytes, raw: bytes, flags: int, extra: bytes, place: int) -> str:
    if flags & _UTF8 or raw.isascii():
        return raw.decode("utf-8", "surrogateescape")
    # Info-ZIP writes names of the local code page, and beside them their UTF-8 with the checksum of the former.
    unicode = _extra(data, extra, _UNICODE_NAME, place)
    if unicode and len(unicode) > 5 and unicode[0] == 1 and unicode[1:5] == zlib.crc32(raw).to_bytes(4, "little"):
        return unicode[5:].decode("utf-8", "surrogateescape")
    return raw.decode("cp437")


def _extra(data: ObjectBytes, extra: bytes, wanted: int, place: int) -> bytes | None:
    """The extra data of this kind, of a header at a place."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if at + 4 + length > len(extra):
            raise data.damaged("extra data of a member reaches past their end", place)
        if kind == wanted:
            return extra[at + 4 : at + 4 + length]
        at += 4 + length
    return None


def _begin(data: ObjectBytes, member: ZipMember) -> int:
    """Where a member's bytes begin, by its local header, which must say what the directory says."""
    local = data.get(member.header, _LOCAL.size + len(member.raw))
    magic, _, flags, method, _, _, _, stored, size, name_length, extra_length = _LOCAL.unpack_from(local)
    if magic != b"PK\3\4":
        raise data.damaged(f"{member.name!r} has no header where the directory says", member.header)
    extra_at: int = member.header + _LOCAL.size + name_length
    sizes = (stored, size)
    if _MAX32 in sizes:
        wide = _extra(data, bytes(data.get(extra_at, extra_length)), _ZIP64, extra_at) or b""
        if len(wide) >= 16:
            size, stored = struct.unpack_from("<2Q", wide)
            sizes = (stored, size)
    agree = sizes == (member.stored, member.size) or (flags & _DESCRIPTOR and sizes == (0, 0))
    same_name = name_length == len(member.raw) and local[_LOCAL.size :] == member.raw
    if not (agree and same_name and method == member.method and not (flags ^ member.flags) & _ENCRYPTED):
        raise data.damaged(
            f"the header of {member.name!r} contradicts the zip's directory (name, sizes or method)", member.header
        )
    return extra_at + int(extra_length)
