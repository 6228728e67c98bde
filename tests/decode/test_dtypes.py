"""What a dtype can hold, against Python's integers and floats."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.decode.dtypes import AsType, first_unfit
from shardstream.errors import FieldError
from shardstream.shards.fields import SCALAR_TYPES


def fits(value: bool | int | float, source: np.dtype, target: np.dtype) -> bool:
    if target.kind == "f":
        with np.errstate(over="ignore"):
            return math.isinf(value) == math.isinf(target.type(value))
    if source.kind == "f" and not (math.isfinite(value) and value == int(value) and abs(value) < 2**53):
        return False
    low, high = (0, 1) if target.kind == "b" else (int(np.iinfo(target).min), int(np.iinfo(target).max))
    return low <= value <= high


@pytest.mark.parametrize("source", SCALAR_TYPES)
@given(target=st.sampled_from(SCALAR_TYPES), data=st.data())
def test_nothing_wraps_around(source: str, target: str, data: st.DataObject) -> None:
    have, want = np.dtype(source), np.dtype(target)
    if have.kind == "f":
        numbers = st.sampled_from([0.0, -0.0, 0.5, -1.0, 1.0, 255.0, 256.0, 32768.0, math.inf, -math.inf, math.nan])
        numbers |= st.floats(width=8 * have.itemsize)
    elif have.kind == "b":
        numbers = st.booleans()
    else:
        numbers = st.integers(int(np.iinfo(have).min), int(np.iinfo(have).max)) | st.integers(0, 2)
    values = np.array(data.draw(st.lists(numbers, min_size=1, max_size=4)), have)
    unfit = [i for i, value in enumerate(values.tolist()) if not fits(value, have, want)]
    assert first_unfit(values, want) == (unfit[0] if unfit else None)
    if unfit:
        with pytest.raises(FieldError, match="does not fit"):
            AsType(want.type)(values)
        return
    made = AsType(want.type)(values)
    assert made.dtype == want
    if want.kind != "f":
        assert made.tolist() == values.tolist()


@pytest.mark.parametrize("value", ["cat", b"x", None, [1, "a"], 1j, {"a": 1}, 2**64])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(FieldError, match="does not fit int64"):
        AsType(np.int64)(value)


def test_numbers_arrays_and_lists() -> None:
    assert AsType(np.int16)(3) == np.int16(3)
    assert isinstance(AsType(np.int16)(np.uint8(3)), np.int16)
    assert AsType(np.int16)([[1, 2]]).dtype == np.int16
    assert AsType(np.int16)([]).shape == (0,)
