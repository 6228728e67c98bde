"""``Pages``: the trees in the file of an LMDB database, entry by entry.

Written for data version 1 as 64-bit little-endian machines have it, which are those that train:

- a page begins with 16 bytes: its number, flags, and the bounds of the free space between pointers and nodes;
- pages 0 and 1 hold the roots, those of the later transaction count;
- a node is a header of 8 bytes and a key; then comes a value, or the number of the pages that hold it.

Everything is compared with the size of the file before it is followed. Pages are looked at many at a time.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from operator import lt
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FormatError
from shardstream.formats.scans.object_bytes import ObjectBytes

MAGIC = struct.pack("<I", 0xBEEFC0DE)
_HEADER = 16  # bytes of a page before its pointers, or of the first page of a large value before that
_VERSION = 1
_META = struct.Struct("<QHH4x4sIQQ48s48sQQ")  # number, pad, flags; magic, version, address, map; two trees; last, txn
_TREE = struct.Struct("<IHHQQQQQ")
_SIZES = (512, 1024, 2048, 4096, 8192, 16384, 32768)
_NONE = (1 << 64) - 1  # root of a tree without entries
_DEPTH = 32
_GROUP = 256  # leaf pages that are looked at together
_GAP = 8  # pages between two that are read with them rather than with one more request
_LISTED = 20  # names in an error
# Flags of pages, of nodes, and of trees.
_BRANCH, _LEAF, _META_PAGE, _PACKED_LEAF, _KINDS = 0x01, 0x02, 0x08, 0x20, 0x6F
_LARGE, _SUBTREE, _DUPLICATES = 0x01, 0x02, 0x04
_REVERSE_KEYS, _DUPSORT, _INTEGER_KEYS = 0x02, 0x04, 0x08


@dataclass(frozen=True, slots=True)
class Tree:
    """A database in the file: the main one, or a named one.

    Attributes:
        flags: How it was opened when it was made.
        depth: Levels of pages.
        branches: Pages above the leaves.
        leaves: Pages with entries.
        entries: How many there are.
        root: Number of its first page.
    """

    flags: int
    depth: int
    branches: int
    leaves: int
    entries: int
    root: int

    @classmethod
    def parse(cls, data: bytes | memoryview) -> Self:
        """The tree that these 48 bytes describe; nothing is checked."""
        _, flags, depth, branches, leaves, _, entries, root = _TREE.unpack(data)
        return cls(flags, depth, branches, leaves, entries, root)

    @property
    def integer_keys(self) -> bool:
        """Whether keys are integers of the machine that wrote it."""
        return bool(self.flags & _INTEGER_KEYS)

    @property
    def plain(self) -> bool:
        """Whether keys are in the order of their bytes."""
        return not self.flags & (_INTEGER_KEYS | _REVERSE_KEYS)


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Some entries of a tree, in order.

    Attributes:
        keys: Their keys, n of them.
        offsets: int64 (n,), where each value lies in the object.
        lengths: int64 (n,), its bytes.
        subtrees: bool (n,), whether it is a named database.
    """

    keys: list[bytes]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    subtrees: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, chosen: slice | NDArray[np.bool_]) -> Entries:
        """Some of them."""
        if isinstance(chosen, slice):
            keys = self.keys[chosen]
        else:
            keys = [key for key, has in zip(self.keys, chosen.tolist(), strict=True) if has]
        return Entries(keys, self.offsets[chosen], self.lengths[chosen], self.subtrees[chosen])


@dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """The nodes of some pages: which page each is in, where it begins there, its header, and where its key ends."""

    rows: NDArray[np.int64]
    begins: NDArray[np.int64]
    low: NDArray[np.int64]
    flags: NDArray[np.int64]
    ends: NDArray[np.int64]

    def keys(self, block: NDArray[np.uint8]) -> list[bytes]:
        starts = self.begins + 8
        lengths = self.ends - starts
        ends = np.cumsum(lengths)
        first = self.rows * block.shape[1] + starts - (ends - lengths)
        data = block.reshape(-1).take(np.repeat(first, lengths) + np.arange(int(lengths.sum()))).tobytes()
        begin, found = 0, []
        for end in ends.tolist():
            found.append(data[begin:end])
            begin = end
        return found


