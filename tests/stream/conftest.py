from __future__ import annotations

from pathlib import Path

import pytest

from .making import numbered, photograph, write_dataset


@pytest.fixture(scope="session")
def ids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,000 samples of which only the index matters, in shards of very different sizes."""
    return write_dataset(tmp_path_factory.mktemp("ids"), numbered([400, 1, 0, 250, 99, 250]))


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 photographs of two sizes with labels and captions."""
    shards = numbered(
        [50, 40, 30],
        jpg=lambda n: photograph(n, 96 if n % 2 else 80, 72),
        cls=lambda n: n % 7,
        txt=lambda n: f"caption {n}",
    )
    return write_dataset(tmp_path_factory.mktemp("photos"), shards)
