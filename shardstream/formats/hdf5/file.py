"""What is in an HDF5 file: `datasets_of` asks the library, and believes nothing of what it says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from shardstream.formats.blocks.hdf5_chunks import DEFLATE, FLETCHER32, LZF, SHUFFLE
from shardstream.formats.isolated.host import Program
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.shards.field_names import usable_field

SIGNATURE = b"\x89HDF\r\n\x1a\n"
PROGRAM = Program(
    "shardstream.formats.hdf5.program",
    "the HDF5 library",
    "hdf5",
    memory=4 << 30,
    patience=60.0,
)
_FILTERS = {1: DEFLATE, 2: SHUFFLE, 3: FLETCHER32, 32000: LZF}
_HEAD = 96  # bytes of a superblock, at most
_KNOWN = {4: "szip", 5: "nbit", 6: "scaleoffset"}
_MOST_TIMES = 2000  # bytes that a stored one may become; deflate: 1032
_FREE = 1 << 20  # bytes that need not be stored at all
_MASKS = (1 << 32) - 1
WITHOUT_BLOCK = "take that off: `h5unjam -i OLD -o NEW --delete`"
REPACK = "write it again without that, as `h5repack -f GZIP=1 OLD NEW` does, or choose other fields"


class Refusal:
    """Raises what is wrong with a data set."""

    def __init__(self, data: ObjectBytes, name: str) -> None:
        self._data = data
        self._name = name

    def __call__(self, what: str, *, hint: str | None = None, at: int = 0) -> NoReturn:
        """Raise UnsupportedError; without a hint the file is damaged: FormatError."""
        what = f"data set {self._name!r} {what}"
        raise self._data.damaged(what, at) if hint is None else self._data.unsupported(what, at, hint=hint)


@dataclass(frozen=True, slots=True, eq=False)
class H5Dataset:
    """A data set of a file, all of whose places are inside of it.

    Attributes:
        name: With slashes.
        shape: Elements along each axis; the first one counts samples.
        type: What elements are, as `program` tells.
        offset: Where the elements lie, if they do in one piece.
        chunk: Elements of a chunk along each axis; empty if they lie in one piece, or nowhere.
        steps: Filters of chunks, see `ChunkLayout.steps`.
        fill: As of `ChunkLayout`.
        chunks: Offset, stored bytes and mask of every chunk in order, uint64 (n, 3); 0 bytes: never written.
        refuse: Raises what is wrong with it.
    """

    name: str
    shape: tuple[int, ...]
    type: Mapping[str, Any]
    offset: int | None
    chunk: tuple[int, ...]
    steps: tuple[tuple[int, int], ...]
    fill: bytes
    chunks: NDArray[np.uint64]
    refuse: Refusal

    @property
    def samples(self) -> int:
        """Length of the first axis."""
        return self.shape[0]

    @property
    def item(self) -> int:
        """Bytes of an element."""
        size: int = self.type["size"]
        return size

    @property
    def width(self) -> int:
        """Bytes of a sample."""
        return math.prod(self.shape[1:]) * self.item

    @property
    def across(self) -> int:
        """Chunks beside each other: those that hold the same samples."""
        return math.prod(-(-size // part) for size, part in zip(self.shape[1:], self.chunk[1:], strict=True))


def end_of_file(data: ObjectBytes) -> int:
    """Where the file ends by its superblock.

    Raises:
        FormatError: It is cut off, damaged, or of a kind that is not read.
    """
    length = min(_HEAD, data.size)
    head = bytes(without_blocks(data, length).get(0, length))
    if not head.startswith(SIGNATURE) or len(head) < 48:
        raise data.damaged("it does not begin as an HDF5 file", 0)
    version = head[8]
    places = {0: (13, 24), 1: (13, 28), 2: (9, 12), 3: (9, 12)}
    if version not in places:
        raise data.unsupported(f"superblock of version {version}", 8, hint="write it again with HDF5 1.8 or newer")
    sizes, base = places[version]
    if head[sizes] != 8 or head[sizes + 1] != 8:
        raise data.unsupported(
            f"addresses of {head[sizes]} bytes", sizes, hint="write it again with addresses of 8 bytes"
        )
    if int.from_bytes(head[base : base + 8], "little"):
        raise data.unsupported("addresses do not count from its beginning", base, hint=WITHOUT_BLOCK)
    end = int.from_bytes(head[base + 16 : base + 24], "little")
    if not len(head) <= end <= data.size:
        raise data.damaged(f"it was cut off: it says that it has {end} bytes, and has {data.size}", base + 16)
    return end


def without_blocks(data: ObjectBytes, end: int) -> ObjectBytes:
    """The file alone, so that large reads do not go on into the blocks behind it, which would be inflated."""
    return data if data.mapped else data.first(end)


def datasets_of(data: ObjectBytes, end: int, wanted: Sequence[str] | None) -> list[H5Dataset]:
    """The data sets of a file that have a first axis, in the order of their names.

    Args:
        data: The file, perhaps with more behind it.
        end: Where it ends.
        wanted: The fields that are wanted; ``None`` for all.

    Raises:
        FormatError: It is damaged, or of a kind that is not read.
        MissingExtraError: h5py is not installed.
        StorageError: It cannot be read.
    """

    def answer(question: Any) -> bytes | bool:
        if isinstance(question, str):
            name = usable_field(question)
            return any(one == name or one.startswith(f"{name}.") for one in wanted or ())
        begin, length = question
        if begin < 0 or length < 0 or begin + length > end:
            raise data.damaged(f"{length} bytes that should be here are not in a file of {end}", begin)
        return bytes(data.get(begin, length))

    request = {"size": end, "chosen": wanted is not None}
    told = PROGRAM.ask(request, data.url, answer)
    found = [_checked(data, end, one) for one in told if one["shape"]]  # else it is a single value, or none
    return sorted(found, key=lambda one: one.name)


def _checked(data: ObjectBytes, end: int, told: Mapping[str, Any]) -> H5Dataset:
    name = "/".join(told["name"])
    shape, size = tuple(told["shape"]), told["type"]["size"]
    refuse = Refusal(data, name)
    if math.prod(shape) * size > end * _MOST_TIMES + _FREE:
        refuse(f"announces {math.prod(shape)} elements, which a file of {end} bytes cannot hold")
    chunk: tuple[int, ...] = ()
    table = np.zeros((0, 3), np.uint64)
    if told["layout"] == "chunked":
        chunk = tuple(told["chunk"])
        table = _chunk_table(refuse, told["chunks"], shape, chunk, end)
    elif told["layout"] not in ("compact", "contiguous"):
        refuse(f"is laid out as {told['layout']}", hint=REPACK)
    offset = told["offset"] if not chunk else None
    if offset is not None and not 0 <= offset <= offset + math.prod(shape) * size <= end:
        refuse(f"reaches past the end of the file, {end}", at=offset)
    if told["layout"] == "compact" and offset is None:
        refuse("keeps its values in its object header, and the place is not told")
    steps = tuple(_steps(refuse, told["filters"])) if chunk else ()
    fill = told["fill"]
    if fill is None or len(fill) not in (0, size):
        absent = bool((table[:, 1] == 0).any()) if chunk else offset is None
        if absent and math.prod(shape):
            refuse("has samples that were never written, and a fill value that is not read", hint=REPACK)
        fill = b""
    return H5Dataset(name, shape, told["type"], offset, chunk, steps, fill, table, refuse)


def _steps(refuse: Refusal, filters: Sequence[Any]) -> Iterator[tuple[int, int]]:
    for code, values, name in filters:
        if code not in _FILTERS:
            refuse(f"is filtered by {_KNOWN.get(code) or name or 'one without a name'} ({code})", hint=REPACK)
        yield _FILTERS[code], (values or [0])[0] if _FILTERS[code] == SHUFFLE else 0


def _chunk_table(
    refuse: Refusal, packed: bytes, shape: tuple[int, ...], chunk: tuple[int, ...], end: int
) -> NDArray[np.uint64]:
    """All chunks in order, those too that were never written."""
    if len(chunk) != len(shape) or not all(chunk):
        refuse(f"has chunks of {list(chunk)} elements, and a shape of {list(shape)}")
    grid = [-(-size // part) for size, part in zip(shape, chunk, strict=True)]
    count = math.prod(grid)
    if count > end:
        refuse(f"announces {count} chunks, which a file of {end} bytes cannot hold")
    found = np.frombuffer(packed, "<u8").reshape(-1, 3 + len(shape))
    if not count:
        return np.zeros((0, 3), np.uint64)
    corners = found[:, 3:] // np.array(chunk, np.uint64)
    if (corners >= np.array(grid, np.uint64)).any():
        found, corners = (one[(corners < np.array(grid, np.uint64)).all(axis=1)] for one in (found, corners))
    offsets, lengths = found[:, 0], found[:, 1]
    if (offsets > end).any() or (lengths > end).any() or (offsets + lengths > end).any():
        refuse(f"has chunks past the end of the file, {end}")
    if (found[:, 2] > _MASKS).any():
        refuse("has chunks with unknown masks of filters")
    table = np.zeros((count, 3), np.uint64)
    table[np.ravel_multi_index(tuple(corners.T.astype(np.int64)), grid)] = found[:, :3]
    return table
