"""What a pack run would do, from its plan and a probe of some samples. Nothing is written to the destination."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from shardstream.errors import NotFoundError
from shardstream.pack.execution.task import ShardTask
from shardstream.pack.execution.workers import check_workers, worker_count
from shardstream.pack.options import PackOptions
from shardstream.pack.output.destination import Destination, check_apart
from shardstream.pack.output.places import StorageOptions
from shardstream.pack.output.receipts import ShardResult, rejects_of
from shardstream.pack.plan.layout import PackLayout, bins_of, make_layout, recipe_of, sampled
from shardstream.pack.plan.pack_plan import locate_places, open_origin
from shardstream.pack.sources import Item, Reject, SourcePart
from shardstream.pack.sources.base import LABEL, Source, StreamSource
from shardstream.progress import OnProgress, ignore
from shardstream.shards.manifest import Manifest
from shardstream.storage import Location, PathOrUrl, locate, open_store

PROBED = 100
_WARMING = 10  # samples before them, of which no time is taken: loops are compiled, folders are looked up
_SHOWN = 5


@dataclass(frozen=True)
class DryRun:
    """What a run of `pack` would do.

    Attributes:
        samples: Number of samples of the source, unreadable ones included; ``None`` where only reading it all would
            tell.
        shards: Number of shards; ``None`` likewise.
        bytes: Their size together, about; ``None`` likewise.
        seconds: How long it would take, about; ``None`` likewise.
        workers: By how many processes.
        fields: Types by name, as far as the samples that were looked at have them.
        classes: Names of the classes, where there are any.
        labels: The least and the largest label that was seen, where labels are numbers.
        probed: How many samples were looked at: packed, in a temporary folder.
        rejected: How many of them could not be packed.
        rejects: The first of these.
        stage: What most of the time went to: ``"reading"``, ``"preparing"`` or ``"writing"``.
        notes: What the user should know about how the source was understood.
        holds: Samples of the data set that is in the destination now; ``None`` if there is none.
        complete: Whether that is this very one, so that nothing would be done.
    """

    samples: int | None
    shards: int | None
    bytes: float | None
    seconds: float | None
    workers: int
    fields: dict[str, str]
    classes: tuple[str, ...] | None
    labels: tuple[int, int] | None
    probed: int
    rejected: int
    rejects: tuple[Reject, ...] = ()
    stage: str | None = None
    notes: tuple[str, ...] = ()
    holds: int | None = None
    complete: bool = False


def dry_run(
    source: Any,
    dest: PathOrUrl,
    options: PackOptions,
    *,
    storage: StorageOptions,
    workers: int | None = None,
    progress: OnProgress | None = None,
) -> DryRun:
    """Look at what `pack` would do.

    Data of another library may be indexed for it, as by `shardstream.index`.

    Args:
        source: As of `pack`.
        dest: As of `pack`.
        options: What has a part in what is written. Exact copies are counted as others.
        storage: How what is read and what is written are reached.
        workers: As of `pack`.
        progress: As of `pack`.

    Raises:
        UsageError, SourceError, DestinationError: As of `pack`.
    """
    check_workers(workers)
    lies, place, options = locate_places(source, dest, options, storage)
    origin, files = open_origin(source, dest, lies, options, storage, progress or ignore)
    with tempfile.TemporaryDirectory(prefix="shardstream-") as folder:
        here, layout = locate(folder), None
        warming: SourcePart
        probed: SourcePart
        if isinstance(origin, StreamSource):
            types = {**origin.implied, **origin.types}
            warming, probed = (_First(origin, count) for count in (_WARMING, PROBED))
        else:
            check_apart(origin.root, Destination(place, open_store(place), None, ()))
            layout = make_layout(origin, options, files, open_store(here))
            types, options = dict(layout.types), layout.options
            warming, probed = (sampled(origin, count) for count in (_WARMING, PROBED))

        def packed(part: SourcePart, name: str) -> ShardResult:
            task = ShardTask(
                number=0,
                name=f"{name}.{options.format}",
                dest=here,
                part=part,
                format=options.format,
                shards=options.shards,
                recipe=recipe_of(origin, options, types),
                files=files,
                bins=bins_of(options, name, 0),
            )
            return task.run()

        packed(warming, "warming")
        result = packed(probed, "probe")
        rejects = tuple(islice(rejects_of(open_store(here), result, f"probe.{options.format}"), _SHOWN))
    return _told(origin, layout, options, result, rejects, _labels(probed), place, worker_count(workers, place))


class _First(SourcePart):
    """The first samples of a source that can only be read in order."""

    def __init__(self, source: StreamSource, count: int) -> None:
        self._source, self._count = source, count

    def __iter__(self) -> Iterator[Item | Reject]:
        found = (item for stream in self._source.streams for item in stream)
        return islice(found, self._count)


def _labels(part: SourcePart) -> tuple[int, int] | None:
    found = [item.values.get(LABEL) for item in part if isinstance(item, Item)]
    numbers = [int(one) for one in found if isinstance(one, int | np.integer)]
    return (min(numbers), max(numbers)) if numbers else None


def _told(
    origin: Source | StreamSource,
    layout: PackLayout | None,
    options: PackOptions,
    result: ShardResult,
    rejects: tuple[Reject, ...],
    labels: tuple[int, int] | None,
    place: Location,
    workers: int,
) -> DryRun:
    tally = result.tally
    samples = None if layout is None else layout.samples
    share = None if samples is None or not tally.done else samples / tally.done
    old = _held(place)
    spent = tally.reading + tally.preparing + tally.writing
    at_once = max(1, min(workers, layout.shards if layout else workers))
    return DryRun(
        samples=samples,
        shards=None if layout is None else layout.shards,
        bytes=None if share is None else result.summary.bytes * share,
        seconds=None if share is None else spent * share / at_once,
        workers=at_once,
        fields={name: str(kind) for name, kind in result.summary.fields.items()},
        classes=origin.classes if options.listed is None else tuple(options.listed.names),
        labels=labels,
        probed=tally.done,
        rejected=tally.rejects,
        rejects=rejects,
        stage=tally.bottleneck and tally.bottleneck[0],
        notes=(*origin.notes, *(() if layout is None else layout.notes)),
        holds=None if old is None else old.samples,
        complete=old is not None and layout is not None and old.plan == layout.fingerprint,
    )


def _held(place: Location) -> Manifest | None:
    try:
        return Manifest.load(place)
    except NotFoundError:
        return None
