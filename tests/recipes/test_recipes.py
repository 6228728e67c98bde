"""Every recipe of `examples/` makes its data, trains, is killed, and goes on with other workers on the samples left."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from .driving import EXAMPLES, Recipe, killed_and_resumed, losses, of_all_ranks

PLAIN = ("audio", "captions", "detection", "points", "segmentation")
WITH = {"train_albumentations": "albumentations", "train_kornia": "kornia", "train_v2": "torchvision.transforms"}
LINES = 115


@pytest.mark.full
@pytest.mark.parametrize("name", [*PLAIN, *WITH])
def test_killed_and_gone_on_with_by_other_workers(name: str, tmp_path: Path) -> None:
    try:
        import_module(WITH.get(name, "torch"))
    except (ImportError, RuntimeError) as error:  # torchvision is there, but not for the torch that is
        pytest.skip(f"{WITH[name]} is not to be had here: {error}")
    printed = killed_and_resumed(Recipe(name), tmp_path, [str(tmp_path / "run")], data=tmp_path / "run" / "shards")
    found = losses(printed)
    assert found[-1] < found[0], "it learns nothing"


@pytest.mark.full
def test_fsdp_goes_on_with_another_number_of_ranks(tmp_path: Path) -> None:
    recipe, run = Recipe("fsdp", workers=(1, 0), ranks=(2, 1)), tmp_path / "run"
    found = losses(killed_and_resumed(recipe, tmp_path, [str(run)], data=run / "shards"))
    assert found[-1] < found[0]


@pytest.mark.full
def test_a_language_model_sees_the_same_on_another_number_of_ranks(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    recipe = Recipe("train_gpt", workers=(1, 0), ranks=(2, 1))
    whole = replace(recipe, killed=125).run(tmp_path / "whole", [str(tmp_path / "one")], 0, kill=True)
    killed = recipe.run(tmp_path / "killed", [str(tmp_path / "two")], 0, kill=True)
    resumed = replace(recipe, killed=105).run(tmp_path / "resumed", [str(tmp_path / "two")], 1, kill=True)
    expected = of_all_ranks(tmp_path / "whole")
    assert of_all_ranks(tmp_path / "killed") == expected[:25]
    assert of_all_ranks(tmp_path / "resumed") == expected[20:]
    one, two = losses(whole), losses(killed, resumed)
    assert len(one) == len(two) == 12
    assert two == pytest.approx(one, abs=1e-4)
    assert one[-1] < 0.95 * one[0]  # how much it learns depends on which texts a machine has


@pytest.mark.full
def test_a_table_in_batches_of_65536_rows(tmp_path: Path) -> None:
    table, rows = tmp_path / "run" / "table.npz", 32 * 65_536
    printed = killed_and_resumed(
        Recipe("tabular"), tmp_path, [str(tmp_path / "run")], data=table, samples=[str(row) for row in range(rows)]
    )
    found = losses(printed)
    assert found[-1] < found[0]


def test_a_recipe_is_read_at_a_glance() -> None:
    long = [path.name for path in EXAMPLES.glob("*.py") if len(path.read_text().splitlines()) > LINES]
    assert not long
