"""``ss.export``: what is there, what is left to do, and the end of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from numpy.typing import NDArray

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.opened import OpenedDataset
from shardstream.errors import DestinationError, UsageError
from shardstream.options import takes_flat
from shardstream.pack.execution.jobs import Jobs
from shardstream.pack.execution.workers import check_workers, run_local, worker_count
from shardstream.pack.export.contract import FOLDER, STATE_NAME, Compression, Target
from shardstream.pack.export.files import FilesTarget
from shardstream.pack.export.mds import MdsTarget
from shardstream.pack.export.parquet import ParquetTarget
from shardstream.pack.export.task import Export, ExportTask
from shardstream.pack.export.webdataset import WebDatasetTarget
from shardstream.pack.output.destination import remove_folder
from shardstream.pack.output.places import StorageOptions
from shardstream.pack.output.stats import PackStats
from shardstream.progress import OnProgress, ProgressEvent
from shardstream.storage import PathOrUrl, Store, open_store
from shardstream.storage.base.location import flat_transport

ExportFormat: TypeAlias = Literal["files", "webdataset", "parquet", "mds"]
Jpeg: TypeAlias = Literal["original", "keep"]

_TARGETS: dict[ExportFormat, Callable[..., Target]] = {
    "files": FilesTarget,
    "webdataset": WebDatasetTarget,
    "parquet": ParquetTarget,
    "mds": MdsTarget,
}


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export did.

    Attributes:
        url: Where the output lies.
        samples: Samples in it.
        kept: Samples of it that an earlier run had written.
        bytes: Bytes of the values that were written.
        seconds: Time taken.
    """

    url: str
    samples: int
    kept: int
    bytes: int
    seconds: float


@takes_flat(flat_transport("url", "dest", "replicas"), storage=StorageOptions)
def export(
    url: PathOrUrl,
    dest: PathOrUrl,
    *,
    to: ExportFormat,
    version: int | None = None,
    jpeg: Jpeg = "original",
    compression: Compression | None = None,
    workers: int | None = None,
    progress: OnProgress | None = None,
    storage: StorageOptions | None = None,
) -> ExportReport:
    """Write a data set as single files, WebDataset or MDS shards, or Parquet tables, which others read without us.

    Every shard is a task of its own, and memory does not depend on its size. A run that was interrupted goes on when it
    is called again. Every value is compared with its checksum on the way.

    Args:
        url: The data set: folder, URL or store.
        dest: Folder, URL or store for the output: new, empty, or with what the same export has begun.
        to: ``"files"``: a file ``KEY.FIELD`` of each value, and ``labels.tsv`` with keys, paths and numbers, which
            `pack` takes (``key="key"``). ``"webdataset"``: a plain tar of each shard. ``"parquet"``: a table of each
            shard, images as ``{"bytes", "path"}``, as Hugging Face's ``datasets`` reads them. ``"mds"``: a shard of
            each shard, and ``index.json``, as MosaicML's ``StreamingDataset`` reads them. Names of classes go to
            ``classes.txt``, and into the metadata of tables.
        version: Of a data set that grew. Default: the newest.
        jpeg: ``"original"`` turns addressable JPEG files into what they were before, to the byte. ``"keep"`` writes
            them as they are stored; any decoder reads them too.
        compression: ``"zstd"`` compresses shards of MDS. Default: none is.
        workers: Processes; ``None`` for one a core, 0 or 1 to work in this process.
        progress: Called with a `ProgressEvent` some ten times a second.
        storage: Credentials and settings of stores, a cache and replicas, as of `repack`.

    Returns:
        What was done.

    Raises:
        UsageError: An argument that is not allowed, a field that this kind of output cannot hold, or keys that would
            be one file name where upper and lower case are not told apart.
        DestinationError: ``dest`` holds something else.
        NotFoundError: There is no data set.
        DataError: A value of it is damaged; names it.
        StorageError: A store cannot be read or written.
        MissingExtraError: pyarrow is not installed, or zstandard, or numba to restore JPEG files.

    Example:
        >>> export("out/", "files/", to="files", workers=0).samples
        200
    """
    if to not in _TARGETS:
        raise UsageError(f"to must be one of {', '.join(_TARGETS)}, got {to!r}", hint="write to='files', for example")
    if jpeg not in get_args(Jpeg):
        raise UsageError(
            f"jpeg must be 'original' or 'keep', got {jpeg!r}", hint="write jpeg='original', or leave it out"
        )
    _check_compression(to, compression)
    check_workers(workers)
    started = time.monotonic()
    (dataset,), place = (storage or StorageOptions()).open([url], dest, version=version)
    if place.address.kind == "http":
        raise DestinationError("a web server takes no files", url=place.url, hint="write to a folder or a store")
    manifest = dataset.manifest
    target = _TARGETS[to](manifest, **({} if compression is None else {"compression": compression}))
    store = open_store(place)
    identity = {"to": to, "jpeg": jpeg, "source": manifest.fingerprint, "classes": manifest.classes, "layout": 1}
    identity |= {} if compression is None else {"compression": compression}
    state = _begun(store, identity)
    if state is not None and state["complete"]:
        remove_folder(place, store, FOLDER)  # of a run that died just after it was complete
        return ExportReport(store.url, manifest.samples, manifest.samples, 0, time.monotonic() - started)
    store.sweep()  # of a run that was killed, be it before it left anything else
    target.check(store, lambda: _keys(dataset))
    if state is None:
        _write_state(store, identity, complete=False)
    shared = Export(dataset.address, manifest.fingerprint, place, target, jpeg == "original", again=state is not None)
    tasks = _Tasks(shared, manifest.table.samples)
    total, kept = _run(tasks, manifest.samples, worker_count(workers, place), progress)
    target.finish(store)
    _write_state(store, identity, complete=True)
    remove_folder(place, store, FOLDER)
    return ExportReport(store.url, manifest.samples, kept, total.bytes, time.monotonic() - started)


