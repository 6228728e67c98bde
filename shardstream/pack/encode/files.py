"""The content of a file, wherever it lies; what is wrong with it is said in one sentence, for ``rejects.jsonl``."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Any
from urllib.parse import unquote

from shardstream.cgroups import memory_limit
from shardstream.errors import AccessError, ChangedError, DecodeError, NotFoundError, StorageError, UsageError
from shardstream.faults import FaultKind, fault_kind
from shardstream.images.formats import BY_SUFFIX
from shardstream.pack.encode.images import ImageHandling
from shardstream.sizes import size
from shardstream.storage import Location, RetryPolicy, Store, open_store
from shardstream.storage.base.address import Address, parse
from shardstream.storage.base.location import Access
from shardstream.storage.local.whole_files import read_whole
from shardstream.storage.opening import takes_options

# Not the sample's fault: the run must stop, or every sample after it would be rejected too.
_EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
# A list of URLs names hosts that are no more by the thousand; a minute's patience for each would be days.
_WEB = RetryPolicy(deadline=20.0, contact=5.0, stall=5.0, cap=2.0)
_LARGE = 64 << 20  # looked at before it is read; what is smaller is read at once, in a single call
_START = 64 << 10
_COPIES = 2  # of a file, at one time: as it was read, and as it is written
_STORES = 64  # hosts and buckets whose connections are kept


class Unreadable(Exception):
    """A sample that cannot be packed; the message says why.

    Args:
        reason: Why.
        kind: What is at fault.
    """

    def __init__(self, reason: str, kind: FaultKind = "invalid") -> None:
        super().__init__(reason)
        self.kind = kind


def is_url(path: str) -> bool:
    """Whether a path is a URL."""
    return "://" in path


class Files:
    """Reads files by path or URL. For any thread; each process has its own.

    Args:
        access: How stores are reached.
        lenient: Whether its options were given for other places too: stores that do not know them go without.
        images: What becomes of image files, if these are images by their names that a user's function doesn't see
            first: large ones that no image can be are refused by their first bytes.
    """

    def __init__(
        self, access: Access | None = None, *, lenient: bool = False, images: ImageHandling | None = None
    ) -> None:
        self._access = access or Access()
        self._lenient = lenient
        self._images = images
        self._stores: dict[tuple[str, str], Store] = {}
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return _files, (self._access, self._lenient, self._images)

    def read(self, path: str) -> bytes:
        """The content of a regular file or of an object.

        Raises:
            Unreadable: It is not there, cannot be read, or is empty.
            StorageError: The machine is out of memory or file handles, or a bucket as a whole cannot be read.
        """
        if not is_url(path):
            return read_file(path, self._images)
        address = _address(path)
        if address.kind == "local":
            return read_file(address.prefix, self._images)
        try:
            store, name = self._object(address)
            data = self._get(store, name)
        except NotFoundError as error:
            raise Unreadable("there is no such file", "missing") from error
        except StorageError as error:
            # One web server of thousands is no reason to stop; a bucket that cannot be read will not be for the next.
            if address.kind != "http":
                raise
            raise Unreadable(error.what, fault_kind(error)) from error
        if not data:
            raise Unreadable("the file is empty", "damaged")
        return data

    def _get(self, store: Store, name: str) -> bytes:
        """All of an object; large ones are looked at before they are read, like local files."""
        found = store.get_small(name, _LARGE)
        if not isinstance(found, int):
            return bytes(found)
        _check_large(lambda: bytes(store.get(name, 0, _START)), name, found, self._images)
        try:
            return bytes(store.get(name))
        except MemoryError:
            _explain_memory(found)
            raise

    def size(self, path: str) -> int:
        """The size of a file in bytes; 0 where there is no such file.

        Raises:
            StorageError: A bucket as a whole cannot be read.
        """
        try:
            if not is_url(path):
                return os.path.getsize(path) if os.path.isfile(path) else 0
            address = _address(path)
            if address.kind == "local":
                return self.size(address.prefix)
            store, name = self._object(address)
            return store.size(name)
        except (Unreadable, NotFoundError):
            return 0
        except StorageError:
            if not path.lower().startswith("http"):
                raise
            return 0
        except (OSError, ValueError):
            return 0

    def _object(self, address: Address) -> tuple[Store, str]:
        """The store that an object lies in, and its name there."""
        root = address.url[: len(address.url) - len(address.prefix)].rstrip("/")
        known = root, f"{address.by_fsspec}{address.secret}"
        with self._lock:
            store = self._stores.get(known)
            if store is None:
                if len(self._stores) >= _STORES:
                    self._stores.pop(next(iter(self._stores)))
                store = self._stores[known] = self._open(root, address)
        return store, unquote(address.prefix) if address.kind == "http" else address.prefix

    def _open(self, root: str, address: Address) -> Store:
        transport = "fsspec" if address.by_fsspec else self._access.transport
        place = Location(root, replace(self._access, transport=transport, secret=address.secret))
        if self._lenient and self._access.options and not takes_options(place):
            place = replace(place, access=replace(place.access, options={}))
        store = open_store(place)
        return store.with_policy(_WEB) if address.kind == "http" else store


def _files(access: Access, lenient: bool, images: ImageHandling | None) -> Files:
    return Files(access, lenient=lenient, images=images)


def _address(url: str) -> Address:
    try:
        address = parse(url)
    except UsageError as error:
        raise Unreadable(f"it is not the URL of a file: {error.what}") from error
    if not address.prefix:
        raise Unreadable("the URL names no file")
    return address


def read_file(path: str, images: ImageHandling | None = None) -> bytes:
    """The content of a regular file.

    Args:
        path: The file.
        images: See `Files`.

    Raises:
        Unreadable: It cannot be read, is not a regular file, is empty, or is too large.
        StorageError: The machine is out of memory or file handles.
    """

    def check(handle: int, length: int) -> None:
        if length > _LARGE:
            _check_large(lambda: os.pread(handle, _START, 0), path, length, images)

    try:
        data = read_whole(path, check=check)
    except NotFoundError as error:
        raise Unreadable(error.what) from None
    except ChangedError as error:
        raise Unreadable(error.what, "damaged") from None
    except AccessError as error:
        raise Unreadable(error.what, fault_kind(error)) from error
    except (OSError, ValueError) as error:
        raise _explain(error, path) from error
    except MemoryError:
        _explain_memory(os.path.getsize(path))
        raise
    if not data:
        raise Unreadable("the file is empty", "damaged")
    return data


def _check_large(start: Callable[[], bytes], path: str, length: int, images: ImageHandling | None) -> None:
    """Refuse a file that is not what its name says, or that memory has no room for, before it is read; Unreadable."""
    if images is not None and path.rpartition(".")[2].lower() in BY_SUFFIX:
        try:
            images.check_start(start(), length)
        except DecodeError as error:
            raise Unreadable(
                f"{error.what}; if it is meant as it is, damaged='keep' (--damaged keep) stores it",
                fault_kind(error),
            ) from None
    limit = memory_limit() // _COPIES
    if length > limit:
        raise Unreadable(_more_than(f"{size(limit)}, half of the memory there is: {size(length)}"), "unsupported")


def _explain_memory(length: int) -> None:
    """Refuse a large file that there is no memory for; if a small one has none, memory is short whatever it is."""
    if length > _LARGE:
        raise Unreadable(_more_than(f"there is room for now: {size(length)}"), "unsupported") from None


def _more_than(what: str) -> str:
    return f"the file has more bytes than {what}; pack it where there is more memory, or in parts"


def _explain(error: OSError | ValueError, path: str) -> Unreadable | StorageError:
    if isinstance(error, ValueError):  # a zero byte in the path
        return Unreadable(f"no file can be called so: {error}", "missing")
    if error.errno in _EXHAUSTED:
        return StorageError(f"{error.strerror}", url=path, hint="raise the limit (ulimit -n), or use fewer workers")
    if error.errno == errno.ENOENT:
        return Unreadable("there is no such file", "missing")
    return Unreadable(error.strerror or str(error), "missing")
