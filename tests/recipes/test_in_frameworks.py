"""Recipes for training frameworks: two ranks are killed, and one goes on. tools/frameworks runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..frameworks.running import missing
from .driving import Recipe, killed_and_resumed, losses

pytestmark = pytest.mark.full
SHAPE = {"workers": (1, 0), "ranks": (2, 1)}


@missing("lightning")
def test_lightning(tmp_path: Path) -> None:
    run = tmp_path / "run"
    killed_and_resumed(Recipe("train_lightning", **SHAPE), tmp_path, [str(run)], data=run / "shards")


@missing("accelerate")
def test_accelerate(tmp_path: Path) -> None:
    run = tmp_path / "run"
    killed_and_resumed(Recipe("train_accelerate", **SHAPE), tmp_path, [str(run)], data=run / "shards")


@missing("accelerate", "transformers")
def test_hf_trainer(tmp_path: Path) -> None:
    run = tmp_path / "run"
    killed_and_resumed(Recipe("hf_trainer", **SHAPE), tmp_path, [str(run)], data=run / "shards", samples=512)


def test_timm(tmp_path: Path) -> None:
    try:
        import timm  # noqa: F401  # and torchvision, which has to fit the torch that is there
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"timm is not to be had here: {error}")
    run = tmp_path / "run"
    found = losses(killed_and_resumed(Recipe("timm_train"), tmp_path, [str(run)], data=run / "shards"))
    assert found[-1] < found[0]
