"""The command and its verbs, each of which is imported when it is called."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer

import shardstream
from shardstream.cli.help import VerbCommand, VerbGroup
from shardstream.errors import UsageError
from shardstream.extras import built_in
from shardstream.text import printable

_WrongUsage: Any = typer.BadParameter.__base__  # click's UsageError, of which Typer may have a copy of its own


class Verb(NamedTuple):
    """A verb as ``shardstream --help`` shows it.

    Attributes:
        panel: The group that it stands in.
        summary: What it does, in a line.
        module: What has a function of the verb's name, or, for several commands, an ``app``.
    """

    panel: str
    summary: str
    module: str


_MAKE, _FOREIGN, _LOOK = "Make data sets", "Data of other libraries", "Look and measure"
_VERBS = "shardstream.cli.verbs."
VERBS = {
    "pack": Verb(_MAKE, "Pack files into shards.", _VERBS + "pack"),
    "repack": Verb(
        _MAKE,
        "Pack a data set again: other order, format, size of shards, or a part of it.",
        _VERBS + "repack",
    ),
    "merge": Verb(_MAKE, "Make one data set of several, by copying their shards byte for byte.", _VERBS + "merge"),
    **{name: Verb(*command) for name, command in built_in("commands").COMMANDS.items()},
    "export": Verb(_FOREIGN, "Write a data set as files, WebDataset, MDS or Parquet.", _VERBS + "export"),
    "info": Verb(_LOOK, "Say what a data set holds.", _VERBS + "info"),
    "view": Verb(_LOOK, "Show samples as text, or as a page of pictures.", _VERBS + "view"),
    "verify": Verb(_LOOK, "Read a data set whole and compare every byte with what was written.", _VERBS + "verify"),
    "bench": Verb(_LOOK, "Measure how fast a data set streams, or how fast images decode.", _VERBS + "bench"),
    "doctor": Verb(_LOOK, "Look at this machine as training would find it, and say what to change.", _VERBS + "doctor"),
    "top": Verb(_LOOK, "Show what each worker of a run on this machine is at.", _VERBS + "top"),
    "errors": Verb(_LOOK, "Explain an error: what brings it about, what to do, and an example.", _VERBS + "errors"),
    "cache": Verb(_LOOK, "Look at the cache of this machine, fill it, check it, clear it.", _VERBS + "cache"),
}


class _Verbs(VerbGroup):
    """The verbs by name. What Typer says of wrong arguments repeats them, and they may hold any file name."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = dict.fromkeys(VERBS)  # names are proposed without importing any

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in VERBS and self.commands[cmd_name] is None:
            self.commands[cmd_name] = _imported(cmd_name)
        return self.commands.get(cmd_name)

    def summaries(self) -> dict[str, tuple[str, str]]:
        return {name: verb[:2] for name, verb in VERBS.items()}

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            _keep_streams()
            return super().main(*args, **kwargs)
        except (UsageError, OSError):  # of help that cannot be printed; verbs tell of their own errors
            from shardstream.cli.report import reporting, writing  # not needed for help

            try:
                with reporting(), writing():
                    raise
            except typer.Exit as ended:
                sys.exit(ended.exit_code)

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _printable_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _printable_errors():
            return super().invoke(ctx)


def _keep_streams() -> None:
    """Refuse to work without standard output, and keep the descriptors of closed streams: files would take them."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stdout is None:
        raise UsageError("standard output is closed", hint="send it somewhere: > /dev/null")


def _imported(name: str) -> Any:
    """The command of a verb."""
    module = import_module(VERBS[name].module)
    made = getattr(module, "app", None)
    if made is None:
        made = typer.Typer(add_completion=False, rich_markup_mode=None)
        made.command(name, cls=VerbCommand)(getattr(module, name))
    return typer.main.get_command(made)


@contextmanager
def _printable_errors() -> Iterator[None]:
    try:
        yield
    except _WrongUsage as error:
        error.message = printable(error.message)
        raise


app = typer.Typer(
    name="shardstream",
    cls=_Verbs,
    help="Pack files into shards, here or in a store; look at them, check them, measure them.",
    epilog="Exit codes: 0 done, 1 verify or doctor found problems or pack lost files, 2 wrong arguments, 3 source, "
    "store or data at fault, 130 interrupted, 141 nobody reads the output any more.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"shardstream {shardstream.__version__}")
        raise typer.Exit


def _command(
    context: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="SHARDSTREAM_DEBUG", help="Show tracebacks of errors.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    context.obj = debug


_command.examples = (  # type: ignore[attr-defined] # of a function
    "shardstream pack photos/ shards/",
    "shardstream view shards/ --html page.html",
    "shardstream bench shards/ --sweep",
)
app.callback()(_command)
