"""``ss.pack_plan``: the work of `pack` as independent tasks, for any engine that can call a function."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from shardstream.errors import FieldError, SourceError, TooManyRejectsError, UsageError
from shardstream.names.globs import split_glob
from shardstream.names.splits import SplitsError
from shardstream.options import takes_flat
from shardstream.pack.encode.files import Files
from shardstream.pack.execution.task import ShardTask
from shardstream.pack.execution.workers import run_in_processes
from shardstream.pack.options import OF_PACK, PackOptions
from shardstream.pack.output.destination import (
    DUPLICATES_NAME,
    REPORT_NAME,
    ROWS_NAME,
    Destination,
    at_once,
    check_apart,
    check_shards,
    open_destination,
    staged,
)
from shardstream.pack.output.growth import append as publish
from shardstream.pack.output.places import StorageOptions
from shardstream.pack.output.receipts import ShardResult, read_receipt, rejects_of
from shardstream.pack.output.rejects import CORRECT, REJECTS_NAME, RejectSummary, SortedRejects, lines_of, summary_of
from shardstream.pack.output.report import counted, kinds_of, report_bytes
from shardstream.pack.output.rows import write_rows
from shardstream.pack.plan.dedup import without_copies
from shardstream.pack.plan.first_pass import Run, materialize
from shardstream.pack.plan.layout import PackLayout, fingerprint_of, make_layout
from shardstream.pack.sources import Reject, Source
from shardstream.pack.sources.base import SourceReading, StreamSource
from shardstream.pack.sources.classes import names_of, place_of
from shardstream.pack.sources.declared import stored_types
from shardstream.pack.sources.opening import names_urls, open_source, roots
from shardstream.progress import OnProgress, ignore
from shardstream.shards.framings import framing_of
from shardstream.shards.growing import check_grows, grown
from shardstream.shards.heads import parse_head
from shardstream.shards.manifest import Manifest
from shardstream.sizes import plural
from shardstream.storage import Location, PathOrUrl, locate
from shardstream.storage.base.location import Access, flat_transport
from shardstream.threads import cores, each


@dataclass(frozen=True)
class PackPlan:
    """What `pack` would do, cut into tasks of a shard each. Made by `pack_plan`.

    A task runs anywhere: it can be pickled, names its files by path or URL, and leaves a receipt beside its shard, so
    that nothing has to be brought back. A task that was done already, by whomever, finds that out and does nothing.

    Attributes:
        destination: The place of the data set as it was found.
        fingerprint: Hash of all that changes a byte of the result, 32 hexadecimal digits.
        notes: What the user should know about how the source was understood, as whole sentences.
        pattern: Name of shard i is ``pattern.format(i)``.
        layout: Which sample goes where; ``None`` if the plan is complete.
        manifest: The data set, if the plan is complete in its destination already; else ``None``.
        rejects: What was found while planning that cannot be packed, read when it is asked for.
        duplicates: Exact copies that were found while planning, as ``duplicates.jsonl``.
        append: Whether the shards become the next version of the data set that is there.

    Example:
        >>> plan = pack_plan("list.tsv", "new/")
        >>> for task in plan.tasks:
        ...     _ = task.run()
        >>> plan.commit().samples
        200
    """

    destination: Destination
    fingerprint: str
    notes: tuple[str, ...]
    pattern: str
    layout: PackLayout | None = None
    manifest: Manifest | None = None
    rejects: Iterable[Reject] = ()
    duplicates: bytes = b""
    append: bool = False

    def __repr__(self) -> str:
        state = "to be packed" if self.manifest is None else "packed already"
        known = self.layout or self.manifest
        of = f"{plural(self.samples, 'sample')} in {plural(self.shards, 'shard')}" if known else "no samples"
        return f"PackPlan({self.destination.location.url!r}: {of}, {state})"

    @property
    def samples(self) -> int:
        """Number of samples of the source, unreadable ones included; those of the data set, once it is complete."""
        return self._whole.samples

    @property
    def shards(self) -> int:
        """Number of shards."""
        return self._whole.shards

    @property
    def _whole(self) -> PackLayout | Manifest:
        """What says how many there are of both: the layout, or a data set that is complete."""
        return self._layout if self.layout is not None or self.manifest is None else self.manifest

    @property
    def _layout(self) -> PackLayout:
        assert self.layout is not None
        return self.layout

    @property
    def tasks(self) -> Sequence[ShardTask]:
        """A task a shard, made when asked for; none if the plan is complete.

        A task holds what ``storage`` holds: send it over channels that may carry keys.
        """
        return () if self.manifest is not None else self._layout.tasks(self.destination.location, self.pattern)

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
        return self.manifest if self.manifest is not None else self.complete(results)[0]

    def complete(self, results: Iterable[ShardResult] | None = None) -> tuple[Manifest, RejectSummary]:
        """`commit`, of a plan that is not complete yet, with what is to be said of rejects."""
        found = sorted(self._receipts() if results is None else results, key=lambda result: result.number)
        with SortedRejects() as rejects:
            rejects.add(self.rejects)
            for result in found:
                rejects.add(rejects_of(self.destination.store, result, self.pattern.format(result.number)))
            summary = summary_of(rejects)
            if not any(result.summary.samples for result in found):
                self.destination.discard(self.pattern)
                raise self._nothing(summary.first)
            return self._publish(found, rejects, summary), summary

    def _publish(self, found: Sequence[ShardResult], rejects: Iterable[Reject], summary: RejectSummary) -> Manifest:
        made = self._manifest(found)
        old = self.destination.old if self.append else None
        manifest = self.destination.settle(made) if old is None else grown(old, made)
        if self._layout.options.shards.rows:
            self._write_rows(manifest, found)
        beside = {
            REJECTS_NAME: lines_of(rejects),
            DUPLICATES_NAME: (self.duplicates,),
            REPORT_NAME: (report_bytes(manifest, found, summary, copies=self.duplicates.count(b"\n")),),
        }
        if self.append:
            return self.destination.commit_next(manifest, lambda: publish(self.destination, made), beside)
        return self.destination.commit(manifest, beside)

    def _write_rows(self, manifest: Manifest, results: Sequence[ShardResult]) -> None:
        store = self.destination.store
        before = manifest.shards - len(results)  # of a data set that grows
        names = [(self.pattern.format(one.number), manifest.shard_name(before + one.number)) for one in results]
        with store.create(staged(manifest, ROWS_NAME)) as out:
            write_rows(
                store,
                out,
                ((*name, result) for name, result in zip(names, results, strict=True)),
                format=self._layout.options.format,
                rejects=self.rejects,
                duplicates=self.duplicates,
            )

    def _nothing(self, one: Reject | None) -> SourceError:
        if one is None:
            return SourceError(
                "the transform leaves no sample",
                url=self._layout.source.url,
                hint="return the sample's dict from transform= for those that stay; None drops one",
            )
        return SourceError(
            f"no sample can be packed ({one.path}: {one.reason})",
            url=self._layout.source.url,
            hint=CORRECT,
        )

    def _receipts(self) -> list[ShardResult]:
        store = self.destination.store
        names = [self.pattern.format(number) for number in range(self.shards)]
        requests = at_once(self.destination.location)
        found = list(each(partial(read_receipt, store), names, at_once=requests, what=f"a receipt in {store.url}"))
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
        options = self._layout.options
        manifest = Manifest.of(
            [result.summary for result in results],
            self.pattern,
            framing=options.format,
            zstd=options.shards.compressed,
            classes=_classes(self._layout.source, options),
            meta=options.meta,
            seed=options.seed if options.shuffle else None,
            plan=self.fingerprint,
        )
        bins = self._layout.stored_bins if options.binning is None else options.binning.bins
        if bins is not None:
            bins = counted(bins, results)
        return replace(manifest, kinds=kinds_of(results), bins=bins)


@takes_flat(flat_transport("source", "dest"), PackOptions.names(), **OF_PACK)
def pack_plan(
    source: Any,
    dest: PathOrUrl,
    *,
    overwrite: bool = False,
    append: bool = False,
    storage: StorageOptions | None = None,
    **options: Any,
) -> PackPlan:
    """The work of `pack` as tasks that run anywhere: on a cluster, under a scheduler, one by one.

    A source that can only be read in order is read by this call, in as many processes as there are cores.

    Args:
        source: As of `pack`.
        dest: As of `pack`. Workers elsewhere have to reach it: a URL, or a directory that all machines share.
        overwrite: As of `pack`.
        append: As of `pack`.
        storage: As of `pack`.
        options: Every other argument of `pack` that has a part in what is written: ``format``, ``seed``, ``images``...

    Raises:
        UsageError: An argument that is not allowed, or unknown.
        DestinationError, SourceError, DuplicateKeyError, StorageError: As `pack`.

    Example:
        >>> plan = pack_plan("list.tsv", "records/", format="record")
        >>> _ = [task.run() for task in plan.tasks], plan.commit()
    """
    return open_plan(
        source,
        dest,
        PackOptions.take(options),
        storage=storage or StorageOptions(),
        run=lambda tasks: list(run_in_processes(tasks, lambda _done, _kept: None, workers=cores())),
        overwrite=overwrite,
        append=append,
    )


def open_plan(
    source: Any,
    dest: PathOrUrl,
    options: PackOptions,
    *,
    storage: StorageOptions,
    run: Run,
    overwrite: bool,
    append: bool,
    progress: OnProgress = ignore,
) -> PackPlan:
    """`pack_plan`, with options that were checked.

    Args:
        source: As of `pack`.
        dest: As of `pack`.
        options: What has a part in what is written.
        storage: How what is read and what is written are reached.
        run: Runs the first pass over a source that can only be read in order.
        overwrite: As of `pack`.
        append: As of `pack`.
        progress: Told of data of another library that are indexed first.

    Raises:
        DestinationError: ``dest`` holds another data set, or files in the way that are not ours.
        SourceError: See `pack`.
    """
    if append and overwrite:
        raise UsageError("append and overwrite exclude each other", hint="leave one of them out")
    read, place, options = locate_places(source, dest, options, storage)
    destination = open_destination(place, options.shards, append=append)
    origin, files = open_origin(source, dest, read, options, storage, progress)
    rejects: Iterable[Reject] = () if isinstance(origin, StreamSource) else origin.rejects
    again = destination.again
    if isinstance(origin, StreamSource):
        if origin.fingerprint is not None:
            complete = _complete(destination, fingerprint_of(origin, options), append, overwrite)
            if complete is not None:
                return PackPlan(destination, complete.plan or "", origin.notes, "", manifest=complete)
        try:
            origin, rejects = materialize(origin, destination.location, files, run, options, again=again)
        except TooManyRejectsError:
            destination.read_again()
            raise
    check_apart(origin.root, destination)
    layout = replace(make_layout(origin, options, files, destination.store), again=again)
    complete = _complete(destination, layout.fingerprint, append, overwrite)
    if append and destination.old is not None:
        implied = origin.implied if options.transform is None else {}
        types, bins = stored_types({**implied, **origin.types, **origin.declared}), None
        if options.binning is not None:
            types, bins = {options.binning.field: options.binning.type}, options.binning.bins
        classes = _classes(origin, options)
        check_grows(destination.old, framing=options.format, fields=types, classes=classes, bins=bins)
        _check_pictures(destination.old, layout)
    pattern = destination.pattern(layout.stem, framing_of(options.format).suffix)
    duplicates = b""
    if options.dedup and complete is None:
        layout, duplicates = without_copies(layout, destination.location, run)
    grows = append and destination.old is not None
    notes = (*origin.notes, *layout.notes)
    return PackPlan(destination, layout.fingerprint, notes, pattern, layout, complete, rejects, duplicates, grows)


def locate_places(
    source: Any, dest: PathOrUrl, options: PackOptions, storage: StorageOptions
) -> tuple[Location | None, Location, PackOptions]:
    """Where a source lies, if it lies anywhere, and its destination; and the options with the names of the classes."""
    options.handling.check_packages()
    lie_in = roots(source)
    read, place = storage.locate([*lie_in, *place_of(options.classes)], dest, names_urls=names_urls(source))
    return read[0] if lie_in else None, place, replace(options, classes=names_of(options.classes, read))


def open_origin(
    source: Any,
    dest: PathOrUrl,
    place: Location | None,
    options: PackOptions,
    storage: StorageOptions,
    progress: OnProgress,
) -> tuple[Source | StreamSource, Files]:
    """The source, and what reads its files.

    Args:
        source: As of `pack`.
        dest: As of `pack`, for messages.
        place: Where the source lies.
        options: What has a part in what is written.
        storage: How what is read is reached.
        progress: Told of data of another library that are indexed first.

    Raises:
        SourceError, UsageError: See `pack`.
    """
    try:
        origin = open_source(
            source,
            key=options.key,
            labels=options.labels,
            fields=options.fields,
            classes=options.listed,
            reading=SourceReading(**vars(options.reading), progress=progress),
            access=None if place is None else place.access,
        )
    except SplitsError as error:
        raise _pack_each(error, source, dest) from None
    _check_classes(origin, options)
    inherited = storage.source is None
    given = storage.options if inherited else storage.source
    transport = "auto" if place is None else place.access.transport
    access = Access(given or {}, transport, same_host=origin.origin is not None)
    return origin, Files(access, lenient=inherited, images=options.seen_images)


def _pack_each(error: SplitsError, source: Any, dest: PathOrUrl) -> UsageError:
    """The same error with the commands that pack each split by itself."""
    above, into = _as_typed(source), _as_typed(dest)
    above, _ = split_glob(above) or (above, "")
    lines = (
        shlex.join(["shardstream", "pack", f"{above.rstrip('/')}/{place}", f"{into.rstrip('/')}/{name}"])
        for name, place in error.places.items()
    )
    classes = "reading=SourceOptions(split_names=False) (--no-split-names)"
    hint = f"pack them one by one, or give {classes} if these are names of classes:"
    return UsageError(error.what, hint="\n    ".join((hint, *lines)), **error.place)


def _as_typed(place: PathOrUrl) -> str:
    """A place as the user wrote it, without what a URL held of secrets."""
    location = locate(place)
    return os.fspath(place) if location.local and isinstance(place, str | os.PathLike) else location.url


def _check_pictures(old: Manifest, layout: PackLayout) -> None:
    """Refuse what would make bytes of a data set's pictures, unless it was declared."""
    for name in layout.types.keys() & old.fields.keys() - layout.source.declared.keys():
        stored, kind = old.fields[name], layout.types[name]
        if kind == stored and stored.is_image and not kind.is_image:
            raise FieldError(
                f"the field is {stored} in the data set, but too few of the values that are appended are pictures",
                url=layout.source.url,
                field=name,
                hint=f"fields={{{name!r}: 'image'}} rejects what is not a picture, 'bytes' makes bytes of them all",
            )


