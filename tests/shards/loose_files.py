"""A framing that is not ours: a list of files. It keeps the contract honest about what framings may be.

The "shard" is a list, a line a sample: key, label, the file of ``jpg`` and the file of ``txt`` (or nothing), separated
by tabs. Values are whole objects whose sizes nobody knows beforehand, and none lies in the shard itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FormatError
from shardstream.shards.fields import FieldType
from shardstream.shards.framing import MAX_VALUE, FieldValues, Framing, Tail
from shardstream.shards.index import Column, Keys, ShardIndex
from shardstream.storage import Buffers, Request, Store


class LooseFiles(Framing):
    """Reads lists of files."""

    name = "files"
    suffix = ".tsv"

    def scan(
        self, store: Store, path: str, *, index_bytes: int | None = None, verify: bool = True, tail: Tail | None = None
    ) -> ShardIndex:
        try:
            lines = [line.split("\t") for line in str(store.get(path), "utf-8").splitlines()]
            keys, labels, images, texts = zip(*lines, strict=True) if lines else ((), (), (), ())
            values = np.array([int(label) for label in labels], np.int64)
            if not lines:
                raise ValueError("it is empty")
        except ValueError as error:
            raise FormatError(
                f"this is not a list of files: {error}", url=store.url, shard=path, hint="make one"
            ) from error
        missing = np.array([not text for text in texts])
        names = [key.encode() for key in keys]
        ends = np.cumsum([len(name) for name in names], dtype=np.uint64)
        columns = {
            "jpg": Column("jpg", FieldType.parse("jpg")),
            "cls": Column("cls", FieldType.parse("int64"), values=values),
            "txt": Column("txt", FieldType.parse("str"), valid=np.packbits(~missing, bitorder="little")),
        }
        return ShardIndex(
            path,
            self.name,
            len(keys),
            Keys(ends, memoryview(b"".join(names)), shard=path),
            columns,
            end=0,
            meta={"jpg": images, "txt": texts},
            url=store.url,
        )

    def plan(self, index: ShardIndex, rows: NDArray[np.int64], fields: Sequence[str]) -> list[Request]:
        paths = [path for name in fields for path in self._paths(index, rows, name)]
        return [Request(path, 0, None) for path in dict.fromkeys(paths) if path]

    def _paths(self, index: ShardIndex, rows: NDArray[np.int64], name: str) -> list[str]:
        if index.column(name).type.kind == "scalar":
            return []
        return [index.meta[name][row] for row in rows.tolist()]

    def extract(
        self,
        index: ShardIndex,
        buffers: Buffers,
        rows: NDArray[np.int64],
        fields: Sequence[str],
        *,
        verify: bool = True,
        max_value: int = MAX_VALUE,
    ) -> dict[str, FieldValues]:
        out = {}
        for name in fields:
            column = index.column(name)
            if column.values is not None:
                data = column.values[rows]
            else:
                data = [buffers.view(path, 0, None) if path else None for path in self._paths(index, rows, name)]
            out[name] = FieldValues(column.type, data, column.valid_rows(rows))
        return out
