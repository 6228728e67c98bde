"""Frameworks that deal out to ranks themselves what a data set reads: loaders of Accelerate, and so of ``Trainer``.

Accelerate makes one of two things of a ``DataLoader`` over an ``IterableDataset``: a ``DataLoaderDispatcher`` reads on
rank 0 and sends every rank its part, an ``IterableDatasetShard`` reads everything on every rank and keeps a part. So
there the data set has to give the whole epoch, not one rank's share of it, and in stretches of a batch, so that the
workers together make no more batches than the loader's length says. Nobody tells it: what does are the functions that
are running while it is asked. A forked worker still has them; a pickle takes the answer along.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from shardstream.errors import UsageError
from shardstream.stream.iteration.ranks import Dealt, find_rank
from shardstream.stream.iteration.settings import StreamOptions

_INSTEAD = (
    "write accelerator.prepare(ss.Loader(ds, batch_size=..., num_workers=...)): there every rank reads its own share"
)


def find_dealt(settings: StreamOptions) -> Dealt | None:
    """How what is being asked for is dealt out to ranks; ``None``: it is for this rank alone.

    Raises:
        UsageError: Accelerate would deal out what this data set gives in another way than that.
    """
    for asking in _asking():
        dealt = _dealt(asking, settings)
        if dealt is not None:
            if settings.ranks is not None and settings.ranks[1] != 1:
                raise UsageError(
                    f"Accelerate deals out samples to ranks, and so would ranks={settings.ranks}",
                    hint="leave ranks= out",
                )
            return dealt
    return None


def check_resumes(loaded: int, epoch: int) -> None:
    """See, as Accelerate says which epoch it begins, that it does so where a state that was loaded says.

    Raises:
        UsageError: It begins another epoch, or leaves out batches that the state leaves out already.
    """
    asking = list(_asking())
    if asking and loaded != epoch:
        raise UsageError(
            f"a state of epoch {loaded} was loaded, and Accelerate begins epoch {epoch}",
            hint=f"say set_epoch({loaded}) to what accelerator.prepare returned; ss.Loader needs no word",
        )
    if any(getattr(one, "__dict__", {}).get("skip_batches", 0) for one in asking):
        raise UsageError(
            "a state was loaded, and the batches that it leaves out would be skipped once more",
            hint="pass ignore_data_skip=True to TrainingArguments, or do not load the state",
        )


def check_can_be_sent(first: Callable[[], Any], *, single: bool, uneven: bool) -> bool:
    """See on every rank, before they wait for each other, that rank 0 can send the others what there is to send.

    Args:
        first: Makes the first batch, or a list of the first samples.
        single: Whether these are samples.
        uneven: Whether batches may have fewer samples than slots.

    Returns:
        Whether it is rank 0 that sends.

    Raises:
        UsageError: It cannot: Accelerate sends tensors alone, and cuts what it reads into parts of one size.
    """
    loader = next((one for one in _asking() if _is(one, "DataLoaderDispatcher")), None)
    if loader is None:
        return False
    if uneven and not single:
        raise UsageError(
            "Accelerate reads on rank 0 and sends each rank a part of one size, and batches may be short, since "
            "samples can be dropped",
            hint='write ShardDataset(..., dropped="repeat"): every batch then has batch_size slots; or ' + _INSTEAD,
        )
    operations: Any = sys.modules["accelerate.utils.operations"]
    data = first()
    if single and not data:  # dropped, or broken and skipped
        return True
    batch = loader.collate_fn(data)
    try:
        operations.find_batch_size(operations.concatenate([batch] * loader.state.num_processes))
    except TypeError as error:
        raise UsageError(
            f"Accelerate reads on rank 0 and sends tensors to the others, and a batch is more than tensors: {error}",
            hint=_INSTEAD + "; or deliver tensors alone, without `__key__` and texts",
        ) from error
    return True


def _dealt(asking: Any, settings: StreamOptions) -> Dealt | None:
    if _is(asking, "DataLoaderShard"):
        if not _is(asking.dataset, "IterableDatasetShard"):
            return _alone(asking, settings)
        asking = asking.dataset  # under spawn, it is the loader that pickles what it reads
    if _is(asking, "DataLoaderDispatcher"):
        if hasattr(asking.base_dataloader, "state_dict"):
            raise UsageError("a StatefulDataLoader of which rank 0 sends parts has no state to rely on", hint=_INSTEAD)
        ranks, size, split = asking.state.num_processes, asking.batch_size, asking.split_batches
    elif _is(asking, "IterableDatasetShard"):
        ranks, size, split = asking.num_processes, asking.batch_size, asking.split_batches
    else:
        return None
    ours = settings.batch_size
    if (size is None) == (ours is None) or (size is None and not _is(asking, "DataLoaderDispatcher")):
        batches = "single samples" if ours is None else f"batches of {ours}"
        whose = "makes no batches" if size is None else f"makes batches of {size}"
        raise UsageError(
            f"Accelerate cannot deal out the {batches} of the data set: the DataLoader {whose}",
            hint=_INSTEAD,
        )
    if ours is not None:
        return Dealt(ours, ours * ranks)
    if _is(asking, "DataLoaderDispatcher"):
        return Dealt(size, ranks)
    together = size if split else size * ranks
    return Dealt(together, together)


def _alone(loader: Any, settings: StreamOptions) -> Dealt | None:
    """One rank, to which all is dealt: batches that workers do not end early, since ``Trainer`` counts them."""
    plain = loader.batch_size is not None and not hasattr(loader.base_dataloader, "state_dict")
    if plain and settings.batch_size is None and find_rank(settings.ranks).world_size == 1:
        return Dealt(loader.batch_size, 1)
    return None


def _is(asking: Any, name: str) -> bool:
    """Whether it is of that class of Accelerate's; its own loaders say of themselves that they are torch's."""
    found = getattr(sys.modules["accelerate.data_loader"], name, None)
    return found is not None and issubclass(type(asking), found)


def _asking() -> Iterator[Any]:
    """What Accelerate is at: the objects whose functions are running, the innermost first."""
    if "accelerate.data_loader" not in sys.modules:
        return
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == "accelerate.data_loader":
            yield frame.f_locals.get("self")
        frame = frame.f_back