def _classes(source: Source, options: PackOptions) -> Sequence[str] | None:
    return source.classes if options.listed is None else options.listed.names


def _check_classes(source: Source | StreamSource, options: PackOptions) -> None:
    """Refuse a source that has numbers and names of its own, if these are others than those that are given."""
    if options.listed is None or source.classes is None:
        return
    given = options.listed.names
    for label, name in enumerate(source.classes):
        if given[label : label + 1] != (name,):
            other = repr(given[label]) if label < len(given) else "nothing"
            raise UsageError(
                f"label {label} means {name!r} in the source, but {other} in classes=",
                url=source.url,
                hint="its labels are numbers: leave classes= out, or give the names in its order",
            )


def _complete(destination: Destination, fingerprint: str, append: bool, overwrite: bool) -> Manifest | None:
    """The data set that is there, if this plan is in it already."""
    old = destination.old
    if old is None or overwrite:
        return None
    if append:
        store = destination.store
        plans = (
            parse_head(store.get(one.head), lambda head: head["plan"], url=store.url, name=one.head)
            for one in old.history
        )
        if fingerprint not in (old.plan, *plans):
            return None
    elif old.plan != fingerprint or old.history:  # what has grown is more than its last part
        raise destination.refuse()
    check_shards(destination.store, old)
    destination.finish(old)
    return old
