"""``WorkerLogs``: what workers log reaches the loggers of the training process, over a pipe that nobody waits for.

A record is a line of JSON that the system writes as one piece or not at all. Where the pipe is full, because nobody
reads or too much is said, it is dropped and counted: a worker never waits for its log.
"""

from __future__ import annotations

import json
import logging
import os
import select
import threading
import weakref
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd
from typing import Any

from shardstream.dataset.shared import SharedWords
from shardstream.threads import start

logger = logging.getLogger(__name__)

_TREE = "shardstream"
_LONGEST = 600  # letters of a text, up to six bytes each: what is at most `select.PIPE_BUF` is written in one piece
_LOOK_S = 0.5


class WorkerLogs:
    """The pipe from the workers of one loader. What a process was not started with, it makes anew.

    Args:
        workers: Number of workers.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._begun: tuple[int, int] | None = None  # both ends
        self._heard = False
        self._shared = SharedWords(1 + workers)  # the least level that somebody wants; records dropped, by worker

    def open(self) -> None:
        """In the training process, before workers start."""
        if self._begun is None:
            self._begun = os.pipe()
            os.set_blocking(self._begun[1], False)

    def hear(self) -> None:
        """In the training process, once they have: have a thread hand what they say to the loggers here."""
        if self._begun is None or self._heard:
            return
        self._heard = True
        reading, writing = self._begun
        left = threading.Event()
        weakref.finalize(self, _leave, left, writing)
        arguments = (reading, self._shared, left)
        start(threading.Thread(target=_hear, args=arguments, name="shardstream-logs", daemon=True))

    def levels(self) -> None:
        """Tell workers what is wanted here at the moment."""
        self._shared.words[0] = min(logger.getEffectiveLevel() for logger in _loggers())

    def speak(self, worker: int) -> None:
        """In a worker: send what is logged below ``shardstream``, and show it nowhere else."""
        if self._begun is None:
            return
        for one in _loggers():
            one.handlers.clear()
            one.setLevel(logging.NOTSET)
        top = logging.getLogger(_TREE)
        top.propagate = False
        top.setLevel(int(self._shared.words[0]))
        top.addHandler(_Sender(self._begun[1], self._shared, worker))

    def __reduce__(self) -> tuple[Any, ...]:
        if get_spawning_popen() is None or self._begun is None:
            return WorkerLogs, (self._workers,)
        return _handed_over, (self._workers, DupFd(self._begun[1]), self._shared)


def _handed_over(workers: int, writing: Any, shared: SharedWords) -> WorkerLogs:
    made = object.__new__(WorkerLogs)
    made._workers, made._begun, made._shared = workers, (-1, writing.detach()), shared
    return made


def _loggers() -> list[logging.Logger]:
    known = logging.Logger.manager.loggerDict.copy()
    below = [one for name, one in known.items() if name.startswith(f"{_TREE}.") and isinstance(one, logging.Logger)]
    return [logging.getLogger(_TREE), *below]


class _Sender(logging.Handler):
    def __init__(self, writing: int, shared: SharedWords, worker: int) -> None:
        super().__init__()
        self._writing, self._shared, self._worker = writing, shared, worker

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = logging.Formatter().format(record)[:_LONGEST]
            said = [self._worker, os.getpid(), record.created, record.name[:100], record.levelno, text]
            os.write(self._writing, json.dumps(said, ensure_ascii=False).encode(errors="replace") + b"\n")
        except OSError:  # full, or nobody is left to read
            self._shared.words[1 + self._worker] += 1


def _leave(left: threading.Event, writing: int) -> None:
    left.set()
    os.close(writing)


def _hear(reading: int, shared: SharedWords, left: threading.Event) -> None:
    rest, told = b"", 0
    waiting = select.poll()  # `select.select` knows 1,024 descriptors
    waiting.register(reading, select.POLLIN)
    while True:
        data = os.read(reading, 1 << 16) if waiting.poll(_LOOK_S * 1000) else b""
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            _handle(line)
        dropped = int(shared.words[1:].sum())
        if dropped > told and len(data) < select.PIPE_BUF:  # once what was there has been read
            logger.warning("%d log records of workers were dropped: there was no room for them", dropped - told)
            told = dropped
        if not data and left.is_set():
            os.close(reading)
            return


def _handle(line: bytes) -> None:
    worker, process, created, name, level, text = json.loads(line)
    here = logging.getLogger(name)
    if here.isEnabledFor(level):
        record = here.makeRecord(name, level, "", 0, "%s (in worker %d)", (text, worker), None)
        record.created, record.process, record.processName = created, process, f"DataLoader worker {worker}"
        here.handle(record)
