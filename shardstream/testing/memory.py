"""``MemoryStore``: objects in memory, read as over a network, with faults on demand."""

from __future__ import annotations

import asyncio
import functools
import threading
import uuid
import weakref
from collections.abc import AsyncIterator, Mapping
from typing import Any

from shardstream.errors import AccessError, ChangedError, NotFoundError, StorageError
from shardstream.storage import Head, ObjectMeta, RetryPolicy
from shardstream.storage.base.store import version_number
from shardstream.storage.transfer.client import Body, Client, Fault, Upload
from shardstream.storage.transfer.remote import RemoteStore
from shardstream.testing.faults import FaultName, FaultRule, StoreRequest


class MemoryStore(RemoteStore):
    """Objects in this process's memory, behind the code that reads S3 and others: ranges, retries and checks are real.

    Give it wherever a URL can stand: to `make_dataset`, `ss.ShardDataset`, `ss.Reader`, `ss.pack`. `fail` names what
    goes wrong from then on.

    It is picklable: a pickle holds all objects and faults. Where the store itself still lives, as in its own process,
    unpickling gives it back; elsewhere, as in a worker process that was spawned, a copy that goes its own way. A fork
    likewise goes its own way. So count `requests` where no worker processes read.

    Args:
        objects: What it holds at first, bytes by path.
        patience: Seconds that requests which fail are made again, before they are an error. Stores of a network have
            180 s; tests do not.
        stall: Seconds without a byte after which a read goes on over another connection.

    Example:
        >>> from shardstream.testing import make_dataset
        >>> store = make_dataset(MemoryStore(), fields={"cls": "int64"}, samples=10)
        >>> store.fail("reset", "shard-*", times=1)
        >>> len(ss.Reader(store))
        10
    """

    def __init__(
        self, objects: Mapping[str, bytes] | None = None, *, patience: float = 10.0, stall: float = 1.0
    ) -> None:
        policy = RetryPolicy(deadline=patience, contact=patience, stall=stall, first=0.01, cap=0.1)
        self._open(Shelf(uuid.uuid4().hex, {path: (bytes(data), 1) for path, data in (objects or {}).items()}), policy)

    def _open(self, shelf: Shelf, policy: RetryPolicy) -> None:
        self._shelf = shelf
        super().__init__(f"memory-store://{shelf.name}", functools.partial(MemoryClient, shelf), policy=policy)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (), (self._shelf, self.policy)

    def __setstate__(self, state: tuple[Shelf, RetryPolicy]) -> None:
        self._open(*state)

    def with_policy(self, policy: RetryPolicy) -> MemoryStore:
        other = type(self)()
        other._open(self._shelf, policy)
        return other

    # -------------------------------------------------------------------------------------------------- around it

    def plant(self, path: str, data: bytes | bytearray | memoryview) -> None:
        """Put an object there, or another version of one, behind the back of whoever reads the store."""
        self._shelf.put(path, data)

    def dig(self, path: str) -> bytes | None:
        """The bytes of an object as they are held, without faults; ``None`` if there is none."""
        return self._shelf.objects.get(path, (None, 0))[0]

    @property
    def requests(self) -> list[StoreRequest]:
        """What was asked of it, in order; clear the list to count anew."""
        return self._shelf.requests

    # -------------------------------------------------------------------------------------------------------- faults

    def fail(
        self,
        fault: FaultName,
        path: str = "*",
        *,
        times: int | None = None,
        after: int = 0,
        seconds: float = 0.0,
    ) -> None:
        """Let something go wrong from now on.

        Args:
            fault: One of `shardstream.testing.faults`, where stands what each does and what readers make of it.
            path: The objects it happens to, as a pattern of a shell: ``"shard-*"``.
            times: How many requests; ``None``: all until `mend`. A fault that is to pass needs it.
            after: For ``"reset"`` and ``"stall"`` the bytes of the answer that come before; for ``"truncated"`` the
                bytes that are left of the object; for ``"damaged byte"`` which byte of the object, negative from its
                end.
            seconds: For ``"slow"``, how long each answer takes.

        Raises:
            UsageError: No such fault, or one that does not take these arguments.

        Example:
            >>> MemoryStore().fail("busy", "shard-*", times=2)
        """
        with self._shelf.lock:
            self._shelf.rules.append(FaultRule(fault, path, times, after, seconds))

    def mend(self) -> None:
        """Let nothing go wrong from now on."""
        with self._shelf.lock:
            self._shelf.rules.clear()

    def hits(self, fault: FaultName) -> int:
        """How many requests a fault happened to, since it was named; `mend` forgets it."""
        return sum(rule.hits for rule in self._shelf.rules if rule.fault == fault)


class Shelf:
    """What a `MemoryStore` holds: shared by its copies of one process, copied into others.

    Attributes:
        name: Its own.
        objects: Content and version by path.
        rules: What goes wrong.
        requests: What was asked.
        lock: Of all of it: a reader's loop and the caller are two threads.
    """

    def __init__(self, name: str, objects: dict[str, tuple[bytes, int]], rules: list[FaultRule] | None = None) -> None:
        self.name = name
        self.objects = objects
        self.rules = rules or []
        self.requests: list[StoreRequest] = []
        self.lock = threading.Lock()
        _SHELVES[name] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return _shelf, (self.name, dict(self.objects), list(self.rules))

    def put(self, path: str, data: bytes | bytearray | memoryview) -> None:
        """Hold an object, as its next version."""
        with self.lock:
            self.objects[path] = bytes(data), self.objects.get(path, (b"", 0))[1] + 1

    def find(self, path: str) -> tuple[bytes, str]:
        """An object and its version.

        Raises:
            NotFoundError: There is none.
        """
        if path not in self.objects:
            raise NotFoundError("no such object")
        data, version = self.objects[path]
        return data, f"v{version}"

    def happening(self, request: StoreRequest) -> dict[FaultName, FaultRule]:
        """What goes wrong with a request, which is noted."""
        with self.lock:
            self.requests.append(request)
            size = len(self.objects.get(request.path, (b"", 0))[0])
            return {rule.fault: rule for rule in self.rules if rule.happens(request, size)}


