"""Hugging Face's ``Trainer`` on a data set, and on an ``ss.Loader``."""

from __future__ import annotations

import pytest

from .running import COUNT, Reports, all_differ, each_once, few, in_batches, missing

SCRIPT = "trainer_script.py"
pytestmark = [missing("accelerate", "transformers"), pytest.mark.parametrize("workers", [0, 2])]

KINDS = ["dataset", "loader", "collated"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_sample_once_in_each_epoch(reports: Reports, ranks: int, workers: int, kind: str) -> None:
    seen = reports(f"{kind} {workers}")
    count = COUNT - COUNT % ranks if kind == "dataset" else in_batches(8, ranks)
    for epochs in zip(*(found["epochs"] for found in seen), strict=True):
        each_once(epochs, count)
    for found in seen:
        assert len(found["epochs"]) == 3
        all_differ(found["epochs"])


@pytest.mark.parametrize("kind", KINDS)
def test_resume_from_checkpoint_goes_on_in_the_epoch(reports: Reports, workers: int, kind: str) -> None:
    for found in reports(f"{kind} {workers}"):
        done = found["save"] - found["length"]
        assert 0 < done < found["length"]
        assert found["resumed"] == [found["epochs"][1][done:], found["epochs"][2]]


def test_a_loaded_state_is_not_skipped_twice(reports: Reports, workers: int) -> None:
    for found in reports(f"state {workers}"):
        done = found["save"] - found["length"]
        assert found["resumed"] == found["skipped"] == [found["epochs"][1][done:], found["epochs"][2]]
    for said in reports(f"twice {workers}"):
        assert "would be skipped once more" in said
        assert "ignore_data_skip=True" in said


def test_an_evaluation_counts_every_sample_once(reports: Reports, workers: int) -> None:
    for found in reports(f"evaluated {workers}"):
        for ids in found:
            assert sorted(ids) == list(range(COUNT))


def test_batches_of_which_samples_are_dropped(reports: Reports, ranks: int, workers: int) -> None:
    for epochs in zip(*reports(f"dropped {workers}"), strict=True):
        seen = [number for epoch in epochs for batch in epoch for number in batch]
        assert len(set(seen)) == len(seen) >= in_batches(8, ranks) - len(range(1, COUNT, 3))
        assert seen == few(seen)
        assert any(len(batch) < 8 for epoch in epochs for batch in epoch)


def test_images_of_single_samples_are_channels_first(reports: Reports, workers: int) -> None:
    for shapes in reports(f"images {workers}"):
        assert shapes == [[8, 3, 8, 12]] * 2
