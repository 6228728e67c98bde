"""Accelerate with ``ss.Loader``, and with what it deals out itself."""

from __future__ import annotations

import pytest

from .running import COUNT, Reports, all_differ, each_once, few, in_batches, missing

SCRIPT = "accelerate_script.py"
pytestmark = [missing("accelerate"), pytest.mark.parametrize("workers", [0, 2])]


def test_a_loader_gives_every_sample_once_in_each_epoch(reports: Reports, ranks: int, workers: int) -> None:
    seen = reports(f"epochs {workers}")
    for epochs in zip(*seen, strict=True):
        each_once(epochs, in_batches(8, ranks))
    for epochs in seen:
        all_differ(epochs)


def test_save_state_and_load_state_keep_the_place_in_an_epoch(reports: Reports, ranks: int, workers: int) -> None:
    seen = reports(f"resumed {workers}")
    for found in seen:
        assert found["resumed"] == found["uninterrupted"]
    each_once([found["taken"] + found["resumed"][0] for found in seen], in_batches(8, ranks))


def test_gradients_are_summed_up_to_the_end_of_an_epoch(reports: Reports, ranks: int, workers: int) -> None:
    steps = in_batches(8, ranks) // (8 * ranks)
    due = [number % 4 == 0 or number == steps for number in range(1, steps + 1)]
    for found in reports(f"accumulated {workers}"):
        assert found == [due] * 4


def test_an_evaluation_counts_no_padding(reports: Reports, workers: int) -> None:
    for found in reports(f"gathered {workers}"):
        assert sorted(found) == list(range(COUNT))


def test_batches_of_which_samples_are_dropped(reports: Reports, ranks: int, workers: int) -> None:
    found = reports(f"dropped {workers}")
    seen = [number for rank in found for batch in rank["batches"] for number in batch]
    assert len(set(seen)) == len(seen) >= in_batches(8, ranks) - len(range(1, COUNT, 3))
    assert seen == few(seen)
    assert any(len(batch) < 8 for rank in found for batch in rank["batches"])
    for counted in (one for rank in found for one in rank["counted"]):
        assert sorted(counted) == few(range(COUNT))


@pytest.mark.parametrize("how", ["dispatched", "sharded"])
def test_samples_that_accelerate_deals_out_come_once(reports: Reports, ranks: int, workers: int, how: str) -> None:
    seen = reports(f"{how} {workers}")
    # rank 0 sends what can be divided by the ranks; what each rank cuts out of all, whole batches on every rank
    count = COUNT - COUNT % ranks if how == "dispatched" or ranks == 1 else in_batches(12, ranks)
    for epochs in zip(*(found["epochs"] for found in seen), strict=True):
        each_once(epochs, count)
    for found in seen:
        all_differ(found["epochs"])
        assert [len(epoch) for epoch in found["epochs"]] == [found["length"]] * 2


def test_workers_that_are_spawned_deal_out_the_same(reports: Reports, workers: int) -> None:
    for found, spawned in zip(reports(f"dispatched {workers}"), reports("dispatched spawn"), strict=True):
        assert found == spawned


REFUSED = {
    "texts": "a batch is more than tensors",
    "texts of batches": "a batch is more than tensors",
    "short batches": 'write ShardDataset(..., dropped="repeat")',
    "batches of batches": "cannot deal out the batches of 4 of the data set: the DataLoader makes batches of 8",
    "a kept state": "has no state to rely on",
    "two dealers": "Accelerate deals out samples to ranks, and so would ranks=(0, 2)",
    "an old state": "a state of epoch 3 was loaded, and Accelerate begins epoch 0",
}


def test_what_cannot_work_is_refused_on_every_rank(reports: Reports, ranks: int, workers: int) -> None:
    for said in reports(f"refused {workers}"):
        for name, sentence in REFUSED.items():
            assert sentence in said[name]
        if ranks > 1:  # else there is nothing to deal out
            assert "the DataLoader makes no batches" in said["batches to shard"]


def test_a_data_set_that_is_dealt_out_does_not_guess_its_state(reports: Reports, workers: int) -> None:
    for said in reports(f"unknown {workers}"):
        assert all("cannot know what they have consumed" in sentence for sentence in said)
        assert len(said) == 2
