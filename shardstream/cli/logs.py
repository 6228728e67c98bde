"""What the library logs, as lines on stderr: ``--log-level``, ``-v``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from shardstream.text import printable


class _Stderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # nobody reads it
            # Asked for at each record: while a bar is drawn, something else stands there, which writes above it.
            sys.stderr.write(f"{record.levelname.lower()}: {printable(record.getMessage())} [{record.name}]\n")


@contextmanager
def logged(level: str) -> Iterator[None]:
    """Print what the library's loggers say, from this level on: ``debug``, ``info``, ``warning`` or ``error``."""
    logger = logging.getLogger("shardstream")
    before, handler = logger.level, _Stderr()
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
