"""Stores behind a network: `RemoteStore`, over a client made where it is used.

An object's version (ETag) is remembered from the first answer on, so that ranges of one object are never of two
versions: after a replacement they raise ChangedError. Reading an object whole takes it as it is now; so do readers that
can tell by checksums of their own whether it holds the same bytes, by `renew`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import weakref
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeAlias, TypeVar

from shardstream.errors import StorageError, UsageError
from shardstream.storage.base.buffers import joined
from shardstream.storage.base.counters import counters
from shardstream.storage.base.policy import RetryPolicy
from shardstream.storage.base.sorting import SortedNames
from shardstream.storage.base.store import Head, ObjectMeta, ObjectWriter, Store, past_the_end, version_number
from shardstream.storage.transfer.client import Client, Fault, Upload, replaced
from shardstream.storage.transfer.fetch import Fetched, Known, TooLargeError, fetch
from shardstream.storage.transfer.listing import Listing
from shardstream.storage.transfer.loop import abandon, at_stop, run, submit
from shardstream.storage.transfer.retry import Pace, attempt
from shardstream.storage.transfer.stream import stream
from shardstream.waits import watched

T = TypeVar("T")
_Asked: TypeAlias = Callable[[Client], Awaitable[T]]

PART = 8 << 20  # large enough that requests cost nothing beside their bytes, small enough to hold several
_WAITING = 3  # parts handed over and not yet taken; the client itself holds a few more
_VERSIONS = 4096  # objects whose version is remembered: 0.5 MB
_GRACE = 30.0  # seconds that a waiting thread gives the loop beyond the transfer's own deadline
_EMPTY = memoryview(b"")


class RemoteStore(Store):
    """Objects below one URL, read and written over a network.

    Safe to pickle and to carry over a fork: each process makes its own client with its first request.

    Args:
        url: The root, without secrets.
        make_client: Makes the client; picklable. Called on the loop, once in each process.
        policy: When requests are made again and when they are given up.
    """

    def __init__(self, url: str, make_client: Callable[[], Client], *, policy: RetryPolicy | None = None) -> None:
        self.url = url
        self.policy = policy or RetryPolicy()
        self._make_client = make_client
        self._mine: _Mine | None = None
        self._expected: Callable[[str], int] | None = None

    def __reduce__(self) -> tuple[Callable[..., RemoteStore], tuple[object, ...]]:
        return _rebuild, (type(self), self.url, self._make_client, self.policy)

    def with_policy(self, policy: RetryPolicy) -> RemoteStore:
        """The same store, over the same connections, with other patience."""
        other = type(self)(self.url, self._make_client, policy=policy)
        other._mine, other._expected = self._own(), self._expected
        return other

    def of_versions(self, versions: Callable[[str], int]) -> RemoteStore:
        other, mine = self.with_policy(self.policy), self._own()
        other._mine, other._expected = _Mine(), versions
        other._mine.client, other._mine.pace = mine.client, mine.pace
        return other

    # ------------------------------------------------------------------------------------------------------ reading

    async def read(self, path: str, offset: int, length: int | None, *, size: int | None = None) -> list[memoryview]:
        self._check(path)
        if offset < 0 or (length or 0) < 0:
            raise past_the_end(offset, length, size or 0).at(url=self.locate(path))
        if length == 0:
            return []
        return (await self._fetch(path, offset, length, size=size)).pieces

    async def stream(self, path: str, take: Callable[[int, memoryview], Awaitable[None]], *, size: int) -> None:
        self._check(path)
        where, pace = self.locate(path), self._own().pace
        found = await stream(self._client(), path, take, size=size, where=where, policy=self.policy, pace=pace)
        self._remember(path, found)

    async def read_newer(self, path: str, *, than: int = 0) -> tuple[list[memoryview] | None, int]:
        self._check(path)
        if than and version_number((await self._head(path)).etag) == than:
            return None, than
        found = await self._fetch(path, 0, None)
        return found.pieces, version_number(found.head.etag)

    def get(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        self._check(path)
        if offset < 0 or (length is not None and length < 0):
            raise StorageError(
                f"a range of bytes cannot be negative, got offset {offset}, length {length}",
                url=self.locate(path),
                offset=offset,
            )
        if length == 0:
            if offset > (size := self.size(path)):
                raise past_the_end(offset, 0, size).at(url=self.locate(path))
            return _EMPTY
        if offset == 0 and length is None:
            return self.whole(path)[0]
        found = self._run(lambda: self._fetch(path, offset, length), f"bytes from {offset} on", path, length or 0)
        return joined(found.pieces)

    def whole(self, path: str) -> tuple[memoryview, Head]:
        self._check(path)
        self.forget(path)
        found = self._run(lambda: self._fetch(path, 0, None), "the object", path)
        return joined(found.pieces), found.head

    def get_small(self, path: str, most: int) -> memoryview | int:
        self._check(path)
        self.forget(path)
        try:
            return joined(self._run(lambda: self._fetch(path, 0, None, most=most), "the object", path).pieces)
        except TooLargeError as error:
            return error.size

    def get_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        self._check(path)
        if length <= 0:
            return _EMPTY, self.size(path)
        return self._run(lambda: self._tail(path, length), f"the last {length} bytes", path, length)

    async def _tail(self, path: str, length: int) -> tuple[memoryview, int]:
        if self._client().suffix_ranges:
            found = await self._fetch(path, -length, None)
        else:
            size = (await self._head(path)).size
            if not size:
                return _EMPTY, 0  # there is no range without a byte
            length = min(length, size)
            found = await self._fetch(path, size - length, length, size=size)
        return joined(found.pieces), found.head.size

    async def _fetch(
        self, path: str, offset: int, length: int | None, *, size: int | None = None, most: int | None = None
    ) -> Fetched:
        mine = self._own()
        version = mine.versions.get(path)
        found = await fetch(
            self._client(),
            path,
            offset,
            length,
            where=self.locate(path),
            policy=self.policy,
            pace=mine.pace,
            known=Known(size, version.etag if version else None, most),
        )
        self._remember(path, found.head)
        return found

    def _remember(self, path: str, head: Head) -> None:
        versions = self._own().versions
        if head.etag is None:
            return
        if self._expected is not None and path not in versions:
            expected = self._expected(path)
            if expected and expected != version_number(head.etag):
                raise replaced().at(url=self.locate(path))
        known = versions.setdefault(path, _Version(head.etag, renewed=False))
        if known.etag != head.etag:
            # Two first reads at once, with a replacement between them; or a read from before `renew`.
            raise replaced().at(url=self.locate(path))
        self._keep_few(path)

    def _keep_few(self, path: str) -> None:
        versions = self._own().versions
        versions.move_to_end(path)
        if len(versions) > _VERSIONS:
            versions.popitem(last=False)

    def forget(self, path: str) -> None:
        """Take the next answer's version of an object as the right one."""
        self._own().versions.pop(path, None)

    def renew(self, path: str) -> None:
        if not self.renewed(path):
            # The version itself, for reads of the old one may still be on their way.
            etag = self.head(path).etag
            if etag is not None:
                self._own().versions[path] = _Version(etag, renewed=True)
                self._keep_few(path)

    def renewed(self, path: str) -> bool:
        known = self._own().versions.get(path)
        return known is not None and known.renewed

    def head(self, path: str) -> Head:
        """Size and version of an object as it is now.

        Raises:
            NotFoundError: No such object.
        """
        self._check(path)
        return self._run(lambda: self._head(path), "the size", path)

    async def _head(self, path: str) -> Head:
        return await self._ask(lambda client: client.head(path), "asking for the size", path)

    def size(self, path: str) -> int:
        return self.head(path).size

    def meta(self, path: str) -> ObjectMeta:
        size, version = self.head(path)
        return ObjectMeta(path, size, version_number(version))

    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        listing, limit = Listing(prefix), self.policy.deadline
        with SortedNames() as found:
            while (metas := self._request(listing.page, "listing", "the list", prefix, limit=limit)) is not None:
                if listing.from_start:
                    found.clear()
                # One number of both.
                found.add(
                    (os.fsencode(meta.path), meta.version << 64 | meta.size) for meta in metas if not _is_folder(meta)
                )
            for name, number in found:
                yield ObjectMeta(os.fsdecode(name), number & (1 << 64) - 1, number >> 64)

    # ------------------------------------------------------------------------------------------------------ writing

    def create(self, path: str) -> ObjectWriter:
        """Begin an object, see `ObjectWriter`.

        Parts are sent while more is written, so at most about five of them are held. Nothing is visible before
        `commit`; parts of a writer that was killed stay invisible, and the store's own rules remove them.
        """
        self._check(path)
        return RemoteWriter(self, path)

    def put(self, path: str, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        if len(view) > PART:
            super().put(path, view)
            return
        self._check(path)
        self.forget(path)
        limit = self.policy.allowed(len(view))
        self._request(lambda client: client.put(path, view), "writing", "a write", path, limit=limit, length=len(view))
        counters().add("sent", len(view))

    def delete(self, path: str) -> None:
        self._check(path)
        self.forget(path)
        self._request(lambda client: client.delete(path), "deleting", "a deletion", path)

    def copy(self, path: str, target: str) -> None:
        self._check(path)
        self._check(target)
        self.forget(target)
        limit = self.policy.deadline
        self._request(lambda client: client.copy(path, target), "copying", "a copy", path, limit=limit)

    # ----------------------------------------------------------------------------------------------------- plumbing

    def _own(self) -> _Mine:
        mine = self._mine
        if mine is None or mine.pid != os.getpid():
            mine = self._mine = _Mine()
        return mine

    def _client(self) -> Client:
        """This process's client; on the loop only."""
        mine = self._own()
        if mine.client is None:
            mine.client = self._make_client()
            at_stop(mine.client.settle)
        return mine.client

    async def _ask(self, ask: _Asked[T], what: str, path: str, *, limit: float | None = None) -> T:
        where, pace = self.locate(path), self._own().pace
        return await attempt(
            lambda: ask(self._client()), what=what, where=where, policy=self.policy, pace=pace, limit=limit
        )

    def _request(
        self, ask: _Asked[T], what: str, answer: str, path: str, *, limit: float | None = None, length: int = 0
    ) -> T:
        """The answer to a request that is not a ranged read, waited for; see ``attempt``."""
        return self._run(lambda: self._ask(ask, what, path, limit=limit), answer, path, length)

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]], what: str, path: str, length: int = 0) -> T:
        # The transfer has its own deadline, with a better message; this one is for a loop that cannot keep its own.
        wait = self.policy.allowed(length) + _GRACE
        return run(work, wait=wait, what=f"{what} of {self.locate(path)}")

    def _check(self, path: str) -> None:
        """Names come from manifests too, and those may be hostile."""
        if not path or path.startswith("/") or "\0" in path or ".." in path.split("/"):
            raise UsageError(f"{path!r} leads out of the store", url=self.url, hint="use paths below the store's root")


