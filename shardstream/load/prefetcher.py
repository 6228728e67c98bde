"""``DevicePrefetcher``: batches on their device before the training loop asks for them."""

from __future__ import annotations

import inspect
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch

from shardstream.augment import resized
from shardstream.errors import UsageError
from shardstream.load.device.device_copy import Cuda, CudaCopy, DeviceCopy
from shardstream.load.device.static_buffers import StaticBuffers
from shardstream.load.iteration import ConsumerPosition, LoaderIteration, PlainIteration, PlainPosition
from shardstream.load.loader import Loader
from shardstream.load.prefetch_thread import PrefetchThread
from shardstream.load.reporter import OnStats, StatsReporter
from shardstream.load.stats import LoaderStats
from shardstream.load.tracing import ranged
from shardstream.load.workers import LEAVE_S, still_busy
from shardstream.stream.ipc.worker_batch import StreamItem
from shardstream.stream.iteration.ranks import local_rank


class DevicePrefetcher:
    """Moves batches to a device, transforms them there, and does both some steps ahead of the training loop.

    A thread takes batches from the loader, copies each in one piece from page-locked memory on a CUDA stream of its
    own, and calls the transform on another one, beside the copy of the next batch. What comes out can be used at once
    on whatever stream the loop works on, and belongs to the loop: batches that are kept are never written to again. On
    the CPU it is the same thread, order and results, without copies and without a call of CUDA.

    Tensors of any kind travel, however nested; those that are sparse, quantised or nested, those with gradients and
    those of objects with a ``to`` of their own (``PackedSequence``) do so one by one, which `LoaderStats.alone` counts.

    Leaving (``break``, another ``iter()``, `load_state_dict`, the end of the process) ends within 10 seconds; what
    hangs in the loader or the transform by then is named, and refuses another iteration until it has come back.

    It can be iterated again for each epoch, and ``state_dict`` is the position of the loop: batches that are ready but
    were not received are handed out again after `load_state_dict`.

    Args:
        loader: A `Loader`, or anything that can be iterated over and gives batches: dicts, tuples, lists, dataclasses
            of tensors, however nested. It must not pin memory itself (``pin_memory=False``): that would copy each
            batch once more.
        device: ``"cuda"`` (the current one), ``"cuda:1"``, ``"cpu"``. Default: CUDA where there is any, else the CPU. A
            rank other than the first of its machine that has not called ``torch.cuda.set_device`` is warned.
        transform: An ``nn.Module`` or callable that takes the batch on its device and returns what the loop gets. Runs
            without gradients. Where it has an argument ``generator``, it gets a ``torch.Generator`` of the device, and
            where it has ``key``, an integer; both are made from the data set's seed, the epoch, the position and the
            rank, so that augmentation survives a resume of the same shape. Where it has ``positions``, it gets
            `shardstream.augment.Positions` of a `Loader`'s batches (else ``None``): what is drawn from these is the
            same for a sample also with other ranks and batch sizes. With none of them it draws from torch's global
            generator, in another thread than the training loop: nothing makes that repeatable.
        depth: Batches that may be ready or in work while the loop has one, or the device is still at it: a host that
            runs ahead of its device is held to so many steps. Default 2: one is copied while the next is fetched; more
            evens out workers that deliver unevenly. Device memory is that of ``depth + 2`` batches at most, and of
            those that the loop keeps.
        reuse: Hand out the same tensors in each step, written over when the next batch is asked for: for CUDA graphs,
            whose inputs must stay where they are. Costs one copy on the device. All batches must be of one shape
            (``tail="drop"``; ``dropped="repeat"`` if samples can be dropped).
        on_stats: Called with the numbers of the run, see `Loader`; where the loader has one, that is called, too.
        stats_every: Seconds between two calls. Default 10.

    Attributes:
        device: Where batches are.
        loader: The loader.
        stats: The loader's `LoaderStats`, in which waiting is what the training loop waited.

    Raises:
        UsageError: An argument that cannot be, or batches that may be short with ``reuse``; on iteration: the loader
            pins memory, batches of other shapes or kinds with ``reuse``, tensors of a kind that cannot travel, or an
            iteration before that hangs.
        Exception: On iteration: what the loader or the transform raised.

    Example:
        >>> loader = ss.Loader(ds.to_tuple("jpg", "cls"), batch_size=64, num_workers=2)
        >>> sum(len(labels) for images, labels in ss.DevicePrefetcher(loader, "cpu"))
        200
    """

    def __init__(
        self,
        loader: Iterable[Any],
        device: torch.device | str | None = None,
        *,
        transform: Callable[..., Any] | None = None,
        depth: int = 2,
        reuse: bool = False,
        on_stats: OnStats | None = None,
        stats_every: float = 10.0,
    ) -> None:
        if type(depth) is not int or depth < 1:
            raise UsageError(
                f"depth must be a positive integer, got {depth!r}", hint="give 2, or more for uneven workers"
            )
        if transform is not None and not callable(transform):
            raise UsageError(f"transform must be callable, got {transform!r}", hint="give a function or an nn.Module")
        if getattr(loader, "pin_memory", False):
            raise UsageError(
                "the loader pins memory, and so would the prefetcher: each batch would be copied once more",
                hint="leave pin_memory out of the loader",
            )
        if reuse and isinstance(loader, Loader) and loader.cuts_batches:
            raise UsageError(
                "reuse=True needs batches of one shape, and these may be short, since samples can be dropped",
                hint='write ShardDataset(..., dropped="repeat"): every batch then has batch_size slots',
            )
        how = {"depth": depth, "reuse": reuse, "on_stats": on_stats, "stats_every": stats_every}
        self._arguments: dict[str, Any] = {"loader": loader, "device": device, "transform": transform, **how}
        self.loader = loader
        self.device = _device(device)
        self.stats: LoaderStats = loader.stats if isinstance(loader, Loader) else LoaderStats()
        reporters = [StatsReporter(self.stats, on_stats, stats_every)]
        if isinstance(loader, Loader):
            reporters.append(loader.reporter)
        self.reporters = [one for one in reporters if not one.idle]
        self._depth = depth
        self._reuse = reuse
        self._copy = CudaCopy(Cuda(self.device)) if self.device.type == "cuda" else DeviceCopy()
        self._transform = _Transform(transform, self.device)
        self._thread: PrefetchThread | None = None
        self._epochs = 0

    def __reduce__(self) -> Any:
        """For pickles and copies: another one over a loader that is where this one's loop is."""
        return _copied, (type(self), self._arguments)

    def __repr__(self) -> str:
        loader = repr(self.loader) if isinstance(self.loader, Loader) else type(self.loader).__name__
        return f"DevicePrefetcher({loader}, {str(self.device)!r}, depth={self._depth})"

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self.loader)  # type: ignore[arg-type]  # what has no length says so itself

    @property
    def pinned_bytes(self) -> int:
        """Page-locked memory that it holds: two batches, each rounded up to a power of two."""
        return self._copy.pinned_bytes

    def __iter__(self) -> Iterator[Any]:
        self._end()
        if isinstance(self.loader, Loader):
            iteration: LoaderIteration | PlainIteration = self.loader.begin_iteration()
            seed, classes = self.loader.seed, self.loader.classes
        else:
            iteration = PlainIteration(self.loader, self._epochs)
            seed, classes = torch.initial_seed(), None
        self._epochs += 1
        self._transform.begin(classes)
        transform = partial(self._transform, iteration.position, seed)
        self._thread = PrefetchThread(iteration, self._copy, transform, self._depth)
        return _Batches(self, iteration, self._thread)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration reads, see `Loader.set_epoch`.

        Of another loader, its ``sampler`` and ``dataset`` are told where they want to know, as frameworks do it; the
        transform's random numbers are those of this epoch in any case.
        """
        told: list[Any] = [self.loader]
        if not hasattr(self.loader, "set_epoch"):
            told = [getattr(self.loader, name, None) for name in ("sampler", "dataset")]
        for one in told:
            if hasattr(one, "set_epoch"):
                one.set_epoch(epoch)
        self._epochs = epoch

    def state_dict(self) -> dict[str, Any]:
        """Where the training loop is, see `Loader.state_dict`.

        Raises:
            UsageError: The loader is not a `Loader`.
        """
        return self._resumable().state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, see `Loader.load_state_dict`."""
        loader = self._resumable()
        if self._thread is not None:
            self._thread.stop()
        loader.load_state_dict(state)

    def _resumable(self) -> Loader:
        if not isinstance(self.loader, Loader):
            raise UsageError(f"a {type(self.loader).__name__} has no state of its own", hint="use ss.Loader")
        return self.loader

    def _end(self) -> None:
        """Have the thread of the iteration before end, so that nobody else uses the loader and the transform."""
        thread, loader = self._thread, self.loader
        workers = isinstance(loader, Loader) and loader.num_workers > 0
        if isinstance(loader, Loader):
            loader.leave()
        # A thread that waits for workers who hang may be left to itself: it asks a closed `LoaderIteration`.
        patience = LEAVE_S / 2 if workers else LEAVE_S
        if thread is not None and not thread.stop(patience) and not (workers and thread.fetching):
            raise still_busy(thread.awaited())
        self._thread = None


