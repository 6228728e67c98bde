"""``CacheSession``: what one process has open of a cache for one data set, and what it does without it."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress

from shardstream.storage.cache.blocks import BY_SIZE, BlockFile, Described, Lost
from shardstream.storage.cache.cached_dataset import CachedDataset
from shardstream.storage.cache.ledger import Busy
from shardstream.storage.cache.spec import Cache
from shardstream.storage.cache.tier import SAID_FULL, SAID_SMALL, NoRoom, Tier, more_memory, shortage, tiers_of
from shardstream.text import in_one_line, printable

_logger = logging.getLogger(__name__)
_OPEN_FILES = 65_536  # objects whose verified blocks are remembered: a few hundred bytes each
_LOOSE_FILES = 4096  # where each value is an object: there may be millions of them
_ANY = ""  # in place of a path: all objects that are kept as they come
_ASK_AGAIN = 30.0  # seconds after which an object that had no room is tried again: another job may have ended

_warned: set[str] = set()  # folders of caches


class CacheSession:
    """The data set's folders in the tiers of a cache, opened by the process that asks first; and the files in them.

    Args:
        cache: The cache.
        fingerprint: Of the data set.
        url: Of the data set, for people who look at the cache.
    """

    def __init__(self, cache: Cache, fingerprint: str, url: str) -> None:
        self._cache = cache
        self._fingerprint = fingerprint
        self._url = url
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._opening = threading.Lock()
        self._datasets: list[CachedDataset] | None = None
        self._files: OrderedDict[str, BlockFile] = OrderedDict()
        self._refused: dict[str, float] = {}

    def open(self) -> list[CachedDataset]:
        """The folder of each tier, the first to be filled first; empty where the cache cannot be used at all.

        Raises:
            UsageError: A folder of the cache holds something else.
        """
        if self._process != os.getpid():
            self._begin()  # leases are the parent's, locks may be held by threads that are not here
        with self._opening:
            datasets = self._datasets
            if datasets is None:
                datasets = self._datasets = self._open()
        return datasets

    def close(self) -> None:
        """Close them."""
        self._begin()

    def _open(self) -> list[CachedDataset]:
        datasets = []
        for tier in tiers_of(self._cache):
            try:
                dataset = CachedDataset.open(tier, self._fingerprint, self._url)
                if dataset.broken is not None:
                    self._warn(tier.root, f"the cache {tier.root} cannot be written ({_reason(dataset.broken)})")
                elif (short := shortage(tier)) and tier.first_to_say(SAID_SMALL):
                    _logger.warning("%s", printable(short))
                datasets.append(dataset)
            except OSError as error:
                self._warn(tier.root, f"the cache {tier.root} cannot be used ({_reason(error)})")
        return datasets

    def _warn(self, root: str, what: str) -> None:
        """Say, once in a process, that the cache does less than it should."""
        if root not in _warned:
            _warned.add(root)
            url = in_one_line(self._url)
            _logger.warning("%s; what it does not hold is read from %s each time", printable(what), url)

    def find(self, path: str) -> BlockFile | None:
        """The file of an object that was opened before; at once."""
        if self._process != os.getpid():
            self._begin()
        file = self._files.get(path)
        if file is None:
            return None
        with suppress(KeyError):
            self._files.move_to_end(path)
        return file

    def look(self, described: Described) -> BlockFile | None:
        """The file of an object, opened if it is there."""
        for dataset in self.open():
            file = dataset.find(described)
            if file is not None:
                return self._keep(file)
        return None

    def admit(self, described: Described) -> BlockFile | None:
        """The file of an object, made if it is not there; ``None`` where there is no room for it."""
        file = self.look(described)
        if file is not None or self.refuses(described.path):
            return file
        full: tuple[Tier, NoRoom] | None = None
        for dataset in self.open():
            try:
                file = dataset.admit(described)
            except NoRoom as error:
                full = dataset.tier, error.with_traceback(None)  # which holds what is open
            except Busy as error:
                self._warn(dataset.tier.root, str(error))
            except (OSError, ValueError) as error:
                self._warn(dataset.tier.root, f"the cache {dataset.tier.root} cannot be written ({_reason(error)})")
                self._datasets = None  # the folder may be gone: it is made again when an object is asked for again
            else:
                if file is not None:
                    return self._keep(file)
        if full is not None and full[0].first_to_say(SAID_FULL):
            self._warn(full[0].root, _full(*full))
        self._refused[described.path] = time.monotonic() + _ASK_AGAIN
        return None

    def came(self, path: str) -> BlockFile | None:
        """The file of an object that is kept as it came, all of it there and compared; ``None`` if there is none."""
        return next((file for dataset in self.open() if (file := dataset.came(path)) is not None), None)

    def keep(self, described: Described, pieces: Sequence[memoryview], when: int) -> bool:
        """Keep an object as it came; False where there is no room for it.

        Args:
            described: The object.
            pieces: Its bytes.
            when: When it was asked for, in ns since 1970.
        """
        if self.refuses(_ANY):  # no object is too large alone, so where one has no room, others have none
            return False
        file = self.admit(described)
        if file is None:
            self._refused[_ANY] = self._refused.pop(described.path, 0.0)
            return False
        try:
            if described.blocks:
                file.store(0, pieces)
            file.confirm(when)
        except (Lost, FileNotFoundError):  # another process has a newer one
            return False
        except OSError as error:
            file.give_up(error)
            self.report(file)
            return False
        return True

    def discard(self, file: BlockFile) -> None:
        """Remove a file that is kept as it came, and is not what the store has now."""
        for dataset in self.open():
            with suppress(OSError):
                if dataset.folder is file.folder and dataset.broken is None:
                    dataset.remove(file.described)

    def report(self, file: BlockFile) -> None:
        """Say what is wrong with a file that was filled: it cannot be written, or the store has another object."""
        if file.failure is not None:
            folder = file.folder.path
            self._warn(folder, f"blocks cannot be written into {folder} ({_reason(file.failure)})")
        if file.mismatched and self._url not in _warned:  # said once for the data set
            _warned.add(self._url)
            what = (
                "%s/%s is not the object that the manifest names, and is read as it is: `shardstream verify` says more"
            )
            _logger.warning(what, self._url, file.described.path)

    def refuses(self, path: str) -> bool:
        """Whether there was no room for this object a short while ago."""
        until = self._refused.get(path)
        if until is None:
            return False
        if time.monotonic() < until:
            return True
        self._refused.pop(path, None)
        return False

    def _keep(self, file: BlockFile) -> BlockFile:
        if file.described.came:  # looked at each time that it is read
            return file
        file = self._files.setdefault(file.described.path, file)
        if len(self._files) > (_LOOSE_FILES if file.described.etag == BY_SIZE else _OPEN_FILES):
            with suppress(KeyError):
                self._files.popitem(last=False)
        return file

    def drop(self, file: BlockFile) -> None:
        """Forget a file that is not what it was."""
        if self._files.get(file.described.path) is file:
            self._files.pop(file.described.path, None)


def _full(tier: Tier, error: NoRoom) -> str:
    if error.limited:
        return f"the cache {tier.root} has reached its size of {error.bound:,} bytes; give a larger size="
    what = f"the cache {tier.root} is full: its file system has no room beyond {error.bound:,} bytes of it"
    fix = more_memory(tier.limit or 2 * error.bound) if tier.memory else "give cache= a folder of a larger disk"
    return f"{what}; {fix}"


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
