"""The command ``shardstream``. It prints what the rooms pack and diagnose return.

=============  ==========================================================
``app``        the command and the list of its verbs
``verbs/``     a verb each
``commands``   makes a verb of a function: its flags, errors, exit codes
``flags``      flags that verbs have in common, and how they are read
``stores``     how every verb is told to reach a store
``help``       what ``--help`` prints
``error_pages``  the page of each error: cause, fix, example
``logs``       ``--log-level``, ``-v``
``packing``    what the verbs that write data sets share
``progress``   bars on a terminal, a line now and then elsewhere; on stderr
``report``     exit codes, errors as one block, numbers for people
``spelling``   options in texts of errors, as flags
=============  ==========================================================

Data goes to stdout, progress and errors to stderr. Exit codes: 0 done; 1 verify or doctor found problems, or pack lost
files; 2 the command or its arguments are wrong, or an optional package is missing; 3 the source, the store or the data
is at fault; 130 interrupted; 141 nobody reads stdout any more.
"""

from __future__ import annotations

import sys

from shardstream.errors import MissingExtraError
from shardstream.extras import require


def main() -> None:
    """The console command. Typer and rich come with the extra ``pack``; without them it says so, and exits with 2."""
    try:
        for module in ("typer", "rich"):
            require(module, extra="pack", purpose="for the command shardstream")
    except MissingExtraError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    from shardstream.cli.app import app
    from shardstream.cli.report import print_traceback

    sys.excepthook = print_traceback
    app(prog_name="shardstream")
