"""nanoGPT's ``.bin``: nothing but tokens. What they are is nowhere written, so only the options say it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from shardstream.errors import FormatError, UsageError
from shardstream.formats.contract import ObjectListing, Recognized, SourceFormat, SourceObject
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import ScannedRows
from shardstream.formats.tokens.megatron import MAGIC
from shardstream.formats.tokens.windows import LENGTH, window_length, windows
from shardstream.names.splits import splits
from shardstream.shards.fields import FieldType

_DTYPES = ("uint8", "uint16", "uint32", "int32", "int64")
_WITH_HEAD = (20240520, 20240801)  # llm.c and what followed it: 1,024 bytes stand before the tokens


class NanoGpt(SourceFormat):
    """``*.bin`` of bare tokens, in windows; both options must be given."""

    name: ClassVar[str] = "nanogpt"
    title: ClassVar[str] = "files of bare tokens, as of nanoGPT (.bin)"
    options: ClassVar[Mapping[str, str]] = {"length": LENGTH, "dtype": f"of the tokens: {', '.join(_DTYPES)}"}

    required: ClassVar[Sequence[str]] = ("dtype",)

    def recognize(self, listing: ObjectListing, options: Mapping[str, str]) -> Recognized | None:
        found, dtype = listing.ending(".bin"), options.get("dtype")
        if not found or dtype is None or any(listing.start(one.path, 9) == MAGIC for one in listing.ending(".idx")):
            return None
        if dtype not in _DTYPES:
            raise UsageError(f"dtype={dtype!r} is none of tokens", hint=f"dtypes are {', '.join(_DTYPES)}")
        length = window_length(options)
        if length is None:
            raise UsageError("tokens without documents are read in windows", hint="give length=1024, or as it is meant")
        FieldType.parse(f"array:{dtype}:{length + 1}")
        mixed = splits(one.path.rpartition("/")[2][:-4] for one in found)
        if mixed:
            raise FormatError(
                f"there are several splits: {', '.join(f'{name}.bin' for name in mixed)}",
                url=listing.url,
                hint="give the URL of one of these files",
            )
        about = {"dtype": dtype, "length": length}
        return Recognized(tuple(SourceObject(one.path, one.size, about) for one in found))

    def scan(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[ScannedRows]:
        dtype = str(about["dtype"])
        data.refuse_placeholder()
        start = bytes(data.get(0, min(data.size, 4)))
        if int.from_bytes(start, "little") in _WITH_HEAD:
            raise data.unsupported("it begins with the head of llm.c, not with tokens", 0, hint="cut off 1,024 bytes")
        if data.size % np.dtype(dtype).itemsize:
            raise data.damaged(
                f"{data.size} bytes are not a multiple of a {dtype}",
                data.size,
                hint="it was cut off, or its tokens are of another dtype",
            )
        yield from windows(data, dtype, about["length"])
