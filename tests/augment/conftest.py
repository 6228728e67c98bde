"""Photographs as a batch, worked on by one thread: threads cost small pictures more than they give."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ..images.conftest import Photo, photo

__all__ = ["Photo", "one_thread", "photo", "photos"]


@pytest.fixture(scope="package", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def photos():
    """uint8 (24, 3, 40, 48), channels last: smooth pictures with edges, some grey, black or white."""
    rng = np.random.default_rng(3)
    batch = []
    for i in range(24):
        image = pytest.importorskip("PIL.Image")
        small = image.fromarray(rng.integers(0, 256, (5, 6, 3), dtype=np.uint8))
        pixels = np.asarray(small.resize((48, 40), image.Resampling.BICUBIC if i % 2 else image.Resampling.NEAREST))
        batch.append(pixels.copy())
    batch[3][:] = batch[3][..., :1]
    batch[4][:], batch[5][:] = 0, 255
    return torch.from_numpy(np.stack(batch)).permute(0, 3, 1, 2)
