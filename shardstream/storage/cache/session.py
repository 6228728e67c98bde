"""``CacheSession``: what one process has open of a cache for one data set, and what it does without it."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict
from contextlib import suppress

from shardstream.errors import UsageError
from shardstream.storage.cache.blocks import BlockFile, Described
from shardstream.storage.cache.cached_dataset import CachedDataset, NoRoom
from shardstream.storage.cache.ledger import Busy
from shardstream.storage.cache.spec import Cache
from shardstream.storage.cache.tier import SAID_FULL, SAID_SMALL, Tier
from shardstream.storage.cache.tiers import more_memory, shortage, tiers_of
from shardstream.text import in_one_line, printable

_logger = logging.getLogger(__name__)
_OPEN_FILES = 65_536  # objects whose verified blocks are remembered: a few hundred bytes each
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
        self._places: list[CachedDataset] | None = None
        self._files: OrderedDict[str, BlockFile] = OrderedDict()
        self._refused: dict[str, float] = {}

    def open(self) -> list[CachedDataset]:
        """The places, the first to be filled first; empty where the cache cannot be used at all.

        Raises:
            UsageError: A folder of the cache holds something else.
        """
        if self._process != os.getpid():
            self._begin()  # leases are the parent's, locks may be held by threads that are not here
        places = self._places
        if places is None:
            with self._opening:
                if self._places is None:
                    self._places = self._open()
                places = self._places
        return places

    def close(self) -> None:
        """Close the places."""
        self._begin()

    def _open(self) -> list[CachedDataset]:
        places = []
        for tier in tiers_of(self._cache):
            try:
                place = CachedDataset.open(tier, self._fingerprint, self._url)
                if place.broken is not None:
                    self._warn(tier.root, f"the cache {tier.root} cannot be written ({_reason(place.broken)})")
                elif (short := shortage(tier)) and tier.first_to_say(SAID_SMALL):
                    _logger.warning("%s", printable(short))
                places.append(place)
            except UsageError:
                raise
            except OSError as error:
                self._warn(tier.root, f"the cache {tier.root} cannot be used ({_reason(error)})")
        return places

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
        held = self._files.get(path)
        if held is None:
            return None
        with suppress(KeyError):
            self._files.move_to_end(path)
        return held

    def look(self, described: Described) -> BlockFile | None:
        """The file of an object, opened if it is there."""
        for place in self.open():
            held = place.find(described)
            if held is not None:
                return self._keep(held)
        return None

    def admit(self, described: Described) -> BlockFile | None:
        """The file of an object, made if it is not there; ``None`` where there is no room for it."""
        held = self.look(described)
        if held is not None or self.refuses(described.path):
            return held
        full: tuple[Tier, NoRoom] | None = None
        for place in self.open():
            try:
                held = place.admit(described)
            except NoRoom as error:
                full = place.tier, error.with_traceback(None)  # which holds what the place has open
            except Busy as error:
                self._warn(place.tier.root, str(error))
            except (OSError, ValueError) as error:
                self._warn(place.tier.root, f"the cache {place.tier.root} cannot be written ({_reason(error)})")
                self._places = None  # the folder may be gone: it is made again when an object is asked for again
            else:
                if held is not None:
                    return self._keep(held)
        if full is not None and full[0].first_to_say(SAID_FULL):
            self._warn(full[0].root, _full(*full))
        self._refused[described.path] = time.monotonic() + _ASK_AGAIN
        return None

    def failed(self, held: BlockFile) -> None:
        """Blocks of a file could not be stored."""
        if held.failure is not None:
            folder = held.folder.path
            self._warn(folder, f"blocks cannot be written into {folder} ({_reason(held.failure)})")

    def mismatched(self, held: BlockFile) -> None:
        """The store has another object than it should have: said once for the data set."""
        if self._url not in _warned:
            _warned.add(self._url)
            what = (
                "%s/%s is not the object that the manifest names, and is read as it is: `shardstream verify` says more"
            )
            _logger.warning(what, self._url, held.described.path)

    def refuses(self, path: str) -> bool:
        """Whether there was no room for this object a short while ago."""
        until = self._refused.get(path)
        if until is None:
            return False
        if time.monotonic() < until:
            return True
        self._refused.pop(path, None)
        return False

    def _keep(self, held: BlockFile) -> BlockFile:
        held = self._files.setdefault(held.described.path, held)
        if len(self._files) > _OPEN_FILES:
            with suppress(KeyError):
                self._files.popitem(last=False)
        return held

    def drop(self, held: BlockFile) -> None:
        """Forget a file that is not what it was."""
        if self._files.get(held.described.path) is held:
            self._files.pop(held.described.path, None)


def _full(tier: Tier, error: NoRoom) -> str:
    if error.limited:
        return f"the cache {tier.root} has reached its size of {error.bound:,} bytes"
    what = f"the cache {tier.root} is full: its file system has no room beyond {error.bound:,} bytes of it"
    return f"{what}; {more_memory(tier.limit or 2 * error.bound)}" if tier.memory else what


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
