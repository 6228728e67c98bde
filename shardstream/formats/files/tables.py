"""Rows of a Parquet file that lists files, as lines of JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

from shardstream.errors import FormatError
from shardstream.extras import require
from shardstream.formats.scans.object_bytes import FETCH_AGAIN, ObjectBytes
from shardstream.storage.base.ranged import RangedFile

_ROWS = 4096
_READ = 1 << 20


def is_table(path: str) -> bool:
    """Whether a list is called like a Parquet file."""
    return path.lower().endswith(".parquet")


def rows_of_table(data: ObjectBytes) -> Iterator[tuple[int, bytes]]:
    """The rows with their numbers, from 1.

    Raises:
        FormatError: The file is damaged.
        MissingExtraError: pyarrow is not installed.
    """
    purpose = "to read a list in a Parquet file"
    arrow = require("pyarrow", extra="parquet", purpose=purpose)
    parquet = require("pyarrow.parquet", extra="parquet", purpose=purpose)
    file = io.BufferedReader(RangedFile(data.size, lambda at, length: bytes(data.get(at, length))), _READ)
    number = 0
    try:
        for batch in parquet.ParquetFile(file).iter_batches(_ROWS):
            for row in batch.to_pylist():
                number += 1
                yield number, json.dumps(row, ensure_ascii=False, default=str).encode("utf-8", "surrogatepass")
    except (arrow.ArrowException, OSError) as error:
        raise FormatError(f"this is not a valid Parquet file: {error}", url=data.url, hint=FETCH_AGAIN) from error
