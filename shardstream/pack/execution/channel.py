"""Objects of any size between a parent and its worker processes: nobody waits for one who waits for him.

Both ends are a socket. The worker's end waits; the parent's never does: it sends what there is room for, takes what is
there, and keeps the rest. So a worker that sends is always read, whatever the parent still has for it.
"""

from __future__ import annotations

import pickle
import select
import socket
import struct
import traceback
from collections import deque
from collections.abc import Iterator
from typing import Any

from shardstream.errors import ShardStreamError

_LENGTH = struct.Struct("!Q")
_PIECE = 1 << 20


def _readable(end: socket.socket) -> bool:
    poll = select.poll()
    poll.register(end, select.POLLIN)
    return bool(poll.poll(0))


def portable(error: Exception) -> Exception:
    """An error that is being handled, in a form that can be sent: its text, if it cannot be pickled."""
    error.add_note(traceback.format_exc())  # the parent shows this for errors that are not ours
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - what this process has just made
    except Exception:
        return ShardStreamError(f"{type(error).__name__}: {error}")
    return error


def framed(data: bytes) -> bytes:
    """A message as it travels: its length, then it."""
    return _LENGTH.pack(len(data)) + data


class ParentEnd:
    """The end that never waits.

    Args:
        end: The socket; it is this object's from now on.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._unsent: deque[memoryview] = deque()
        self._came = bytearray()

    def fileno(self) -> int:
        """The descriptor, to be waited for."""
        return self._socket.fileno()

    @property
    def sending(self) -> bool:
        """Whether there is something that waits for room."""
        return bool(self._unsent)

    def put(self, message: object) -> None:
        """Send an object, or what there is room for; see `send`."""
        self._unsent.append(memoryview(framed(pickle.dumps(message))))
        self.send()

    def send(self) -> None:
        """Go on sending.

        Raises:
            OSError: The other end is closed.
        """
        try:
            while self._unsent:
                rest = self._unsent[0]
                sent = self._socket.send(rest)
                if sent < len(rest):
                    self._unsent[0] = rest[sent:]
                else:
                    self._unsent.popleft()
        except BlockingIOError:
            pass

    def waiting(self) -> bool:
        """Whether something has come, or the other end is closed."""
        return _readable(self._socket)

    def receive(self) -> Iterator[Any]:
        """The objects that have come whole by now, after what is there was read.

        Raises:
            EOFError: The other end is closed, and nothing was there.
        """
        try:
            data = self._socket.recv(_PIECE)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            raise EOFError
        self._came += data
        while len(self._came) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._came)[0]
            if len(self._came) < end:
                return
            message = pickle.loads(memoryview(self._came)[_LENGTH.size : end])  # noqa: S301 - of our own worker
            del self._came[:end]
            yield message

    def close(self) -> None:
        """Close it: the worker's end says so as soon as it has read all."""
        self._socket.close()


class WorkerEnd:
    """The end that waits.

    Args:
        handle: Descriptor of the socket.
    """

    def __init__(self, handle: int) -> None:
        self._socket = socket.socket(fileno=handle)

    def waiting(self) -> bool:
        """Whether a message has begun to come, or the other end is closed."""
        return _readable(self._socket)

    def send(self, message: bytes) -> None:
        """Send a pickled object.

        Raises:
            OSError: The other end is closed.
        """
        self._socket.sendall(framed(message))

    def receive(self) -> bytearray:
        """The next object, pickled.

        Raises:
            EOFError: The other end is closed.
        """
        return self._read(_LENGTH.unpack(self._read(_LENGTH.size))[0])

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def _read(self, count: int) -> bytearray:
        data = bytearray(count)
        rest = memoryview(data)
        while rest:
            came = self._socket.recv_into(rest)
            if not came:
                raise EOFError
            rest = rest[came:]
        return data
