"""LitData's optimised data sets: an ``index.json`` with ``chunks``, and chunks of records with an offset each.

Source: the writer's code and the description of the format in https://github.com/Lightning-AI/litData.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FieldError, FormatError, UnsupportedError, UsageError
from shardstream.formats.blocks.codecs import LARGEST as LARGEST_BLOCK
from shardstream.formats.blocks.found_blocks import FoundBlocks, one_block
from shardstream.formats.chunks.encoded_values import msgpack_of_jpegs, npy_of, npy_of_pil
from shardstream.formats.chunks.framed import framed_table, frames_of, is_framed
from shardstream.formats.chunks.index_files import (
    INDEX,
    IndexEntry,
    check_names,
    json_object,
    notes_on_others,
    shown,
    sized_object,
    without_index,
)
from shardstream.formats.chunks.pytree_names import leaf_names
from shardstream.formats.chunks.records import Part, offset_table, rows_of, scan_records, windows_of
from shardstream.formats.chunks.tagged_values import json_of_tagged
from shardstream.formats.contract import Form, ObjectListing, Recognized, SourceFormat, SourceObject
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import ScannedRows
from shardstream.shards.field_names import usable_field
from shardstream.shards.fields import SCALAR_TYPES, FieldType

_CHUNK = re.compile(r"chunk-\d+-\d+(\.[a-z0-9:]+)?\.bin")
_ARROW = b"LDARW01\0"
_WRITE_PLAIN = "write the data set again without compression"
_NUMBERS = {"int": "int64", "float": "float64", "bool": "bool"}
# Type, form, and whether values are images where they begin as such. Media are stored as the files they came from.
_PAYLOADS = {
    "str": ("str", "", False),
    "text": ("str", "", False),
    "pil": ("array", "pil", False),
    "jpeg_array": ("msgpack", "jpeg_array", False),
    "numpy": ("array", "numpy", False),
    "tensor": ("array", "tensor", False),
    "json": ("json", "json", False),
    **dict.fromkeys(("bytes", "jpeg", "image", "file", "tiff", "tifffile"), ("bytes", "", True)),
    **dict.fromkeys(("video", "audio", "nifti", "mesh", "pdf"), ("bytes", "", False)),
}
# Numbers of dtypes, as LitData counts them. Those that are missing are not numbers, or none that numpy has.
_NUMPY = dict(
    enumerate(
        ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
    )
) | {11: "complex64", 12: "complex128", 13: "bool"}
_TORCH = {
    **dict.fromkeys((0, 1), "float32"),
    **dict.fromkeys((2, 3), "float64"),
    **dict.fromkeys((4, 5), "complex64"),
    **dict.fromkeys((6, 7), "complex128"),
    **dict.fromkeys((8, 9), "float16"),
    11: "uint8",
    12: "int8",
    **dict.fromkeys((13, 14), "int16"),
    **dict.fromkeys((15, 16), "int32"),
    **dict.fromkeys((17, 18), "int64"),
    19: "bool",
    20: "uint16",
}
_ROWS = {"no_header_numpy": _NUMPY, "no_header_tensor": _TORCH}


def npy_of_numpy(stored: memoryview, _: str) -> bytes:
    """An array behind its dtype, number of dimensions and shape, uint32 each, as an NPY file."""
    return _array(stored, "<", _NUMPY)


def npy_of_tensor(stored: memoryview, _: str) -> bytes:
    """The same of torch, whose numbers are big-endian."""
    return _array(stored, ">", _TORCH)


def npy_of_values(stored: memoryview, dtype: str) -> bytes:
    """A row of numbers without header, as an NPY file."""
    kind = np.dtype(dtype)
    return npy_of(stored, kind, (len(stored) // kind.itemsize,))


def _array(stored: memoryview, order: str, dtypes: Mapping[int, str]) -> bytes:
    if len(stored) < 8:
        raise ValueError(f"{len(stored)} bytes are not an array")
    number, dimensions = struct.unpack_from(f"{order}II", stored)
    if number not in dtypes:
        raise ValueError(f"an array of dtype {number}, which stands for none of numbers")
    if dimensions > (len(stored) - 8) // 4:
        raise ValueError(f"{len(stored)} bytes hold no shape of {dimensions} dimensions")
    shape = struct.unpack_from(f"{order}{dimensions}I", stored, 8)
    return npy_of(stored[8 + 4 * dimensions :], np.dtype(dtypes[number]), shape)


class LitData(SourceFormat):
    """Folders that ``litdata.optimize`` wrote."""

    name: ClassVar[str] = "litdata"
    title: ClassVar[str] = "LitData"
    options: ClassVar[Mapping[str, str]] = {
        "block_size": "tokens a sample, of data that TokensLoader reads; without it a sample is what was written as one"
    }

    forms: ClassVar[Mapping[str, Form]] = {
        "numpy": npy_of_numpy,
        "tensor": npy_of_tensor,
        "values": npy_of_values,
        "json": json_of_tagged,
        "pil": npy_of_pil,
        "jpeg_array": msgpack_of_jpegs,
    }

    def recognize(self, listing: ObjectListing, options: Mapping[str, str]) -> Recognized | None:
        if INDEX not in listing:
            without_index(listing, _CHUNK, self.title)
            return None
        found = json_object(listing.read(INDEX))
        url = listing.store.locate(INDEX)
        if found is None and any(_CHUNK.fullmatch(one.path) for one in listing.ending(".bin")):
            raise FormatError(f"the {INDEX} of LitData chunks is not a JSON object", url=url, hint="fetch it again")
        if found is None or not isinstance(found.get("chunks"), list) or not isinstance(found.get("config"), dict):
            return None
        config = IndexEntry(found["config"], "config", url)
        chunks = [IndexEntry(one, f"chunk {number}", url) for number, one in enumerate(found["chunks"])]
        if not chunks:
            raise FormatError("no chunks are listed", url=url, hint="let optimize finish")
        check_names([one.path("filename") for one in chunks], url)
        about, notes = _about(config, chunks, options)
        objects = tuple(_located(one, listing, config, about) for one in chunks)
        return Recognized(objects, notes=notes + notes_on_others(listing, _CHUNK, {one.path for one in objects}))

    def blocks(self, data: ObjectBytes, about: Mapping[str, Any]) -> FoundBlocks | None:
        if "inflated" in about:
            return one_block(data, "zstd", about["inflated"])
        return frames_of(data) if is_framed(data) else None

    def announced(self, data: ObjectBytes, about: Mapping[str, Any]) -> int | None:
        return None if "tokens" in about else about["samples"]

    def scan(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[ScannedRows]:
        samples: int = about["samples"]
        table = framed_table(data, samples) if is_framed(data) else offset_table(data, samples, _end_of_records(data))
        if "tokens" in about:
            return _scan_tokens(data, table, about["data_format"][0], about["tokens"])
        leaves = zip(about["names"], about["data_format"], strict=True)
        return scan_records(data, [_part(name, one, data.url) for name, one in leaves], table)


# ------------------------------------------------------------------------------------------------------- index.json


def _about(
    config: IndexEntry, chunks: Sequence[IndexEntry], options: Mapping[str, str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What scans have to know of all chunks alike, and notes."""
    if config.get("encryption"):
        config.refuse_unsupported("the data set is encrypted", hint="write it again without encryption")
    loader = config.get("item_loader")
    if loader is None:  # not said by early versions
        loader = "TokensLoader" if any(one.get("dim") is not None for one in chunks) else "PyTreeLoader"
    if loader not in ("PyTreeLoader", "TokensLoader"):
        parquet = loader == "ParquetLoader"
        hint = "give the Parquet files themselves" if parquet else "write it again with the default item_loader"
        config.refuse_unsupported(f"samples are read by {shown(loader)}, which is not known here", hint=hint)
    # Of what follows the colon, only dtypes are of use.
    formats = [one if one.partition(":")[0] in _ROWS else one.partition(":")[0] for one in config.texts("data_format")]
    about: dict[str, Any] = {"data_format": formats}
    if loader == "PyTreeLoader":
        if "block_size" in options:
            raise UsageError("block_size is for data that TokensLoader reads", hint="leave it out")
        about["names"] = _fields(config, len(about["data_format"]))
        for name, format in zip(about["names"], about["data_format"], strict=True):
            _part(name, format, config.url)
        return about, ()
    about["tokens"] = _block_size(options.get("block_size", ""))
    _tokens(about["data_format"], config.url)
    if about["tokens"]:
        return about, ()
    return about, ("a sample is a row of tokens as it was written; option block_size=N gives blocks of N",)


