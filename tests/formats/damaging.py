"""Objects cut off and with changed bytes: a scan gives rows inside of them, or one error of ours."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from shardstream.errors import FormatError
from shardstream.formats.contract import SourceFormat
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import ScannedRows
from shardstream.shards.index import Column
from shardstream.testing import FormatConformance, MemoryStore


class ConformanceWithFullDamage(FormatConformance):
    """Conformance of a format whose own tests damage its files: the two tests that do so, too, run with ``--full``."""

    __test__ = False

    @pytest.mark.full
    def test_files_that_end_too_early_are_errors(self) -> None:
        super().test_files_that_end_too_early_are_errors()

    @pytest.mark.full
    def test_damaged_bytes_are_no_other_errors(self) -> None:
        super().test_damaged_bytes_are_no_other_errors()


def cut(data: bytes, step: int = 1) -> Iterator[bytes]:
    """All beginnings of some bytes."""
    for end in range(0, len(data), step):
        yield data[:end]


def flipped(data: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """The bytes with one to four of them changed, most often to what breaks sizes."""
    choose = random.Random(seed)
    for _ in range(count):
        changed = bytearray(data)
        for _ in range(choose.randint(1, 4)):
            changed[choose.randrange(len(data))] = choose.choice((0, 1, 0x7F, 0x80, 0xFF, choose.randrange(256)))
        yield bytes(changed)


def scan_bytes(format: SourceFormat, data: bytes, about: dict[str, Any]) -> int:
    """Samples of an object; checks that what is given lies inside of it. FormatError is the only error."""
    store = MemoryStore({"object.x": data})
    found = 0
    with suppress(FormatError):
        for rows in format.scan(ObjectBytes(store, "object.x", len(data)), about):
            found += len(rows.keys)
            for column in rows.columns:
                check_column(column, len(rows.keys), len(data))
    return found


def check_column(column: Column, count: int, size: int) -> None:
    if column.type.kind == "scalar":
        assert column.values is not None
        assert len(column.values) == count
        return
    offsets, lengths = column.extents(np.arange(count))
    assert (offsets >= 0).all()
    assert (lengths >= 0).all()
    assert (offsets + lengths <= size).all()


def check_forms(format: SourceFormat, data: bytes, found: Iterable[ScannedRows]) -> None:
    """All places are inside of the object, and forms raise nothing but ValueError."""
    for rows in found:
        for column in rows.columns:
            if column.type.kind == "scalar":
                continue
            chosen = np.array([row for row in range(len(rows.keys)) if column.has(row)])
            for offset, length in zip(*(one.tolist() for one in column.extents(chosen)), strict=True):
                assert offset + length <= len(data)
                if column.codec != "none":
                    name, _, text = column.codec.removeprefix(f"{format.name}.").partition(":")
                    with suppress(ValueError):
                        format.forms[name](memoryview(data)[offset : offset + length], text)
