"""From data sets to fields: `FileColumns` says which there are, and gives their columns piece by piece."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DecodeError, FieldError
from shardstream.formats.blocks.hdf5_chunks import chunked
from shardstream.formats.hdf5.chunks import BlockPlace, block_places, is_plain, row_places
from shardstream.formats.hdf5.file import H5Dataset, without_blocks
from shardstream.formats.hdf5.heap import REFERENCE, GlobalHeap
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import sniffed_type
from shardstream.shards.field_names import usable_field
from shardstream.shards.fields import SCALAR_TYPES, FieldType
from shardstream.shards.index import Column

_PLAIN = "write numbers, text or bytes, or choose other fields"
_SPACES = 2  # H5T_STR_SPACEPAD
_DEEPEST = 32


@dataclass(frozen=True, slots=True)
class Leaf:
    """A field: the elements of a data set, or what stands in each of them under one name.

    Attributes:
        name: The field.
        dataset: What it is of.
        type: What values are, as `program` tells.
        at: Where it begins in a sample.
        shape: Of a value.
        kind: Its type if it is a number or an array; ``None`` for text, bytes and lists.
    """

    name: str
    dataset: H5Dataset
    type: Mapping[str, Any]
    at: int
    shape: tuple[int, ...]
    kind: FieldType | None

    @property
    def is_read(self) -> bool:
        """Whether its elements are read by the scan, and need no place in the object."""
        if self.kind is not None:
            return self.kind.kind == "scalar"
        return self.type["class"] in ("text", "list")


def leaves_of(dataset: H5Dataset) -> Iterator[Leaf]:
    """The fields of a data set; those of structures one by one.

    Raises:
        FormatError: One cannot be read.
    """
    yield from _leaves(dataset, dataset.name, dataset.type, 0, dataset.shape[1:])


def _leaves(dataset: H5Dataset, name: str, told: Mapping[str, Any], at: int, shape: tuple[int, ...]) -> Iterator[Leaf]:
    what = told["class"]
    if what == "array":
        yield from _leaves(dataset, name, told["base"], at, shape + tuple(told["shape"]))
        return
    if what == "compound":
        if shape:
            dataset.refuse(f"holds {list(shape)} structures a sample", hint=_PLAIN)
        if at > dataset.item or name.count("/") > _DEEPEST:
            dataset.refuse("holds structures that are nested too deep", hint=_PLAIN)
        for member, offset, kind in told["members"]:
            yield from _leaves(dataset, f"{name}/{member}", kind, at + offset, ())
        return
    field = usable_field(name)
    if what in ("number", "bool"):
        yield Leaf(field, dataset, told, at, shape, _array_type(dataset, told, shape))
        return
    named = {"text": "text", "fixed text": "text", "opaque": "bytes", "list": "lists"}.get(what)
    if named is None:
        dataset.refuse(f"holds {what}, which are not read", hint=_PLAIN)
    if shape:
        dataset.refuse(f"holds {list(shape)} values of {named} a sample, and only one is read", hint=_PLAIN)
    if what == "list" and (told["base"]["class"] != "number" or not _is_little(told["base"]["dtype"])):
        dataset.refuse(f"holds lists of {told['base']['class']}s that are not read", hint=_PLAIN)
    if what in ("text", "list") and told is not dataset.type:  # where members lie is told as they are in memory
        dataset.refuse(f"holds {named} of any length in structures", hint=_PLAIN)
    yield Leaf(field, dataset, told, at, (), None)


def _is_little(dtype: str) -> bool:
    return dtype[:1] in "<|" and np.dtype(dtype).name in SCALAR_TYPES if dtype else False


def _array_type(dataset: H5Dataset, told: Mapping[str, Any], shape: tuple[int, ...]) -> FieldType:
    dtype = "|b1" if told["class"] == "bool" and told["size"] == 1 else told.get("dtype", "")
    name = np.dtype(dtype).name if dtype else ""
    if name not in SCALAR_TYPES or np.dtype(dtype).itemsize != told["size"]:
        dataset.refuse(f"holds numbers of a kind that is not read ({name or 'not one of numpy'})", hint=_PLAIN)
    if 0 in shape:
        dataset.refuse(f"has empty samples: its shape is {list(dataset.shape)}", hint="choose other fields")
    if shape and dtype.startswith(">") and dataset.type["class"] != "number":
        dataset.refuse("holds big-endian arrays in structures", hint=_PLAIN)
    try:
        return FieldType.parse(f"array:{name}:{','.join(map(str, shape))}" if shape else name)
    except FieldError as error:
        dataset.refuse(f"has samples of {list(shape)}: {error.what}", hint="choose other fields")


class FileColumns:
    """The fields of a file.

    Args:
        data: The file, with its blocks behind it, if there are any.
        end: Where the file ends.
        datasets: Its data sets, all with as many samples.

    Attributes:
        leaves: The fields, in order of their names.
        blocked: The data sets that have blocks, in their order.

    Raises:
        FormatError: Some cannot be read.
    """

    def __init__(self, data: ObjectBytes, end: int, datasets: Sequence[H5Dataset]) -> None:
        self._data = data
        file = without_blocks(data, end)
        self._heap = GlobalHeap(file, end)
        self._elements = {one.name: _Elements(file, one) for one in datasets}
        self.leaves = sorted((leaf for one in datasets for leaf in leaves_of(one)), key=lambda leaf: leaf.name)
        for one, other in zip(self.leaves, self.leaves[1:], strict=False):
            if one.name == other.name:
                other.dataset.refuse(f"becomes the field {one.name!r}, as another one does", hint="rename one of them")
        placed = {leaf.dataset.name for leaf in self.leaves if not leaf.is_read}
        self.blocked = [one for one in datasets if one.name in placed and not is_plain(one)]
        self._starts: dict[str, int] = {}
        for dataset in self.blocked:
            self._starts[dataset.name] = end
            end += dataset.samples * dataset.width

    def columns(self, begin: int, end: int) -> tuple[Column, ...]:
        """Some samples."""
        return tuple(self._column(leaf, begin, end) for leaf in self.leaves)

    def _column(self, leaf: Leaf, begin: int, end: int) -> Column:
        if leaf.kind is not None and leaf.kind.kind == "scalar":
            return Column(leaf.name, leaf.kind, values=self._numbers(leaf, begin, end))
        if leaf.is_read:
            return self._in_heap(leaf, begin, end)
        offsets = self._places(leaf, begin, end)
        if leaf.kind is not None:
            dense = leaf.dataset.width == leaf.kind.width and bool((np.diff(offsets) == leaf.kind.width).all())
            return (
                Column(leaf.name, leaf.kind, base=int(offsets[0]))
                if dense
                else Column(leaf.name, leaf.kind, offsets=offsets)
            )
        return self._of_one_size(leaf, offsets)

    def _places(self, leaf: Leaf, begin: int, end: int) -> NDArray[np.uint64]:
        start = self._starts.get(leaf.dataset.name)
        if start is None:
            return row_places(leaf.dataset, begin, end) + np.uint64(leaf.at)
        rows = np.arange(begin, end, dtype=np.uint64)
        return rows * np.uint64(leaf.dataset.width) + np.uint64(start + leaf.at)

    def _numbers(self, leaf: Leaf, begin: int, end: int) -> NDArray[Any]:
        assert leaf.kind is not None
        assert leaf.kind.dtype is not None
        stored = self._member(leaf, begin, end)
        if leaf.kind.dtype.kind == "b":
            if stored.view(np.uint8).max(initial=0) > 1:
                leaf.dataset.refuse("holds bytes that are neither true nor false")
            return stored.view(np.bool_).reshape(-1)
        swapped = leaf.type is leaf.dataset.type  # blocks of numbers are little-endian, whatever the file has
        dtype = leaf.kind.dtype if swapped else np.dtype(leaf.type["dtype"])
        return stored.view(dtype).reshape(-1).astype(leaf.kind.dtype)

    def _member(self, leaf: Leaf, begin: int, end: int) -> NDArray[np.uint8]:
        """The bytes of a field of some samples, uint8 (n, size)."""
        rows = self._elements[leaf.dataset.name].rows(begin, end)
        return np.ascontiguousarray(rows[:, leaf.at : leaf.at + int(leaf.type["size"])])

    def _in_heap(self, leaf: Leaf, begin: int, end: int) -> Column:
        references = self._member(leaf, begin, end).view(REFERENCE).reshape(-1)
        text = leaf.type["class"] == "text"
        base = np.dtype("u1" if text else leaf.type["base"]["dtype"])
        offsets, lengths = self._heap.places(references, base.itemsize)
        kind = FieldType.parse("str" if text else f"values:{base.name}")
        if not text and base == np.uint8:
            kind = sniffed_type(self._data, offsets, lengths, f"values:{base.name}")
        return Column(leaf.name, kind, offsets=offsets, lengths=lengths)

    def _of_one_size(self, leaf: Leaf, offsets: NDArray[np.uint64]) -> Column:
        """Text and bytes of a common size, text without what fills it up."""
        size = int(leaf.type["size"])
        lengths = np.full(len(offsets), size, np.uint64)
        if leaf.type["class"] == "opaque":
            return Column(
                leaf.name, sniffed_type(self._data, offsets, lengths, "bytes"), offsets=offsets, lengths=lengths
            )
        filling = b" " if leaf.type["padding"] == _SPACES else b"\0"
        for row, offset in enumerate(offsets.tolist()):
            lengths[row] = len(bytes(self._data.get(offset, size)).rstrip(filling))
        kind = sniffed_type(self._data, offsets, lengths, "str")
        return Column(leaf.name, kind, offsets=offsets, lengths=lengths)


class _Elements:
    """The bytes of samples of a data set, for those that the scan reads."""

    def __init__(self, data: ObjectBytes, dataset: H5Dataset) -> None:
        self._data = data
        self._dataset = dataset
        self._blocks: list[BlockPlace] | None = None
        self._last: tuple[int, NDArray[np.uint8]] | None = None

    def rows(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Samples from one to another: uint8 (n, width)."""
        dataset = self._dataset
        if is_plain(dataset) and not dataset.chunk:
            assert dataset.offset is not None
            place = dataset.offset + begin * dataset.width
            return self._data.array("u1", (end - begin) * dataset.width, place).reshape(-1, dataset.width)
        if self._blocks is None:
            self._blocks = list(block_places(dataset))
        number = bisect.bisect_right(self._blocks, begin, key=lambda one: one.begin) - 1
        parts = []
        while begin < end:
            block = self._blocks[number]
            parts.append(self._block(number)[begin - block.begin : end - block.begin])
            begin, number = block.end, number + 1
        return np.concatenate(parts)

    def _block(self, number: int) -> NDArray[np.uint8]:
        if self._last is None or self._last[0] != number:
            assert self._blocks is not None
            one, width = self._blocks[number], self._dataset.width
            try:
                found = chunked(self._data.get(one.offset, one.length), (one.end - one.begin) * width, one.setting)
            except DecodeError as error:
                self._dataset.refuse(f"cannot be read: {error.what}", at=one.offset)
            self._last = number, np.frombuffer(found, np.uint8).reshape(-1, width)
        return self._last[1]
