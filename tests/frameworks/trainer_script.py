"""``Trainer`` on a data set and on a `Loader`: the samples of each step, and of one that goes on from a checkpoint."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from reporting import BATCH, DATA, FOLDER, RANKS, dataset, few, loader, report
from transformers import Trainer, TrainerCallback, TrainingArguments

import shardstream as ss
from shardstream.testing.pictures import save


class Seen(TrainerCallback):
    """The ids of each batch, by epoch."""

    def __init__(self) -> None:
        self.epochs: list[list[list[int]]] = []

    def on_epoch_begin(self, *arguments: Any, **more: Any) -> None:
        self.epochs.append([])


class Model(torch.nn.Module):
    def __init__(self, seen: Seen) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen = seen

    def forward(self, x: torch.Tensor, id: torch.Tensor) -> dict[str, torch.Tensor]:
        self.seen.epochs[-1].append(id.tolist())
        return {"loss": self.layer(x).square().mean(), "id": id, "x": x}


def of_sample(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": torch.tensor([sample["id"] / 1000], dtype=torch.float32), "id": int(sample["id"])}


def of_batch(batch: dict[str, Any]) -> dict[str, Any]:
    return {"x": (batch["id"] / 1000).float()[:, None], "id": batch["id"]}


def collated(samples: list[dict[str, Any]]) -> dict[str, Any]:
    return of_batch({"id": torch.tensor([int(sample["id"]) for sample in samples])})


class OwnLoader(Trainer):
    """A `Loader` in place of the one that ``Trainer`` makes."""

    own: ss.Loader

    def get_train_dataloader(self) -> Any:
        return self.own


def make(kind: str, workers: int, output: str, **arguments: Any) -> tuple[Trainer, Seen]:
    seen = Seen()
    shape = {"dataloader_num_workers": workers, "dataloader_persistent_workers": workers > 0}
    settings: dict[str, Any] = {
        "output_dir": str(FOLDER / output),
        "num_train_epochs": 3,
        "per_device_train_batch_size": 12 if kind == "dataset" else BATCH,
        "use_cpu": True,
        "disable_tqdm": True,
        "report_to": [],
        "save_strategy": "steps",
        "logging_strategy": "no",
        "learning_rate": 0.0,
    }
    more: dict[str, Any] = {"callbacks": [seen]}
    if kind == "dataset":
        given = TrainingArguments(**settings | shape | arguments)
        return Trainer(Model(seen), given, train_dataset=dataset(transform=of_sample), **more), seen
    trainer = OwnLoader(Model(seen), TrainingArguments(**settings | arguments), **more)
    if kind == "collated":
        trainer.own = ss.Loader(dataset(), batch_size=BATCH, num_workers=workers, collate_fn=collated)
    else:
        trainer.own = loader(workers, batch_transform=of_batch, transform=few if kind == "dropped" else None)
    return trainer, seen


def train(kind: str, workers: int) -> Any:
    """Three epochs, and the same from a checkpoint in the middle of the second one."""
    name = f"{kind}-{workers}"
    length = len(make(kind, workers, name)[0].get_train_dataloader())
    save = length + length // 2
    whole, seen = make(kind, workers, name, save_steps=save)
    whole.train()
    again, left = make(kind, workers, name, save_steps=1000)
    again.train(resume_from_checkpoint=str(FOLDER / name / f"checkpoint-{save}"))
    return {"length": length, "save": save, "epochs": seen.epochs, "resumed": left.epochs}


def dropped(workers: int) -> Any:
    """Three epochs of short batches."""
    trainer, seen = make("dropped", workers, f"dropped-{workers}", save_steps=1000)
    trainer.train()
    return seen.epochs


def with_a_state(workers: int) -> Any:
    """From the `Loader`'s own state, ``Trainer`` skipping nothing; and with a data set whose state was loaded too."""
    name = f"loader-{workers}"
    length = len(make("loader", workers, name)[0].get_train_dataloader())
    save = length + length // 2
    states = []
    own, seen = make("loader", workers, f"{name}-own", save_steps=save)
    assert isinstance(own, OwnLoader)

    class Save(TrainerCallback):
        def on_save(self, *arguments: Any, **more: Any) -> None:
            states.append(own.own.state_dict())

    own.add_callback(Save())
    own.train()
    again, left = make("loader", workers, f"{name}-own", save_steps=1000, ignore_data_skip=True)
    assert isinstance(again, OwnLoader)
    again.own.load_state_dict(states[0])
    checkpoint = str(FOLDER / f"{name}-own" / f"checkpoint-{save}")
    again.train(resume_from_checkpoint=checkpoint)
    skipped, twice = make("loader", workers, f"{name}-own", save_steps=1000)
    assert isinstance(skipped, OwnLoader)
    skipped.own.load_state_dict(states[0])
    skipped.train(resume_from_checkpoint=checkpoint)
    return {"save": save, "length": length, "epochs": seen.epochs, "resumed": left.epochs, "skipped": twice.epochs}