class Pages:
    """The file of a database.

    Args:
        data: The object.

    Attributes:
        data: The object.
        main: The tree of what was written without naming a database, and of the names of databases.

    Raises:
        FormatError: It is not an LMDB database, one of another machine or version, or cut off.
        StorageError: It cannot be read.
    """

    def __init__(self, data: ObjectBytes) -> None:
        self.data = data
        first = self._meta(0, 0)
        self._size = first[0]
        metas = [first, self._meta(1, self._size)]
        _, self._count, _, main = max(metas, key=lambda meta: meta[2])
        if self._count * self._size > data.size:
            raise data.damaged(f"the database ends at byte {data.size} of {self._count * self._size}", data.size)
        self.main = self._checked(Tree.parse(main), "", self._size)

    def _meta(self, number: int, offset: int) -> tuple[int, int, int, bytes]:
        """Bytes of a page, pages in use, transaction, the main tree."""
        start = bytes(self.data.get(offset, min(_META.size, self.data.size - offset)))
        if start[16:20] != MAGIC:
            raise self._foreign(start, offset)
        if len(start) < _META.size:
            raise self.data.damaged("the database ends in its first page", len(start))
        page, _, flags, _, version, _, _, free, main, last, transaction = _META.unpack(start)
        if version != _VERSION:
            raise self.data.unsupported(
                f"LMDB's data version {version}, and {_VERSION} can be read", offset + 20, hint=_COPY
            )
        size = int.from_bytes(free[:4], "little")
        if size not in _SIZES or page != number or not flags & _META_PAGE or last >= 1 << 48:
            raise self.data.damaged("a page of roots that LMDB did not write so", offset)
        if number and size != self._size:
            raise self.data.damaged(f"pages of {self._size} bytes in one page of roots, of {size} in the other", offset)
        return size, last + 1, transaction, main

    def _foreign(self, start: bytes, offset: int) -> FormatError:
        if start[16:20] == MAGIC[::-1] or start[12:16] == MAGIC[::-1]:
            return self.data.unsupported("an LMDB database of a big-endian machine", offset, hint=_COPY)
        if start[12:16] == MAGIC:
            return self.data.unsupported("an LMDB database of a 32-bit machine", offset, hint=_COPY)
        return self.data.damaged("this is not an LMDB database, or a damaged one", offset)

    def _checked(self, tree: Tree, name: str, offset: int) -> Tree:
        of = f"database {name!r}" if name else "the database"
        if tree.flags & _DUPSORT:
            raise self.data.unsupported(
                f"{of} has several values a key (DUPSORT), which cannot be read",
                offset,
                hint=_KEYS,
            )
        if not tree.entries and tree.root == _NONE:
            return tree
        sound = (
            0 < tree.depth <= _DEPTH
            and tree.branches + tree.leaves <= self._count
            and 0 < tree.entries <= tree.leaves * self._size // 10  # a pointer and the header of a node
            and 2 <= tree.root < self._count
        )
        if not sound:
            raise self.data.damaged(f"{of} has a root that cannot be: {tree}", offset)
        return tree

    # ------------------------------------------------------------------------------------------------------- trees

    def named(self, name: str) -> Tree:
        """The database of a name.

        Raises:
            FormatError: There is none.
        """
        key = name.encode("utf-8", "surrogateescape")
        for found in self.entries(self.main, key):
            if found.keys and found.keys[0] == key and found.subtrees[0]:
                if int(found.lengths[0]) != _TREE.size:
                    raise self.data.damaged(f"database {name!r} is not described as one", int(found.offsets[0]))
                return self._checked(
                    Tree.parse(self.data.get(int(found.offsets[0]), _TREE.size)), name, int(found.offsets[0])
                )
            if found.keys:
                break
        names = self.names()
        hint = f"it has {', '.join(names)}" if names else "it has none: leave db= out"
        raise self.data.unsupported(f"there is no database {name!r} in it", 0, hint=hint)

    def names(self) -> list[str]:
        """Names of the named databases, the first of them if there are many."""
        found = (key for some in self.entries(self.main) for key in some.take(some.subtrees).keys)
        return [key.decode("utf-8", "surrogateescape") for key in islice(found, _LISTED)]

    def find(self, tree: Tree, key: bytes) -> tuple[int, int] | None:
        """Where the value of a key lies: offset and length; ``None`` where the tree, in order of bytes, has none."""
        if tree.plain:
            for found in self.entries(tree, key):
                if found.keys:
                    same = found.keys[0] == key and not found.subtrees[0]
                    return (int(found.offsets[0]), int(found.lengths[0])) if same else None
        return None

    # ----------------------------------------------------------------------------------------------------- entries

    def entries(self, tree: Tree, start: bytes = b"") -> Iterator[Entries]:
        """The entries from a key on, in order, those of some pages at a time.

        Raises:
            FormatError: A page or pointer that cannot be; keys out of order; more or fewer entries than announced.
        """
        if not tree.entries:
            return
        order = _order(tree)
        leaves, left, last = tree.leaves, tree.entries, None
        for pages in self._leaf_pages(tree, start):
            leaves -= len(pages)
            found = self._leaves(pages)
            left -= len(found)
            ordered = found.keys if order is None else [*map(order, found.keys)]
            if leaves < 0 or left < 0 or not _ascending(ordered, last):
                raise self.data.damaged("entries are out of order, or more than announced", int(pages[0]) * self._size)
            last = ordered[-1] if ordered else last
            yield found.take(slice(bisect_left(ordered, start), None)) if start and order is None else found
        if left and not start:
            raise self.data.damaged(
                f"{tree.entries - left} entries, and {tree.entries} are announced", tree.root * self._size
            )

    def _leaf_pages(self, tree: Tree, start: bytes) -> Iterator[list[int]]:
        """Numbers of the leaf pages from a key on: one, then more and more together."""
        size, left = 1, tree.branches
        if tree.depth == 1:
            yield [tree.root]
            return
        waiting = [iter([tree.root])]  # a level each
        while waiting:
            page = next(waiting[-1], None)
            if page is None:
                waiting.pop()
                continue
            left -= 1
            if left < 0:
                raise self.data.damaged("more pages than announced, or pages in a circle", page * self._size)
            children = self._children(page, start)
            if len(waiting) < tree.depth - 1:
                waiting.append(iter(children))
                continue
            start = b""  # what comes after the first leaf page lies behind it
            while children:
                yield children[:size]
                children, size = children[size:], min(2 * size, _GROUP)

    def _children(self, page: int, start: bytes) -> list[int]:
        block = self._block([page])
        nodes = self._nodes(block, [page], _BRANCH)
        children = nodes.low | nodes.flags << 32
        if not len(children) or np.any((children < 2) | (children >= self._count)):
            raise self.data.damaged("a page outside of the database is named", page * self._size)
        first = bisect_right(nodes.keys(block), start, 1) - 1 if start else 0  # the first key of a page stands for all
        found: list[int] = children[first:].tolist()
        return found

    def _block(self, pages: list[int]) -> NDArray[np.uint8]:
        """The bytes of pages, a row each; pages that lie near to each other are read together."""
        numbers = np.array(pages)
        apart = np.diff(numbers)
        if ((apart > 0) & (apart <= _GAP)).all():
            raw = self.data.get(pages[0] * self._size, (pages[-1] - pages[0] + 1) * self._size)
            whole = np.frombuffer(raw, np.uint8).reshape(-1, self._size)
            return whole if len(whole) == len(pages) else whole[numbers - pages[0]]
        out = np.empty((len(pages), self._size), np.uint8)
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
        cuts = [0, *(np.flatnonzero(np.diff(ordered) > _GAP) + 1).tolist(), len(pages)]
        for begin, end in pairwise(cuts):
            first, last = int(ordered[begin]), int(ordered[end - 1])
            raw = self.data.get(first * self._size, (last - first + 1) * self._size)
            out[order[begin:end]] = np.frombuffer(raw, np.uint8).reshape(-1, self._size)[ordered[begin:end] - first]
        return out

    def _nodes(self, block: NDArray[np.uint8], pages: list[int], kind: int) -> _Nodes:
        heads = block[:, :_HEADER].copy().view("<u2")
        flags, lower, upper = heads[:, 5].astype(np.int64), heads[:, 6].astype(np.int64), heads[:, 7].astype(np.int64)
        numbers = heads.view("<u8")[:, 0]
        if kind == _LEAF and np.any(flags & _PACKED_LEAF):
            raise self.data.unsupported(
                "values without keys of their own (DUPFIXED), which are not read", 0, hint=_KEYS
            )
        wrong = (numbers != np.array(pages, np.uint64)) | (flags & _KINDS != kind)
        wrong |= (lower < _HEADER) | (lower > upper) | (upper > self._size) | (lower & 1 > 0)
        self._refuse(wrong, pages, np.arange(len(pages)))
        counts = (lower - _HEADER) >> 1
        rows = np.repeat(np.arange(len(pages)), counts)
        flat, words = block.reshape(-1).view("<u2"), rows * (self._size >> 1)
        before = np.repeat(np.cumsum(counts) - counts, counts)
        begins = flat.take(words + (_HEADER >> 1) + np.arange(len(rows)) - before).astype(np.int64)
        self._refuse((begins < upper[rows]) | (begins > self._size - 8) | (begins & 1 > 0), pages, rows)
        at = words + (begins >> 1)
        low = flat.take(at).astype(np.int64) | flat.take(at + 1).astype(np.int64) << 16
        ends = begins + 8 + flat.take(at + 3)
        self._refuse(ends > self._size, pages, rows)
        return _Nodes(rows, begins, low, flat.take(at + 2).astype(np.int64), ends)

    def _refuse(self, wrong: NDArray[np.bool_], pages: list[int], rows: NDArray[np.int64]) -> None:
        if np.any(wrong):
            page = pages[int(rows[np.argmax(wrong)])]
            raise self.data.damaged("a page that is not what the pages above it say", page * self._size)

    def _leaves(self, pages: list[int]) -> Entries:
        block = self._block(pages)
        nodes = self._nodes(block, pages, _LEAF)
        if np.any(nodes.flags & _DUPLICATES):
            raise self.data.unsupported("several values of one key (DUPSORT)", pages[0] * self._size, hint=_KEYS)
        large = nodes.flags & _LARGE > 0
        inside = np.where(large, 8, nodes.low)
        self._refuse(nodes.ends + inside > self._size, pages, nodes.rows)
        offsets = np.array(pages, np.int64)[nodes.rows] * self._size + nodes.ends
        if large.any():
            chosen = np.flatnonzero(large)
            at = (nodes.rows * self._size + nodes.ends)[chosen]
            first = block.reshape(-1).take(at[:, None] + np.arange(8)).view("<u8")[:, 0]
            needed = (_HEADER + nodes.low[chosen] + self._size - 1) // self._size
            outside = (first < 2) | (first >= self._count)
            outside |= needed > self._count - np.where(outside, 0, first).astype(np.int64)
            self._refuse(outside, pages, nodes.rows[chosen])
            offsets[chosen] = first.astype(np.int64) * self._size + _HEADER
        return Entries(nodes.keys(block), offsets, nodes.low, nodes.flags & _SUBTREE > 0)


_COPY = "copy it on the machine that wrote it, or with its version of LMDB: mdb_dump there, mdb_load here"
_KEYS = "write it again with a key of its own for each value"


def _order(tree: Tree) -> Callable[[bytes], Any] | None:
    if tree.integer_keys:
        return lambda key: int.from_bytes(key, "little")
    return None if tree.plain else lambda key: key[::-1]


def _ascending(keys: list[Any], last: Any) -> bool:
    if not keys:
        return True
    return (last is None or last < keys[0]) and all(map(lt, keys, islice(keys, 1, None)))