def _block_size(text: str) -> int:
    if not text:
        return 0
    if not re.fullmatch("[1-9][0-9]{0,8}", text):
        raise UsageError(f"block_size={text!r} is not a number of tokens", hint="give one, such as 2049")
    return int(text)


def _fields(config: IndexEntry, leaves: int) -> list[str]:
    """The field of each leaf: its path in the sample, with dots."""
    spec = config.get("data_spec")
    if spec is None:
        names = [str(position) for position in range(leaves)]
    elif isinstance(spec, str):
        try:
            names = leaf_names(spec)
        except UnsupportedError as error:
            hint = "write samples as dictionaries, lists, tuples"
            config.refuse_unsupported(f"its data_spec is not read: {error.what}", hint=hint)
        except ValueError as error:
            config.refuse(f"its data_spec is malformed: {error}")
    else:
        config.refuse("its data_spec is not text")
    if len(names) != leaves or not leaves:
        config.refuse(f"its data_spec has {len(names)} leaves, and data_format {leaves}")
    fields = [usable_field(name) if name else "value" for name in names]
    if len(set(fields)) < leaves:
        config.refuse_unsupported("two leaves of a sample become one field", hint="rename one, and write it again")
    return fields


def _located(chunk: IndexEntry, listing: ObjectListing, config: IndexEntry, about: Mapping[str, Any]) -> SourceObject:
    path, size = chunk.path("filename"), chunk.count("chunk_bytes")
    about = {**about, "samples": chunk.count("chunk_size")}
    compression, level = config.get("compression"), config.get("compression_level")
    if compression is not None and (not isinstance(compression, str) or compression.partition(":")[0] != "zstd"):
        what = f"its chunks are compressed by {shown(compression)}, which is not known"
        config.refuse_unsupported(what, hint=_WRITE_PLAIN)
    if compression is not None and level not in (None, "chunk", "batch"):
        what = f"its chunks are compressed inside ({shown(compression)}, by {shown(level)})"
        config.refuse_unsupported(what, hint=_WRITE_PLAIN)
    inflated = path.replace(f".{compression}.bin", ".bin") if compression else path
    if inflated == path or inflated in listing:  # or it is framed, and tells so itself
        return sized_object(listing, inflated, size, about, what="chunk")
    if size > LARGEST_BLOCK:
        what = f"chunk_bytes of a compressed chunk is {size}; at most {LARGEST_BLOCK} are read in place"
        chunk.refuse_unsupported(what, hint="write the data set again, in smaller chunks")
    return sized_object(listing, path, None, {**about, "inflated": size}, what="chunk")


