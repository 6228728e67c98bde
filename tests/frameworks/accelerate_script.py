"""Loops with Accelerate: what each rank gets of loaders that it prepared."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from reporting import BATCH, FOLDER, RANKS, dataset, few, loader, report
from torch.utils.data import DataLoader

import shardstream as ss


def ids(batch: Any) -> list[int]:
    return [int(number) for number in batch["id"]]


def epochs(workers: int) -> Any:
    prepared = Accelerator(cpu=True).prepare(loader(workers))
    whole = [[ids(batch) for batch in prepared] for _ in range(2)]
    return whole + [[ids(batch) for batch in islice(prepared, len(prepared))] for _ in range(2)]


def resumed(workers: int, folder: Path) -> Any:
    first = Accelerator(cpu=True)
    before = first.prepare(loader(workers))
    for _ in before:
        pass
    batches = iter(before)
    taken = [ids(batch) for batch in islice(batches, 4)]
    first.save_state(str(folder))
    left = [ids(batch) for batch in batches]
    following = [ids(batch) for batch in before]
    first.free_memory()
    second = Accelerator(cpu=True)
    after = second.prepare(loader(workers))
    second.load_state(str(folder))
    return {
        "taken": taken,
        "uninterrupted": [left, following],
        "resumed": [[ids(batch) for batch in after] for _ in range(2)],
    }


def accumulated(workers: int) -> Any:
    """When gradients are summed up, four batches a step, in two epochs; and with a prefetcher."""
    flags = []
    for wrapped in (False, True):
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
        model, prepared = accelerator.prepare(torch.nn.Linear(1, 1), loader(workers))
        batches = ss.DevicePrefetcher(prepared, accelerator.device) if wrapped else prepared
        for _ in range(2):
            epoch = []
            for _batch in batches:
                with accelerator.accumulate(model):
                    epoch.append(accelerator.sync_gradients)
            flags.append(epoch)
        assert not accelerator.gradient_state.in_dataloader
    return flags


def gathered(workers: int) -> Any:
    """The samples that an evaluation on all ranks counts."""
    accelerator = Accelerator(cpu=True)
    prepared = accelerator.prepare(loader(workers, tail="pad"))
    return [number for batch in prepared for number in accelerator.gather_for_metrics(batch["id"]).tolist()]


def dropped(workers: int) -> Any:
    """What training gets of a loader of short batches, and an evaluation of one that repeats samples."""
    accelerator = Accelerator(cpu=True)
    training = accelerator.prepare(loader(workers, transform=few))
    evaluation = accelerator.prepare(loader(workers, transform=few, tail="pad", dropped="repeat"))
    counted = []
    for batch in evaluation:
        numbers, valid = accelerator.gather_for_metrics((batch["id"], batch["__valid__"]))
        counted += numbers[valid].tolist()
    found = {"batches": [ids(batch) for batch in training], "counted": [counted]}
    if RANKS == 1:  # short batches of several ranks cannot be gathered
        padded = accelerator.prepare(loader(workers, transform=few, tail="pad"))
        found["counted"].append([n for batch in padded for n in accelerator.gather_for_metrics(batch["id"]).tolist()])
    return found


def only_id(sample: dict[str, Any]) -> dict[str, Any]:
    return {"id": sample["id"]}


def samples(workers: int, dispatch: bool | None, context: str | None = None) -> Any:
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=dispatch))
    plain = DataLoader(
        dataset(transform=only_id),
        batch_size=12,
        num_workers=workers,
        persistent_workers=workers > 0 and dispatch is None,
        multiprocessing_context=context,
    )
    prepared = accelerator.prepare(plain)
    return {"length": len(prepared), "epochs": [[ids(batch) for batch in prepared] for _ in range(2)]}


def refused(workers: int) -> Any:
    """What is said of loaders that cannot work."""
    shape = {"num_workers": workers}
    dispatching = Accelerator(cpu=True)
    sharding = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=False))
    keeping = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=True))
    tensors = {"transform": only_id}
    twice = dataset(transform=only_id, rank=0, world_size=2)
    begun, old = dataset(transform=only_id), dataset(transform=only_id)
    begun.set_epoch(3)
    next(iter(begun))
    old.load_state_dict(begun.state_dict())
    said = {}
    for name, accelerator, plain in (
        ("texts", dispatching, DataLoader(dataset(), batch_size=BATCH, **shape)),
        ("texts of batches", dispatching, DataLoader(dataset(batch_size=BATCH), batch_size=None, **shape)),
        ("short batches", dispatching, DataLoader(dataset(batch_size=BATCH, transform=few), batch_size=None, **shape)),
        ("batches of batches", dispatching, DataLoader(dataset(batch_size=4), batch_size=BATCH, **shape)),
        ("a kept state", keeping, DataLoader(dataset(**tensors), batch_size=BATCH, **shape)),
        ("two dealers", dispatching, DataLoader(twice, batch_size=BATCH, **shape)),
        ("an old state", dispatching, DataLoader(old, batch_size=BATCH, **shape)),
        ("batches to shard", sharding, DataLoader(dataset(batch_size=BATCH), batch_size=None, **shape)),
    ):
        try:
            said[name] = f"nothing, but {next(iter(accelerator.prepare(plain)))}"
        except ss.errors.UsageError as error:
            said[name] = str(error)
        accelerator.wait_for_everyone()  # where a rank that waits inside would never come
    return said


def unknown(workers: int) -> Any:
    """What a data set says of a position that it cannot know."""
    read = dataset(transform=only_id)
    batches = iter(Accelerator(cpu=True).prepare(DataLoader(read, batch_size=BATCH, num_workers=workers)))
    next(batches)
    said = []
    for arguments in ({}, {"batches": 1, "num_workers": workers, "batch_size": BATCH}):
        try:
            said.append(str(read.state_dict(**arguments)))
        except ss.errors.UsageError as error:
            said.append(str(error))
    return said


def main() -> None:
    found: dict[str, Any] = {}
    for workers in (0, 2):
        found[f"epochs {workers}"] = epochs(workers)
        found[f"resumed {workers}"] = resumed(workers, FOLDER / f"state-{workers}")
        found[f"accumulated {workers}"] = accumulated(workers)
        found[f"gathered {workers}"] = gathered(workers)
        found[f"dropped {workers}"] = dropped(workers)
        found[f"dispatched {workers}"] = samples(workers, None)
        found[f"sharded {workers}"] = samples(workers, False)
        found[f"refused {workers}"] = refused(workers)
        found[f"unknown {workers}"] = unknown(workers)
    found["dispatched spawn"] = samples(2, None, "spawn")
    report(found)


if __name__ == "__main__":
    main()
