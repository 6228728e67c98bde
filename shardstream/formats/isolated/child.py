"""What runs in a process that reads by another library's package: `main`."""

from __future__ import annotations

import importlib
import os
import select
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

from shardstream.formats.isolated.wire import ASK, END, LACKS, SOME, WRONG, packed, received

IDLE_S = 30.0
"""Seconds without a request, after which the process ends."""


class RefusedError(Exception):
    """What was asked cannot be answered.

    Args:
        what: Why, as a sentence.
        hint: What to do; empty: fetch or write it again.
        at: The byte of the object, if one is to be named.
    """

    def __init__(self, what: str, *, hint: str = "", at: int | None = None) -> None:
        super().__init__(what)
        self.hint = hint
        self.at = at


def main(module: str, memory: int) -> None:
    """Answer requests until nobody asks any more.

    Args:
        module: Has ``answer(request, ask)``: an iterator over parts of the answer. ``ask`` has the host answer.
        memory: Bytes that the process may have; 0 for any.
    """
    into, out = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):  # whatever a package prints is not for the user, and no message
        os.dup2(nothing, number)
    _limit(memory)
    code = 1
    try:
        with suppress(EOFError, BrokenPipeError):  # the host is gone
            _answer_all(module, into, out)
        code = 0
    finally:
        os._exit(code)  # packages crash when they take themselves down, and nobody cares


def _limit(memory: int) -> None:
    """Leave no dump of memory, and take no more than this; 0 for any."""
    try:
        import resource
    except ImportError:  # a system that limits no process
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory:
        with suppress(ValueError, OSError):  # the user's own limit is lower
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _answer_all(module: str, into: BinaryIO, out: BinaryIO) -> None:
    def read(length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            piece = into.read(length - len(data))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)

    def send(kind: str, content: Any = None) -> None:
        out.write(packed([kind, content]))
        out.flush()

    def ask(question: Any) -> Any:
        send(ASK, question)
        return received(read)

    while select.select([into], [], [], IDLE_S)[0]:
        request = received(read)
        try:
            answer = _answering(module)
            for part in answer(request, ask):
                send(SOME, part)
        except ImportError as error:
            send(LACKS, [error.name or "", str(error)])
        except RefusedError as error:
            send(WRONG, [str(error), error.hint, error.at])
        except (EOFError, BrokenPipeError):
            raise
        except Exception as error:  # of a package: whatever it raises over a damaged file
            send(WRONG, [f"{type(error).__name__}: {error}"[:1000], "", None])
        else:
            send(END)


def _answering(module: str) -> Callable[[Any, Callable[[Any], Any]], Any]:
    found: Callable[[Any, Callable[[Any], Any]], Any] = importlib.import_module(module).answer
    return found


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
