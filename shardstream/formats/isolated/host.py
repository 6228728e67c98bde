"""``Program``: a package of another library, asked in a process of its own."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shardstream.errors import FormatError, MissingExtraError, UnsupportedError
from shardstream.extras import install_command
from shardstream.formats.isolated.wire import ASK, END, LACKS, SOME, WRONG, packed, received
from shardstream.formats.scans.object_bytes import FETCH_AGAIN

Answer = Callable[[Any], Any]
# The package's own __init__ imports most of it, and this process wants a few modules: it starts in half the time.
_PROGRAM = (
    "import json, sys, types; sys.path[:] = json.loads(sys.argv[3]); package = types.ModuleType('shardstream'); "
    "package.__path__ = [sys.argv[4]]; sys.modules['shardstream'] = package; "
    "from shardstream.formats.isolated.child import main; main(sys.argv[1], int(sys.argv[2]))"
)
_PACKAGE = str(Path(__file__).parents[2])
_GOING_S = 5.0  # that a process may take to end
_KEPT = 4  # processes that wait for the next request
_KEPT_S = 10.0  # how long they are asked again; after IDLE_S they end by themselves
_READ = 1 << 20
# One thread each: several processes read side by side, and threads of these libraries take memory.
_SETTINGS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class _DiedError(Exception):
    """The process ended, or was made to: says how."""


@dataclass(frozen=True)
class Program:
    """A package of another library, asked in a process of its own. Processes are kept for the next request.

    Attributes:
        module: What answers there, see `child.main`.
        title: What messages call the library.
        extra: The extra that brings it, for the hint if it is missing.
        memory: Bytes that a process may have; 0 for any.
        patience: Seconds within which something has to be heard of it.
    """

    module: str
    title: str
    extra: str
    memory: int = 0
    patience: float = 120.0
    _idle: list[_Child] = field(default_factory=list, compare=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Program, (self.module, self.title, self.extra, self.memory, self.patience)

    def ask(self, request: Any, url: str, answer: Answer | None = None) -> Iterator[Any]:
        """Parts of the answer, as they come.

        Args:
            request: What msgpack takes.
            url: What it is about, for messages.
            answer: Answers what the process asks meanwhile; whatever it raises ends the process.

        Raises:
            FormatError: The library finds it damaged, refuses it, crashes or hangs over it.
            MissingExtraError: The package is not installed.
        """
        child = self._taken()
        try:
            child.send(request)
            while True:
                kind, content = child.receive(self.patience)
                if kind == ASK and answer is not None:
                    child.send(answer(content))
                elif kind == SOME:
                    yield content
                else:
                    break
        except _DiedError as error:
            raise FormatError(f"{self.title} {error} over it", url=url, hint=FETCH_AGAIN) from None
        except BaseException:
            child.kill()
            raise
        self._give_back(child)
        self._check_end(kind, content, url)

    def _check_end(self, kind: str, content: Any, url: str) -> None:
        if kind == LACKS:
            name, text = content
            raise MissingExtraError(
                f"the package {name.partition('.')[0]!r} is needed to read this, but cannot be imported ({text})",
                url=url,
                hint=install_command(self.extra),
            )
        if kind == WRONG:
            what, hint, at = content
            place: dict[str, Any] = {} if at is None else {"offset": at}
            raise (
                UnsupportedError(what, url=url, hint=hint, **place)
                if hint
                else FormatError(what, url=url, hint=FETCH_AGAIN, **place)
            )
        assert kind == END, f"{self.title} says {kind!r}"

    def _taken(self) -> _Child:
        """A process that waits, else a new one."""
        with self._lock:
            idle, self._idle[:] = [*self._idle], []
            fresh = [child for child in idle if child.fresh]
            self._idle.extend(fresh[:-1])
        for child in idle:
            if not child.fresh:
                child.kill()
        return fresh[-1] if fresh else _Child(self)

    def _give_back(self, child: _Child) -> None:
        child.used = time.monotonic()
        with self._lock:
            if len(self._idle) < _KEPT:
                self._idle.append(child)
                return
        child.kill()


class _Child:
    """The process.

    Attributes:
        used: When it was last asked.
        kill: Ends it now, which happens too when nobody knows it any more; one of before a fork is the parent's.
    """

    def __init__(self, program: Program) -> None:
        self.used = time.monotonic()
        self._owner = os.getpid()
        self._process = subprocess.Popen(  # noqa: S603 - this very program
            [sys.executable, "-c", _PROGRAM, program.module, str(program.memory), json.dumps(sys.path), _PACKAGE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            process_group=0,  # Ctrl-C is for the parent
            env=os.environ | _SETTINGS,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._into, self._out = self._process.stdin, self._process.stdout
        self._poll = select.poll()
        self._poll.register(self._out, select.POLLIN)
        self.kill = weakref.finalize(self, _end, self._process, os.getpid())

    @property
    def fresh(self) -> bool:
        """Whether it can be asked: it is this process's own, and will not end by itself right now."""
        return self._owner == os.getpid() and time.monotonic() - self.used < _KEPT_S and self._process.poll() is None

    def send(self, message: Any) -> None:
        data = memoryview(packed(message))
        try:
            while data:
                data = data[self._into.write(data) :]
        except OSError as error:
            raise self._died() from error

    def receive(self, patience: float) -> tuple[str, Any]:
        deadline = time.monotonic() + patience

        def read(length: int) -> bytearray:
            data = bytearray()
            while len(data) < length:
                if not self._poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                    self.kill()
                    raise _DiedError(f"said nothing for {patience:g} s, and was ended")
                piece = self._out.read(min(length - len(data), _READ))
                if not piece:
                    raise self._died()
                data += piece
            return data

        try:
            kind, content = received(read)
        except ValueError:  # of whatever has got hold of it
            self.kill()
            raise _DiedError("answers what cannot be understood") from None
        return kind, content

    def _died(self) -> _DiedError:
        try:
            code = self._process.wait(_GOING_S)
        except subprocess.TimeoutExpired:
            code = 0
        self.kill()
        if code < 0:
            return _DiedError(f"crashed ({signal.Signals(-code).name})")
        return _DiedError(f"ended (exit code {code})")


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() == owner:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GOING_S)
    else:
        process.returncode = 0  # or Python warns that it still runs
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()
