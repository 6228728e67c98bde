"""What conformance classes assert with: plain functions whose messages say what is wrong, under any test runner.

Not ``assert``: pytest explains those only in modules that it rewrites, and ``python -O`` drops them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar
from unittest import SkipTest

import numpy as np

E = TypeVar("E", bound=BaseException)

_LONGEST = 200  # characters of a value in a message


def check(holds: object, what: str) -> None:
    """Fail with ``what`` unless ``holds``."""
    __tracebackhide__ = True
    if not holds:
        raise AssertionError(what)


def check_equal(found: object, expected: object, what: str) -> None:
    """Fail unless the two are equal: ``what`` must be ``expected``."""
    __tracebackhide__ = True
    if found != expected:
        raise AssertionError(f"{what} must be {shown(expected)}, got {shown(found)}")


def check_arrays(found: Any, expected: Any, what: str) -> None:
    """Fail unless two arrays have one dtype, one shape and the same elements."""
    __tracebackhide__ = True
    expected = np.asarray(expected)
    check(isinstance(found, np.ndarray), f"{what} must be a numpy array, got {shown(found)}")
    check_equal(found.dtype, expected.dtype, f"the dtype of {what}")
    check_equal(found.shape, expected.shape, f"the shape of {what}")
    differ = np.flatnonzero(found != expected)
    if len(differ):
        at = tuple(int(i) for i in np.unravel_index(differ[0], expected.shape))
        share = f"{len(differ)} of {expected.size} elements"
        raise AssertionError(f"{what}: {share} differ, first at {at}, which must be {expected[at]}, got {found[at]}")


def expect(kind: type[E], what: str, call: Callable[..., object], *arguments: object) -> E:
    """The error of this kind that ``call(*arguments)`` raises; fail where it raises another one or none."""
    __tracebackhide__ = True
    try:
        found = call(*arguments)
    except kind as error:
        return error
    except Exception as error:
        other = f"{type(error).__name__}: {error}"
        raise AssertionError(f"{what} must raise {kind.__name__}, but raised {other}") from error
    raise AssertionError(f"{what} must raise {kind.__name__}, but returned {shown(found)}")


def skip(why: str) -> NoReturn:
    """Leave the test out; pytest and unittest both report it as skipped."""
    raise SkipTest(why)


def shown(value: object) -> str:
    """A value in a message, cut where it is long."""
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        return repr(data) if len(data) <= 40 else f"{len(data)} bytes from {data[:20]!r} on"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