class _Batches(Iterator[Any]):
    """One iteration."""

    def __init__(
        self, owner: DevicePrefetcher, iteration: LoaderIteration | PlainIteration, thread: PrefetchThread
    ) -> None:
        self._owner = owner
        self._iteration = iteration
        self._thread = thread
        self._buffers = StaticBuffers() if owner._reuse else None
        self._handed: float | None = None
        self._over = False
        # A loader of ours knows by itself whether a thread is asking for a batch; others do not.
        self._stop = weakref.finalize(self, thread.stop if isinstance(iteration, LoaderIteration) else thread.leave)
        self._stop.atexit = False

    def __next__(self) -> Any:
        if self._over:
            raise StopIteration
        stats, copy, loader = self._owner.stats, self._owner._copy, self._owner.loader
        receive = self._thread.receive
        asked = time.perf_counter()
        if self._handed is not None:
            stats.seconds += asked - self._handed
        try:
            with ranged("wait"):
                sent = loader.explained(receive) if isinstance(loader, Loader) else receive()
            if sent is None:
                stats.ended(time.perf_counter() - asked)
                stats.add(self._iteration.rest)
                self._iteration.position.end()
                self._report(last=True)
                raise StopIteration
            batch = sent.batch if self._buffers is None else self._buffers.filled(sent.batch)
            self._iteration.position.receive(sent.item)
        except BaseException:
            self._over = True
            self._stop()
            raise
        stats.sent(sent, copy.times(), asked)
        stats.pinned_bytes = copy.pinned_bytes
        first, self._handed = self._handed is None, time.perf_counter()
        stats.waited(self._handed - asked, first=first)
        self._report(last=sent.item.last)
        return batch

    def _report(self, *, last: bool) -> None:
        for reporter in self._owner.reporters:
            reporter.step(last=last)


