"""``BlockFile``: one cached object, its blocks and the map that says which of them are there.

A file is laid out as a head (what object it is), a map of 8 bytes a block (zero while the block is absent, else its
XXH3-64, where 0 is written as 1), and the object's bytes from a page boundary on. Map and data are one file, so that
neither can be mistaken for, or outlive, the other. It is allocated whole when it is made, and its size never changes.

A block is written, then its word: eight aligned bytes, by one system call. Nothing is promised about what reaches the
disk first, nor what another processor sees first, and nothing need be: each process compares a block with its word
before it uses it for the first time. A word without its data, after a power failure or in a race, is an absent block.

A word says that a block is what somebody wrote, not that this was right. So the process that writes the last block, or
that first finds all of them there, compares the whole object with its own checksum, which the manifest names. The first
page of the file ends with a seal, the XXH3-64 of that checksum and the map: where it fits, nobody compares again.

An object whose size nobody knows before it is read is kept as it came, whole and with its version in the store. In
place of the seal stands when the store was last asked whether that is still its version.

Files are read by system calls, into buffers of the reader's own. A mapping would save that copy, and end the process
(SIGBUS) when somebody cuts the file or the disk fails; a read comes out short, or says what is wrong.
"""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.storage.base.held import HeldObject
from shardstream.storage.cache.folder import Folder
from shardstream.storage.cache.locks import Claim, claim
from shardstream.storage.local.mapped_files import map_descriptor

BLOCK = 1 << 20
SUFFIX = ".blocks"
BY_SIZE = "by size"
"""In place of a version: an object that no table names, known by the size that its reader says."""
_AS_IT_CAME = "as it came "
"""Before the version: an object that no table names, and whose reader knows no size either."""

_MAGIC = b"SSBLOCKS"
_HEAD = struct.Struct("<8sIIQ")  # magic, version, bytes of the description, their checksum
_VERSION = 1
_PAGE = 4096
_SEAL = _PAGE - 8
_TIME = struct.Struct("<Q")
_WORD = np.dtype("<u8")
_PARTS = 512  # buffers a system call takes, well below the kernel's 1,024
_CHUNK = 256 << 10  # what a block is compared in: it stays in a processor's own cache

Words = NDArray[np.uint64]


