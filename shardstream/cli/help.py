"""What ``--help`` prints: examples first, then the options in groups, each beside what it does.

The same pages make ``docs/cli.md`` and the manual page (``tools/reference.py``).
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

_WIDEST = 120
_NAMES = 28  # a longer name has a line of its own
_ORDER = ("Source", "Samples", "Images", "Output", "", "Run", "Options", "Store")  # of groups; all others: ""


@dataclass(frozen=True)
class HelpPage:
    """What a command says of itself.

    Attributes:
        usage: How it is called.
        text: What it does, in paragraphs.
        examples: Lines to type.
        sections: By heading: names, and what they mean.
        footer: What stands at the end.
    """

    usage: str
    text: str
    examples: tuple[str, ...]
    sections: Mapping[str, Sequence[tuple[str, str]]]
    footer: str

    @property
    def paragraphs(self) -> list[str]:
        """The text, each paragraph in one line."""
        return [" ".join(part.split()) for part in self.text.split("\n\n") if part.strip()]

    def written(self, width: int, *, bold: bool = False) -> str:
        """As text of at most so many columns."""
        return "\n".join(self._lines(min(width, _WIDEST), bold=bold)) + "\n"

    @property
    def command(self) -> str:
        """The words that it begins with: ``shardstream cache warm``."""
        return re.split(r" (?=[A-Z\[])", self.usage)[0]

    def _lines(self, width: int, *, bold: bool) -> Iterator[str]:
        def heading(text: str) -> str:
            return typer.style(text, bold=True) if bold else text

        yield f"{heading('Usage:')} {self.usage}"
        for paragraph in self.paragraphs:
            yield ""
            yield from textwrap.wrap(paragraph, width, break_long_words=False, break_on_hyphens=False)
        if self.examples:
            yield f"\n{heading('Examples:')}"
            yield from (f"  {line}" for line in self.examples)
        names = [len(name) for rows in self.sections.values() for name, _ in rows]
        column = max((long for long in names if long <= _NAMES), default=_NAMES) + 4
        for title, rows in self.sections.items():
            yield f"\n{heading(title + ':')}"
            for name, text in rows:
                yield from _row(name, text, column, width)
        if self.footer:
            yield ""
            yield from textwrap.wrap(self.footer, width, break_long_words=False, break_on_hyphens=False)


def _row(name: str, text: str, column: int, width: int) -> Iterator[str]:
    lines = textwrap.wrap(text, width - column, break_long_words=False, break_on_hyphens=False)
    first = f"  {name}"
    if len(first) + 2 <= column:
        yield f"{first:<{column}}{lines.pop(0) if lines else ''}".rstrip()
    else:
        yield first
    yield from (" " * column + line for line in lines)


def page_of(command: Any, context: Any) -> HelpPage:
    """The page of a command or a group of them.

    Args:
        command: Of Typer.
        context: Of Typer; its path names the command.
    """
    sections: dict[str, list[tuple[str, str]]] = {}
    arguments = [one for one in command.params if one.param_type_name == "argument" and not one.hidden]
    if arguments:
        sections["Arguments"] = [(_called(one), one.help or "") for one in arguments]
    group = isinstance(command, VerbGroup)
    if group:
        for name, (panel, summary) in command.summaries().items():
            sections.setdefault(panel, []).append((name, summary))
    panels: dict[str, list[tuple[str, str]]] = {}
    for option in command.get_params(context):
        if option.param_type_name == "option" and not option.hidden:
            panel = getattr(option, "rich_help_panel", None) or ("Options" if group or option.name != "help" else "Run")
            panels.setdefault(panel, []).append((_flag(option), _meaning(option)))
    for panel in sorted(panels, key=_place):
        sections[panel] = panels[panel]
    usage = [context.command_path, *(["COMMAND"] if group else []), "[OPTIONS]"]
    usage += [_called(one) for one in arguments]
    examples = getattr(command.callback, "examples", ())
    return HelpPage(" ".join(usage), inspect.cleandoc(command.help or ""), examples, sections, command.epilog or "")


def _place(panel: str) -> int:
    return _ORDER.index(panel if panel in _ORDER else "")


def _called(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _flag(option: Any) -> str:
    short = [name for name in option.opts if not name.startswith("--")]
    name = next(name for name in option.opts if name.startswith("--"))
    if option.secondary_opts:
        name = f"--[no-]{name[2:]}"
    value = "" if option.is_flag or option.count else f" {option.metavar or 'TEXT'}"
    return ", ".join([*short, name]) + value


def _meaning(option: Any) -> str:
    default = option.default
    if option.secondary_opts:
        shown = next(name for name in (option.opts if default else option.secondary_opts) if name.startswith("--"))[2:]
    elif default is None or default is False or default in ("", (), [], "{}") or option.count:
        return option.help or ""
    else:
        shown = str(getattr(default, "value", default))
    return f"{option.help} (default: {shown})"


def _print(command: Any, context: Any, formatter: Any) -> None:
    bold = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    formatter.write(page_of(command, context).written(shutil.get_terminal_size().columns, bold=bold))


def all_pages(group: Any, context: Any) -> Iterator[HelpPage]:
    """The page of a group, and those of all commands below it."""
    yield page_of(group, context)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        below = command.make_context(name, [], parent=context, resilient_parsing=True)
        if hasattr(command, "list_commands"):
            yield from all_pages(command, below)
        else:
            yield page_of(command, below)


class VerbCommand(TyperCommand):
    """A command whose help is a `HelpPage`."""

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        formatter.write(f"Usage: {page_of(self, ctx).usage}")

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _print(self, ctx, formatter)


class VerbGroup(TyperGroup):
    """The same for a group of commands."""

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        formatter.write(f"Usage: {page_of(self, ctx).usage}")

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _print(self, ctx, formatter)

    def summaries(self) -> dict[str, tuple[str, str]]:
        """Of each command: its panel, and what it does in a line."""
        return {name: ("Commands", re.split(r"(?<=\.)\s", one.help or "")[0]) for name, one in self.commands.items()}
