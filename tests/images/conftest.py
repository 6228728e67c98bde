"""Pictures that look like photographs, and files of them that the code under test did not write."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from shardstream.testing import pictures

Photo = Callable[..., NDArray[np.uint8]]
Save = Callable[..., bytes]


@pytest.fixture(scope="session")
def photo() -> Photo:
    """See `pictures.photo`."""
    return pictures.photo


@pytest.fixture(scope="session")
def save() -> Save:
    """See `pictures.save`."""
    return pictures.save
