"""Loops that numba compiles. Import this only where numba is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

_Loop = TypeVar("_Loop", bound=Callable[..., Any])


def compiled(loop: _Loop) -> _Loop:
    """Compiled at first use, and kept on disk where there is a place for it."""
    try:
        made = njit(cache=True, nogil=True)(loop)
    except RuntimeError:  # neither the package's folder nor the user's can be written to
        made = njit(nogil=True)(loop)
    return cast("_Loop", made)
