"""The pictures of the images room, and one sample's context."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardstream.decode import SampleContext

from ..images.conftest import Photo, Save, photo, save

__all__ = ["Photo", "Save", "photo", "save"]

Sample = Callable[..., SampleContext]


@pytest.fixture(scope="session")
def sample() -> Sample:
    """``sample(position, seed=0, epoch=0)``: a context."""

    def make(position: int = 0, seed: int = 0, epoch: int = 0) -> SampleContext:
        return SampleContext(f"key{position}", "00000.tar", position % 100, position, seed, epoch)

    return make
