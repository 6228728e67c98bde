"""LZF, as HDF5's filter of that name writes it. Compiled by numba; import it only where that is installed.

Source: the description in liblzf's ``lzf_d.c``, http://oldhome.schmorp.de/marc/liblzf.html.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shardstream.compiled import compiled

_LITERALS = 32  # control bytes below this are runs of so many bytes and one
_LONG = 7  # a length that is continued in the next byte


@compiled
def inflate_lzf(data: NDArray[np.uint8], out: NDArray[np.uint8]) -> int:
    """Inflate into ``out``; how many bytes, or -1 where the data are damaged or do not fit."""
    at = written = 0
    while at < len(data):
        control = int(data[at])
        at += 1
        if control < _LITERALS:
            length = control + 1
            if at + length > len(data) or written + length > len(out):
                return -1
            for _ in range(length):
                out[written] = data[at]
                at += 1
                written += 1
            continue
        length = control >> 5
        if length == _LONG:
            if at >= len(data):
                return -1
            length += int(data[at])
            at += 1
        if at >= len(data):
            return -1
        source = written - ((control & 31) << 8) - int(data[at]) - 1
        at += 1
        length += 2
        if source < 0 or written + length > len(out):
            return -1
        for _ in range(length):
            out[written] = out[source]
            source += 1
            written += 1
    return written
