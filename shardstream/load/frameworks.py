"""What training frameworks find in a `Loader`. None of them need be installed, and nothing here imports one.

Accelerate makes of a ``DataLoader`` that it prepares one of its own, which deals out samples to ranks, says when the
last batch has come, and whose state it saves. A `Loader` does without: it says that it is prepared, has a state, and
tells Accelerate the rest. Hugging Face's ``Trainer`` works with Accelerate.

Lightning and Fabric leave a loader as it is, and tell its sampler which epoch begins. For ``Trainer.predict`` and
``overfit_batches``, Lightning makes a second loader of the same class from the arguments of the first.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Protocol

from torch.utils.data import Sampler

from shardstream.extras import private
from shardstream.stream.iteration.epoch_run import EpochRun


class Epochs(Protocol):
    """What a `Loader` brings along: epochs that a framework can move on.

    Attributes:
        epoch: The epoch that is being read, or that the next iteration reads.
    """

    _offset: int | None
    _plain_sampler: Sampler[Any]

    @property
    def epoch(self) -> int:
        """The epoch that is being read, or that the next iteration reads."""

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration reads."""

    def restart(self) -> None:
        """Let the iteration that has begun, if nothing of it was received, read the epoch that was chosen since."""


class ForFrameworks:
    """A loader that Accelerate hands on as it is, and that is told which epoch begins."""

    _is_accelerate_prepared = True
    use_stateful_dataloader = True
    """``Accelerator.save_state`` and ``load_state`` ask for the state, and give it back."""

    # Of what `skip_first_batches` passes on to the loader that it makes of this one, what a DataLoader has not.
    device = None
    rng_types = None
    synchronized_generator = None

    _offset: int | None = 0  # our epoch less the framework's; `None`: unknown since ours was chosen

    def remember_arguments(self, *parts: Mapping[str, Any]) -> dict[str, Any]:
        """Keep what this was made of, under the names by which Lightning keeps it for loaders made in its hooks.

        Args:
            *parts: Arguments by name.

        Returns:
            All of them.
        """
        arguments = {name: value for part in parts for name, value in part.items()}
        saved = {"args": (), "kwargs": arguments, "arg_names": (), "default_kwargs": {}}
        vars(self).update({f"__pl_saved_{name}": value for name, value in saved.items()})
        vars(self)["__dataset"] = arguments["dataset"]
        return arguments

    @property
    def iteration(self: Epochs) -> int:
        """The epoch, as Accelerate calls it."""
        return self.epoch

    @property  # type: ignore[misc]  # `object` calls it an attribute
    def __class__(self) -> type[Any]:
        """The class; where Accelerate is at work, as one of its ``DataLoaderShard``s.

        Accelerate's own loaders pass for torch's in the same way. ``Trainer`` calls ``skip_first_batches`` when it goes
        on from a checkpoint, and what that makes of any other loader does not hear which epoch it is.
        """
        module: Any = sys.modules.get("accelerate.data_loader")
        shard = getattr(module, "DataLoaderShard", None)  # not there yet while it is being imported
        return type(self) if shard is None else _both(type(self), shard)  # type: ignore[arg-type]  # it says a class has no hash

    @property
    def sampler(self: Epochs) -> Any:
        """Who is told; torch makes nothing of it but the number of requests."""
        return EpochSampler(self._plain_sampler, self)

    @sampler.setter
    def sampler(self, sampler: Sampler[Any]) -> None:
        self._plain_sampler = sampler


class EpochSampler(Sampler[Any]):
    """A loader's sampler, for who tells samplers which epoch begins.

    Args:
        plain: The sampler that torch takes.
        loader: The loader. It is not kept alive: torch's iterator holds the sampler, and the loader that iterator.
    """

    def __init__(self, plain: Sampler[Any], loader: Epochs) -> None:
        self._plain = plain
        self._loader = weakref.ref(loader)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._plain)

    def set_epoch(self, epoch: int) -> None:
        """What a framework counts as epoch ``epoch`` begins.

        Lightning counts epochs over restarts, but does not load the loader's state with each of them, and it may leave
        them early (``limit_train_batches``); of the first one it speaks after it has begun to iterate. Fabric counts
        iterations since the process began, whatever was loaded. So the loader follows where they go on, from the epoch
        that was chosen or loaded, and never goes back.
        """
        loader = self._loader()
        if loader is None:
            return
        offset = loader.epoch - epoch if loader._offset is None else max(loader._offset, loader.epoch - epoch)
        if offset + epoch > loader.epoch:
            loader.set_epoch(offset + epoch)
            loader.restart()
        loader._offset = offset


@cache
def _both(loader: type[Any], shard: type[Any]) -> type[Any]:
    names = {name: getattr(loader, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(loader.__name__, (loader, shard), names)


class Announced:
    """An iteration that Accelerate is told of: it sums up gradients to its end, no further, and counts no padding."""

    run: EpochRun
    over: bool

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the loop has the last batch."""
        return self.over

    @property
    def remainder(self) -> int:
        """How many samples of the last batches of all ranks `gather_for_metrics` keeps; 0: all, there is no padding."""
        return self.run.unpadded

    def announce(self) -> None:
        """Tell Accelerate, if it is at work, that the iteration begins; it does not keep it alive."""
        if _at_work():
            private(sys.modules["accelerate.state"].GradientState(), "_add_dataloader", "accelerate")(self)

    def recall(self) -> None:
        """Tell it that the loop is over."""
        if _at_work():
            private(sys.modules["accelerate.state"].GradientState(), "_remove_dataloader", "accelerate")(self)


def _at_work() -> bool:
    module: Any = sys.modules.get("accelerate.state")
    return module is not None and bool(private(module.GradientState, "_shared_state", "accelerate"))
