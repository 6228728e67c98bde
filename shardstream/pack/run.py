"""``ss.pack``: from a source to a data set."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from shardstream.errors import TooManyRejectsError, UsageError
from shardstream.faults import told_kinds
from shardstream.options import SourceOptions, option, takes_flat
from shardstream.pack.bins.sequences import PackedSequences
from shardstream.pack.encode.images import Damaged, ImageOptions
from shardstream.pack.encode.sample import Transform
from shardstream.pack.execution.engines import EngineName, OpenEngine, find_engine, run_on_engine
from shardstream.pack.execution.task import Task
from shardstream.pack.execution.workers import check_travels, check_workers, run_local, run_on, worker_count
from shardstream.pack.options import OF_PACK, PackOptions, ShardOptions
from shardstream.pack.output.places import StorageOptions
from shardstream.pack.output.receipts import ShardResult
from shardstream.pack.output.reject_limit import RejectLimit
from shardstream.pack.output.rejects import REJECTS_NAME, StoredRejects, summary_of
from shardstream.pack.output.report import PackReport, sizes_of, sum_of
from shardstream.pack.output.stats import PackStats
from shardstream.pack.plan.pack_plan import open_plan
from shardstream.pack.sources.classes import ClassesArgument
from shardstream.pack.sources.lists.labels import LabelMode
from shardstream.progress import OnProgress, ProgressEvent, ignore
from shardstream.shards.framings import Format
from shardstream.shards.manifest import Manifest
from shardstream.sizes import plural
from shardstream.storage import PathOrUrl
from shardstream.storage.base.location import flat_transport

_NOTHING = PackStats()

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The arguments of `pack` that have no part in what is written, with their defaults: who works, and where."""

    workers: int | None = None
    on: EngineName | Executor | None = option(
        None, "Pack on the cluster of Dask, Ray or Spark that is there, or on a local one.", verbs=("pack",)
    )
    overwrite: bool = option(False, "Replace another data set in DEST, once the new one is complete.")
    append: bool = option(False, "Add to the data set in DEST, as new shards and its next version.")
    progress: OnProgress | None = None
    storage: StorageOptions | None = None