class _Transform:
    """A user's transform, with random numbers where it asks for them."""

    def __init__(self, function: Callable[..., Any] | None, device: torch.device) -> None:
        self._function = function
        self._device = device
        self._told = False
        names = set() if function is None else _arguments(function)
        self._takes_key = "key" in names
        self._takes_positions = "positions" in names
        self._generator = torch.Generator(device) if "generator" in names else None

    def begin(self, classes: int | None) -> None:
        """Before an iteration: say how many classes there are to who wants to know."""
        tell = getattr(self._function, "for_classes", None)
        if tell is not None and classes is not None and not self._told:
            tell(classes)
        self._told = True

    def __call__(self, position: ConsumerPosition | PlainPosition, seed: int, batch: Any, item: StreamItem) -> Any:
        batch = resized(batch)
        if self._function is None:
            return batch
        key = position.key(item, seed)
        random: dict[str, Any] = {"key": key} if self._takes_key else {}
        if self._takes_positions:
            random["positions"] = position.positions(item, seed)
        if self._generator is not None:
            random["generator"] = self._generator.manual_seed(key)
        try:
            return self._function(batch, **random)
        except Exception as error:
            error.add_note("(in the transform of a DevicePrefetcher)")
            raise


def _arguments(function: Callable[..., Any]) -> set[str]:
    called = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        return set(inspect.signature(called).parameters)
    except (TypeError, ValueError):  # built-in functions have none to show
        return set()


def _device(device: torch.device | str | None) -> torch.device:
    found = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if found.type not in ("cpu", "cuda"):
        raise UsageError(f"device must be cuda or cpu, got {found}", hint="move batches to other devices in the loop")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"there is no {found} here", hint='use device="cpu", or look at torch.cuda.is_available()')
    if str(found) == "cuda":
        found = torch.device("cuda", torch.cuda.current_device())
        rank = local_rank()
        if found.index == 0 and rank and torch.cuda.device_count() > 1:
            warnings.warn(
                f"this is rank {rank} of its machine, but batches go to {found}, the current device, as rank 0's do: "
                f'call torch.cuda.set_device({rank}) before, or give device="cuda:{rank}"',
                stacklevel=3,
            )
    return found


def _copied(kind: type[DevicePrefetcher], arguments: Mapping[str, Any]) -> DevicePrefetcher:
    return kind(**arguments)
