"""Progress on stderr: a bar on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn

from shardstream.cli.report import duration, stderr

_LINE_EVERY_S = 10.0

Update: TypeAlias = Callable[[float, float, str], None]
"""Done, total (0 while it is not known), and what stands beside the bar."""


@contextmanager
def progress(verb: str, *, quiet: bool = False) -> Iterator[Update]:
    """Draw the progress of one verb; nothing at all if ``quiet``."""
    console = stderr()
    if quiet:
        yield _nothing
    elif console.is_terminal:
        with _bar(console) as bar:
            yield _Bar(bar, bar.add_task(verb, total=None, beside="")).update
    else:
        yield _Lines(console, verb).update


def _nothing(_done: float, _total: float, _beside: str) -> None: ...


def _bar(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[beside]}"),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
    )


class _Bar:
    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar = bar
        self._task = task

    def update(self, done: float, total: float, beside: str) -> None:
        self._bar.update(self._task, completed=done, total=total or None, beside=beside)


class _Lines:
    def __init__(self, console: Console, verb: str) -> None:
        self._console = console
        self._verb = verb
        self._started = self._last = time.monotonic()

    def update(self, done: float, total: float, beside: str) -> None:
        now = time.monotonic()
        if now - self._last < _LINE_EVERY_S or not total:
            return
        self._last = now
        left = (now - self._started) * (total - done) / max(done, 1)
        self._console.print(f"{self._verb}: {done / total:.0%}, {beside}, {duration(left)} left")
