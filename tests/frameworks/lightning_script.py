"""Lightning's ``Trainer`` and Fabric: the samples of each step, and after a checkpoint."""

from __future__ import annotations

import copy
import logging
import warnings
from itertools import islice
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from reporting import FOLDER, RANKS, few, loader, report

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.simplefilter("ignore")
SHAPE: dict[str, Any] = {"accelerator": "cpu", "devices": RANKS, "strategy": "ddp" if RANKS > 1 else "auto"}


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.epochs: dict[int, list[list[int]]] = {}

    def training_step(self, batch: dict[str, Any], number: int) -> torch.Tensor:
        self.epochs.setdefault(self.current_epoch, []).append(batch["id"].tolist())
        return self.layer(batch["id"].float()[:, None] / 1000).mean()

    def validation_step(self, batch: dict[str, Any], number: int) -> None:
        pass

    def predict_step(self, batch: dict[str, Any], number: int) -> Any:
        return batch["id"].tolist()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 1e-9)


def fit(
    workers: int,
    checkpoints: list[ModelCheckpoint],
    *,
    path: str | None = None,
    read: dict[str, Any] | None = None,
    **more: Any,
) -> Any:
    model = Model()
    trainer = lightning.Trainer(
        **SHAPE,
        max_epochs=3,
        callbacks=checkpoints,
        enable_checkpointing=bool(checkpoints),
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **more,
    )
    validation = loader(workers, tail="pad")
    trainer.fit(
        model, loader(workers, **(read or {})), validation, ckpt_path=path, weights_only=False if path else None
    )
    return model.epochs


def trained(workers: int) -> Any:
    """Three epochs; and the same from the middle of the second, from its last step, and from its end."""
    length = len(loader(workers))
    folder = FOLDER / f"lightning-{workers}"
    at = {"middle": length + length // 2, "last": 2 * length}
    saved = [ModelCheckpoint(folder / name, every_n_train_steps=step, save_top_k=-1) for name, step in at.items()]
    ends = ModelCheckpoint(folder / "end", every_n_epochs=2, save_top_k=-1, save_on_train_epoch_end=True)
    found: dict[str, Any] = {"length": length, "epochs": fit(workers, [*saved, ends])}
    for name in (*at, "end"):
        (path,) = [one for one in (folder / name).iterdir() if f"step={at.get(name, 2 * length)}." in one.name]
        found[name] = fit(workers, [], path=str(path))
    return found


def limited(workers: int) -> Any:
    return fit(workers, [], limit_train_batches=3)


class Hooked(Model):
    """Makes the loader in a hook, where Lightning watches how loaders are made.

    Args:
        workers: Worker processes of the loader.
    """

    def __init__(self, workers: int) -> None:
        super().__init__()
        self._workers = workers

    def predict_dataloader(self) -> Any:
        return loader(self._workers, tail="exact")


def made_again(workers: int) -> Any:
    """What needs a second loader of the class: predictions, and epochs of the same few batches."""
    quiet: dict[str, Any] = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    trainer = lightning.Trainer(**SHAPE, **quiet)
    given = trainer.predict(Model(), loader(workers, tail="exact"))
    counted = trainer.predict_dataloaders.stats.samples
    hooked = lightning.Trainer(**SHAPE, **quiet).predict(Hooked(workers))
    overfit = fit(workers, [], overfit_batches=2, read={"shuffle": False})
    return {"given": given, "counted": counted, "hooked": hooked, "overfit": list(overfit.values())}


class Rebuilding(lightning.LightningDataModule):
    """Makes new loaders whenever it is asked.

    Args:
        workers: Worker processes of each.
    """

    def __init__(self, workers: int) -> None:
        super().__init__()
        self._workers = workers
        self.made: list[Any] = []

    def train_dataloader(self) -> Any:
        self.made.append(loader(self._workers))
        return self.made[-1]

    def val_dataloader(self) -> Any:
        return loader(self._workers, tail="pad")


def rebuilt(workers: int) -> Any:
    """Three epochs, a new loader for each: fit twice, a validation between; and from the middle of the second."""
    quiet: dict[str, Any] = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    quiet |= {"reload_dataloaders_every_n_epochs": 1}
    model, data, folder = Model(), Rebuilding(workers), FOLDER / f"rebuilt-{workers}"
    step = len(loader(workers)) * 3 // 2
    saved = ModelCheckpoint(folder, every_n_train_steps=step, save_top_k=-1)
    trainer = lightning.Trainer(**SHAPE, **quiet, max_epochs=2, callbacks=[saved])
    trainer.fit(model, datamodule=data)
    trainer.validate(model, datamodule=data, verbose=False)
    trainer.fit_loop.max_epochs = 3
    trainer.fit(model, datamodule=data)
    again = Model()
    trainer = lightning.Trainer(**SHAPE, **quiet, max_epochs=2, enable_checkpointing=False)
    (path,) = [one for one in folder.iterdir() if f"step={step}." in one.name]
    trainer.fit(again, datamodule=Rebuilding(workers), ckpt_path=str(path), weights_only=False)
    copied = [batch["id"].tolist() for batch in copy.deepcopy(data.made[-1])]
    return {"made": len(data.made), "step": step, "epochs": model.epochs, "resumed": again.epochs, "copied": copied}


def dropped(workers: int) -> Any:
    """Three epochs of short batches, with Lightning and with Fabric."""
    fabric = lightning.Fabric(**SHAPE)
    fabric.launch()
    read: dict[str, Any] = {"transform": few}
    batches = [batch["id"].tolist() for batch in fabric.setup_dataloaders(loader(workers, **read))]
    return [*fit(workers, [], read=read).values(), batches]


def fabric(workers: int, folder: Path) -> Any:
    fabric = lightning.Fabric(**SHAPE)
    fabric.launch()
    before = fabric.setup_dataloaders(loader(workers))
    epochs = [[batch["id"].tolist() for batch in before] for _ in range(2)]
    epochs.append([batch["id"].tolist() for batch in islice(before, len(before))])
    batches = iter(before)
    taken = [batch["id"].tolist() for batch in islice(batches, 4)]
    fabric.save(folder, {"loader": before})
    left = [batch["id"].tolist() for batch in batches]
    after = fabric.setup_dataloaders(loader(workers))
    fabric.load(folder, {"loader": after})
    rest = [[batch["id"].tolist() for batch in after] for _ in range(2)]
    following = [batch["id"].tolist() for batch in before]
    return {"epochs": [*epochs, taken + left], "taken": taken, "uninterrupted": [left, following], "resumed": rest}


def main() -> None:
    found: dict[str, Any] = {}
    for workers in (0, 2):
        found[f"lightning {workers}"] = trained(workers)
        found[f"limited {workers}"] = limited(workers)
        found[f"made again {workers}"] = made_again(workers)
        found[f"rebuilt {workers}"] = rebuilt(workers)
        found[f"dropped {workers}"] = dropped(workers)
        found[f"fabric {workers}"] = fabric(workers, FOLDER / f"fabric-{workers}.ckpt")
    report(found)


if __name__ == "__main__":
    main()
