"""Files of a foreign data set with damage: bits, cuts, splices, extremes where lengths stand, JSON that lies.

Checksums that would notice are made right again, often: whoever means harm makes them right, too.
"""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import xxhash

import shardstream as ss
from shardstream.formats.tfrecord.crc32c import crc32c
from tests.formats.catalog.cases import CATALOGUE, Case
from tests.formats.catalog.every import OTHERS, SETS, ForeignSet

_LARGE = 1 << 20
_DIGITS = re.compile(rb"-?[0-9]+")
_WORDS = (b"0", b"-1", b"1", b"99999999999999999999", b"18446744073709551615", b"9223372036854775807", b"2147483648",
          b"4294967295", b"1e400", b"NaN", b"null", b"true", b'"x"', b"[]", b"{}", b"77777777777")  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**31, 2**53, 2**63, 2**64, 10**30, 1e308, 0.5, "", "x", "../../etc/passwd", "/etc/passwd",
    "a\0b", "\ud800", "é" * 300, "a" * 70_000, "int8", "ndarray:int8:9999999999,9999999999", "ndarray:object",
    "list[list[pkl]]", "ndarray", "zstd", [], {}, [[]], {"": ""}, [None], "[" * 3000, list(range(500)),
)  # fmt: skip


def whole(format: str, folder: Path) -> list[Case]:
    """The data sets of a format, or of `CATALOGUE`, without damage. What is large is left out.

    Args:
        format: The format.
        folder: Empty; where they are written.
    """
    if format == CATALOGUE:
        return [_with_catalogue(SETS[name], folder / name) for name in ("webdataset", "lmdb", "mds", "npy")]
    out = []
    for number, one in enumerate([SETS[format], *OTHERS.get(format, ())]):
        place = folder / str(number)
        place.mkdir()
        one.make(place)
        out.append(Case.of(format, place, one.options))
    return [case for case in out if sum(map(len, case.files.values())) <= _LARGE]


def _with_catalogue(one: ForeignSet, place: Path) -> Case:
    place.mkdir()
    one.make(place)
    Case.of(CATALOGUE, place, {}).write(place)  # with the times that a case is written with
    ss.index(place, beside=True, workers=0, checksums=place.name == "webdataset")
    return Case.of(CATALOGUE, place, {})


def mutated(case: Case, draw: random.Random) -> Case:
    """The case with some damage: the same for the same random numbers."""
    files = dict(case.files)
    names = [name for name in files if case.format != CATALOGUE or name.startswith("shardstream-")]
    names = [name for name in names if not name.endswith(".jpg")] or names  # which nobody looks into
    for _ in range(draw.choice((1, 1, 1, 2, 2, 3, 5, 12))):
        name = draw.choice(names)
        files[name] = damaged(name, files, draw)
    if draw.random() < 0.8:
        mend = {CATALOGUE: _sealed, "zip": _zips, "npy": _zips, "tfrecord": _records}.get(case.format, _tars)
        files = mend(files)
    return replace(case, files=files)


def damaged(name: str, files: Mapping[str, bytes], draw: random.Random) -> bytes:
    """One of several files with some damage, by what its name says that it holds."""
    data = files[name]
    if name.endswith((".json", ".yaml")) and draw.random() < 0.8:
        return _other_json(data, draw)
    kinds = [_flip, _extreme, _extreme, _extreme, _cut, _splice, _digits]
    return draw.choice(kinds)(data, draw)


def _place(data: bytes, draw: random.Random) -> int:
    """An offset: heads and tails are where the numbers stand."""
    size = len(data)
    zone = draw.random()
    if zone < 0.35:
        size = min(size, draw.choice((64, 512, 4096)))
        return draw.randrange(size + 1)
    if zone < 0.6:
        return size - draw.randrange(min(size, draw.choice((64, 512, 4096))) + 1)
    return draw.randrange(size + 1)


