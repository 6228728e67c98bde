"""Tar files for tests, and what the package webdataset makes of them."""

from __future__ import annotations

import io
import tarfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from shardstream.errors import FormatError
from shardstream.formats.contract import SourceFormat
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import ScannedRows, usable_key
from shardstream.shards.field_names import usable_field
from shardstream.storage import ObjectMeta, Store

_peer = pytest.importorskip("webdataset.tariterators", reason="the peer webdataset is not installed")
group_by_keys, tar_file_expander = _peer.group_by_keys, _peer.tar_file_expander

Samples = list[tuple[str, dict[str, bytes]]]


def tar_of(members: Sequence[tuple[str, bytes]], format: int = tarfile.PAX_FORMAT, *, ended: bool = True) -> bytes:
    """A tar of files as Python writes it; without ``ended`` without an end mark."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        end = out.tell()
    return out.getvalue() if ended else out.getvalue()[:end]


def header(name: bytes, size: int = 0, kind: bytes = b"0", *, field: bytes | None = None, link: bytes = b"") -> bytes:
    """A v7 header, with the bytes of its size as they are given."""
    block = bytearray(512)
    block[: len(name)] = name
    block[100:108] = b"0000644\0"
    block[124:136] = field if field is not None else b"%011o\0" % size
    block[136:148] = b"%011o\0" % 0
    block[148:156] = b" " * 8
    block[156:157] = kind
    block[157 : 157 + len(link)] = link
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def pax(records: Mapping[str, str], kind: bytes = b"x") -> bytes:
    """A PAX header."""
    text = b""
    for keyword, value in records.items():
        rest = len(f" {keyword}={value}\n".encode("utf-8", "surrogateescape"))
        length = rest + len(str(rest))
        length = rest + len(str(length))
        text += f"{length} {keyword}={value}\n".encode("utf-8", "surrogateescape")
    return header(b"pax", len(text), kind) + padded(text)


class OneTar(Store):
    """A store of one object, which costs nothing to make."""

    url = "one:"

    def __init__(self, data: bytes) -> None:
        self._data = data

    def get(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        return memoryview(self._data)[offset:][:length]

    def size(self, path: str) -> int:
        return len(self._data)

    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        yield ObjectMeta("a.tar", len(self._data))


def pieces_of(
    format: SourceFormat, tar: bytes, about: Mapping[str, Any] | None = None, *, window: int = 4096
) -> Iterator[ScannedRows]:
    data = ObjectBytes(OneTar(tar), "a.tar", len(tar), window=window)
    yield from format.scan(data, about or {})


def stored(tar: bytes, pieces: Sequence[ScannedRows]) -> Samples:
    """Keys and stored bytes of rows; those of a number are its digits."""
    found: Samples = []
    for rows in pieces:
        for row, key in enumerate(rows.keys):
            values = {}
            for column in rows.columns:
                if not column.has(row):
                    continue
                if column.values is not None:
                    values[column.name] = b"%d" % column.values[row]
                    continue
                offsets, lengths = column.extents(np.array([row]))
                values[column.name] = tar[offsets[0] : offsets[0] + lengths[0]]
            found.append((key, values))
    return found


def theirs(tar: bytes) -> Samples:
    """The samples of webdataset, with keys and fields as they are called here; ValueError as it raises it."""

    def wanted(name: str) -> bool:
        return not any(part[:1] == "." and part not in (".", "..") for part in name.split("/"))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        files = tar_file_expander([{"url": "a.tar", "stream": io.BytesIO(tar)}], select_files=wanted)
        found = list(group_by_keys(files))
    samples = []
    for one in found:
        values = {name: value for name, value in one.items() if name not in ("__key__", "__url__")}
        if "jpeg" in values and "jpg" not in values:
            values["jpg"] = values.pop("jpeg")
        key = usable_key(one["__key__"].removeprefix("./")) or "_"
        samples.append((key, {usable_field(name): value for name, value in values.items()}))
    return samples


def refusal(format: SourceFormat, tar: bytes, about: Mapping[str, Any] | None = None) -> FormatError:
    """The error that a tar is refused with."""
    try:
        list(pieces_of(format, tar, about))
    except FormatError as error:
        return error
    raise AssertionError("it was read")
