"""The tests that are marked ``gpu``, in one process."""

from __future__ import annotations

from collections.abc import Iterator

from gpu.pytests import passed
from gpu.setting import Row, Setting

WHERE = ("tests/load/test_device_gpu.py", "tests/augment", "tests/stream/test_crops.py")


def run(setting: Setting) -> Iterator[Row]:
    """All of them."""
    return passed(setting, "-m", "gpu", *WHERE)