# ----------------------------------------------------------------------------------------------------------- leaves


def _part(field: str, format: str, url: str) -> Part:
    """What a leaf of this serialiser becomes; FormatError where it cannot be read."""
    family = format.partition(":")[0]
    if format in _NUMBERS:
        kind = FieldType.parse(_NUMBERS[format])
        return Part(field, kind, kind.width, sized=True)
    if family in _ROWS:
        row, codec = _row_type(_dtype_of(format, url))
        return Part(field, row, None, True, codec)
    if family in _PAYLOADS:
        stored, form, image = _PAYLOADS[family]
        codec = f"litdata.{form}" if form else "none"
        return Part(field, FieldType.parse(stored), None, True, codec, "sniffed" if image else "stored")
    why = "a pickle, which could run any code" if family in ("pickle", "graph") else "which is not known"
    raise UnsupportedError(
        f"field {field!r} is stored by {format!r}, {why}",
        url=url,
        hint="write the data set again with values of other types, or without the field",
    )


def _row_type(dtype: str) -> tuple[FieldType, str]:
    """Type and form of rows of numbers without header: complex ones have no type that means them."""
    if dtype in SCALAR_TYPES:
        return FieldType.parse(f"values:{dtype}"), "none"
    return FieldType.parse("array"), f"litdata.values:{dtype}"


def _dtype_of(format: str, url: str) -> str:
    family, _, number = format.partition(":")
    dtype = _ROWS[family].get(int(number)) if re.fullmatch("[0-9]{1,3}", number) else None
    if dtype is None:
        raise UnsupportedError(f"the dtype of {format!r} cannot be read", url=url, hint="write numbers")
    return dtype


# ----------------------------------------------------------------------------------------------------------- chunks


def _end_of_records(data: ObjectBytes) -> int:
    """Where the records of a chunk end: before the Arrow table that newer versions may put behind them."""
    if data.size < 24 or bytes(data.get(data.size - 8, 8)) != _ARROW:
        return data.size
    count = int(data.array("<u4", 1, 0)[0])
    if 4 * (count + 2) <= data.size and int(data.array("<u4", 1, 4 * (count + 1))[0]) == data.size:
        return data.size  # the last value merely ends so
    length = int(data.array("<u4", 1, data.size - 12)[0])
    end = data.size - 12 - length
    first = int(data.array("<u4", 1, 4)[0])
    if end < 8 or (count and first == end):
        raise data.unsupported(
            "its samples are stored as an Arrow table (LDARW01), which is not read yet",
            data.size - 8,
            hint="write it again where pyarrow is not installed: LitData then writes plain records",
        )
    return end


def _tokens(formats: Sequence[str], url: str) -> str:
    """The dtype of rows of tokens."""
    if len(formats) != 1 or formats[0].partition(":")[0] not in _ROWS:
        raise UnsupportedError(
            f"TokensLoader does not read samples of {', '.join(formats)!r:.200}",
            url=url,
            hint="write one array or tensor of one dimension a sample",
        )
    return _dtype_of(formats[0], url)


def _scan_tokens(
    data: ObjectBytes, table: NDArray[np.uint32 | np.int64], format: str, block: int
) -> Iterator[ScannedRows]:
    dtype = _tokens([format], data.url)
    if not block:
        return rows_of(data, table, "tokens", *_row_type(dtype))
    try:
        kind = FieldType.parse(f"array:{dtype}:{block}")
    except FieldError as error:
        raise data.unsupported(f"no blocks of {block} tokens of {dtype}", 0, hint=error.hint or error.what) from error
    return windows_of(data, table, "tokens", kind)
