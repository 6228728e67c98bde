"""The recipe for Ray: two of its workers are killed, and one goes on. tools/engines runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from .driving import EXAMPLES, Recipe, killed_and_resumed

pytest.importorskip("ray", reason="Ray is not installed: tools/engines runs this test")


@pytest.mark.full
def test_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # else it keeps a token in the home folder
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent))
    # What is reported travels, and may not be there before the kill.
    recipe = Recipe("ray_train", workers=(1, 0), ranks=(2, 1), launches=True, saved=(10, 20))
    run = tmp_path / "run"
    killed_and_resumed(recipe, tmp_path, [str(run)], data=run / "shards")
