"""``ss.pack_plan``: the work of `pack` as independent tasks, for any engine that can call a function."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from shardstream.errors import SourceError, UsageError, did_you_mean
from shardstream.pack.cut import Cut, make_cut, suffix_of
from shardstream.pack.destination import Destination, check_apart, check_shards, each, open_destination
from shardstream.pack.files import Files
from shardstream.pack.options import PackOptions
from shardstream.pack.receipts import ShardResult, read_receipt
from shardstream.pack.report import kinds_of, rejects_bytes, report_bytes
from shardstream.pack.sources import Reject, open_source
from shardstream.pack.task import ShardTask
from shardstream.shards.manifest import Manifest
from shardstream.storage import Location, Transport

_AT_ONCE = 16  # receipts read from a remote store at once


@dataclass(frozen=True)
class PackPlan:
    """What `pack` would do, cut into tasks of a shard each. Made by `pack_plan`.

    A task runs anywhere: it can be pickled, names its files by path or URL, and leaves a receipt beside its shard, so
    that nothing has to be brought back. A task that was done already, by whomever, finds that out and does nothing.

    Attributes:
        destination: The place of the data set as it was found.
        cut: Which sample goes where.
        pattern: Name of shard i is ``pattern.format(i)``.
        manifest: The data set, if this plan is complete there already; else ``None``.

    Example:
        >>> plan = pack_plan("list.tsv", "new/")
        >>> for task in plan.tasks:
        ...     _ = task.run()
        >>> plan.commit().samples
        200
    """

    destination: Destination
    cut: Cut
    pattern: str
    manifest: Manifest | None

    @property
    def samples(self) -> int:
        """Number of samples of the source, unreadable ones included."""
        return self.cut.samples

    @property
    def shards(self) -> int:
        """Number of shards."""
        return self.cut.shards

    @property
    def fingerprint(self) -> str:
        """Hash of all that changes a byte of the result, 32 hexadecimal digits."""
        return self.cut.fingerprint

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know about how the source was understood, as whole sentences."""
        return self.cut.source.notes

    @property
    def tasks(self) -> Sequence[ShardTask]:
        """A task a shard, made when asked for; none if the plan is complete.

        A task holds what ``storage_options`` and ``source_options`` hold: send it over channels that may carry keys.
        """
        return () if self.manifest is not None else self.cut.tasks(self.destination.location, self.pattern)

    def commit(self, results: Iterable[ShardResult] | None = None) -> Manifest:
        """Make the data set visible, once all tasks have run.

        Args:
            results: What the tasks returned, in any order. Default: read from their receipts.

        Raises:
            UsageError: Tasks have not run yet; says how many, and names one.
            SourceError: No sample could be read.
            FieldError: Two shards hold one field with different types; names both.
            StorageError: The destination cannot be written, or a shard is not there as it was written.
        """
        if self.manifest is not None:
            return self.manifest
        found = sorted(self._receipts() if results is None else results, key=lambda result: result.number)
        rejects = sorted(reject for result in found for reject in result.rejects)
        if not any(result.summary.samples for result in found):
            self.destination.discard(self.pattern)
            raise self._nothing(rejects)
        manifest = self.destination.settle(self._manifest(found))
        return self.destination.commit(manifest, rejects_bytes(rejects), report_bytes(manifest, found))

    def _nothing(self, rejects: Sequence[Reject]) -> SourceError:
        if not rejects:
            return SourceError("the transform leaves no sample", url=self.cut.source.url, hint="look at transform=")
        one = rejects[0]
        return SourceError(
            f"no file can be read ({one.path}: {one.reason})",
            url=self.cut.source.url,
            hint="relative paths are taken from the folder of the list",
        )

    def _receipts(self) -> list[ShardResult]:
        store = self.destination.store
        names = [self.pattern.format(number) for number in range(self.shards)]
        at_once = 1 if self.destination.location.local else _AT_ONCE
        found = list(each(lambda name: read_receipt(store, name), names, at_once=at_once))
        missing = [name for name, result in zip(names, found, strict=True) if result is None]
        if missing:
            raise UsageError(
                f"{len(missing)} of {len(names)} shards are not written yet",
                url=store.url,
                shard=missing[0],
                hint="run all of plan.tasks first; those that are done already take no time",
            )
        return [result for result in found if result is not None]

    def _manifest(self, results: Sequence[ShardResult]) -> Manifest:
        options, source = self.cut.options, self.cut.source
        return Manifest.of(
            [result.summary for result in results],
            self.pattern,
            framing=options.format,
            zstd=options.zstd,
            classes=source.classes if source.classes is not None else options.classes,
            meta=options.meta,
            seed=options.seed if options.shuffle else None,
            plan=self.fingerprint,
            kinds=kinds_of(results),
        )

    def check_travels(self) -> None:
        """Refuse tasks that cannot be sent to another process, with the reason.

        Raises:
            UsageError: ``storage_options``, ``source_options`` or ``transform`` hold what cannot be pickled.
        """
        checked: dict[str, Any] = {
            "storage_options": self.destination.location,
            "source_options": self.cut.files,
            "transform": self.cut.options.transform,
        }
        for name, value in checked.items():
            try:
                pickle.dumps(value)
            except Exception as error:  # whatever an object of somebody else's raises
                hint = (
                    "define it at the top of a module, or pack in this process: workers=0"
                    if name == "transform"
                    else "give credentials by value or through the environment, or pack in this process: workers=0"
                )
                raise UsageError(
                    f"{name} cannot be sent to worker processes: {type(error).__name__}",
                    url=self.destination.location.url,
                    hint=hint,
                ) from None