def _flip(data: bytes, draw: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8))):
        at = min(_place(data, draw), len(data) - 1)
        if at >= 0:
            out[at] = draw.choice((out[at] ^ 1 << draw.randrange(8), 0, 0x7F, 0x80, 0xFF, draw.randrange(256)))
    return bytes(out)


def _extreme(data: bytes, draw: random.Random) -> bytes:
    width = draw.choice((1, 2, 4, 4, 8, 8))
    at = _place(data, draw)
    at -= at % draw.choice((1, 2, 4, 8))
    bits = 8 * width
    size = len(data)
    value = draw.choice(
        (0, 1, 2, -1, -2, 1 << bits - 1, (1 << bits - 1) - 1, 1 << max(bits // 2, 8), size, size - 1, size + 1, 1 << 24,
         size - at, size - at - width, at, at + width, at - 1, draw.randrange(size + 1), draw.getrandbits(bits))
    )  # fmt: skip
    packed = (value & (1 << bits) - 1).to_bytes(width, draw.choice(("little", "little", "big")))
    return data[:at] + packed + data[at + width :]


def _cut(data: bytes, draw: random.Random) -> bytes:
    return data[: _place(data, draw)]


def _splice(data: bytes, draw: random.Random) -> bytes:
    """A piece taken from one place and put at another: in the place of what is there, or between, or taken away."""
    begin, at = sorted((_place(data, draw), _place(data, draw))) if draw.random() < 0.5 else (_place(data, draw),) * 2
    length = draw.choice((1, 4, 8, 16, 512, 4096, draw.randrange(len(data) + 1)))
    piece = data[begin : begin + length]
    kind = draw.randrange(4)
    if kind == 0:
        return data[:at] + piece + data[at + len(piece) :]
    if kind == 1:
        return data[:at] + piece + data[at:]
    if kind == 2:
        return data[:at] + data[at + length :]
    return data[:at] + draw.choice((b"\0", b"\xff")) * len(piece) + data[at + len(piece) :]


def _digits(data: bytes, draw: random.Random) -> bytes:
    """A number that is written in digits becomes another, of the same length or not."""
    start = draw.choice((0, max(0, _place(data, draw) - 64)))
    found = list(_DIGITS.finditer(data, start, start + 65536))
    if not found:
        return _flip(data, draw)
    one = draw.choice(found[:500])
    word = draw.choice(_WORDS)
    if draw.random() < 0.5:
        word = (word * len(one[0]))[: len(one[0])]
    return data[: one.start()] + word + data[one.end() :]


def _other_json(data: bytes, draw: random.Random) -> bytes:
    try:
        whole = json.loads(data)
    except (ValueError, RecursionError):
        return _digits(data, draw)
    holder = {"": whole}
    place: Any = holder
    key: Any = ""
    while isinstance(place[key], dict | list) and place[key] and draw.random() < 0.9:
        place = place[key]
        key = draw.choice(list(place)) if isinstance(place, dict) else draw.randrange(len(place))
    kind = draw.randrange(8)
    if kind == 0 and place is not holder:
        del place[key]
    elif kind == 1 and isinstance(place, list):
        place.insert(key, place[draw.randrange(len(place))])
    elif kind == 2 and isinstance(place[key], str):
        text = place[key]
        try:  # text that is JSON itself
            place[key] = _other_json(text.encode(), draw).decode() if text[:1] in "[{" else text[::-1]
        except (UnicodeError, ValueError):
            place[key] = text + "\0"
    elif kind == 3 and isinstance(place[key], int):
        place[key] += draw.choice((-1, 1, 2, 256, -(2**40)))
    elif kind == 4:
        place[key] = [place[key]] * draw.choice((0, 1, 2, 40))
    else:
        place[key] = draw.choice(_VALUES)
    text = json.dumps(holder[""])
    if kind == 5 and draw.random() < 0.3:
        text = text.replace("[]", "[" * 3000 + "]" * 3000, 1)
    return text.encode()


def _tars(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Checksums of what may be a header."""
    out = dict(files)
    for name, data in files.items():
        if not name.endswith(".tar"):
            continue
        whole = bytearray(data)
        for at in range(0, len(whole) - 511, 512):
            block = whole[at : at + 512]
            if block[257:262] == b"ustar" or block[100:107] == b"0000644":
                block[148:156] = b" " * 8
                whole[at + 148 : at + 156] = b"%06o\0 " % sum(block)
        out[name] = bytes(whole)
    return out


def _records(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Checksums of the records of a TFRecord file, by the lengths that stand there."""

    def masked(data: bytes) -> bytes:
        crc = crc32c(data)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    out = dict(files)
    for name, data in files.items():
        if name.endswith((".json", ".txt")):
            continue
        whole, at = bytearray(data), 0
        while at + 16 <= len(whole):
            whole[at + 8 : at + 12] = masked(bytes(whole[at : at + 8]))
            end = at + 12 + int.from_bytes(whole[at : at + 8], "little")
            if end + 4 <= len(whole):
                whole[end : end + 4] = masked(bytes(whole[at + 12 : end]))
            at = end + 4
        out[name] = bytes(whole)
    return out


def _zips(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Local headers that say what the directory says."""
    out = dict(files)
    for name, data in files.items():
        whole = bytearray(data)
        for found in list(re.finditer(b"PK\x01\x02", data))[:50]:
            entry = data[found.start() : found.start() + 46]
            at = int.from_bytes(entry[42:46], "little")
            if len(entry) == 46 and whole[at : at + 4] == b"PK\x03\x04":
                whole[at + 4 : at + 28] = entry[6:30]
        out[name] = bytes(whole)
    return out


def _sealed(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """A catalogue whose checksums and names are right, by what ``docs/foreign.md`` says of them."""
    out = dict(files)
    try:
        head = json.loads(files["shardstream-catalogue.json"])
        (table_name,) = [name for name in files if name.endswith(".table")]
        (indexes_name,) = [name for name in files if name.startswith("shardstream-indexes-")]
        table, indexes = bytearray(files[table_name]), bytearray(files[indexes_name])
        objects, shards = struct.unpack_from("<QQ", table, 16)
        ends_at = 64 + 40 * objects
        if objects + shards > 1000 or len(table) < ends_at + 24 * shards:
            return out
        start = 0
        for shard in range(shards):
            (end,) = struct.unpack_from("<Q", table, ends_at + 8 * shard)
            if start + 8 <= end <= len(indexes):
                digest = struct.pack("<Q", xxhash.xxh3_64_intdigest(bytes(indexes[start : end - 8])))
                indexes[end - 8 : end] = digest
                table[ends_at + 8 * (shards + shard) : ends_at + 8 * (shards + shard + 1)] = digest
            start = end
        body = bytes(table[64:])
        table[40:48] = struct.pack("<Q", xxhash.xxh3_64_intdigest(body))
        del out[table_name], out[indexes_name]
        head["table"] = f"shardstream-objects-{xxhash.xxh3_64_hexdigest(bytes(table))}.table"
        out[head["table"]] = bytes(table)
        m = 8 * objects
        identity = {
            "format_version": 1,
            "source": head["source"],
            "fields": head["fields"],
            "objects": xxhash.xxh3_128_hexdigest(body[:m] + body[2 * m : 3 * m] + body[4 * m :]),
        }
        head["fingerprint"] = xxhash.xxh3_128_hexdigest(json.dumps(identity, sort_keys=True).encode())
        head["indexes"] = f"shardstream-indexes-{head['fingerprint'][:16]}.bin"
        out[head["indexes"]] = bytes(indexes)
        head.pop("checksum", None)
        head["checksum"] = xxhash.xxh3_128_hexdigest(json.dumps(head, sort_keys=True).encode())
        out["shardstream-catalogue.json"] = json.dumps(head).encode()
    except (ValueError, KeyError, TypeError, struct.error, RecursionError, AttributeError):
        return dict(files)
    return out
