"""Objects that a cache holds whole: mapped, and copied from by the kernel, never touched.

Whoever touches a page of a mapped file that somebody else has cut dies of it (SIGBUS). The kernel, asked to copy such a
page from this process into this process (``process_vm_readv``), answers that it cannot: one call copies the values of a
whole step from wherever they lie.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST = 1024
"""Ranges of one call: IOV_MAX."""


def address_of(data: memoryview | NDArray[Any]) -> int:
    """Where the first byte of a buffer lies. It stays there for as long as something refers to the buffer."""
    array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    address: int = array.__array_interface__["data"][0]
    return address


class HeldObject:
    """All of an object, for as long as this is kept.

    Args:
        mapped: The file that it lies in.
        begin: Where in it the object begins.
        size: Bytes of the object.
        sound: Whether all of it is still as it was compared.
    """

    def __init__(self, mapped: memoryview, begin: int, size: int, sound: Callable[[], bool]) -> None:
        self._mapped = mapped
        self.address = address_of(mapped) + begin
        self.size = size
        self.sound = sound


@cache
def _call() -> Callable[..., int] | None:
    """``process_vm_readv``, where the system has it, and a process may ask for its own memory."""
    function: Any = getattr(ctypes.CDLL(None), "process_vm_readv", None)
    if function is None:
        return None
    function.restype = ctypes.c_ssize_t
    numbers = (ctypes.c_void_p, ctypes.c_ulong) * 2
    function.argtypes = (ctypes.c_int, *numbers, ctypes.c_ulong)
    source, target = np.frombuffer(b"12345678", np.uint8), np.zeros(8, np.uint8)
    ranges = np.array([[address_of(target), 8], [address_of(source), 8]], np.uint64)
    done = function(os.getpid(), address_of(ranges[:1]), 1, address_of(ranges[1:]), 1, 0)
    return function if done == len(source) and bool((source == target).all()) else None


def can_copy() -> bool:
    """Whether objects can be held here: not beyond Linux, nor where a container forbids the call."""
    return _call() is not None


def copy_ranges(to: NDArray[np.uint64], of: NDArray[np.uint64], total: int) -> bool:
    """Copy ranges of this process's memory to others. Whether all ``total`` bytes were there.

    Args:
        to: Address and length of each range: (n, 2), of at most `MOST`.
        of: The same, of where it is copied from.
        total: Bytes of all of them.
    """
    call = _call()
    return call is not None and call(os.getpid(), address_of(to), len(to), address_of(of), len(of), 0) == total
