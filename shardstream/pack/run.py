"""``ss.pack``: from a list of files to a data set."""

from __future__ import annotations

import json
import logging
import os
import pickle
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from shardstream.errors import SourceError, StorageError, UsageError
from shardstream.images.jpeg.transcode import DEFAULT_WIDTH
from shardstream.pack.destination import REJECTS_NAME, Destination, check_apart, check_shards, open_destination
from shardstream.pack.images import Jpeg
from shardstream.pack.options import PackOptions
from shardstream.pack.plan import PackPlan, make_plan, suffix_of
from shardstream.pack.sources import LabelMode, Reject, open_source
from shardstream.pack.task import ShardResult
from shardstream.pack.workers import run_here, run_in_processes, run_on
from shardstream.shards.framings import Format
from shardstream.shards.manifest import Manifest
from shardstream.storage import Location, Store, Transport

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PackProgress:
    """Totals of a run so far.

    Attributes:
        stage: ``"plan"`` while the source is read, then ``"pack"``.
        total: Samples of the source; 0 while it is being read.
        samples: Samples written.
        rejects: Samples that could not be read.
        bytes: Bytes read from files.
    """

    stage: Literal["plan", "pack"]
    total: int = 0
    samples: int = 0
    rejects: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class PackReport:
    """What a run did.

    Attributes:
        manifest: The data set.
        complete: Whether the same plan was complete already, so that nothing was written.
        rejects: Number of samples that could not be read.
        rejects_url: The list of them; ``None`` if there are none.
        first_reject: One of them, as an example.
        notes: What the user should know about how the source was understood.
        seconds: Time from the call to the end.
    """

    manifest: Manifest
    complete: bool
    rejects: int
    rejects_url: str | None
    first_reject: Reject | None
    notes: tuple[str, ...]
    seconds: float


OnProgress: TypeAlias = Callable[[PackProgress], None]


