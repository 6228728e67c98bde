"""Objects being written to a remote store: small ones in one request, large ones in parts sent in the background."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from shardstream.errors import StorageError
from shardstream.storage.base.counters import counters
from shardstream.storage.base.store import ObjectWriter
from shardstream.storage.transfer.client import Fault, Upload
from shardstream.storage.transfer.loop import run, submit
from shardstream.waits import watched

if TYPE_CHECKING:
    from shardstream.storage.transfer.remote import RemoteStore

T = TypeVar("T")

PART = 8 << 20  # large enough that requests cost nothing beside their bytes, small enough to hold several
_WAITING = 3  # parts handed over and not yet taken; the client itself holds a few more


class RemoteWriter(ObjectWriter):
    """See `RemoteStore.create`."""

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
                self._run(self._finish, "the end of an upload", self._written)
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
                self._run(self._abort, "the end of an upload", 0)

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
                f"a part was not taken within {wait:g} s", url=self._url, hint="look at the network"
            ) from None

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]], what: str, length: int) -> T:
        return run(work, wait=self._store.policy.allowed(length), what=f"{what} to {self._url}")

    async def _send(self, part: bytes) -> None:
        async with self._turn:
            try:
                if self._upload is None:
                    self._upload = await self._store._client().upload(self._path)
                counters().add("requests")
                await self._upload.send(part)
                counters().add("sent", len(part))
            except Fault as fault:
                raise StorageError(f"sending failed: {fault}", url=self._url) from None
            except StorageError as error:
                raise error.at(url=self._url) from None

    async def _finish(self) -> None:
        assert self._upload is not None
        try:
            await self._upload.finish()
        except Fault as fault:
            raise StorageError(f"sending failed: {fault}", url=self._url) from None
        except StorageError as error:
            raise error.at(url=self._url) from None

    async def _abort(self) -> None:
        async with self._turn:  # whoever was cancelled has let go of it
            if self._upload is not None:
                with suppress(Fault, StorageError):
                    await self._upload.abort()
