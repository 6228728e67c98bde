"""``progress``: the batches of an epoch, each with how far it has come. Only bars that are handed in draw."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from operator import length_hint
from typing import Any

from shardstream.errors import UsageError
from shardstream.load.loader import Loader
from shardstream.load.prefetcher import DevicePrefetcher
from shardstream.progress import ProgressEvent, ignore

_RATES_S = 1.0  # rates of less time jump


def progress(loader: Loader | DevicePrefetcher, bar: Any = None) -> Iterator[tuple[ProgressEvent, Any]]:
    """The batches of an epoch, each with a `ProgressEvent`.

    It knows the length of the epoch, and where a run that was resumed goes on. Nothing is drawn, but through a bar that
    is handed in.

    Args:
        loader: The loader, or the prefetcher over it.
        bar: A ``tqdm.tqdm()`` or a ``rich.progress.Progress()`` that shows the epoch, samples a second and the share of
            the time that was waiting. It can be given for every epoch again, and remains the caller's to close.

    Yields:
        The event and the batch. ``event.done`` of ``event.total`` batches (single samples, where the loader has no
        batch size) with this one, 0 being the total of what has no end; ``event.detail`` has ``epoch``, ``kept`` (what
        was done before the resume), ``samples_per_second`` and ``wait_share`` of the last second.

    Raises:
        UsageError: Another kind of loader or bar.

    Example:
        >>> loader = ss.Loader(ss.ShardDataset("out/", batch_size=10, fields=["cls"]), num_workers=0)
        >>> for event, batch in ss.progress(loader):
        ...     pass
        >>> event.done == event.total == len(loader)
        True
    """
    own = loader.loader if isinstance(loader, DevicePrefetcher) else loader
    if not isinstance(own, Loader):
        raise UsageError(f"progress needs a Loader, got {type(own).__name__}", hint="use ss.Loader")
    return _events(loader, own, _drawing(bar))


def _events(
    loader: Loader | DevicePrefetcher, own: Loader, draw: Callable[[ProgressEvent], object]
) -> Iterator[tuple[ProgressEvent, Any]]:
    stats, epoch = own.stats, own.epoch
    batches, kept, total = iter(loader), own.done_before, length_hint(own)  # 0: without end
    unit = "samples" if own.single else "batches"
    snapshot, due, rates = stats.as_dict(), time.monotonic() + _RATES_S, stats.since({})
    for number, batch in enumerate(batches, 1):
        if number == 1 or time.monotonic() >= due:
            rates = stats.since(snapshot)
        if time.monotonic() >= due:
            snapshot, due = stats.as_dict(), time.monotonic() + _RATES_S
        detail: dict[str, float] = {"epoch": epoch, "kept": kept}
        detail |= {name: rates[name] for name in ("samples_per_second", "wait_share")}
        event = ProgressEvent(f"epoch {epoch}", kept + number, total, unit, detail)
        draw(event)
        yield event, batch
        del batch


def _drawing(bar: Any) -> Callable[[ProgressEvent], object]:
    """What shows an event in a bar, by what the bar can do: neither tqdm nor rich is imported here."""
    if bar is None:
        return ignore
    if hasattr(bar, "add_task"):
        return _RichTask(bar).draw
    if hasattr(bar, "set_postfix_str"):
        return _TqdmEpoch(bar).draw
    raise UsageError(
        f"progress cannot draw on a {type(bar).__name__}", hint="give a tqdm.tqdm() or a rich.progress.Progress()"
    )


class _RichTask:
    """A task of its own in a rich ``Progress``, for one epoch."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._task: Any = None

    def draw(self, event: ProgressEvent) -> None:
        if self._task is None:
            self._task = self._bar.add_task(event.phase, total=event.total or None, completed=event.detail["kept"])
        self._bar.update(self._task, completed=event.done, description=f"{event.phase}: {_rates(event)}")


class _TqdmEpoch:
    """One epoch on a tqdm bar, which may have shown another one before."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._begun = False

    def draw(self, event: ProgressEvent) -> None:
        bar = self._bar
        if not self._begun:
            bar.reset()
            bar.total = event.total or None  # which `reset` would not forget
            bar.set_description(event.phase, refresh=False)
            bar.initial = bar.n = bar.last_print_n = event.detail["kept"]  # or its rate counts what an earlier run did
            self._begun = True
        bar.set_postfix_str(_rates(event), refresh=False)
        bar.update(event.done - bar.n)


def _rates(event: ProgressEvent) -> str:
    detail = event.detail
    return f"{detail['samples_per_second']:,.0f} samples/s, waits {100 * detail['wait_share']:.0f} %"