def evaluated(workers: int) -> Any:
    """The ids that an evaluation counts: of a data set of samples, and of a loader that pads."""
    found = []
    for kind in ("dataset", "loader"):
        trainer, seen = make(kind, workers, f"evaluated-{workers}", per_device_eval_batch_size=BATCH)
        seen.epochs.append([])
        if kind == "loader":
            whole = ss.ShardDataset(DATA, batch_transform=of_batch, tail="pad")
            padding = ss.Loader(whole, batch_size=BATCH, num_workers=workers)
            trainer.get_test_dataloader = lambda dataset, padding=padding: padding  # type: ignore[method-assign]
        output = trainer.predict(ss.ShardDataset(DATA, transform=of_sample))
        found.append(output.predictions[1].tolist())  # the loss is the first
    return found


def skipped_twice(workers: int) -> str:
    name = f"dataset-{workers}"
    trainer, _ = make("dataset", workers, name, save_steps=1000)
    length = len(trainer.get_train_dataloader())
    begun = dataset(transform=of_sample)
    begun.set_epoch(1)
    next(iter(begun))
    trainer.train_dataset.load_state_dict(begun.state_dict())
    try:
        trainer.train(resume_from_checkpoint=str(FOLDER / name / f"checkpoint-{length + length // 2}"))
    except ss.errors.UsageError as error:
        return str(error)
    return "nothing"


class ImageModel(torch.nn.Module):
    """Keeps the shapes that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Conv2d(3, 1, 3)
        self.shapes: list[list[int]] = []

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        self.shapes.append(list(pixel_values.shape))
        return {"loss": self.layer(pixel_values).square().mean()}


def normalize(pixels: Any) -> torch.Tensor:
    return torch.from_numpy(pixels).float() / 127.5 - 1


def images(workers: int) -> Any:
    """The shapes of the images of single samples, as docs/frameworks.md has them trained on."""
    folder = FOLDER / f"images-{workers}-{os.environ['RANK']}"
    with ss.ShardWriter(folder, fields={"cls": "int64"}) as writer:
        for number in range(16 * RANKS):
            pixels = np.full((20, 30, 3), number, np.uint8)
            writer.write({"__key__": str(number), "png": save(pixels, "PNG"), "cls": number % 2})
    crop = ss.decode.RandomResizedCrop((8, 12), source="png", layout="CHW")
    ds = ss.ShardDataset(folder, fields={"pixel_values": [crop, normalize], "cls": None}, shuffle=True)
    model = ImageModel()
    settings = {"num_train_epochs": 1, "per_device_train_batch_size": BATCH, "dataloader_num_workers": workers}
    quiet: dict[str, Any] = {"use_cpu": True, "disable_tqdm": True, "report_to": [], "save_strategy": "no"}
    arguments = TrainingArguments(str(FOLDER / f"images-run-{workers}"), **settings, **quiet)
    Trainer(model, arguments, train_dataset=ds.rename({"cls": "labels"})).train()
    return model.shapes


def main() -> None:
    found: dict[str, Any] = {"ranks": RANKS}
    for workers in (0, 2):
        for kind in ("dataset", "loader", "collated"):
            found[f"{kind} {workers}"] = train(kind, workers)
        found[f"dropped {workers}"] = dropped(workers)
        found[f"state {workers}"] = with_a_state(workers)
        found[f"twice {workers}"] = skipped_twice(workers)
        found[f"evaluated {workers}"] = evaluated(workers)
        found[f"images {workers}"] = images(workers)
    report(found)


if __name__ == "__main__":
    main()
