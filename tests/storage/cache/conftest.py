from __future__ import annotations

import pytest

from shardstream.storage.cache import session as places

from .making import MIB, World, noise


@pytest.fixture(autouse=True)
def nothing_said() -> None:
    """No process has been warned of any cache yet."""
    places._warned.clear()


@pytest.fixture
def world(tmp_path) -> World:
    return World(tmp_path)


@pytest.fixture
def data(world) -> bytes:
    """An object of three blocks."""
    return world.put("shard", noise(2 * MIB + 5))