class Described(NamedTuple):
    """What object a file holds: its path in the store, size in bytes, XXH3-64 (0: unknown) and version in the store."""

    path: str
    size: int
    checksum: int
    etag: str

    @classmethod
    def as_it_came(cls, path: str, size: int, version: int) -> Described:
        """An object whose size nobody knew, with its version, see `ObjectMeta`."""
        return cls(path, size, 0, f"{_AS_IT_CAME}{version:016x}")

    @property
    def came(self) -> int:
        """The version in which an object came whose size nobody knew; 0 for all others."""
        return int(self.etag.removeprefix(_AS_IT_CAME), 16) if self.etag.startswith(_AS_IT_CAME) else 0

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return -(-self.size // BLOCK)

    @property
    def base(self) -> int:
        """Where the object's bytes begin in the file."""
        return -(-(_PAGE + _WORD.itemsize * self.blocks) // _PAGE) * _PAGE

    @property
    def file_size(self) -> int:
        """Bytes of the file."""
        return self.base + self.size

    def head(self) -> bytes:
        """The first bytes of the file.

        Raises:
            ValueError: The names are too long for it.
        """
        text = json.dumps([*self, BLOCK]).encode()
        if _HEAD.size + len(text) > _SEAL:
            raise ValueError("path and version of the object are too long")
        return _HEAD.pack(_MAGIC, _VERSION, len(text), xxhash.xxh3_64_intdigest(text)) + text

    @classmethod
    def parse(cls, head: bytes) -> Described | None:
        """What `head` made these bytes of; ``None`` for anything else."""
        if len(head) < _HEAD.size:
            return None
        magic, version, length, check = _HEAD.unpack_from(head)
        text = head[_HEAD.size : _HEAD.size + length]
        if (magic, version) != (_MAGIC, _VERSION) or xxhash.xxh3_64_intdigest(text) != check:
            return None
        *fields, block = json.loads(text)
        return cls(*fields) if block == BLOCK else None


class Lost(OSError):
    """The file is not the one that it was: removed, replaced, or cut."""


def make_file(folder: Folder, name: str, described: Described) -> None:
    """Make the file of an object, all blocks absent, allocated to its end, in place of what has its name.

    Raises:
        OSError: There is no room (ENOSPC, EDQUOT), or no right; or this system cannot set room aside (ENOTSUP).
        ValueError: The object's names are too long.
    """
    if not hasattr(os, "posix_fallocate"):
        raise OSError(errno.ENOTSUP, "this system cannot set room aside for a file")
    head = described.head()
    with folder.replacing(name) as descriptor:
        os.posix_fallocate(descriptor, 0, described.file_size)
        os.pwrite(descriptor, head, 0)


def describe(folder: Folder, name: str) -> Described | None:
    """What a file says that it holds; ``None`` if it is none of ours, damaged, or not of the size it should have.

    Raises:
        OSError: It cannot be read. FileNotFoundError: There is none.
    """
    descriptor = folder.open(name, os.O_RDONLY)
    try:
        return _describe(descriptor)
    finally:
        os.close(descriptor)


def _describe(descriptor: int) -> Described | None:
    described = Described.parse(os.pread(descriptor, _PAGE, 0))
    right = described is not None and os.fstat(descriptor).st_size == described.file_size
    return described if right else None


class BlockFile:
    """An existing file, in one process. All methods may be called from any thread.

    Args:
        folder: The folder that it is in.
        name: Its name there.
        described: What it should hold.
        writable: Whether blocks may be stored and cleared, where this user may write to the file.

    Raises:
        Lost: The file is not as it should be.
        OSError: It cannot be read. Untrusted: Or should not be.

    Attributes:
        folder: The folder.
        described: The object.
        verified: Bool, by block: present, and compared with its word by this process.
        writable: Whether blocks may be stored and cleared.
        failure: Why storing was given up, if it was.
        mismatched: Whether the object was found to be another one in the store, too.
    """

    def __init__(self, folder: Folder, name: str, described: Described, *, writable: bool) -> None:
        self.folder = folder
        self.described = described
        self.verified = np.zeros(described.blocks, np.bool_)
        self.failure: Exception | None = None
        self.mismatched = False
        self._bad = np.zeros(described.blocks, np.bool_)  # found damaged where the map cannot be written
        self._doubted = np.zeros(described.blocks, np.bool_)
        self._compared = False  # the whole object
        self._name = name
        descriptor, may = folder.open_most(name) if writable else (folder.open(name, os.O_RDONLY), False)
        self.writable = may
        try:
            info = os.fstat(descriptor)
            self._identity = (info.st_dev, info.st_ino, described.file_size)
            if _describe(descriptor) != described:
                raise Lost(errno.ESTALE, "not the file of this object", self.path)
        finally:
            os.close(descriptor)

    # ------------------------------------------------------------------------------------------------------- looking

    @property
    def path(self) -> str:
        """The file, for messages."""
        return self.folder.place(self._name)

    @property
    def complete(self) -> bool:
        """Whether all blocks are present and verified."""
        return b"\0" not in self.verified.tobytes()  # all() takes four times as long

    def span(self, offset: int, length: int) -> tuple[int, int]:
        """The blocks ``[first, stop)`` that a range touches."""
        return offset // BLOCK, -(-(offset + length) // BLOCK)

    def extent(self, first: int, stop: int) -> tuple[int, int]:
        """The bytes ``[start, end)`` of blocks."""
        return first * BLOCK, min(stop * BLOCK, self.described.size)

    def length(self, block: int) -> int:
        """Bytes of a block."""
        start, end = self.extent(block, block + 1)
        return end - start

    def words(self, first: int, stop: int) -> Words:
        """The map's words of blocks, as they are now; 0 for those that are absent.

        Raises:
            Lost, OSError: The map cannot be read.
        """
        with self._opened(os.O_RDONLY) as descriptor:
            return self._words(descriptor, first, stop)

    def _words(self, descriptor: int, first: int, stop: int) -> Words:
        data = os.pread(descriptor, (stop - first) * _WORD.itemsize, _PAGE + first * _WORD.itemsize)
        if len(data) != (stop - first) * _WORD.itemsize:
            raise Lost(errno.ESTALE, "the map was cut", self.path)
        words = np.frombuffer(data, _WORD).astype(np.uint64)
        words[self._bad[first:stop]] = 0
        return words

    @contextmanager
    def _opened(self, flags: int) -> Iterator[int]:
        descriptor = self.folder.reopen(self._name, flags)
        try:
            info = os.fstat(descriptor)
            if (info.st_dev, info.st_ino, info.st_size) != self._identity:
                raise Lost(errno.ESTALE, "the file was removed, replaced or cut", self.path)
            yield descriptor
        finally:
            os.close(descriptor)

    def read(self, offsets: Sequence[int], lengths: Sequence[int]) -> list[memoryview]:
        """Copies of ranges of the object. Only those of verified blocks mean anything.

        Args:
            offsets: Where ranges begin.
            lengths: Their lengths.

        Raises:
            Lost: The file was removed, replaced or cut.
            OSError: It cannot be read.
        """
        out = np.empty(sum(lengths), np.uint8).data
        parts = [out[start:end] for start, end in pairwise(accumulate(lengths, initial=0))]
        with self._opened(os.O_RDONLY) as descriptor:
            for offset, part in zip(offsets, parts, strict=True):
                _read(descriptor, part, self.described.base + offset)
        return [part.toreadonly() for part in parts]

    def held(self) -> HeldObject:
        """All of the object, which is complete. Raises as `read`."""
        with self._opened(os.O_RDONLY) as descriptor:
            mapped = map_descriptor(descriptor, self.described.file_size)
        return HeldObject(mapped, self.described.base, self.described.size, lambda: self.complete)

    # ----------------------------------------------------------------------------------------------------- verifying

    def verify(self, blocks: NDArray[np.int64]) -> int:
        """Compare blocks with their words. Those that fail are absent from now on.

        Args:
            blocks: Block numbers.

        Returns:
            How many failed that had been present.

        Raises:
            Lost, OSError: The map cannot be read or written.
        """
        failed = 0
        with self._opened(os.O_RDWR if self.writable else os.O_RDONLY) as descriptor:
            first = int(blocks.min()) if len(blocks) else 0
            words = self._words(descriptor, first, int(blocks.max()) + 1) if len(blocks) else blocks
            scratch = memoryview(bytearray(_CHUNK))
            for block, word in zip(blocks.tolist(), words[blocks - first].tolist(), strict=True):
                failed += not self._right(descriptor, block, word, scratch)
        return failed

    def _right(self, descriptor: int, block: int, word: int, scratch: memoryview) -> bool:
        """Compare one block with its word, which may be that of a moment ago; True also if it is absent."""
        while word:
            if self._word_of(descriptor, block, scratch) == word:
                self.verified[block] = True
                return True
            # Another process may have stored the block while it was being read.
            again = self._word(descriptor, block)
            if again == word:
                self._clear(descriptor, block)
                return False
            word = again
        return True

    def _word_of(self, descriptor: int, block: int, scratch: memoryview) -> int:
        """The word that stands for a block's bytes as they are; 0 if they cannot be read."""
        start, end = (self.described.base + at for at in self.extent(block, block + 1))
        found = _hashed(descriptor, start, end, scratch)
        return 0 if found is None else found or 1

    def _word(self, descriptor: int, block: int) -> int:
        return int(self._words(descriptor, block, block + 1)[0])

    def _clear(self, descriptor: int, block: int) -> None:
        self.verified[block] = self._compared = False
        if self.writable:
            os.pwrite(descriptor, bytes(_WORD.itemsize), _PAGE + block * _WORD.itemsize)
        else:
            self._bad[block] = True

    def doubt(self, first: int, stop: int) -> int:
        """Clear blocks whose contents a reader found wrong: what fails its word, and, once a process, what does not.

        A block that was spoilt on its way from the store has a word that fits. One that is absent already counts once.

        Returns:
            How many are absent now, and may not have been when they were read.

        Raises:
            Lost, OSError: The map cannot be read or written.
        """
        cleared, scratch = 0, memoryview(bytearray(_CHUNK))
        with self._opened(os.O_RDWR if self.writable else os.O_RDONLY) as descriptor:
            for block in range(first, stop):
                word = self._word(descriptor, block)
                if not word:  # cleared by another process; the damaged bytes may still be there
                    cleared += bool(self.verified[block] or not self._doubted[block])
                    self.verified[block] = False
                elif not self._right(descriptor, block, word, scratch):
                    cleared += 1
                elif self.verified[block] and not self._doubted[block]:
                    self._clear(descriptor, block)
                    cleared += 1
                self._doubted[block] = True
        return cleared

    def compare(self, *, anew: bool = False) -> int:
        """Once all blocks are there, compare the object with its own checksum; clear it if it is another one.

        Nothing is done where that is known already. An object that was cleared and is the same again lies so in the
        store: it stays, as if there were no cache.

        Args:
            anew: Also where it is known.

        Returns:
            How many blocks were cleared.

        Raises:
            Lost, OSError: The file cannot be read or written.
        """
        if (self._compared and not anew) or not self.described.checksum:
            return 0
        with self._opened(os.O_RDWR if self.writable else os.O_RDONLY) as descriptor:
            words = self._words(descriptor, 0, self.described.blocks)
            if not words.all():
                return 0
            seal = self._seal(words)
            known = not anew and os.pread(descriptor, len(seal), _SEAL) == seal
            self._compared = known or self._whole(descriptor) == self.described.checksum
            if self._compared:
                if self.writable and not known:
                    os.pwrite(descriptor, seal, _SEAL)
                return 0
        cleared = self.doubt(0, self.described.blocks)
        self._compared = self.mismatched = not cleared
        return cleared

    def _seal(self, words: Words) -> bytes:
        checksum = np.array([self.described.checksum], _WORD)
        return xxhash.xxh3_64_digest(checksum.tobytes() + words.astype(_WORD).tobytes())

    def _whole(self, descriptor: int) -> int | None:
        """The checksum of the object as it is; ``None`` if it cannot be read."""
        return _hashed(descriptor, self.described.base, self.described.file_size, memoryview(bytearray(_CHUNK)))

    def asked(self) -> int:
        """When the store was last asked for the version of an object `as_it_came`, in ns since 1970; 0: never.

        Raises:
            Lost, OSError: The file cannot be read.
        """
        with self._opened(os.O_RDONLY) as descriptor:
            found = os.pread(descriptor, _TIME.size, _SEAL)
        return int(_TIME.unpack(found)[0]) if len(found) == _TIME.size else 0

    def confirm(self, when: int) -> None:
        """Say that the object `as_it_came` was asked for then, and is the one that is here.

        Raises:
            Lost, OSError: The file cannot be written.
        """
        if self.writable:
            with self._opened(os.O_RDWR) as descriptor:
                os.pwrite(descriptor, _TIME.pack(when), _SEAL)

    def claim(self, first: int, stop: int) -> Claim | tuple[int, int]:
        """Claim blocks ``[first, stop)``: the claim, or the blocks that another process has claimed.

        Raises:
            OSError: There is no such file any more, or its file system has no such locks.
        """
        return claim(self.folder.open(self._name, os.O_RDWR), first, stop)

    def give_up(self, error: Exception) -> None:
        """Store nothing more: it has failed."""
        self.writable = False
        self.failure = error

    # ------------------------------------------------------------------------------------------------------- storing

    def store(self, first: int, pieces: Sequence[memoryview]) -> None:
        """Write whole blocks from block ``first`` on, then their words.

        Args:
            first: The first block.
            pieces: Their bytes; the last block's end where the object does.

        Raises:
            Lost, OSError: They cannot be written. None of them is present then that was not before.
        """
        with self._opened(os.O_RDWR) as descriptor:
            _write(descriptor, pieces, self.described.base + first * BLOCK)
            words = np.array(block_words(pieces), _WORD)
            os.pwrite(descriptor, words.tobytes(), _PAGE + first * _WORD.itemsize)
        self._bad[first : first + len(words)] = False
        self.verified[first : first + len(words)] = True


def _hashed(descriptor: int, start: int, end: int, scratch: memoryview) -> int | None:
    """The XXH3-64 of bytes of a file; ``None`` if they cannot be read."""
    hasher = xxhash.xxh3_64()
    while start < end:
        try:
            count = os.preadv(descriptor, [scratch[: end - start]], start)
        except OSError:  # a sector that the disk has lost
            return None
        if not count:
            return None
        hasher.update(scratch[:count])
        start += count
    return hasher.intdigest()


def _read(descriptor: int, out: memoryview, offset: int) -> None:
    while len(out):
        count = os.preadv(descriptor, [out], offset)  # 2 GiB at most
        if not count:
            raise Lost(errno.ESTALE, "the file was cut")
        out, offset = out[count:], offset + count


def _write(descriptor: int, pieces: Sequence[memoryview], offset: int) -> None:
    left = [piece for piece in pieces if len(piece)]
    while left:
        count = os.pwritev(descriptor, left[:_PARTS], offset)
        if not count:
            raise OSError(errno.EIO, "nothing was written")
        offset += count
        while left and count >= len(left[0]):
            count -= len(left.pop(0))
        if count:
            left[0] = left[0][count:]


def block_words(pieces: Sequence[memoryview]) -> list[int]:
    """The word of each block that the pieces, end to end, consist of."""
    words = []
    hasher, room = xxhash.xxh3_64(), BLOCK
    for piece in pieces:
        while len(piece):
            part = piece[:room]
            hasher.update(part)
            piece, room = piece[len(part) :], room - len(part)
            if not room:
                words.append(hasher.intdigest() or 1)
                hasher, room = xxhash.xxh3_64(), BLOCK
    if room < BLOCK:
        words.append(hasher.intdigest() or 1)
    return words
