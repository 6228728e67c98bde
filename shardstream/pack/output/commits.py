"""Finished shards on their way out: while the last bytes of one are sent, the next is made."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from shardstream.errors import ShardStreamError
from shardstream.storage import ObjectWriter, Store
from shardstream.threads import start
from shardstream.waits import watched

_PATIENCE_S = 4.0  # for a commit that nobody wants any more


@dataclass(frozen=True, slots=True)
class Pending:
    """A shard that is made, but not visible yet; its receipt follows it.

    Attributes:
        out: The shard.
        store: Of its data set.
        receipts: What it leaves beside it, by name, the receipt last.
    """

    out: ObjectWriter
    store: Store
    receipts: Mapping[str, bytes]

    def commit(self) -> None:
        """Make the shard visible, then its receipt."""
        self.out.commit()
        for name, data in self.receipts.items():
            self.store.put(name, data)

    def discard(self) -> None:
        """Drop the shard."""
        self.out.discard()


class Committer:
    """Commits objects in a thread, one at a time; so at most two of a process are in memory.

    A store takes its time to complete an object, and so does a disk, to flush a file.
    """

    def __init__(self) -> None:
        # Not the thread itself: CPython before 3.13 takes one for ended whose join a signal has interrupted.
        self._done: threading.Event | None = None
        self._name = ""
        self._error: BaseException | None = None

    def begin(self, out: ObjectWriter | Pending, name: str) -> None:
        """Begin to commit ``out``, of this name; the one before was waited for.

        Where the system starts no more threads, it is done at once.
        """
        assert self._done is None
        self._name, done = name, threading.Event()
        arguments = out, name, done
        try:
            start(threading.Thread(target=self._commit, args=arguments, name="shardstream-commit", daemon=True))
        except ShardStreamError:
            self._commit(*arguments)
        self._done = done

    def _commit(self, out: ObjectWriter | Pending, name: str, done: threading.Event) -> None:
        try:
            with naming(name):
                out.commit()
        except BaseException as error:
            self._error = error
        finally:
            done.set()

    def wait(self) -> None:
        """Until what was begun is visible; transfers have deadlines of their own, and a disk that hangs may come back.

        Whoever is interrupted here abandons it, which gives it the time to write its receipt.

        Raises:
            StorageError: It could not be completed.
        """
        if self._done is not None:
            with watched(f"{self._name} to be completed"):
                self._done.wait()
            self._done = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def abandon(self) -> None:
        """The run has failed: what is under way may end, but nobody waits for it for long."""
        if self._done is not None:
            self._done.wait(_PATIENCE_S)
            self._done = None
        self._error = None


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Errors that have no place yet get the shard's name."""
    try:
        yield
    except ShardStreamError as error:
        if not error.place.keys() & {"url", "shard"}:
            error.place["shard"] = name
        raise


@contextmanager
def creating(store: Store, name: str) -> Iterator[ObjectWriter]:
    """A new object, which is dropped if making it fails; its commit is left to the caller."""
    with naming(name):
        out = store.create(name)
        try:
            yield out
        except BaseException:
            out.discard()
            raise