def pack(
    source: str | os.PathLike[str],
    dest: str | os.PathLike[str] | Location,
    *,
    storage_options: Mapping[str, Any] | None = None,
    transport: Transport = "auto",
    format: Format = "tar",
    shard_size: int | str = "256MB",
    seed: int = 0,
    shuffle: bool = True,
    jpeg: Jpeg = "addressable",
    segment_width: int = DEFAULT_WIDTH,
    strip: bool = False,
    max_side: int | None = None,
    quality: int | None = None,
    key: str = "path",
    labels: LabelMode | None = None,
    classes: Sequence[str] | None = None,
    meta: Mapping[str, Any] | None = None,
    zstd: Collection[str] = (),
    checksums: bool = True,
    workers: int | None = None,
    executor: Executor | None = None,
    overwrite: bool = False,
    progress: OnProgress | None = None,
) -> Manifest:
    """Pack files into shards: a list (``path<TAB>label`` a line, or csv), or a folder of class folders.

    A file becomes the field named by its extension (``jpeg`` becomes ``jpg``), its label the field ``cls`` (int64).
    Samples are shuffled as they are written. A sample that cannot be read is left out and listed in ``rejects.jsonl``
    in ``dest``. The same source, options and seed give the same bytes, whatever the workers, the place and the time.

    Args:
        source: Path of the list or folder. Paths in a list are relative to its folder.
        dest: Folder of the data set, made where missing, or URL: ``s3://bucket/name``, ``az://container/name``, and
            what else ``docs/storage.md`` lists. Shards are sent as they are made, and never lie on a local disk.
        storage_options: Credentials and settings of the store by name. Default: those of the environment.
        transport: The library that speaks to the store: ``"obstore"``, ``"fsspec"``, or ``"auto"`` for obstore where it
            can.
        format: ``"tar"`` (readable by tar, WebDataset and others) or ``"record"``.
        shard_size: Size to aim for, as ``"256MB"`` (10⁶ bytes each), ``"256MiB"`` or a number of bytes. Shards are cut
            by count, from the mean size of 1,000 files. Small shards mean many objects; of large ones there may be
            fewer than readers.
        seed: Of the shuffle, in [0, 2**64).
        shuffle: ``False`` keeps the order of the source.
        jpeg: ``"addressable"`` rewrites JPEG files, losslessly, so that a crop costs only its own decoding; any decoder
            reads them, and the original can be had back to the byte. Files for which that cannot be done (progressive,
            CMYK, ...) are kept, and counted in the report. ``"keep"`` stores all files as they are.
        segment_width: Pixels across of the parts that can be decoded alone, about: they divide a row of the image
            evenly. Narrower ones cut crops closer and take more bytes: 64 takes 2 to 3 % (``docs/jpeg.md``).
        strip: Drop EXIF (but for the orientation), colour profiles and comments of JPEG files.
        max_side: Make larger images smaller, to this many pixels of the longer side: filtered, and encoded anew;
            grey and palette PNG, which may hold labels, by nearest pixel centres. Default: as large as they are.
        quality: Of JPEG and WebP files made smaller by ``max_side``, 1 to 100. Default 90.
        key: ``"path"`` (relative to the folder that all files share, without extension), ``"stem"`` (file name),
            ``"line"`` (line number), or a column of the list's header.
        labels: ``"int"``, or ``"name"`` to number names in sorting order; ``None``: integers in lists, names of class
            folders.
        classes: Names of integer labels, label i being ``classes[i]``.
        meta: Anything to keep with the data set; JSON.
        zstd: Fields to compress one by one; ``record`` only.
        checksums: Store a checksum of each value, which readers verify.
        workers: Processes; ``None`` for one a core, 0 or 1 to work in this process.
        executor: Any executor of the ``concurrent.futures`` kind whose workers see the files, in place of ``workers``.
        overwrite: Replace another data set in ``dest``, once the new one is complete.
        progress: Called with the totals some ten times a second.

    Returns:
        The manifest. If the same plan is complete in ``dest`` already, it is only loaded.

    Raises:
        UsageError: An argument that is not allowed.
        DestinationError: ``dest`` holds another data set, or files in the way that are not ours.
        SourceError: An empty list, no readable file, a label that is no integer.
        DuplicateKeyError: Two samples with one key.
        StorageError: ``dest`` cannot be written.
        MissingExtraError: A package that this store needs is not installed.

    Example:
        >>> manifest = pack("list.tsv", "out/")
        >>> manifest.samples
        200
    """
    options = PackOptions(
        format=format,
        shard_size=shard_size,
        seed=seed,
        shuffle=shuffle,
        jpeg=jpeg,
        segment_width=segment_width,
        strip=strip,
        max_side=max_side,
        quality=quality,
        key=key,
        labels=labels,
        classes=classes,
        meta=meta or {},
        zstd=zstd,
        checksums=checksums,
    )
    report = run_pack(
        source,
        dest,
        options,
        storage_options=storage_options,
        transport=transport,
        workers=workers,
        executor=executor,
        overwrite=overwrite,
        progress=progress,
    )
    if report.rejects:
        _log.warning("%d samples could not be read: see %s", report.rejects, report.rejects_url)
    return report.manifest


def run_pack(
    source: str | os.PathLike[str],
    dest: str | os.PathLike[str] | Location,
    options: PackOptions,
    *,
    storage_options: Mapping[str, Any] | None,
    transport: Transport,
    workers: int | None,
    executor: Executor | None,
    overwrite: bool,
    progress: OnProgress | None,
) -> PackReport:
    """`pack`, with a report of what was done."""
    started = time.monotonic()
    options.images.check()
    count = _check_workers(workers, executor)
    tell = progress or _ignore
    destination = open_destination(dest, storage_options=storage_options, transport=transport)
    tell(PackProgress("plan"))
    origin = open_source(source, key=options.key, labels=options.labels)
    check_apart(origin.root, destination)
    _check_classes(options, origin.classes)
    plan = make_plan(origin, options)
    tell(PackProgress("pack", plan.samples))
    if destination.old is not None and not overwrite:
        if destination.old.plan != plan.fingerprint:
            raise destination.refuse()
        return _already_complete(destination, destination.old, plan, started)
    pattern = destination.pattern(plan.stem, suffix_of(options.format))
    results = _write(plan, destination, pattern, workers=count, executor=executor, tell=tell)
    rejects = sorted(reject for result in results for reject in result.rejects)
    written = destination.settle(_manifest(plan, pattern, results))
    manifest = destination.commit(written, _rejects_text(rejects))
    url = destination.store.locate(REJECTS_NAME) if rejects else None
    first = rejects[0] if rejects else None
    return PackReport(manifest, False, len(rejects), url, first, origin.notes, time.monotonic() - started)


