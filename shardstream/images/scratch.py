"""Memory that a thread fills over and over, for pixels on their way: fresh memory costs more than what is done to it.

The system hands out new pages zeroed, one fault each, which for the pixels of a photograph takes about as long as a
fifth of a resize. So each thread keeps one buffer for each use.
"""

from __future__ import annotations

import math
import threading

import numpy as np
from numpy.typing import NDArray

_LIMIT = 64 << 20  # bytes; more is not worth keeping

_held = threading.local()


def scratch(use: str, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """An array with anything in it, which is this thread's until it asks for the same use again.

    Args:
        use: What it is for: two arrays that are in use together need two names.
        shape: Of the array, uint8.

        >>> scratch("example", (480, 640, 3)).shape
        (480, 640, 3)
    """
    size = math.prod(shape)
    if size > _LIMIT:
        return np.empty(shape, np.uint8)
    held: NDArray[np.uint8] | None = getattr(_held, use, None)
    if held is None or held.size < size:
        held = np.empty(1 << (size - 1).bit_length() if size else 0, np.uint8)
        setattr(_held, use, held)
    return held[:size].reshape(shape)
