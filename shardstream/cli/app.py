"""The command and its verbs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import shardstream
from shardstream.cli import bench, cache, doctor, export, index, info, merge, migrate, pack, repack, verify, view
from shardstream.text import printable

_WrongUsage: Any = typer.BadParameter.__base__  # click's UsageError, of which Typer may have a copy of its own


class _Printable(TyperGroup):
    """What Typer says of wrong arguments repeats them, and a shell's pattern may have put any file name there."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _printable_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _printable_errors():
            return super().invoke(ctx)


@contextmanager
def _printable_errors() -> Iterator[None]:
    try:
        yield
    except _WrongUsage as error:
        error.message = printable(error.message)
        raise


app = typer.Typer(
    name="shardstream",
    cls=_Printable,
    help="Pack files into shards, here or in a store; look at them, check them, measure them.",
    epilog="Exit codes: 0 done, 1 verify or doctor found problems, 2 wrong arguments, 3 source, store or data at "
    "fault, 130 interrupted, 141 nobody reads the output any more.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"shardstream {shardstream.__version__}")
        raise typer.Exit


@app.callback()
def command(
    context: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="SHARDSTREAM_DEBUG", help="Show tracebacks of errors.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Pack files into shards, look at them, and check them."""
    context.obj = debug


app.command("pack", epilog="Next: shardstream info DEST, shardstream verify DEST.")(pack.pack)
app.command("repack", epilog="Next: shardstream info DEST.")(repack.repack)
app.command("index", epilog="Next: shardstream info URL.")(index.index)
app.command("migrate", epilog="Next: shardstream index URL, or shardstream pack URL DEST.")(migrate.migrate)
app.command("info")(info.info)
app.command("verify")(verify.verify)
app.command("merge", epilog="Next: shardstream info DEST, shardstream verify DEST.")(merge.merge)
app.command("export")(export.export)
app.command("view")(view.view)
app.command("doctor")(doctor.doctor)
app.add_typer(bench.app)
app.add_typer(cache.app)