_SHELVES: weakref.WeakValueDictionary[str, Shelf] = weakref.WeakValueDictionary()


def _shelf(name: str, objects: dict[str, tuple[bytes, int]], rules: list[FaultRule]) -> Shelf:
    return _SHELVES.get(name) or Shelf(name, objects, rules)


class MemoryClient(Client):
    """Behaves as S3 does: no empty ranges, no ranges past the end. Listings come in pages of one, in no order.

    Args:
        shelf: What it reads and writes.
        suffix_ranges: See `Client`.
    """

    def __init__(self, shelf: Shelf, suffix_ranges: bool = True) -> None:
        self.shelf = shelf
        self.suffix_ranges = suffix_ranges

    async def _ask(self, request: StoreRequest) -> dict[FaultName, FaultRule]:
        """Note a request, and let what goes wrong before there is an answer go wrong."""
        faults = self.shelf.happening(request)
        if "slow" in faults:
            await asyncio.sleep(faults["slow"].seconds)
        if "denied" in faults:
            raise AccessError("access denied, as this store was told")
        if "missing" in faults:
            raise NotFoundError("no such object, as this store was told")
        if "busy" in faults:
            raise Fault("throttled", "status 503: slow down")
        if "stall" in faults and not faults["stall"].after:
            await asyncio.Event().wait()
        if "reset" in faults and not faults["reset"].after:
            raise Fault("connection", "the connection was reset")
        if "changed" in faults:
            self.shelf.put(request.path, self.shelf.find(request.path)[0])
        return faults

    def _find(self, path: str, faults: Mapping[FaultName, FaultRule]) -> tuple[bytes, str]:
        data, version = self.shelf.find(path)
        if "truncated" in faults:
            data = data[: faults["truncated"].after]
        if "damaged byte" in faults:
            damaged = bytearray(data)
            damaged[faults["damaged byte"].after] ^= 0xFF
            data = bytes(damaged)
        return data, version

    async def open(self, path: str, start: int, stop: int | None, *, etag: str | None = None) -> Body:
        faults = await self._ask(StoreRequest("open", path, start, stop))
        data, version = self._find(path, faults)
        if etag is not None and etag != version:
            raise ChangedError("the object was replaced by another one")
        if start < 0:
            start = max(0, len(data) + start)
        if start >= len(data) and (start or stop):
            raise StorageError("status 416")
        last = len(data) if stop is None else min(stop, len(data))
        return _MemoryBody(data, start, last, version, faults)

    async def head(self, path: str) -> Head:
        data, version = self._find(path, await self._ask(StoreRequest("head", path)))
        return Head(len(data), version)

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[list[ObjectMeta]]:
        await self._ask(StoreRequest("list", prefix))
        found = [
            ObjectMeta(path, len(data), version_number(f"v{version}"))
            for path, (data, version) in list(self.shelf.objects.items())
            if path.startswith(prefix) and path > after
        ]
        for meta in reversed(found):
            yield [meta]

    async def put(self, path: str, data: bytes | bytearray | memoryview) -> None:
        await self._ask(StoreRequest("put", path))
        self.shelf.put(path, data)

    async def upload(self, path: str) -> Upload:
        await self._ask(StoreRequest("upload", path))
        return MemoryUpload(self, path)

    async def delete(self, path: str) -> None:
        await self._ask(StoreRequest("delete", path))
        with self.shelf.lock:
            self.shelf.objects.pop(path, None)

    async def copy(self, path: str, target: str) -> None:
        faults = await self._ask(StoreRequest("copy", path))
        self.shelf.put(target, self._find(path, faults)[0])


class _MemoryBody(Body):
    def __init__(self, data: bytes, start: int, stop: int, version: str, faults: Mapping[FaultName, FaultRule]) -> None:
        self.head = Head(len(data), version)
        self.start, self.stop = start, stop
        self._data, self._faults = data, faults

    async def chunks(self, least: int) -> AsyncIterator[memoryview]:
        ending = self._faults.get("reset") or self._faults.get("stall")
        stop = self.stop if ending is None else min(self.stop, self.start + ending.after)
        for at in range(self.start, stop, least):
            yield memoryview(self._data)[at : min(at + least, stop)]
        if ending is not None and stop < self.stop:
            if ending.fault == "stall":
                await asyncio.Event().wait()
            raise Fault("connection", "the connection was reset")


class MemoryUpload(Upload):
    """A large object on its way into a `MemoryStore`.

    Attributes:
        parts: What was sent.
        ended: ``"finished"``, ``"aborted"``, or empty.
    """

    def __init__(self, client: MemoryClient, path: str) -> None:
        self.client, self.path = client, path
        self.parts: list[bytes] = []
        self.ended = ""

    async def send(self, data: bytes) -> None:
        self.parts.append(data)

    async def finish(self) -> None:
        self.ended = "finished"
        await self.client.put(self.path, b"".join(self.parts))

    async def abort(self) -> None:
        self.ended = "aborted"
