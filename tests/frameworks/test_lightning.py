"""Lightning and Fabric with ``ss.Loader``."""

from __future__ import annotations

import pytest

from .running import COUNT, Reports, all_differ, each_once, few, in_batches, missing

SCRIPT = "lightning_script.py"
pytestmark = [missing("lightning"), pytest.mark.parametrize("workers", [0, 2])]


def test_every_sample_once_in_each_epoch(reports: Reports, ranks: int, workers: int) -> None:
    seen = [found["epochs"] for found in reports(f"lightning {workers}")]
    for epoch in ("0", "1", "2"):
        each_once([found[epoch] for found in seen], in_batches(8, ranks))
    for found in seen:
        all_differ(list(found.values()))


@pytest.mark.parametrize("saved", ["middle", "last", "end"])
def test_a_checkpoint_goes_on_in_its_epoch(reports: Reports, workers: int, saved: str) -> None:
    """Saved in the middle of the second epoch, at its last step, and after it."""
    for found in reports(f"lightning {workers}"):
        left = {"1": found["epochs"]["1"][found["length"] // 2 :]} if saved == "middle" else {}
        assert found[saved] == left | {"2": found["epochs"]["2"]}


def test_epochs_that_lightning_cuts_short_differ(reports: Reports, workers: int) -> None:
    for found in reports(f"limited {workers}"):
        assert [len(epoch) for epoch in found.values()] == [3, 3, 3]
        all_differ(list(found.values()))


def test_loaders_that_lightning_makes_again(reports: Reports, ranks: int, workers: int) -> None:
    seen = reports(f"made again {workers}")
    for name in ("given", "hooked"):
        predicted = [number for found in seen for batch in found[name] for number in batch]
        assert sorted(predicted) == list(range(COUNT))
    for found in seen:
        assert found["counted"] == sum(map(len, found["given"]))
        assert [len(epoch) for epoch in found["overfit"]] == [2, 2, 2]
        assert found["overfit"][0] == found["overfit"][1] == found["overfit"][2]


def test_a_datamodule_that_rebuilds_its_loaders(reports: Reports, workers: int) -> None:
    """Fit twice, a validation between, and resumed in the middle of the second epoch."""
    expected = reports(f"lightning {workers}")
    for found, whole in zip(reports(f"rebuilt {workers}"), expected, strict=True):
        assert found["made"] == 3
        assert found["epochs"] == whole["epochs"]
        assert found["resumed"] == {"1": whole["epochs"]["1"][found["step"] - whole["length"] :]}
        assert found["copied"] not in whole["epochs"].values()  # the fourth epoch
        assert len(found["copied"]) == whole["length"]


def test_fabric(reports: Reports, ranks: int, workers: int) -> None:
    seen = reports(f"fabric {workers}")
    for epochs in zip(*(found["epochs"] for found in seen), strict=True):
        each_once(epochs, in_batches(8, ranks))
    for found in seen:
        all_differ(found["epochs"])
        assert found["resumed"] == found["uninterrupted"]


def test_batches_of_which_samples_are_dropped(reports: Reports, ranks: int, workers: int) -> None:
    for epochs in zip(*reports(f"dropped {workers}"), strict=True):
        seen = [number for epoch in epochs for batch in epoch for number in batch]
        assert len(set(seen)) == len(seen) >= in_batches(8, ranks) - len(range(1, COUNT, 3))
        assert seen == few(seen)
        assert any(len(batch) < 8 for epoch in epochs for batch in epoch)