def _ignore(_progress: PackProgress) -> None: ...


def _check_workers(workers: int | None, executor: Executor | None) -> int:
    if workers is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if executor is not None:
        raise UsageError("workers and executor exclude each other", hint="the executor has workers of its own")
    return _checked_workers(workers)


def _checked_workers(workers: object) -> int:
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
        raise UsageError(
            f"workers must be an integer from 0 on, got {workers!r}", hint="None is one a core, 0 none at all"
        )
    return workers


def _check_classes(options: PackOptions, found: tuple[str, ...] | None) -> None:
    if options.classes is not None and found is not None:
        raise UsageError("classes are given by the class folders", hint="leave `classes` out")


def _already_complete(destination: Destination, old: Manifest, plan: PackPlan, started: float) -> PackReport:
    store = destination.store
    check_shards(store, old)
    destination.clean(old)
    rejects = _read_rejects(store)
    return PackReport(
        old,
        True,
        len(rejects),
        store.locate(REJECTS_NAME) if rejects else None,
        rejects[0] if rejects else None,
        plan.source.notes,
        time.monotonic() - started,
    )


def _write(
    plan: PackPlan,
    destination: Destination,
    pattern: str,
    *,
    workers: int,
    executor: Executor | None,
    tell: OnProgress,
) -> list[ShardResult]:
    """All shards, in order. If that fails, none stays behind."""

    def tick(samples: int, rejects: int, size: int) -> None:
        tell(PackProgress("pack", plan.samples, samples, rejects, size))

    tasks = plan.tasks(destination.location, pattern)
    workers = min(workers, len(tasks))
    if destination.location.address.scheme == "memory":
        workers = 1  # it is the memory of one process
    if executor is not None or workers > 1:
        _check_travels(destination.location)
    try:
        if executor is not None:
            running = run_on(executor, tasks, tick)
        elif workers > 1:
            running = run_in_processes(tasks, tick, workers=workers)
        else:
            running = run_here(tasks, tick)
        results = sorted(running, key=lambda result: result.number)
        rejects = [reject for result in results for reject in result.rejects]
        if len(rejects) == plan.samples:
            one = min(rejects)
            raise SourceError(
                f"no file can be read ({one.path}: {one.reason})",
                url=plan.source.url,
                hint="relative paths are taken from the folder of the list",
            )
    except BaseException:
        destination.discard(pattern)
        raise
    return results


def _check_travels(location: Location) -> None:
    try:
        pickle.dumps(location)
    except Exception as error:  # whatever an object of somebody else's raises
        raise UsageError(
            f"storage_options cannot be sent to worker processes: {type(error).__name__}",
            url=location.url,
            hint="give credentials by value or through the environment, or pack in this process: workers=0",
        ) from None


def _manifest(plan: PackPlan, pattern: str, results: Sequence[ShardResult]) -> Manifest:
    options = plan.options
    return Manifest.of(
        [result.summary for result in results],
        pattern,
        framing=options.format,
        zstd=options.zstd,
        classes=plan.source.classes if plan.source.classes is not None else options.classes,
        meta=options.meta,
        seed=options.seed if options.shuffle else None,
        plan=plan.fingerprint,
        kinds=_kinds(results),
    )


def _kinds(results: Iterable[ShardResult]) -> dict[str, dict[str, int]]:
    """What became of JPEG files, all shards together: by field, most frequent first."""
    found: dict[str, Counter[str]] = {}
    for result in results:
        for name, counts in result.kinds.items():
            found.setdefault(name, Counter()).update(counts)
    return {
        name: dict(sorted(counts.items(), key=lambda one: (-one[1], one[0]))) for name, counts in sorted(found.items())
    }


def _rejects_text(rejects: Iterable[Reject]) -> bytes:
    lines = [
        json.dumps({"path": one.path, "line": one.line, "reason": one.reason}, ensure_ascii=False) for one in rejects
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def _read_rejects(store: Store) -> list[Reject]:
    if not store.exists(REJECTS_NAME):
        return []
    try:
        entries = [json.loads(line) for line in bytes(store.get(REJECTS_NAME)).splitlines()]
        return [Reject(entry["line"], entry["path"], entry["reason"]) for entry in entries]
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(
            "the list of rejects is damaged", url=store.locate(REJECTS_NAME), hint="pack again with --overwrite"
        ) from error
