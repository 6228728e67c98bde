"""The place of the output: what it holds before, how the new data set takes the old one's place, what is cleaned up.

Nothing that shardstream did not write is ever replaced or removed: a file that is called like a shard is opened first,
and has to end with an index of ours. The old data set stays readable until ``dataset.json`` is replaced, in one step;
only then its files are removed. A run that dies in between leaves shards that no manifest names, with their receipts:
the same run finds them, and goes on; any other that completes removes them.

On a remote store the same holds, object by object. What takes a request an object there is asked of many at a time, or
read from one listing.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import TypeVar

from shardstream.dataset.keys.tables import put_key_tables
from shardstream.dataset.opened import DatasetAddress, OpenedDataset
from shardstream.errors import ChecksumError, DataError, DestinationError, NotFoundError, StorageError
from shardstream.pack.output.receipts import FOLDER, receipt_name
from shardstream.pack.output.rejects import REJECTS_NAME, pieces_of, put_pieces
from shardstream.pack.output.shard_options import ShardOptions
from shardstream.shards.framings import framing_of
from shardstream.shards.heads import MANIFEST_NAME, OLD_MANIFEST_NAME, TABLE_NAME, parse_head
from shardstream.shards.key_table import KEY_TABLE_NAME, TABLE_NAMES, TRAILER, SortedKeys, is_key_table, key_table_names
from shardstream.shards.manifest import Manifest
from shardstream.storage import Location, Store, open_store
from shardstream.threads import each

T = TypeVar("T")

_AGAIN = f"{FOLDER}/again"
_log = logging.getLogger(__name__)

REPORT_NAME = "report.json"
DUPLICATES_NAME = "duplicates.jsonl"
ROWS_NAME = "rows.parquet"
BESIDE = (REJECTS_NAME, DUPLICATES_NAME, ROWS_NAME, REPORT_NAME)
"""What stands beside a data set and tells of how it was packed."""
LISTS = (REJECTS_NAME, DUPLICATES_NAME)
_SHARD = re.compile(r"shard(-[0-9a-f]{8})?(-r\d+)?-\d{6,}\.(tar|rec)")
_FRAMINGS = {"tar": "tar", "rec": "record"}
_AT_ONCE = 16  # requests to a remote store: round trips overlap, and no store calls that too many


@dataclass(frozen=True)
class Destination:
    """The place of the output as it was found.

    Attributes:
        location: Where, and how it is reached.
        store: The store there.
        old: The data set that it holds, if any.
        strays: Objects of ours that no manifest names, left by runs that died.
        key_table: Whether what is written gets a table of its keys.
    """

    location: Location
    store: Store
    old: Manifest | None
    strays: tuple[str, ...]
    key_table: bool = True

    def pattern(self, stem: str, suffix: str, again: int = 0) -> str:
        """A name pattern for new shards that the present data set does not use: ``stem-{:06d}``, or ``stem-r1-...``.

        Args:
            stem: What it begins with.
            suffix: What it ends with.
            again: The first number to try; 0 is the name without one.
        """
        used = {run.pattern for run in self.old.naming} if self.old else set()
        stems = (f"{stem}-r{number}" if number else stem for number in count(again))
        patterns = (f"{one}-{{:06d}}{suffix}" for one in stems)
        return next(pattern for pattern in patterns if pattern not in used)

    def refuse(self) -> DestinationError:
        """The error for a folder that holds another data set."""
        assert self.old is not None
        return DestinationError(
            f"the folder already holds another data set, of {self.old.samples} samples",
            url=self.store.url,
            hint="choose another folder; overwrite=True (--overwrite) replaces it once the new one is complete",
        )

    def settle(self, manifest: Manifest) -> Manifest:
        """Give new shards the names of the present ones if they are the same: one plan, one result, also when redone.

        Args:
            manifest: What was written, under names of its own.
        """
        old = self.old
        if old is None or old.plan is None or old.plan != manifest.plan or not manifest.table.equals(old.table):
            return manifest
        # Equal bytes: whenever this stops, the old data set is whole.
        self._each(
            "moved", lambda i: self.store.move(manifest.shard_name(i), old.shard_name(i)), range(manifest.shards)
        )
        return replace(manifest, naming=old.naming)

    def commit(
        self,
        manifest: Manifest,
        beside: Mapping[str, Iterable[bytes]] | None = None,
        *,
        keys: SortedKeys | None = None,
    ) -> Manifest:
        """Make the data set complete, then remove what it replaces.

        Args:
            manifest: What was written.
            beside: Contents of the files that go with it (`BESIDE`), by name, in pieces. What is empty or missing is no
                file.
            keys: The keys of all samples, where they are known already; else they are read from the shards.

        Raises:
            StorageError: A shard is not as it was written: somebody else writes into this folder.
        """
        check_shards(self.store, manifest)
        for name, content in (beside or {}).items():
            put_pieces(self.store, staged(manifest, name), content)
        if self.key_table:  # by a store of its own, which remembers no shard as it was before
            put_key_tables(OpenedDataset(DatasetAddress(self.location), manifest), samples=keys)
        manifest.save(self.store)
        if self.old is not None or beside:
            self.publish(manifest)
        self.clean(manifest)
        return Manifest.load(self.location)

    def commit_next(
        self, manifest: Manifest, switch: Callable[[], Manifest], beside: Mapping[str, Iterable[bytes]]
    ) -> Manifest:
        """Make the next version of the data set visible.

        Args:
            manifest: What it will be.
            switch: Makes it visible.
            beside: As of `commit`. Lists go on behind those there are.
        """
        for name, content in beside.items():
            kept = pieces_of(self.store, name) if name in LISTS else ()
            put_pieces(self.store, staged(manifest, name), chain(kept, content))
        found = switch()
        self.finish(found)
        return found

    def publish(self, manifest: Manifest) -> None:
        """Put what goes with a data set beside it, in place of what went with the one before."""
        for name in BESIDE:
            waiting = staged(manifest, name)
            if self.store.exists(waiting):
                self.store.move(waiting, name)
            else:
                self.store.delete(name)

    def finish(self, manifest: Manifest) -> None:
        """What a run that died just after the switch had left to do."""
        if self.store.exists(staged(manifest, REPORT_NAME)):
            self.publish(manifest)
        self.clean(manifest)

    def clean(self, manifest: Manifest) -> None:
        """Remove the files of the data set before, and those of runs that died, as far as ``manifest`` has no use."""
        names = (*self.strays, *(_objects(self.old) if self.old else ()))
        self._each("removed", self.store.delete, [name for name in names if not belongs(name, manifest)])
        self.store.sweep()  # of workers that were killed, and whose tasks were run again
        remove_folder(self.location, self.store, FOLDER)

    @property
    def again(self) -> bool:
        """Whether a run ended since too many samples were rejected: the next one reads these again."""
        return self.store.exists(_AGAIN)

    def read_again(self) -> None:
        """Have the next run read again what this one rejected. Shards that lack no sample stay finished."""
        self.store.put(_AGAIN, b"max_rejects\n")

    def give_up(self) -> None:
        """A run has failed: remove what its workers left half-written, as far as the store lets us.

        Finished shards stay, with their receipts: the same run again goes on from there.
        """
        try:
            self.store.sweep()
        except StorageError as error:  # why we are here is what the user has to know
            _log.warning("what was half-written could not be removed; the next run removes it: %s", error)

    def discard(self, pattern: str) -> None:
        """Remove what has failed: shards, their receipts, and what is half-written, as far as the store lets us.

        Args:
            pattern: The name pattern of the shards, which is no other run's.
        """
        try:
            failed = list(self.of_pattern(pattern))
            self._each("removed", self.store.delete, [*map(receipt_name, failed), *failed])
            self.store.sweep()
        except StorageError as error:  # why we are here is what the user has to know
            _log.warning("shards of the failed run could not be removed; the next run removes them: %s", error)

    def of_pattern(self, pattern: str) -> Iterator[str]:
        """The names of all objects that a name pattern of shards gives; what begins like it is listed."""
        start, _, end = pattern.partition("{:06d}")
        numbered = re.compile(re.escape(start) + r"\d{6,}" + re.escape(end))
        return (one.path for one in self.store.list(start) if numbered.fullmatch(one.path))

    def _each(self, what: str, act: Callable[[T], object], items: Iterable[T]) -> None:
        for _ in each(act, items, at_once=at_once(self.location), what=f"an object of {self.store.url} to be {what}"):
            pass


def at_once(location: Location) -> int:
    """How many requests to have on their way to a place."""
    return 1 if location.local else _AT_ONCE


def remove_folder(location: Location, store: Store, folder: str) -> None:
    """Remove a folder in which a run kept what it had to remember.

    The output is complete by then: what a disk does not let go of (NFS, of a file that is open) is not an error.
    """
    if location.local:
        shutil.rmtree(os.path.join(store.url, folder), ignore_errors=True)
        return
    names = [found.path for found in store.list(f"{folder}/")]
    for _ in each(store.delete, names, at_once=_AT_ONCE, what=f"an object of {store.url} to be removed"):
        pass


def open_destination(location: Location, shards: ShardOptions, *, append: bool = False) -> Destination:
    """Look at the place of an output; it need not exist.

    Args:
        location: Where it is.
        shards: What is written there.
        append: The data set that is there is to grow: its shards are not looked at, however many they are.

    Raises:
        DestinationError: It is a file or a web server, or holds files in the way that are not ours.
        AccessError: The store refuses.
    """
    if location.address.kind == "http":
        raise DestinationError(
            "a web server takes no data sets", url=location.url, hint="write to a folder, or to s3://, az:// or gs://"
        )
    store = open_store(location)
    if location.local and os.path.exists(store.url) and not os.path.isdir(store.url):
        raise DestinationError("the destination is a file", url=store.url, hint="pass a folder, new or empty")
    store.sweep()
    old = _old_manifest(store)
    strays = () if append and old is not None else tuple(_strays(store, old, at_once(location)))
    return Destination(location, store, old, strays, shards.key_table)


def _old_manifest(store: Store) -> Manifest | None:
    if not store.exists(MANIFEST_NAME):
        return None
    try:
        return Manifest.read(store)
    except (DataError, NotFoundError) as error:
        raise DestinationError(
            f"the folder holds a {MANIFEST_NAME} that is damaged, or not ours: {error.what}",
            url=store.url,
            hint=f"choose another folder, or {error.hint if isinstance(error, ChecksumError) else 'remove the file'}",
        ) from error


def _strays(store: Store, old: Manifest | None, requests: int) -> Iterator[str]:
    names = [
        found.path
        for prefix in ("dataset-v", "shard", *(f"{of}-" for of in TABLE_NAMES))
        for found in store.list(prefix)
        if any(kind.fullmatch(found.path) for kind in (OLD_MANIFEST_NAME, KEY_TABLE_NAME, TABLE_NAME, _SHARD))
        and not (old is not None and belongs(found.path, old))
    ]
    what = f"an object of {store.url} to be looked at"
    ours = each(lambda name: is_ours(store, name), names, at_once=requests, what=what)
    for name, good in zip(names, ours, strict=True):
        if not good:
            raise DestinationError(
                f"the folder holds {name}, which is called like a shard but was not written by shardstream",
                url=store.url,
                hint="choose another folder",
            )
        yield name


def is_ours(store: Store, name: str) -> bool:
    """Whether shardstream wrote this object, by what is in it; its name is one that we give."""
    if OLD_MANIFEST_NAME.fullmatch(name):
        with suppress(DataError):
            return bool(parse_head(store.get(name), lambda head: head["fingerprint"], url=store.url, name=name))
        return False
    if TABLE_NAME.fullmatch(name):
        return bytes(store.get(name)[:8]) == b"SSTABLE\n"
    if KEY_TABLE_NAME.fullmatch(name):
        return is_key_table(store.get_tail(name, TRAILER.size)[0])
    try:
        framing_of(_FRAMINGS[name.rsplit(".", 1)[-1]]).scan(store, name, verify=False)
    except DataError:  # damaged, but one that we wrote
        return store.exists(receipt_name(name))
    return True


def staged(manifest: Manifest, name: str) -> str:
    """Where a file waits that is to stand beside this data set as soon as it is complete."""
    return f"{FOLDER}/{manifest.fingerprint}-{name}"


def _objects(manifest: Manifest) -> Iterator[str]:
    yield from (manifest.shard_name(i) for i in range(manifest.shards))
    yield manifest.table_name
    yield from key_table_names(manifest.fingerprint)
    for old in manifest.history:
        yield from (old.table, old.head, *key_table_names(old.fingerprint))


def belongs(name: str, manifest: Manifest) -> bool:
    """Whether an object is part of a data set; no list of its names is made."""
    if any(name in (old.table, old.head, *key_table_names(old.fingerprint)) for old in manifest.history):
        return True
    return name in (manifest.table_name, *key_table_names(manifest.fingerprint)) or manifest.number_of(name) is not None


def check_shards(
    store: Store, manifest: Manifest, *, again: str = "pack again with overwrite=True (--overwrite)"
) -> None:
    """Check that all shards are there in their full size; their bytes are not read.

    Args:
        store: Where they lie.
        manifest: What they are.
        again: What to do if they are not, for the message.

    Raises:
        StorageError: One is missing, or of another size.
    """
    beginning = os.path.commonprefix([run.pattern.partition("{")[0] for run in manifest.naming])  # noqa: RUF071 - of text
    there = {found.path: found.size for found in store.list(beginning)}
    for i, size in enumerate(manifest.table.sizes.tolist()):
        name = manifest.shard_name(i)
        found = there.get(name)
        if found != size:
            is_now = "missing" if found is None else f"of {found} bytes, not {size}"
            raise StorageError(
                f"the shard is {is_now}",
                url=store.url,
                shard=name,
                hint=f"does another run write into this folder? {again}",
            )


def check_apart(root: str | None, destination: Destination) -> None:
    """Refuse to write into the folder that is being packed: the next run would pack its own output.

    Raises:
        DestinationError: It is so.
    """
    if root is None or not destination.location.local:
        return
    inside, outside = os.path.realpath(destination.store.url), os.path.realpath(root)
    if os.path.commonpath([inside, outside]) == outside:
        raise DestinationError(
            "the destination lies in the folder that is being packed",
            url=destination.store.url,
            hint="choose a folder beside it",
        )
