"""The command ``shardstream``. One verb a file; it prints what the rooms pack and diagnose return.

=============  ==========================================================
``app``        the command and its verbs
``pack``       ``shardstream pack SOURCE DEST``
``repack``     ``shardstream repack URL DEST``
``packing``    what the verbs that write data sets share: progress, the report
``export``     ``shardstream export URL DEST --to files|webdataset|parquet|mds``
``merge``      ``shardstream merge URL... DEST``
``index``      ``shardstream index URL``, of data of another library
``migrate``    ``shardstream migrate URL``: the way over from another library
``info``       ``shardstream info URL``
``verify``     ``shardstream verify URL``
``view``       ``shardstream view URL [SAMPLE]...``; ``view_page``: its page, ``--html`` and ``--serve``
``bench``      ``shardstream bench URL``, and ``bench_decode`` for ``shardstream bench decode [URL | FILE...]``;
             ``bench_sweep``: what ``--sweep`` prints and draws
``doctor``     ``shardstream doctor [URL]``: whether this machine is fit for training
``cache``      ``shardstream cache status|warm|verify|clear``
``stores``     how every verb is told to reach a store: ``--storage-option``, ``--transport``
``flags``      flags that several verbs have in common, such as how one is told which data set it reads
``progress``   bars on a terminal, a line now and then elsewhere; on stderr
``report``     exit codes, errors as one block, numbers for people
=============  ==========================================================

Data goes to stdout, progress and errors to stderr. Exit codes: 0 done; 1 verify or doctor found problems; 2 the command
or its arguments are wrong, or an optional package is missing; 3 the source, the store or the data is at fault; 130
interrupted; 141 nobody reads stdout any more.
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
