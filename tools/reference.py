#!/usr/bin/env python3
"""Write the pages that are generated: docs/cli.md, docs/errors.md, docs/dev/api.md, the manual page docs/shardstream.1.

    python tools/reference.py            writes them
    python tools/reference.py --check    exits with 1 when one is not as it would be written

A test compares them, too.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_CLI = """# Command line

<!-- Written by tools/reference.py: change the commands, not this page. -->

What `shardstream` and each of its verbs say under `--help`, at 80 columns. The same is in the manual page,
`man shardstream`; `shardstream --install-completion` makes the shell complete verbs and options.

Data go to stdout; progress, notes and errors go to stderr. Every verb ends with what to do next, and takes `--json` for
programs: one line with all that it found. Exit codes:

| code | what it means |
|---|---|
| 0 | done |
| 1 | `verify`, `doctor` found problems; `pack` lost files; `cache warm` had no room; `cache clear` left some |
| 2 | the command or its arguments are wrong, or an optional package is missing |
| 3 | the source, the store or the data is at fault |
| 130 | interrupted |
| 141 | nobody reads the output any more, as in `shardstream view URL \\| head -1` |

"""
_ERRORS = """# Errors

<!-- Written by tools/reference.py: change shardstream/cli/error_pages.py, not this page. -->

Every error of the library is a `ss.errors.ShardStreamError`. It says what happened, where, and what to do; `error.code`
is the name of its kind, and `error.place` is a dict of where. The command line ends its messages in
`see: shardstream errors CODE`, which prints the part of this page that has that name.

Examples start from `photos/`, folders of classes, and `shards/`, a data set with the fields `jpg`, `cls` and `txt`. In
the messages, `...` stands for what differs from run to run.

"""


_API = """# Public names

<!-- Written by tools/reference.py from `__all__` and docstrings: change those, not this page. -->

These names are public: a change of what they take or return is a line in the changelog, and comes at the earliest one
version after a warning. Everything else is an inner name. Between packages, `pyproject.toml` lists the inner modules
that no other package may import (contracts of the kind "protected").

"""
# Packages in the order of the page, each with what it is for.
_PUBLIC = {
    "shardstream": "What most programs use",
    "shardstream.decode": "Decoders and image operations for `fields=`",
    "shardstream.augment": "Operations on batches",
    "shardstream.errors": "Errors",
    "shardstream.diagnose": "What the commands print, as values",
    "shardstream.testing": "Conformance classes and small data, for tests of your own",
    "shardstream.storage": "Stores of your own",
    "shardstream.formats.contract": "Formats of your own",
}


def public_names() -> str:
    """docs/dev/api.md."""
    parts = []
    for name, purpose in _PUBLIC.items():
        package = import_module(name)
        rows = [f"| `{one}` | {_first_line(getattr(package, one))} |" for one in sorted(package.__all__)]
        parts.append("\n".join([f"## {purpose}: `{name}`", "", "| name | |", "|---|---|", *rows]) + "\n")
    return _API + "\n".join(parts)


def _first_line(value: Any) -> str:
    """The first sentence of a docstring; "" for values, whose type has one of its own."""
    if not (inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)):
        return ""
    text = (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")
    return text.replace("``", "`").replace("|", "\\|")


def pages() -> list[Any]:
    """The help of every command."""
    import typer.main

    from shardstream.cli.app import app
    from shardstream.cli.help import all_pages

    root = typer.main.get_command(app)
    return [*all_pages(root, root.make_context("shardstream", [], resilient_parsing=True))]


def command_line() -> str:
    """docs/cli.md."""
    parts = [f"## {page.command}\n\n```text\n{page.written(80)}```\n" for page in pages()]
    return _CLI + "\n".join(parts)


def error_pages() -> str:
    """docs/errors.md."""
    from shardstream.cli.error_pages import kinds, markdown, summary

    rows = [f"| [{code}](#{code}) | `{kind.__name__}` | {summary(kind)} |" for code, kind in kinds().items()]
    table = "\n".join(["| code | class | |", "|---|---|---|", *rows])
    parts = [f"## {code}\n\n" + "\n".join(markdown(code)) + "\n" for code in kinds()]
    return _ERRORS + table + "\n\n" + "\n".join(parts)


def manual() -> str:
    """The manual page: the same texts, in roff."""
    first, *verbs = pages()
    lines = ['.TH SHARDSTREAM 1 "" "shardstream" "User Commands"', ".SH NAME"]
    lines += [r"shardstream \- very large data sets, streamed into PyTorch", ".SH SYNOPSIS"]
    lines += [f".B {_roff(first.usage)}", ".SH DESCRIPTION", _roff(first.text)]
    lines += [*_examples(first), *_sections(first), ".SH VERBS"]
    for page in verbs:
        lines += [f".SS {_roff(page.usage)}"]
        for paragraph in page.paragraphs:
            lines += [".PP", _roff(paragraph)]
        lines += [*_examples(page), *_sections(page)]
    lines += [".SH EXIT STATUS", _roff(first.footer.partition(": ")[2])]
    lines += [".SH SEE ALSO", "The guides in docs/, and"]
    lines += [r"\fBshardstream errors\fR", "for each error."]
    return "\n".join(lines) + "\n"


def _examples(page: Any) -> list[str]:
    return [".PP", "Examples:", ".PP", ".nf", *(f"    {_roff(line)}" for line in page.examples), ".fi"]


def _sections(page: Any) -> list[str]:
    lines = []
    for title, rows in page.sections.items():
        lines += [".PP", rf"\fI{_roff(title)}\fR"]
        for name, text in rows:
            lines += [".TP", rf"\fB{_roff(name)}\fR", _roff(text)]
    return lines


def _roff(text: str) -> str:
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"^([.'])", r"\\&\1", escaped, flags=re.MULTILINE)


FILES = {
    "docs/cli.md": command_line,
    "docs/errors.md": error_pages,
    "docs/dev/api.md": public_names,
    "docs/shardstream.1": manual,
}


def main() -> int:
    """Write or compare them; 1 where one differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    wrong = [path for path, made in FILES.items() if not check or (ROOT / path).read_text() != made()]
    for path in wrong:
        if check:
            print(f"{path} is not as tools/reference.py writes it")
        else:
            (ROOT / path).write_text(FILES[path]())
    return int(check and bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
