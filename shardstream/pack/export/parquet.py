"""Parquet tables, images as Hugging Face's ``datasets`` stores them: ``{"bytes", "path"}``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from shardstream.extras import require
from shardstream.pack.export.contract import KEY, Sample, Target
from shardstream.pack.export.names import extensions
from shardstream.shards.fields import FieldType, ValuesType
from shardstream.shards.manifest import Manifest
from shardstream.storage import ObjectWriter, Store

_GROUP_BYTES = 32 << 20
_GROUP_ROWS = 1 << 16
_TEXT = ("str", "json")


class ParquetTarget(Target):
    """A table of each shard; a row a sample, a column a field, and the key.

    Numbers keep their types, text and JSON become strings, rows of values and fixed arrays lists of their elements, all
    else binary.
    Labels with names are a ``ClassLabel`` of ``datasets``, by the schema's metadata.
    """

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        _arrow()
        self._names = extensions(manifest.fields)

    def object_name(self, shard: int) -> str:
        return f"data-{shard:05d}-of-{self.shards:05d}.parquet"

    def write(self, store: Store, out: ObjectWriter, samples: Iterator[Sequence[Sample]], *, again: bool) -> bytes:
        pa, parquet = _arrow()
        schema = self._schema(pa)
        sink = pa.PythonFile(_Sink(out), mode="w")
        # What is compressed already would only cost time.
        compression = {path: "NONE" if self._is_dense(path) else "ZSTD" for path in _paths(pa, schema)}
        with parquet.ParquetWriter(sink, schema, compression=compression, use_dictionary=False) as writer:
            group: list[Any] = []
            for part in samples:
                group.append(pa.record_batch(self._columns(pa, part, schema), schema=schema))
                rows, size = sum(one.num_rows for one in group), sum(one.nbytes for one in group)
                if size >= _GROUP_BYTES or rows >= _GROUP_ROWS:
                    writer.write_table(pa.Table.from_batches(group), row_group_size=rows)
                    group = []
            if group:
                writer.write_table(pa.Table.from_batches(group), row_group_size=_GROUP_ROWS)
        return b""

    def _is_dense(self, path: str) -> bool:
        name = path.removesuffix(".bytes")
        return name in self.fields and self.fields[name].is_image

    def _schema(self, pa: Any) -> Any:
        columns = [pa.field(KEY, pa.string()), *(_field(pa, name, kind) for name, kind in self.fields.items())]
        features: dict[str, Any] = {KEY: {"dtype": "string", "_type": "Value"}}
        for name, kind in self.fields.items():
            features[name] = self._feature(name, kind)
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        if self.classes is not None:
            metadata["classes"] = json.dumps(self.classes, ensure_ascii=False)
        return pa.schema(columns, metadata=metadata)

    def _feature(self, name: str, kind: FieldType) -> dict[str, Any]:
        if kind.is_image:
            return {"_type": "Image"}
        if name == "cls" and kind.name == "int64" and self.classes is not None:
            return {"names": list(self.classes), "_type": "ClassLabel"}
        if isinstance(kind, ValuesType):
            inner = {"dtype": kind.elements.name, "_type": "Value"}
            return {"feature": inner, "length": -1, "_type": "Sequence"}
        if kind.kind == "fixed":
            assert kind.dtype is not None
            assert kind.shape is not None
            inner = {"dtype": kind.dtype.name, "_type": "Value"}
            return {"feature": inner, "length": int(np.prod(kind.shape)), "_type": "Sequence"}
        if kind.kind == "scalar":
            return {"dtype": kind.name, "_type": "Value"}
        return {"dtype": "string" if kind.name in _TEXT else "binary", "_type": "Value"}

    def _columns(self, pa: Any, part: Sequence[Sample], schema: Any) -> list[Any]:
        columns = [pa.array([one.key for one in part], pa.string())]
        for name, kind in self.fields.items():
            values = [one.values.get(name) for one in part]
            type_ = schema.field(name).type
            if kind.is_image:
                columns.append(self._images(pa, name, part, values, type_))
            elif kind.kind == "fixed":
                columns.append(_arrays(pa, kind, values, type_))
            elif kind.kind == "scalar":
                columns.append(pa.array(values, type_))
            elif isinstance(kind, ValuesType):
                columns.append(_rows(pa, kind, values, type_))
            else:
                plain = [None if value is None else bytes(value) for value in values]
                columns.append(pa.array(plain, pa.binary()).cast(type_))
        return columns

    def _images(self, pa: Any, name: str, part: Sequence[Sample], values: Sequence[Any], type_: Any) -> Any:
        content = pa.array([None if value is None else bytes(value) for value in values], pa.binary())
        paths = pa.array([f"{one.key}.{self._names[name]}" for one in part], pa.string())
        missing = pa.array([value is None for value in values])
        return pa.StructArray.from_arrays([content, paths], fields=list(type_), mask=missing)


def _arrow() -> tuple[Any, Any]:
    names = ("pyarrow", "pyarrow.parquet")
    pa, parquet = (require(name, extra="parquet", purpose="to write Parquet files") for name in names)
    return pa, parquet


def _field(pa: Any, name: str, kind: FieldType) -> Any:
    shape = {} if kind.kind != "fixed" else {"shape": ",".join(map(str, kind.shape or ()))}  # lists are flat
    return pa.field(name, _column_type(pa, kind), metadata=shape)


def _column_type(pa: Any, kind: FieldType) -> Any:
    if kind.is_image:
        return pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    if kind.kind == "scalar":
        return pa.from_numpy_dtype(kind.dtype)
    if kind.kind == "fixed":
        return pa.list_(pa.from_numpy_dtype(kind.dtype), int(np.prod(kind.shape or ())))
    if isinstance(kind, ValuesType):
        return pa.list_(pa.from_numpy_dtype(kind.elements))
    return pa.string() if kind.name in _TEXT else pa.binary()


def _rows(pa: Any, kind: ValuesType, values: Sequence[Any], type_: Any) -> Any:
    ends = np.cumsum([0, *(0 if value is None else len(value) for value in values)], dtype=np.int32)
    flat = np.concatenate([np.zeros(0, kind.elements), *(value for value in values if value is not None)])
    missing = pa.array([value is None for value in values])
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(flat), type=type_, mask=missing)


def _arrays(pa: Any, kind: FieldType, values: Sequence[Any], type_: Any) -> Any:
    zeros = np.zeros(kind.shape or (), kind.dtype)
    flat = np.concatenate([(zeros if value is None else value).reshape(-1) for value in values])
    return pa.FixedSizeListArray.from_arrays(
        pa.array(flat), type=type_, mask=pa.array([value is None for value in values])
    )


def _paths(pa: Any, schema: Any) -> Iterator[str]:
    """The columns as Parquet calls them."""
    for field in schema:
        if pa.types.is_struct(field.type):
            yield from (f"{field.name}.{inner.name}" for inner in field.type)
        elif pa.types.is_fixed_size_list(field.type) or pa.types.is_list(field.type):
            yield f"{field.name}.list.element"
        else:
            yield field.name


class _Sink:
    """An `ObjectWriter` as the file that pyarrow writes to."""

    closed = False

    def __init__(self, out: ObjectWriter) -> None:
        self._out = out

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._out.write(view)
        return len(view)

    def tell(self) -> int:
        return self._out.tell()

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False