def _keys(dataset: OpenedDataset) -> Iterator[str]:
    rows = DatasetRows(dataset, ())
    for shard in range(dataset.manifest.shards):
        yield from rows.index(shard).keys


def _check_compression(to: ExportFormat, compression: Compression | None) -> None:
    if compression is None:
        return
    if to != "mds":
        raise UsageError("compression is for shards of MDS", hint="write to='mds', or leave compression out")
    if compression not in get_args(Compression):
        raise UsageError(f"compression must be 'zstd' or None, got {compression!r}", hint="write compression='zstd'")


def _begun(store: Store, identity: Mapping[str, Any]) -> dict[str, Any] | None:
    """What an earlier run of this export has left in the destination; ``None`` if it is empty.

    Raises:
        DestinationError: It holds something else.
    """
    if not store.exists(STATE_NAME):
        first = next(iter(store.list()), None)
        if first is not None:
            raise DestinationError(f"the destination holds {first.path}", url=store.url, hint="choose an empty place")
        return None
    try:
        state: dict[str, Any] = json.loads(bytes(store.get(STATE_NAME)))
        # Through JSON, as that has no tuples.
        if {name: state[name] for name in identity} == json.loads(json.dumps(identity)):
            return {"complete": bool(state["complete"])}
    except (ValueError, KeyError, TypeError):
        pass
    raise DestinationError(
        "the destination holds another export, or a newer version of this data set was exported there",
        url=store.url,
        hint="choose an empty place, or remove what is there",
    )


def _write_state(store: Store, identity: Mapping[str, Any], *, complete: bool) -> None:
    store.put(STATE_NAME, json.dumps({**identity, "complete": complete}, indent=2, ensure_ascii=False).encode() + b"\n")


def _run(tasks: _Tasks, samples: int, workers: int, progress: OnProgress | None) -> tuple[PackStats, int]:
    """All tasks; totals of what was done, and how many samples had been done before."""

    def tick(done: PackStats, kept: int) -> None:
        if progress is not None:
            progress(ProgressEvent("export", done.samples, samples, "samples", {"bytes": done.bytes, "kept": kept}))

    total, kept = PackStats(), 0
    for result in run_local(tasks, tick, workers=workers):
        if result.kept:
            kept += result.tally.samples
        else:
            total = total.plus(result.tally)
    return total, kept


@dataclass(frozen=True, eq=False)
class _Tasks(Jobs[ExportTask]):
    """A task a shard."""

    export: Export
    samples: NDArray[Any]

    def __len__(self) -> int:
        return len(self.samples)

    def name(self, number: int) -> str:
        return self.export.target.object_name(number)

    def make(self, number: int) -> ExportTask:
        return ExportTask(number, int(self.samples[number]), self.export)
