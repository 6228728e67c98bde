"""What all verbs share: exit codes, errors as one block, numbers for people, JSON."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from enum import IntEnum
from types import TracebackType
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from shardstream.errors import MissingExtraError, ShardStreamError, StorageError, UsageError
from shardstream.sizes import duration as duration  # with the other numbers for people
from shardstream.sizes import plural as plural
from shardstream.sizes import size as size
from shardstream.text import in_one_line, json_text, printable

_SHOWN = 20
_LEAST_WIDTH = 40  # columns, for what is wrapped


class Exit(IntEnum):
    """Exit codes."""

    DONE = 0
    PROBLEMS = 1  # verify, doctor: problems were found; pack, repack: whole files, or the rest of them, were lost
    USAGE = 2  # fix the command; also Typer's own
    DATA = 3  # fix the source, the store or the data
    INTERRUPTED = 128 + signal.SIGINT
    UNREAD = 128 + signal.SIGPIPE  # whoever reads what is printed has seen enough


@contextmanager
def reporting(*, debug: bool = False, spell: Callable[[str], str] = str) -> Iterator[None]:
    """Turn errors of the package and the system into one block on stderr and an exit code.

    Args:
        debug: Whether to show the traceback, too.
        spell: Writes options in texts of errors as whoever typed the command does.
    """
    try:
        yield
        with writing():
            sys.stdout.flush()
    except BrokenPipeError:
        _leave_stdout()
        raise typer.Exit(Exit.UNREAD) from None
    except KeyboardInterrupt:
        stderr().print("interrupted")
        raise typer.Exit(Exit.INTERRUPTED) from None
    except (ShardStreamError, OSError, MemoryError) as error:
        if debug:
            stderr().print_exception()
        if isinstance(error, _OutputError):
            _leave_stdout()
        if isinstance(error, OSError) and not isinstance(error, ShardStreamError):
            error = StorageError.of(error, url=None if error.filename is None else str(error.filename))
        if isinstance(error, MemoryError):
            error = ShardStreamError(
                "memory is short", hint="end other programs, or use fewer --workers where there are any"
            )
        print_error(error, spell)
        usage = isinstance(error, UsageError | MissingExtraError)
        raise typer.Exit(Exit.USAGE if usage else Exit.DATA) from None


class _OutputError(StorageError):
    """What is printed cannot be written."""


@contextmanager
def writing() -> Iterator[None]:
    """Around what is written to standard output."""
    try:
        yield
    except (BrokenPipeError, ShardStreamError):
        raise
    except OSError as error:
        reason = StorageError.of(error)
        raise _OutputError(f"the output cannot be written: {reason.what}", hint=reason.hint) from error


def _leave_stdout() -> None:
    """Have what is left to be written go nowhere: Python flushes it once more at its end, and would complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_error(error: ShardStreamError, spell: Callable[[str], str] = str) -> None:
    """What, where and what to do, one part a line."""
    lines = [Text.assemble(("error: ", "bold red"), spell(error.what))]
    lines += [Text.assemble((f"  {name}: ", "dim"), in_one_line(value)) for name, value in error.place.items()]
    if error.hint:
        lines.append(Text.assemble(("  hint: ", "bold"), spell(error.hint)))
    if error.code != ShardStreamError.code:
        lines.append(Text.assemble(("  see: ", "dim"), f"shardstream errors {error.code}"))
    for line in lines:
        stderr().print(line)


class _Console(Console):
    """Prints nothing that came from elsewhere as it is: all text, tables and bars too, passes through here."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def print(self, *objects: Any, **options: Any) -> None:
        with suppress(OSError) if self.stderr else writing():  # nobody can be told that stderr is full
            super().print(*objects, **options)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # `reporting` knows what to do


def stdout() -> Console:
    """Where data goes. Lines are not wrapped: what is not a terminal has no width."""
    return _Console(file=sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=True)


def stderr() -> Console:
    """Where all else goes."""
    return _Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_json(values: dict[str, Any]) -> None:
    """One line of JSON on stdout."""
    with writing():
        sys.stdout.write(json_text(values) + "\n")


def print_found(found: Any, draw: Callable[..., None], *what: Any, as_json: bool, **more: Any) -> None:
    """What a verb returned: ``more`` and all of it as one line of JSON, or for people, by ``draw(found, *what)``."""
    if as_json:
        print_json(more | asdict(found))
    else:
        draw(found, *what)


def print_row(head: str | Text, text: str, indent: int) -> None:
    """A line of a report: what it is about, and what is said of it so many columns further right, wrapped there."""
    out = stdout()
    first, *more = [text]
    if out.is_terminal:  # what is not has no width
        width = max(_LEAST_WIDTH, out.width - indent)
        first, *more = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
    begin = Text.assemble(head)
    begin.pad_right(indent - len(begin))
    out.print(begin + first)
    for line in more:
        out.print(" " * indent + line)


def print_first(lines: Sequence[str]) -> None:
    """The first lines of many, and how many more there are."""
    out = stdout()
    for line in lines[:_SHOWN]:
        out.print(line)
    if len(lines) > _SHOWN:
        out.print(f"... and {len(lines) - _SHOWN:,} more; --json lists all")


def print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What Python prints of an error that nobody caught, such as ours while it works for ``--debug``."""
    sys.stderr.write(printable("".join(traceback.format_exception(kind, error, trace))))
