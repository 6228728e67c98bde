"""Progress on stderr: a bar on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from shardstream.cli.report import duration, plural, size, stderr
from shardstream.progress import OnProgress, ProgressEvent, ignore

_LINE_EVERY_S = 10.0
_LONGEST_S = 1000 * 3600.0  # a longer estimate says nothing
_SURE_AFTER_S = 1.0  # of work; what the first samples took says nothing: processes start, loops are compiled
_TITLES = {
    "plan": "reading the source",
    "index": "finding the samples",
    "first pass": "first pass",
    "keys": "comparing keys",
    "start": "waiting for the first batch",
}
_UNTIL_THE_FIRST = {"pack": "starting workers (the first run compiles loops)"}
_FOUND = {"rejects": ("rejected", "rejected"), "problems": ("problem", ""), "damages": ("damage", "")}


@contextmanager
def drawing(
    verb: str, *, quiet: bool = False, announce: Callable[[ProgressEvent], str] | None = None
) -> Iterator[OnProgress]:
    """Draw the events of one verb; nothing at all if ``quiet``.

    Args:
        verb: What is done.
        quiet: Whether to draw nothing.
        announce: What to say of an event, empty for nothing yet; the first text stays above the bar.
    """
    if quiet:
        yield ignore
    else:
        with progress(verb) as update:
            yield _Events(update, announce).draw


@contextmanager
def progress(verb: str) -> Iterator[Update]:
    """Draw the progress of one verb."""
    console = stderr()
    if console.is_terminal:
        with _bar(console) as bar:
            yield _Bar(bar, verb)
    else:
        yield _Lines(console, verb)


def _bar(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[beside]}"),
        TextColumn("{task.fields[left]}"),
        console=console,
        transient=True,
    )


class _Events:
    """What is drawn of events: the phase, speeds since it began, and what was found."""

    def __init__(self, update: Update, announce: Callable[[ProgressEvent], str] | None) -> None:
        self._update = update
        self._announce = announce
        self._phase = ""
        self._since = 0.0
        self._before: dict[str, float] = {}

    def draw(self, event: ProgressEvent) -> None:
        if self._announce is not None and (said := self._announce(event)):
            self._announce = None
            self._update.say(said)
        detail = {event.unit: event.done, f"total_{event.unit}": event.total, **event.detail}
        kept = detail.get("kept", 0)
        counts = {"samples": detail.get("samples", 0) - kept, "bytes": detail.get("fetched", detail.get("bytes", 0))}
        if event.phase != self._phase:
            self._phase, self._since, self._before = event.phase, time.monotonic(), counts
        seconds = time.monotonic() - self._since
        parts = [_TITLES.get(event.phase, "")]
        if event.total and event.done == kept:
            parts.append(_UNTIL_THE_FIRST.get(event.phase, ""))
        if "shards" in detail:
            parts.append(f"shard {detail['shards']:,} of {detail['total_shards']:,}")
        if not event.total and event.done:
            parts.append(f"{event.done:,} {event.unit}")
        for name, count in counts.items():
            if event.total and seconds and count > self._before[name]:
                parts.append(_speed(name, (count - self._before[name]) / seconds))
        parts.append(detail.get("now") or "")
        parts += [plural(detail[name], *words) for name, words in _FOUND.items() if detail.get(name)]
        self._update(event.done, event.total, "  ".join(filter(None, parts)), kept)


def _speed(name: str, rate: float) -> str:
    return f"{size(rate)}/s" if name == "bytes" else f"{rate:,.0f} {name}/s"


class Update(ABC):
    """Draws how far a verb has come, and how long the rest will take, by the speed since its first part was done."""

    _begun: float | None = None  # how much was done when the phase began
    _since: tuple[float, float] | None = None  # when the first of it was done, and how much

    def __call__(self, done: float, total: float, beside: str, kept: float = 0) -> None:
        """Draw it.

        Args:
            done: How much is done.
            total: Of how much; 0 while it is not known.
            beside: What stands beside the bar.
            kept: How much of it an earlier run had done, which says nothing of the speed.
        """
        self._show(done, total, beside, self._left(done, total, kept))

    @abstractmethod
    def say(self, text: str) -> None:
        """Print a line that stays."""

    @abstractmethod
    def _show(self, done: float, total: float, beside: str, left: str) -> None: ...

    def _left(self, done: float, total: float, kept: float) -> str:
        """For people; nothing in the second after the first of it was done: the start-up before that is no speed."""
        now, fresh = time.monotonic(), done - kept
        if not total or self._begun is None or fresh < self._begun:  # another phase begins
            self._begun, self._since = (fresh if total else None), None
            return ""
        if self._since is None and fresh > self._begun:
            self._since = (now, fresh)
        begun, before = self._since or (now, fresh)
        if fresh == before or done >= total or now - begun < _SURE_AFTER_S:
            return ""
        left = (now - begun) * (total - done) / (fresh - before)
        return f"{duration(left)} left" if left < _LONGEST_S else ""


class _Bar(Update):
    def __init__(self, bar: Progress, verb: str) -> None:
        self._bar = bar
        self._task = bar.add_task(verb, total=None, beside="", left="")

    def say(self, text: str) -> None:
        self._bar.console.print(text)

    def _show(self, done: float, total: float, beside: str, left: str) -> None:
        self._bar.update(self._task, completed=done, total=total or None, beside=beside, left=left)


class _Lines(Update):
    def __init__(self, console: Console, verb: str) -> None:
        self._console = console
        self._verb = verb
        self._last = time.monotonic()

    def say(self, text: str) -> None:
        self._console.print(text)

    def _show(self, done: float, total: float, beside: str, left: str) -> None:
        now = time.monotonic()
        if now - self._last < _LINE_EVERY_S or not total:
            return
        self._last = now
        self._console.print(f"{self._verb}: {', '.join(filter(None, [f'{done / total:.0%}', beside, left]))}")
