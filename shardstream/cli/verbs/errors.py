"""``shardstream errors [CODE]``."""

from __future__ import annotations

import re
import textwrap
from dataclasses import asdict
from typing import Annotated, Any, Optional

import typer

from shardstream.cli.commands import command
from shardstream.cli.error_pages import PAGES, kinds, markdown, summary
from shardstream.cli.flags import Json
from shardstream.cli.report import print_json, print_row, stdout
from shardstream.errors import UsageError, did_you_mean


def _code(text: str) -> str:
    """The code of an error, given as that or as the name of its class; UsageError."""
    kebab = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", text.rpartition(".")[2]).lower()
    for code in (kebab, kebab.removesuffix("-error")):
        if code in PAGES:
            return code
    raise UsageError(
        f"there is no error {text!r}", hint=f"{did_you_mean(kebab, PAGES)}`shardstream errors` lists all of them"
    )


def _codes(incomplete: str) -> list[str]:
    return [code for code in PAGES if code.startswith(incomplete)]


@command(examples=("shardstream errors", "shardstream errors missing-key", "shardstream errors ChecksumError"))
def errors(
    text: Annotated[
        Optional[str],  # noqa: UP045 - Typer reads this when it runs
        typer.Argument(
            metavar="CODE",
            help="As messages name it after `see:`, or the name of a class. (default: list all)",
            autocompletion=_codes,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Explain an error: what brings it about, what to do, and an example. Without CODE, list all errors."""
    found = kinds()
    if text is None:
        if as_json:
            print_json({"errors": [_as_json(code) for code in found]})
            return
        for code, kind in found.items():
            print_row(code, summary(kind), 18)
        stdout().print("next: shardstream errors CODE")
        return
    code = _code(text)
    if as_json:
        print_json(_as_json(code))
        return
    _print(code)


def _as_json(code: str) -> dict[str, Any]:
    kind = kinds()[code]
    return {"code": code, "class": kind.__name__, "meaning": summary(kind), **asdict(PAGES[code])}


def _print(code: str) -> None:
    out = stdout()
    width, fenced = min(100, out.width), False
    out.print(f"{code}\n")
    for line in markdown(code):
        if line.startswith("```"):
            fenced = not fenced
        elif fenced:
            out.print(f"    {line}".rstrip())
        else:
            plain = line.replace("**", "")
            out.print("\n".join(textwrap.wrap(plain, width, break_long_words=False, break_on_hyphens=False)))
