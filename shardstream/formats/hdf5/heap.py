"""Values of a data set of text or lists: in collections of the global heap, where they lie as they are.

Source: the HDF5 file format specification, version 3.0, III.E "Disk Format: Level 1E - Global Heap".
"""

from __future__ import annotations

import struct
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from shardstream.formats.scans.object_bytes import ObjectBytes

REFERENCE = np.dtype([("count", "<u4"), ("address", "<u8"), ("number", "<u4")])
"""What a data set has of such a value: its elements, the collection that it lies in, and its number there."""
_COLLECTION = struct.Struct("<4sB3xQ")
_OBJECT = struct.Struct("<HH4xQ")
_MOST = 1 << 16  # objects of a collection: their numbers have 16 bits
_KEPT = 64  # collections


class GlobalHeap:
    """Where values lie in a file.

    Args:
        data: The file.
        end: Where it ends.
    """

    def __init__(self, data: ObjectBytes, end: int) -> None:
        self._data = data
        self._end = end
        self._collections: OrderedDict[int, dict[int, tuple[int, int]]] = OrderedDict()

    def places(self, references: NDArray[np.void], item: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Offset and length of each value; ``item``: bytes of an element.

        Raises:
            FormatError: One is not there.
            StorageError: It cannot be read.
        """
        offsets, lengths = np.zeros(len(references), np.uint64), np.zeros(len(references), np.uint64)
        for row, (count, address, number) in enumerate(references.tolist()):
            if not count or not address:  # nothing is stored for what is empty
                continue
            found = self._collection(address).get(number)
            if found is None or count * item > found[1]:
                raise self._data.damaged(
                    f"a value of {count * item} bytes is not in this heap (object {number})", address
                )
            offsets[row], lengths[row] = found[0], count * item
        return offsets, lengths

    def _collection(self, address: int) -> dict[int, tuple[int, int]]:
        found = self._collections.pop(address, None)
        self._collections[address] = found = self._read(address) if found is None else found
        if len(self._collections) > _KEPT:
            self._collections.popitem(last=False)
        return found

    def _read(self, address: int) -> dict[int, tuple[int, int]]:
        """Place and size of each object of a collection, by its number."""
        data = self._data
        if address + _COLLECTION.size > self._end:
            raise data.damaged(f"a heap lies outside of the file, at {address}", 0)
        magic, version, size = _COLLECTION.unpack(data.get(address, _COLLECTION.size))
        stop = address + size
        if magic != b"GCOL" or version != 1 or size < _COLLECTION.size or stop > self._end:
            raise data.damaged("there should be a heap of values here", address)
        found: dict[int, tuple[int, int]] = {}
        at = address + _COLLECTION.size
        while at + _OBJECT.size <= stop and len(found) < _MOST:
            number, _, length = _OBJECT.unpack(data.get(at, _OBJECT.size))
            if not number:  # what is free
                break
            begin = at + _OBJECT.size
            if begin + length > stop:
                raise data.damaged(f"an object of {length} bytes reaches past the end of its heap", at)
            found[number] = begin, length
            at = begin + length + -length % 8
        return found
