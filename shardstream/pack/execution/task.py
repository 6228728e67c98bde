"""One shard is one task: independent of all others, picklable, the same bytes wherever it runs, never done twice."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

from shardstream.errors import FieldError, UsageError
from shardstream.faults import fault_kind
from shardstream.pack.bins.counts import StoredBinCounter
from shardstream.pack.bins.documents import Document, DocumentEncoder
from shardstream.pack.bins.windows import BinWriter, ShardBins
from shardstream.pack.encode.files import Files, Unreadable
from shardstream.pack.encode.reading import Contents, read_all
from shardstream.pack.encode.sample import Loaded, SampleEncoder
from shardstream.pack.execution.isolated import finish
from shardstream.pack.execution.jobs import PackJob, run_job, store_at
from shardstream.pack.execution.loading import batches, rejecting
from shardstream.pack.output.commits import Pending, creating
from shardstream.pack.output.receipts import ShardResult, finished, receipt_name, reject_entry, to_bytes
from shardstream.pack.output.rows import lines_bytes, lines_name
from shardstream.pack.output.shard_options import ShardOptions
from shardstream.pack.output.stats import Counts, PackStats, Report, Stopwatch, TaskStats
from shardstream.pack.sources import Item, Reject, SourcePart
from shardstream.shards.bins import Bins
from shardstream.shards.framings import Format
from shardstream.shards.writing import OneShard
from shardstream.storage import Location
from shardstream.text import valid_unicode

_REPORT_S = 0.05  # adding it up costs as much as the header of a sample


class Task(PackJob[ShardResult], Protocol):
    """What makes an object of a pack run: it leaves a receipt once that is whole, and is never done twice."""

    @property
    def number(self) -> int:
        """Which of the tasks of a run."""

    @property
    def part(self) -> SourcePart:
        """The samples that it reads."""

    @property
    def files(self) -> Files:
        """Reads their files."""

    def run(self) -> ShardResult:
        """Do it, or find that it is done."""


@dataclass(frozen=True, slots=True)
class ShardTask:
    """Write one shard.

    Attributes:
        number: Which shard.
        name: Its object name.
        dest: Place of the data set. It holds credentials, so tasks travel through pipes, never in a command line.
        part: Its samples, in stored order.
        format: Framing.
        shards: What it holds; with ``rows``, the numbers of the lines that it was made of are left beside it.
        recipe: How a sample becomes what is stored, or a document that goes into bins.
        files: Reads the files of samples.
        bins: How documents become bins; ``None`` where samples are stored.
        stored_bins: Of samples that are bins and stay as they are, what their data set says of them.
        again: Whether a finished shard is made again if it lacks samples, which may be readable by now.
    """

    number: int
    name: str
    dest: Location
    part: SourcePart
    format: Format
    shards: ShardOptions
    recipe: SampleEncoder | DocumentEncoder
    files: Files
    bins: ShardBins | None = None
    stored_bins: Bins | None = None
    again: bool = False

    def run(self) -> ShardResult:
        """Read the samples and write the shard, atomically; or find that it is written already.

        Running a task again, elsewhere, or twice at once does no harm: the shard has the same bytes.

        Raises:
            SourceError: The source changed since it was planned.
            StorageError: The destination cannot be written, or a store of the source cannot be read.
        """
        return run_job(self)

    def finished(self) -> ShardResult | None:
        """What an earlier run wrote, where it is whole and right."""
        store = store_at(self.dest)
        if self.shards.rows and not store.exists(lines_name(self.name)):
            return None
        found = finished(store, self.name, self.format)
        if found is not None and self.again and found.tally.rejects:
            return None
        if found is not None and found.bins is None and self.stored_bins is not None:
            return None  # an earlier version did not count what is in them
        return found

    def write(self, report: Report | None = None) -> tuple[ShardResult, Pending]:
        """Make the shard; its commit is left to the caller."""
        store = store_at(self.dest)
        with creating(store, self.name) as out:
            with closing(self.shards.begin(self.format, out)) as shard:
                filling = _Filling(self, shard, TaskStats(report))
                filling.fill()
                result = filling.result()
            receipts = {receipt_name(self.name): to_bytes(result, filling.rejects)}
            if self.shards.rows:
                receipts = {lines_name(self.name): filling.lines()} | receipts
            return result, Pending(out, store, receipts)


class _Filling:
    """Samples on their way into one shard.

    Attributes:
        rejects: Those that it lacks, as they stand in its receipt: a fifth of the memory that objects would take.
    """

    def __init__(self, task: ShardTask, shard: OneShard, stats: TaskStats) -> None:
        self._task = task
        self._shard = shard
        self._bins = None if task.bins is None else BinWriter(shard, task.bins)
        self._stored_bins = None if task.stored_bins is None else StoredBinCounter(task.stored_bins)
        self._stats = stats
        self.rejects = bytearray()
        self._kinds: dict[str, Counter[str]] = {}
        self._sizes: Counter[int] = Counter()
        self._packed, self._dropped = array("q"), array("q")

    def fill(self) -> None:
        watch = Stopwatch()
        added = Counts()
        recipe = self._task.recipe
        for batch in batches(read_all(self._task.part, self._task.files.read), recipe):
            added.reading += watch.lap()
            loads = [rejecting(self._load(item, contents, added)) for item, contents in batch]
            outcomes = finish(loads, recipe.work)
            added.preparing += watch.lap()
            for (item, _), outcome in zip(batch, outcomes, strict=True):
                self._keep(item, outcome, added)
            added.writing += watch.lap()
            if added.seconds >= _REPORT_S:
                self._stats.add(added.taken())
                added = Counts()
        self._stats.add(added.taken())

    def _keep(self, item: Item | Reject, loaded: Loaded | Document | Unreadable | None, added: Counts) -> None:
        """Write a sample, leave it out, or note why it is rejected."""
        try:
            if isinstance(loaded, Unreadable):
                raise loaded
            if loaded is None:
                added.dropped += 1
                self._dropped.append(item.line)
            else:
                self._write(item, loaded)
                added.samples += 1
                self._packed.append(item.line)
        except Unreadable as error:
            reject = item if isinstance(item, Reject) else Reject(item.line, item.path, str(error), kind=error.kind)
            reject = reject._replace(path=valid_unicode(reject.path))
            added.rejects += 1 if reject.samples is None else reject.samples
            if self.rejects:
                self.rejects += b","
            self.rejects += reject_entry(reject)

    def _load(
        self, item: Item | Reject, contents: Contents | Unreadable, added: Counts
    ) -> Generator[Any, Any, Loaded | Document | None]:
        """A sample as it is to be stored, ``None`` if it is left out; `Unreadable`. A generator, see `finish`."""
        if isinstance(item, Reject):
            raise Unreadable(item.reason, item.kind)
        if isinstance(contents, Unreadable):
            raise contents
        size = sum(map(len, contents.values()))
        added.bytes += size
        if item.size is not None and size != item.size:
            raise Unreadable(f"it has {size} bytes, and had {item.size} when it was listed", "damaged")
        return (yield from self._task.recipe.load(item, contents))

    def _write(self, item: Item | Reject, loaded: Loaded | Document) -> None:
        assert isinstance(item, Item)
        try:
            if isinstance(loaded, Loaded):
                self._shard.write(item.key, loaded.fields)
                if self._stored_bins is not None:
                    self._stored_bins.add(loaded.fields)
            else:
                assert self._bins is not None
                self._bins.add(item.key, loaded)
        except FieldError:  # it fits its own type, but not that of the samples before it
            raise
        except UsageError as error:
            raise Unreadable(error.what, fault_kind(error)) from error
        self._sizes[max(loaded.size, 1).bit_length() - 1] += 1
        if isinstance(loaded, Loaded):
            for name, kind in loaded.kinds.items():
                self._kinds.setdefault(name, Counter())[kind] += 1

    def lines(self) -> bytes:
        """The numbers of the lines that it was made of."""
        return lines_bytes(self._packed, self._dropped)

    def result(self) -> ShardResult:
        """Finish the shard."""
        watch = Stopwatch()
        bins = None if self._stored_bins is None else self._stored_bins.counts
        if self._bins is not None:
            bins = self._bins.finish()
        summary = self._shard.finish()
        self._stats.add(PackStats(writing=watch.lap()))
        kinds = {name: dict(counts) for name, counts in self._kinds.items()}
        sizes = dict(sorted(self._sizes.items()))
        return ShardResult(self._task.number, summary, kinds, self._stats.total, sizes, bins=bins)
