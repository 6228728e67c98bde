"""Answers of a process, for tests: as they should be, and in all ways in which they go wrong."""

import os
import signal
import time

from shardstream.formats.isolated.child import RefusedError


def answer(request, ask):
    """Runs in the process."""
    what = request["do"]
    if what == "crash":
        yield 1
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "hang":
        time.sleep(60)
    if what == "lack":
        import no_such_package  # noqa: F401
    if what == "refuse":
        raise RefusedError("not this one", hint="another one", at=7)
    if what == "fail":
        raise RuntimeError("whatever")
    if what == "memory":
        yield len(bytearray(1 << 30))
    if what == "print":
        print("noise", flush=True)
    yield from (ask(number) for number in range(request.get("ask", 0)))
    yield [os.getpid(), bytes(request.get("bytes", 0))]