def pack_plan(
    source: Any,
    dest: str | os.PathLike[str] | Location,
    *,
    storage_options: Mapping[str, Any] | None = None,
    source_options: Mapping[str, Any] | None = None,
    transport: Transport = "auto",
    overwrite: bool = False,
    **options: Any,
) -> PackPlan:
    """The work of `pack` as tasks that run anywhere: on a cluster, under a scheduler, one by one.

    Args:
        source: As of `pack`.
        dest: The same. Workers elsewhere have to reach it: a URL, or a folder that all machines share.
        storage_options: The same.
        source_options: The same.
        transport: The same.
        overwrite: The same.
        options: Every other argument of `pack` that has a part in what is written (``format``, ``seed``, ``jpeg``...).

    Raises:
        UsageError: An argument that is not allowed, or unknown.
        DestinationError, SourceError, DuplicateKeyError, StorageError: As `pack`.

    Example:
        >>> plan = pack_plan("list.tsv", "records/", format="record")
        >>> _ = [task.run() for task in plan.tasks], plan.commit()
    """
    known = [field.name for field in fields(PackOptions)]
    for name in options:
        if name not in known:
            raise UsageError(f"pack_plan takes no argument {name!r}", hint=f"{did_you_mean(name, known)}see ss.pack")
    return open_plan(
        source,
        dest,
        PackOptions(**options),
        storage_options=storage_options,
        source_options=source_options,
        transport=transport,
        overwrite=overwrite,
    )


def open_plan(
    source: Any,
    dest: str | os.PathLike[str] | Location,
    options: PackOptions,
    *,
    storage_options: Mapping[str, Any] | None = None,
    source_options: Mapping[str, Any] | None = None,
    transport: Transport = "auto",
    overwrite: bool = False,
) -> PackPlan:
    """`pack_plan`, with options that were checked.

    Raises:
        DestinationError: ``dest`` holds another data set, or files in the way that are not ours.
        SourceError: See `pack`.
    """
    options.images.check()
    destination = open_destination(dest, storage_options=storage_options, transport=transport)
    origin = open_source(source, key=options.key, labels=options.labels)
    check_apart(origin.root, destination)
    if options.classes is not None and origin.classes is not None:
        raise UsageError("classes are given by the class folders", hint="leave `classes` out")
    cut = make_cut(origin, options, Files(source_options, transport), destination.store)
    complete = None
    if destination.old is not None and not overwrite:
        if destination.old.plan != cut.fingerprint:
            raise destination.refuse()
        complete = destination.old
        check_shards(destination.store, complete)
        destination.finish(complete)
    pattern = destination.pattern(cut.stem, suffix_of(options.format))
    return PackPlan(destination, cut, pattern, complete)