@takes_flat({"executor": "on", **flat_transport("source", "dest")}, **OF_PACK)
def pack(
    source: Any,
    dest: PathOrUrl,
    *,
    key: str = "path",
    labels: LabelMode | None = None,
    fields: Mapping[str, str] | None = None,
    classes: ClassesArgument | None = None,
    transform: Transform | None = None,
    dedup: bool = False,
    damaged: Damaged = "reject",
    meta: Mapping[str, Any] | None = None,
    format: Format = "tar",
    shard_size: int | str = "256MB",
    shuffle: bool = True,
    seed: int = 0,
    overwrite: bool = False,
    append: bool = False,
    workers: int | None = None,
    on: EngineName | Executor | None = None,
    progress: OnProgress | None = None,
    reading: SourceOptions | None = None,
    bins: PackedSequences | int | None = None,
    images: ImageOptions | None = None,
    shards: ShardOptions | None = None,
    storage: StorageOptions | None = None,
) -> Manifest:
    """Pack files into shards: a list of them, a directory of class directories, files of a pattern, or samples.

    A file becomes the field named by its extension (``jpeg`` becomes ``jpg``), its label the field ``cls`` (int64).
    A sample that cannot be read is left out and listed in ``rejects.jsonl`` in ``dest``; ``report.json`` says what was
    packed. The same source, options and seed give the same bytes, whatever the workers, the place and the time.

    A run that was interrupted or killed resumes when it is called again: shards that are finished are compared with
    their checksums, and kept.

    Args:
        source: Path or URL of a list (``path<TAB>label`` a line, csv, JSON lines, Parquet, ...) or directory, a pattern
            (``data/**/*.jpg``), data of another library (``docs/foreign.md``), or samples from Python;
            ``docs/packing.md`` has them all. Paths in a list are relative to its directory.
        dest: Directory of the dataset, made where missing, URL (``s3://bucket/name``, ``docs/storage.md`` lists all),
            or a store, see `shardstream.storage.Store`. Shards are sent as they are made.
        key: ``"path"`` (relative to the directory that all files share, without extension), ``"stem"`` (file name),
            ``"line"`` (line number), or a column of the list's header. Two samples with one key are an error;
            ``"auto"`` is ``"path"``, with ``a-2`` for the second sample of a key ``a``.
        labels: ``"int"``, or ``"name"`` to number names in the order of ``classes``, without it in sorting order.
            Default: integers in lists (see ``classes``), names of class directories.
        fields: Column by field: ``{"jpg": "image_path", "cls": "label:int", "emb": "f*:float32"}``, by name, or number
            from 0 without a header. After the colon stands ``file`` (a path or URL whose content is stored) or a type;
            a type alone, ``{"x": "array:uint16:2048"}``, is that of a field of any source (``docs/packing.md``).
        classes: The classes, label i being ``classes[i]``: a list of names, path or URL of a file (one name a line, or
            JSON: a list, or numbers by name), or of a packed dataset, ``"train/"``. Names get these numbers; where
            labels are integers, it names them. Default: what the source says, or unknown.
        transform: A function of a sample, called in the workers: gets ``{"__key__": ..., "jpg": bytes, "cls": 3}`` and
            returns what is to be stored, with values as `ShardWriter.write` takes them; ``None`` leaves the sample out.
            Where it raises, the sample is rejected. The plan knows it by its name and its text.
        dedup: Leave out exact copies of files, whatever their names and labels; the first in the source stays. All is
            read twice. Of documents that go into bins, texts or tokens alone are compared.
        damaged: What becomes of damaged pictures: ``"reject"`` leaves their samples out, as rejects; ``"keep"`` stores
            such files as they are. `ImageOptions.check` says how they are found.
        meta: Anything to keep with the dataset; JSON.
        format: ``"tar"`` (readable by tar, WebDataset and others) or ``"record"``.
        shard_size: Size to aim for, as ``"256MB"`` (10⁶ bytes each), ``"256MiB"`` or a number of bytes. Shards are cut
            by count, from the mean size of 1,000 files.
        shuffle: Shuffle the samples as they are written; ``False`` keeps the order of the source.
        seed: Of the shuffle, in [0, 2**64).
        overwrite: Replace another dataset in ``dest``, once the new one is complete.
        append: Add to the dataset in ``dest``: the samples become new shards behind those there are, as its next
            version (``docs/packing.md``). Keys are not compared with those that were there.
        workers: Processes; ``None`` for one a core, 0 or 1 to work in this process.
        on: ``"dask"``, ``"ray"`` or ``"spark"``: the cluster that this process is connected to, or that the environment
            names, for ``workers`` shards at once at most; else one of ``workers`` processes is started for this run.
            Or an executor of the ``concurrent.futures`` kind whose workers see the files, in place of ``workers``.
        progress: Called with a `ProgressEvent` some ten times a second.
        reading: How the source is read, and how many samples may be rejected.
        bins: Make each sample a bin: a row of so many tokens, as ``8192``, of several documents (``docs/text.md``).
        images: What becomes of images: made addressable, smaller, stripped, checked.
        shards: What shards hold: compression, checksums, a table of the keys.
        storage: Credentials and settings of stores.

    Returns:
        The manifest. If the same plan is complete in ``dest`` already, it is only loaded.

    Raises:
        UsageError: An argument that is not allowed.
        DestinationError: ``dest`` holds another dataset, or files in the way that are not ours.
        SourceError: An empty list, no readable file, a label that is not an integer.
        TooManyRejectsError: More samples are rejected than ``reading=SourceOptions(max_rejects=...)`` allows.
        DuplicateKeyError: Two samples with one key.
        StorageError: ``dest`` cannot be written.
        MissingExtraError: A package that this store needs is not installed.

    Example:
        >>> manifest = pack("list.tsv", "out/", images=ss.ImageOptions(max_side=512))
        >>> manifest.samples
        200
    """
    given = locals()
    options = PackOptions.take(given)
    return logged(run_pack(**given, options=options), kept=damaged == "keep").manifest


def logged(report: PackReport, *, kept: bool) -> PackReport:
    """A report whose rejects stand in the log, and its damaged pictures where they were ``kept``."""
    if report.rejects:
        told = report.told_rejects("sample"), report.rejects_url, report.told_kinds
        _log.warning("%s could not be read: see %s (%s)", *told)
    if report.lost_files:
        _log.warning("files were not read whole: %s", report.told_files)
    if kept and (faults := report.stored_faults):
        _log.warning("%s stored as found (%s)", plural(sum(faults.values()), "image"), told_kinds(faults))
    return report


