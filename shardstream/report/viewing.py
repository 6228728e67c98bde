"""``view``: the page of a data set, or of what training gets of it, for notebooks and programs."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from shardstream.diagnose.draws import Draw, TrainingView
from shardstream.diagnose.overview import Overview, overview, overview_of
from shardstream.errors import UsageError
from shardstream.load import Loader
from shardstream.report.page import page
from shardstream.sizes import plural
from shardstream.storage import PathOrUrl, open_store
from shardstream.stream.base import Stream
from shardstream.text import in_one_line

_DRAWN = 8  # samples of which draws are shown, by default
_WORKERS = 8  # as of `Loader`


class DatasetPage:
    """What `view` returns: a page that a notebook shows, and that can be written to a file.

    Attributes:
        overview: The values that the page shows.
        draws: By number of sample, what training gets of it, epoch after epoch.
    """

    def __init__(self, overview: Overview, draws: Mapping[int, Sequence[Draw]]) -> None:
        self.overview = overview
        self.draws = draws

    def __repr__(self) -> str:
        found = self.overview
        return f"view of {in_one_line(found.url)}: {plural(len(found.samples), 'sample')} of {found.total:,}"

    @property
    def html(self) -> str:
        """The page, which needs nothing but itself."""
        return page(self.overview, self.draws)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file.

        Raises:
            StorageError: The file cannot be written.
        """
        file = Path(path).absolute()
        open_store(file.parent).put(file.name, self.html.encode())

    def _repr_html_(self) -> str:
        """The page in a frame that can reach nothing of the notebook."""
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" sandbox="allow-scripts" width="100%" height="720" '
            'frameborder="0"></iframe>'
        )


def view(
    data: PathOrUrl | Stream | Loader,
    numbers: Iterable[int] = (),
    *,
    samples: int | None = None,
    seed: int = 0,
    draws: int = 0,
    epoch: int = 0,
    step: int | None = None,
    num_workers: int | None = None,
) -> DatasetPage:
    """Look at a data set, and at what training gets of it: a page of pictures for a notebook, or for a file.

    Of a data set or a loader as training has it, ``draws=8`` shows samples as they are stored, with what is cut out of
    them, and beside that the images which the loader delivers of them in 8 epochs: by its own ``fields=``, transforms
    and ``batch_transform``, seed and order, to the byte. ``step=`` shows what is in a batch. Nothing is trained, and no
    position moves on.

    Args:
        data: Folder or URL of a data set; or a `ShardDataset` of one data set, or a `Loader` of it.
        numbers: Samples by number in stored order. Default: some from all shards, of those that ``where=`` and
            ``split=`` leave; with ``draws`` the first ones of ``epoch``, with ``step`` those of that batch.
        samples: How many at most. Default: 200; 8 with ``draws``, and all of the batch with ``step``.
        seed: Of the choice of samples from all shards.
        draws: Of how many epochs images are shown, from ``epoch`` on.
        epoch: The first of these epochs.
        step: A batch of this rank, counted from the beginning of ``epoch``; ``ds.replace(ranks=(3, 8))`` is another
            rank.
        num_workers: Of the loader that trains, on which the order may depend. Default: that of a `Loader`, else 8.

    Raises:
        NotFoundError: There is no data set.
        UsageError: ``draws`` or ``step`` of a URL; several data sets, or samples drawn by weight; no such sample or
            step; a number out of range.
        StorageError: The store cannot be read.

    Example:
        >>> len(ss.view("out/", samples=20).overview.samples)
        20
        >>> crops = {"jpg": ss.decode.RandomResizedCrop(64)}
        >>> shown = ss.view(ss.ShardDataset("out/", fields=crops, shuffle=True, batch_size=20), draws=3)
        >>> len(shown.draws), {len(one) for one in shown.draws.values()}
        (8, {3})
    """
    if draws < 0 or (samples is not None and samples < 1):
        raise UsageError(f"draws={draws}, samples={samples} cannot be", hint="draws from 0 on, samples from 1 on")
    chosen = [*numbers]
    stream, workers = data, _WORKERS
    if isinstance(stream, Loader):
        stream, workers = stream.dataset, stream.num_workers
    if not isinstance(stream, Stream):
        if draws or step is not None:
            raise UsageError(
                "draws and steps are of what trains, not of a URL", hint="ss.view(ss.ShardDataset(url, ...), draws=8)"
            )
        return DatasetPage(overview(stream, chosen, samples=samples or 200, seed=seed), {})
    training = TrainingView(stream, num_workers=workers if num_workers is None else num_workers)
    if not chosen and (draws or step is not None):
        chosen = training.numbers_of(epoch=epoch, step=step or 0)
        chosen = list(dict.fromkeys(chosen))[: samples or (None if step is not None else _DRAWN)]
    elif not chosen and training.is_part:
        chosen = training.spread(samples or 200, seed)
    found = overview_of(training.dataset, chosen, samples=samples or 200, seed=seed)
    drawn: dict[int, list[Draw]] = {}
    if draws or step is not None:
        drawn = training.draws([one.number for one in found.samples], range(epoch, epoch + max(draws, 1)))
    return DatasetPage(found, drawn)