class RemoteWriter(ObjectWriter):
    """See `RemoteStore.create`: a small object is sent in one request, a large one in parts in the background."""

    def __init__(self, store: RemoteStore, path: str) -> None:
        self._store = store
        self._path = path
        self._url = store.locate(path)
        self._part = bytearray()
        self._written = 0
        self._upload: Upload | None = None
        self._begun = False  # whether a part was handed over
        self._turn = asyncio.Lock()  # parts go in order
        self._sending: deque[concurrent.futures.Future[None]] = deque()
        self._open = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert self._open, "written after commit or discard"
        view = memoryview(data).cast("B")
        self._written += len(view)
        while len(view):
            room = PART - len(self._part)
            self._part += view[:room]
            view = view[room:]
            if len(self._part) == PART and len(view):
                self._hand_over()

    def tell(self) -> int:
        return self._written

    def commit(self) -> None:
        assert self._open, "committed twice"
        try:
            if not self._begun:
                self._open = False
                self._store.put(self._path, self._part)
            else:
                self._hand_over()
                while self._sending:
                    self._wait_for_part()
                self._open = False
                self._store.forget(self._path)
                self._store._run(self._finish, "the end of an upload", self._path, self._written)
        except BaseException:
            self._drop()
            raise
        size = self._store.size(self._path)
        if size != self._written:
            raise StorageError(
                f"the store holds {size} bytes of {self._written} that were written",
                url=self._url,
                hint="write it again; if this persists, something between here and the store alters requests",
            )

    def discard(self) -> None:
        if self._open:
            self._drop()

    def _drop(self) -> None:
        self._open = False
        self._part = bytearray()
        while self._sending:
            self._sending.popleft().cancel()
        if self._begun:
            # What is left is invisible; that it could not be removed is no reason to hide why we are here.
            with suppress(StorageError):
                self._store._run(self._abort, "the end of an upload", self._path)

    def _hand_over(self) -> None:
        while len(self._sending) >= _WAITING or (self._sending and self._sending[0].done()):
            self._wait_for_part()
        part, self._part = bytes(self._part), bytearray()
        if part:
            self._begun = True
            self._sending.append(submit(lambda: self._send(part)))

    def _wait_for_part(self) -> None:
        future = self._sending.popleft()
        wait = self._store.policy.allowed(PART * (_WAITING + 8))
        try:
            with watched(f"a part to be sent to {self._url}"):
                future.result(wait)
        except concurrent.futures.CancelledError:
            raise StorageError("stopped while sending a part", url=self._url) from None
        except TimeoutError:
            raise StorageError(
                f"a part was not taken within {wait:g} s", url=self._url, hint="look at the network and the store"
            ) from None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What fails in it says where; a part is not sent again."""
        try:
            yield
        except Fault as fault:
            raise StorageError(f"sending failed: {fault}", url=self._url) from None
        except StorageError as error:
            raise error.at(url=self._url) from None

    async def _send(self, part: bytes) -> None:
        async with self._turn:
            with self._explained():
                if self._upload is None:
                    self._upload = await self._store._client().upload(self._path)
                counters().add("requests")
                await self._upload.send(part)
                counters().add("sent", len(part))

    async def _finish(self) -> None:
        assert self._upload is not None
        with self._explained():
            await self._upload.finish()

    async def _abort(self) -> None:
        async with self._turn:  # whoever was cancelled has let go of it
            if self._upload is not None:
                with suppress(Fault, StorageError):
                    await self._upload.abort()


class _Version(NamedTuple):
    """The version of an object that ranges have to be of, and whether it was taken in place of an earlier one."""

    etag: str
    renewed: bool


class _Mine:
    """What belongs to one process."""

    def __init__(self) -> None:
        _all.add(self)
        self.pid = os.getpid()
        self.client: Client | None = None
        self.pace = Pace()
        self.versions: OrderedDict[str, _Version] = OrderedDict()


_all: weakref.WeakSet[_Mine] = weakref.WeakSet()


def _abandon_all() -> None:
    # A client that belongs to the parent must not be taken down here, not even by a store that is let go of.
    for mine in _all:
        abandon(mine)
    _all.clear()


os.register_at_fork(after_in_child=_abandon_all)


def _rebuild(kind: type[RemoteStore], url: str, make_client: Callable[[], Client], policy: RetryPolicy) -> RemoteStore:
    return kind(url, make_client, policy=policy)


def _is_folder(meta: ObjectMeta) -> bool:
    """Whether an object stands for a directory, as consoles of stores make them: it is empty, and called so."""
    return not meta.size and (not meta.path or meta.path.endswith("/"))
