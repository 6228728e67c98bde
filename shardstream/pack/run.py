"""``ss.pack``: from a source to a data set."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from shardstream.errors import TooManyRejectsError, UsageError
from shardstream.faults import told_kinds
from shardstream.images.jpeg.transcode import DEFAULT_WIDTH
from shardstream.pack.bins.binning import Long, Packing, TokenDtype
from shardstream.pack.bins.texts import DEFAULT_SECONDS
from shardstream.pack.encode.images import DEFAULT_MAX_PIXELS, Check, Damaged, Jpeg
from shardstream.pack.encode.sample import Transform
from shardstream.pack.execution.engines import EngineName, OpenEngine, find_engine, run_on_engine
from shardstream.pack.execution.task import Task
from shardstream.pack.execution.workers import check_travels, check_workers, run_local, run_on, worker_count
from shardstream.pack.options import PackOptions
from shardstream.pack.output.places import StorageArguments, take_options
from shardstream.pack.output.receipts import ShardResult
from shardstream.pack.output.reject_limit import RejectLimit
from shardstream.pack.output.rejects import REJECTS_NAME, StoredRejects, summary_of
from shardstream.pack.output.report import PackReport, sizes_of, sum_of
from shardstream.pack.output.stats import PackStats
from shardstream.pack.plan.pack_plan import open_plan
from shardstream.pack.sources.classes import ClassesArgument
from shardstream.pack.sources.folders import Group
from shardstream.pack.sources.lists.labels import LabelMode, Unknown
from shardstream.progress import OnProgress, ProgressEvent, ignore
from shardstream.shards.framings import Format
from shardstream.shards.manifest import Manifest
from shardstream.sizes import plural
from shardstream.storage import PathOrUrl, Transport

_NOTHING = PackStats()

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RunOptions(StorageArguments):
    """The arguments of `pack` that have no part in what is written, with their defaults: who works, and where."""

    workers: int | None = None
    on: EngineName | None = None
    executor: Executor | None = None
    overwrite: bool = False
    append: bool = False
    max_rejects: int | str | None = None
    progress: OnProgress | None = None


def pack(
    source: Any,
    dest: PathOrUrl,
    *,
    # what is packed
    key: str = "path",
    labels: LabelMode | None = None,
    fields: Mapping[str, str] | None = None,
    group: Group = "file",
    classes: ClassesArgument | None = None,
    unknown: Unknown = "error",
    split_names: bool = True,
    source_format: str | None = None,
    format_options: Mapping[str, str] | None = None,
    transform: Transform | None = None,
    dedup: bool = False,
    meta: Mapping[str, Any] | None = None,
    # order and shards
    format: Format = "tar",
    shard_size: int | str = "256MB",
    shuffle: bool = True,
    seed: int = 0,
    overwrite: bool = False,
    append: bool = False,
    max_rejects: int | str | None = None,
    # documents into bins
    bins: int | None = None,
    bin_field: str = "ids",
    bin_min: int | None = None,
    packing: Packing = "fit",
    long: Long = "split",
    pad: int | str = 0,
    token_dtype: TokenDtype | None = None,
    # text into tokens
    tokenize: Any = None,
    text_field: str = "text",
    messages: str | None = None,
    template_seconds: float = DEFAULT_SECONDS,
    bos: int | str | None = None,
    eos: int | str | None = None,
    allow_special: bool = False,
    tokenizer_id: str | None = None,
    # images
    jpeg: Jpeg = "addressable",
    max_side: int | None = None,
    quality: int | None = None,
    strip: bool = False,
    damaged: Damaged = "reject",
    check: Check = "header",
    # distribution
    workers: int | None = None,
    on: EngineName | None = None,
    executor: Executor | None = None,
    progress: OnProgress | None = None,
    # storage
    storage_options: Mapping[str, Any] | None = None,
    source_options: Mapping[str, Any] | None = None,
    dest_options: Mapping[str, Any] | None = None,
    transport: Transport = "auto",
    # expert
    segment_width: int = DEFAULT_WIDTH,
    max_pixels: int = DEFAULT_MAX_PIXELS,
    zstd: Collection[str] = (),
    checksums: bool = True,
    key_table: bool = True,
    rows: bool = False,
    allow_other_origins: bool = False,
) -> Manifest:
    """Pack files into shards: a list of them, a folder of class folders, files that match a pattern, or samples.

    A file becomes the field named by its extension (``jpeg`` becomes ``jpg``), its label the field ``cls`` (int64).
    Samples are shuffled as they are written. A sample that cannot be read is left out and listed in ``rejects.jsonl``
    in ``dest``; ``report.json`` says what was packed. The same source, options and seed give the same bytes, whatever
    the workers, the place and the time.

    A run that was interrupted or killed goes on when it is called again: shards that are finished are compared with
    their checksums, and kept.

    Args:
        source: Path or URL of a list (``path<TAB>label`` a line, csv, JSON lines, Parquet, ...) or folder, a pattern
            (``data/**/*.jpg``), data of another library (``docs/foreign.md``), or samples from Python;
            ``docs/packing.md`` has them all. Paths in a list are relative to its folder.
        dest: Folder of the data set, made where missing, or URL: ``s3://bucket/name``, ``az://container/name``, and
            what else ``docs/storage.md`` lists. Shards are sent as they are made, and never lie on a local disk. Or a
            store, see `shardstream.storage.Store`.
        key: ``"path"`` (relative to the folder that all files share, without extension), ``"stem"`` (file name),
            ``"line"`` (line number), or a column of the list's header. Two samples with one key are an error; with
            ``"auto"`` keys are as with ``"path"``, and the second sample of a key ``a`` gets ``a-2``, and so on.
        labels: ``"int"``, or ``"name"`` to number names in the order of ``classes``, without it in sorting order;
            ``None``: integers in lists (see ``classes``), names of class folders.
        fields: Column by field, for lists with more than a path and a label, and for data of other libraries: ``{"jpg":
            "image_path", "cls": "label:int", "caption": "text"}``. After a colon may stand what the column holds:
            ``file`` (the path or URL of a file whose content is stored) or a field type (``int``, ``float32``, ``str``,
            ``json``, ...). Default: ``file`` for fields called like an image, npy or safetensors file, ``int`` for
            ``cls``, otherwise the text or number that is there. Columns are called as in the header, or by number from
            0 without one; ``"f*:float32"`` makes one array of all columns that match, in their order. A type alone,
            ``{"tokens": "array:uint16:2048"}``, is that of the column called so, or, in any source, of the field: what
            samples from Python hold, or ``transform`` makes; ``"values:uint16"`` is for rows of any length. What does
            not fit is rejected.
        group: ``"stem"`` makes one sample of the files of a folder that share the part of their name before its first
            dot; the rest names the field: ``a.jpg``, ``a.mask.png``, ``a.json``. ``"file"``: each is a sample.
        classes: The classes, label i being ``classes[i]``: a list of names, path or URL of a file (one name a line, or
            JSON: a list, or numbers by name), or of a packed data set, whose classes it takes: ``"train/"``. Class
            folders and names in lists and tar files get these numbers; of labels that are integers it gives the names.
            In a list without ``labels`` the first label says which they are. Default: what the source says, or unknown.
        unknown: What becomes of folders and names that are not in ``classes``: ``"error"`` ends the run, as far as
            possible before anything is written, since a name that is not there is mostly misspelt, or the list is
            another one, and a whole class would be missing; ``"reject"`` leaves their samples out, as rejects.
        split_names: Refuse a directory that has directories of several splits, such as ``train`` and ``val``: pack them
            one by one. ``False`` takes these names for names of classes.
        source_format: Name of the format of data of another library (``docs/foreign.md``). Default: as it is
            recognised, by names and first bytes.
        format_options: Options of reading it, text by name, such as ``{"group": "key"}``.
        transform: A function of a sample, called in the workers: gets ``{"__key__": ..., "jpg": bytes, "cls": 3}`` and
            returns what is to be stored, with values as `ShardWriter.write` takes them; ``None`` leaves the sample out.
            Pixels under an image's name are encoded. Where it raises, the sample is rejected. The plan knows it by its
            name and its text: what it calls is not looked at.
        dedup: Leave out exact copies of files, whatever their names and labels: a first pass reads all samples, and of
            those with one hash the first in the source stays. Of documents that go into bins, texts or tokens alone are
            compared. ``duplicates.jsonl`` in ``dest`` lists the others.
        meta: Anything to keep with the data set; JSON.

    Order and shards:
        format: ``"tar"`` (readable by tar, WebDataset and others) or ``"record"``.
        shard_size: Size to aim for, as ``"256MB"`` (10⁶ bytes each), ``"256MiB"`` or a number of bytes. Shards are cut
            by count, from the mean size of 1,000 files. Small shards mean many objects; of large ones there may be
            fewer than readers.
        shuffle: ``False`` keeps the order of the source.
        seed: Of the shuffle, in [0, 2**64).
        overwrite: Replace another data set in ``dest``, once the new one is complete.
        append: Add to the data set in ``dest``: the samples become new shards behind those there are, which stay as
            they are, and what is published is its next version (``docs/packing.md``). Keys are not compared with those
            that were there.
        max_rejects: End the run with `TooManyRejectsError` as soon as more samples than this are rejected: a number,
            or ``"P%"`` of the samples read so far, compared from 1,000 on and at the end. Finished shards stay. The
            next run reads the rejected samples again. A file of which an unknown number of samples is lost passes any
            limit. Default: no limit.

    Documents into bins:
        bins: Make each sample a bin: a row of so many tokens, as ``8192``, of several documents, filled as well as can
            be (``docs/text.md``). Default: each sample is stored by itself.
        bin_field: The field that holds the tokens of a document: integers in a list, or an array of one dimension.
            Beside them a document has numbers, text and JSON, and may have ``loss_mask``: 1 for each token that is
            learned from, else 0.
        bin_min: Length of the shortest rows that bins may be read as without cutting a document that fits into one:
            ``bins`` divided by a power of two. Default: a quarter of ``bins``, where that is even.
        packing: ``"fit"``: no document is cut that fits into a bin. ``"concat"``: they are laid end to end, and cut
            wherever a bin ends.
        long: What becomes of documents that are longer than a bin: ``"split"`` makes full bins and a rest of them,
            ``"reject"`` leaves them out, as rejects, ``"truncate"`` stores their beginning.
        pad: The token that fills up what stays free in a bin, by its number, or its text where there is a tokenizer.
        token_dtype: ``"uint16"`` or ``"uint32"``, as tokens are stored. A token that does not fit rejects its document.
            Default: uint16 where a tokenizer has at most 65,536 tokens, else uint32.

    Text into tokens:
        tokenize: What makes tokens of texts, in the workers: a tokenizer of ``tokenizers``, ``transformers`` (a fast
            one) or ``tiktoken``, the path of a ``tokenizer.json`` or of its folder, ``"tiktoken:o200k_base"``, or a
            function of a ``str`` that returns integers. Default: documents have tokens, in ``bin_field``.
        text_field: The field that holds the text of a document. Tokens take its place.
        messages: The field that holds a conversation, a list of ``{"role": ..., "content": ...}``, in place of a text:
            it becomes one document by the chat template of ``tokenize``, a tokenizer of ``transformers``. What the
            assistant says is learned from, as the template marks it.
        template_seconds: Processor time that the chat template may take for one conversation. A conversation that takes
            longer is rejected: a template is a program, which can run forever. Default: 10.
        bos: A token that is put before each document, by its number or its text. Default: none.
        eos: One that is put behind each. Default: none.
        allow_special: Let special tokens that stand in a text become these. By default they are characters as others
            are, and a conversation with one in it is rejected.
        tokenizer_id: What a function is known by, with its version: another one is another data set, and tokens of two
            are not appended to each other. Also for tokens that come ready.

    Images:
        jpeg: ``"addressable"`` rewrites JPEG files, losslessly, so that a crop costs only its own decoding; any decoder
            reads them, and the original can be had back to the byte. Files for which that cannot be done (progressive,
            CMYK, ...) are kept, and counted in the report. ``"keep"`` stores all files as they are.
        max_side: Make larger images smaller, to this many pixels of the longer side: filtered, and encoded anew;
            grey and palette PNG, which may hold labels, by nearest pixel centres. Default: as large as they are.
        quality: Of JPEG and WebP files made smaller by ``max_side``, 1 to 100. Default 90.
        strip: Drop EXIF (but for the orientation), colour profiles and comments of JPEG files.
        damaged: What becomes of pictures that are damaged: ``"reject"`` leaves their samples out, as rejects;
            ``"keep"`` stores such files as they are, counted as ``"damaged"`` in ``kinds``.
        check: How they are found: ``"header"`` sees files that are cut short, and what is not a picture, at no cost to
            speak of; ``"decode"`` decodes every picture as well, and takes for damage what readers would refuse, or
            fill up with grey (``docs/packing.md`` says what it costs).

    Distribution:
        workers: Processes; ``None`` for one a core, 0 or 1 to work in this process.
        on: ``"dask"``, ``"ray"`` or ``"spark"``: the cluster to work on, whose workers see the files, have this package
            and reach ``dest``. One that this process is connected to, or that the environment names, is used, for
            ``workers`` shards at once at most; else one of ``workers`` processes is started for this run.
        executor: Any executor of the ``concurrent.futures`` kind whose workers see the files, in place of ``workers``.
        progress: Called with a `ProgressEvent` some ten times a second.

    Storage:
        storage_options: Credentials and settings of stores by name, for what is read and what is written; of several
            kinds of stores, for those that know them. Default: those of the environment.
        source_options: Those of the source alone, in their stead: the store that it lies in, and those of URLs in
            lists. ``{}`` for the environment's.
        dest_options: Those of ``dest`` alone, in their stead.
        transport: The library that speaks to the store: ``"obstore"``, ``"fsspec"``, or ``"auto"`` for obstore where it
            can.

    Expert:
        segment_width: Pixels across of the parts that can be decoded alone, about: they divide a row of the image
            evenly. Narrower ones cut crops closer and take more bytes: 64 takes 2 to 3 % (``docs/jpeg.md``).
        max_pixels: Images of more pixels are rejected: a file of kilobytes can claim to hold any number. The default is
            Pillow's limit, for 256 MiB in memory.
        zstd: Fields to compress one by one; ``record`` only.
        checksums: Store a checksum of each value, which readers verify.
        key_table: Write a table of the keys beside the shards, 12 bytes a sample, by which `Reader.get` and
            ``shardstream view --key`` find a sample at once.
        rows: Leave ``rows.parquet`` in ``dest``: a row for every line of the source, with line, status, key, shard,
            offset in it, path and reason. Needs pyarrow.
        allow_other_origins: Let a list that is not local name files anywhere, local ones too. By default each has to
            lie in the list's own bucket or on its own web server, redirects included: whoever wrote the list would
            otherwise decide what is read with your rights, and from which networks.

    Returns:
        The manifest. If the same plan is complete in ``dest`` already, it is only loaded.

    Raises:
        UsageError: An argument that is not allowed.
        DestinationError: ``dest`` holds another data set, or files in the way that are not ours.
        SourceError: An empty list, no readable file, a label that is not an integer.
        TooManyRejectsError: More samples are rejected than ``max_rejects`` allows.
        DuplicateKeyError: Two samples with one key.
        StorageError: ``dest`` cannot be written.
        MissingExtraError: A package that this store needs is not installed.

    Example:
        >>> manifest = pack("list.tsv", "out/")
        >>> manifest.samples
        200
    """
    given = {**locals(), "meta": meta or {}}
    options = take_options(PackOptions, given)
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
        dest: The same.
        options: What has a part in what is written.
        how: The fields of `RunOptions`.
    """
    started = time.monotonic()
    run = RunOptions(**how)
    _check_workers(run)
    limit = RejectLimit(run.max_rejects)
    run_tasks = partial(_run_tasks, run, None if run.on is None else find_engine(run.on), limit)
    tell = run.progress or ignore
    tell(_event("plan", 0))
    plan = open_plan(
        source,
        dest,
        options,
        storage=run,
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
    if run.executor is not None and (run.workers is not None or run.on is not None):
        other = "on" if run.workers is None else "workers"
        raise UsageError(f"{other} and executor exclude each other", hint="the executor has workers of its own")
    if run.workers == 0 and run.on is not None:
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
    if run.executor is not None or workers > 1:
        check_travels(tasks[0])
    if run.executor is not None:
        return list(run_on(run.executor, tasks, tick))
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
