"""The output folder: what it holds before, how the new data set takes the old one's place, what is cleaned up.

Nothing that shardstream did not write is ever replaced or removed: a file that is called like a shard is opened first,
and has to end with an index of ours. The old data set stays readable until ``dataset.json`` is replaced, in one step;
only then its files are removed. A run that dies in between leaves files that no manifest names; the next run that
completes removes them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from shardstream.errors import DataError, DestinationError, NotFoundError, StorageError
from shardstream.shards.framings import framing_of
from shardstream.shards.manifest import MANIFEST_NAME, Manifest
from shardstream.storage import Store, open_store

REJECTS_NAME = "rejects.jsonl"
_SHARD = re.compile(r"shard(-[0-9a-f]{8})?(-r\d+)?-\d{6,}\.(tar|rec)")
_TABLE = re.compile(r"shards-[0-9a-f]{16}\.table")
_FRAMINGS = {"tar": "tar", "rec": "record"}


@dataclass(frozen=True)
class Destination:
    """An output folder as it was found.

    Attributes:
        store: The folder.
        old: The data set that it holds, if any.
        strays: Objects of ours that no manifest names, left by runs that died.
    """

    store: Store
    old: Manifest | None
    strays: tuple[str, ...]

    def pattern(self, stem: str, suffix: str) -> str:
        """A name pattern for new shards that the present data set does not use: ``stem-{:06d}``, or ``stem-r1-...``."""
        used = {run.pattern for run in self.old.naming} if self.old else set()
        pattern, again = f"{stem}-{{:06d}}{suffix}", 0
        while pattern in used:
            again += 1
            pattern = f"{stem}-r{again}-{{:06d}}{suffix}"
        return pattern

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
        for i in range(manifest.shards):  # equal bytes: readers notice nothing, whenever this stops
            self.store.move(manifest.shard_name(i), old.shard_name(i))
        return replace(manifest, naming=old.naming)

    def commit(self, manifest: Manifest, rejects: bytes = b"") -> Manifest:
        """Make the data set complete, then remove what it replaces.

        Args:
            manifest: What was written.
            rejects: Content of ``rejects.jsonl``; there is no such file if this is empty.

        Raises:
            StorageError: A shard is not as it was written: somebody else writes into this folder.
        """
        check_shards(self.store, manifest)
        if rejects:
            self.store.put(REJECTS_NAME, rejects)
        manifest.save(self.store)
        if not rejects and self.old is not None:
            self.store.delete(REJECTS_NAME)
        self.clean(manifest)
        return Manifest.load(self.store.url)

    def clean(self, manifest: Manifest) -> None:
        """Remove the files of the data set before, and those of runs that died, as far as ``manifest`` has no use."""
        for name in (*self.strays, *(_objects(self.old) if self.old else ())):
            if not _belongs(name, manifest):
                self.store.delete(name)

    def discard(self, names: Iterable[str]) -> None:
        """Remove shards of a run that failed, and what its workers left half-written."""
        for name in names:
            self.store.delete(name)
        self.store.sweep()


def open_destination(dest: str | os.PathLike[str]) -> Destination:
    """Look at an output folder; it need not exist.

    Raises:
        DestinationError: It is a file, or holds files in the way that are not ours.
    """
    store = open_store(dest)
    if os.path.exists(store.url) and not os.path.isdir(store.url):
        raise DestinationError("the destination is a file", url=store.url, hint="pass a folder, new or empty")
    store.sweep()
    old = _old_manifest(store)
    return Destination(store, old, tuple(_strays(store, old)))


def _old_manifest(store: Store) -> Manifest | None:
    if not store.exists(MANIFEST_NAME):
        return None
    try:
        return Manifest.load(store.url)
    except (DataError, NotFoundError) as error:
        raise DestinationError(
            f"the folder holds a {MANIFEST_NAME} that is damaged, or not ours: {error.what}",
            url=store.url,
            hint="choose another folder, or remove the file",
        ) from error


def _strays(store: Store, old: Manifest | None) -> Iterator[str]:
    for found in store.list("shard"):
        name = found.path
        if (old is not None and _belongs(name, old)) or not (_TABLE.fullmatch(name) or _SHARD.fullmatch(name)):
            continue
        if not _is_ours(store, name):
            raise DestinationError(
                f"the folder holds {name}, which is called like a shard but was not written by shardstream",
                url=store.url,
                hint="choose another folder",
            )
        yield name


def _is_ours(store: Store, name: str) -> bool:
    if _TABLE.fullmatch(name):
        return bytes(store.get(name)[:8]) == b"SSTABLE\n"
    try:
        framing_of(_FRAMINGS[name.rsplit(".", 1)[-1]]).scan(store, name, verify=False)
    except DataError:
        return False
    return True


def _objects(manifest: Manifest) -> Iterator[str]:
    yield from (manifest.shard_name(i) for i in range(manifest.shards))
    yield manifest.table_name


def _belongs(name: str, manifest: Manifest) -> bool:
    """Whether an object is part of a data set; no list of its names is made."""
    if name == manifest.table_name:
        return True
    number = re.search(r"-(\d+)\.\w+$", name)
    return number is not None and any(
        int(number[1]) < run.count and run.pattern.format(int(number[1])) == name for run in manifest.naming
    )


def check_shards(store: Store, manifest: Manifest) -> None:
    """Check that all shards are there in their full size; their bytes are not read.

    Raises:
        StorageError: One is missing, or of another size.
    """
    for i, size in enumerate(manifest.table.sizes.tolist()):
        name = manifest.shard_name(i)
        try:
            found: int | None = store.size(name)
        except NotFoundError:
            found = None
        if found != size:
            is_now = "missing" if found is None else f"of {found} bytes, not {size}"
            raise StorageError(
                f"the shard is {is_now}",
                url=store.url,
                shard=name,
                hint="does another run write into this folder? pack again with overwrite=True (--overwrite)",
            )


def check_apart(root: str | None, store: Store) -> None:
    """Refuse to write into the folder that is being packed: the next run would pack its own output.

    Raises:
        DestinationError: It is so.
    """
    if root is None:
        return
    inside, outside = os.path.realpath(store.url), os.path.realpath(root)
    if os.path.commonpath([inside, outside]) == outside:
        raise DestinationError(
            "the destination lies in the folder that is being packed",
            url=store.url,
            hint="choose a folder beside it",
        )