def run_pack(source: Any, dest: PathOrUrl, options: PackOptions, **how: Any) -> PackReport:
    """`pack`, with a report of what was done.

    Args:
        source: As of `pack`.
        dest: As of `pack`.
        options: What has a part in what is written.
        how: The fields of `RunOptions`.
    """
    started = time.monotonic()
    run = RunOptions(**how)
    _check_workers(run)
    limit = RejectLimit(options.reading.max_rejects)
    run_tasks = partial(_run_tasks, run, find_engine(run.on) if isinstance(run.on, str) else None, limit)
    tell = run.progress or ignore
    tell(_event("plan", 0))
    plan = open_plan(
        source,
        dest,
        options,
        storage=run.storage or StorageOptions(),
        run=lambda tasks: run_tasks("first pass", tasks, 0),
        overwrite=run.overwrite,
        append=run.append,
        progress=lambda event: tell(_indexing(event)),
    )
    results: list[ShardResult] = []
    limit.url = plan.destination.store.url
    if plan.manifest is not None:
        stored = StoredRejects(plan.destination.location)
        limit.begin(stored, plan.samples)
        manifest, rejects = plan.manifest, summary_of(stored)
    else:
        tell(_event("pack", plan.samples))
        try:
            limit.begin(plan.rejects, plan.samples)
            results = run_tasks("pack", plan.tasks, plan.samples)
            limit.end(sum_of(results))
        except BaseException as error:
            plan.destination.give_up()
            if isinstance(error, TooManyRejectsError):
                plan.destination.read_again()
            raise
        manifest, rejects = plan.complete(results)
    return PackReport(
        manifest,
        complete=plan.manifest is not None,
        rejects=rejects.count,
        lost_files=rejects.files,
        uncounted_files=rejects.uncounted,
        rejects_url=plan.destination.store.locate(REJECTS_NAME) if rejects.first else None,
        first_reject=rejects.first,
        notes=plan.notes,
        seconds=time.monotonic() - started,
        reasons=rejects.reasons,
        fault_kinds=rejects.kinds,
        sizes=sizes_of(results),
        tally=sum_of(results),
        kept=sum(result.kept for result in results),
        duplicates=plan.duplicates.count(b"\n"),
        binned=options.binning is not None,
    )


def _check_workers(run: RunOptions) -> None:
    check_workers(run.workers)
    if run.on is None:
        return
    if not isinstance(run.on, str):
        if not hasattr(run.on, "submit"):
            raise UsageError(f"on must be an engine or an executor, got {run.on!r}", hint='on="ray", or leave it out')
        if run.workers is not None:
            raise UsageError("workers and an executor exclude each other", hint="the executor has workers of its own")
    elif run.workers == 0:
        raise UsageError("workers=0 packs in this process, not on a cluster", hint="leave `workers` or `on` out")


def _run_tasks(
    run: RunOptions,
    engine: OpenEngine | None,
    limit: RejectLimit,
    stage: Literal["first pass", "pack"],
    tasks: Sequence[Task],
    total: int,
) -> list[ShardResult]:
    """All tasks, by whom the caller wants. What is finished stays, should this fail or be interrupted."""

    def tick(tally: PackStats, kept: int) -> None:
        (run.progress or ignore)(_event(stage, total, tally, kept))
        limit.check(tally)

    if engine is not None:
        return list(run_on_engine(engine, tasks, tick, workers=run.workers))
    workers = min(worker_count(run.workers, tasks[0].dest), len(tasks))
    executor = run.on if not isinstance(run.on, str) else None
    if executor is not None or workers > 1:
        check_travels(tasks[0])
    if executor is not None:
        return list(run_on(executor, tasks, tick))
    return list(run_local(tasks, tick, workers=workers))


def _indexing(event: ProgressEvent) -> ProgressEvent:
    """How far data of another library are indexed, with what every event of a run has."""
    detail = {"tally": _NOTHING, "kept": 0, "rejects": 0, "now": None, **event.detail}
    return event._replace(detail=detail)


def _event(stage: str, total: int, tally: PackStats = _NOTHING, kept: int = 0) -> ProgressEvent:
    """Totals of a run so far: earlier runs of the same plan are included, but for their time and bytes."""
    detail: dict[str, Any] = {"tally": tally, "kept": kept, "bytes": tally.bytes, "rejects": tally.rejects}
    detail["now"] = tally.bottleneck and tally.bottleneck[0]
    return ProgressEvent(stage, tally.done, total, "samples", detail)
