"""The page of ``shardstream view``: made of what the flags ask for, written and served."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from shardstream import diagnose
from shardstream.cli.progress import drawing
from shardstream.cli.report import plural, size, stderr, stdout
from shardstream.dataset.image_field import image_fields, virtual_image
from shardstream.errors import FieldError, UsageError
from shardstream.shards.fields import IMAGE
from shardstream.shards.manifest import Manifest
from shardstream.storage import open_store
from shardstream.text import in_one_line

_SAMPLES = 200


class PageContent(NamedTuple):
    """What is to be on the page.

    Attributes:
        url: The data set.
        numbers: Samples by number.
        keys: Samples by key.
        samples: How many are chosen; ``None`` for as many as fit what is shown.
        seed: Of the choice, or of training.
        opening: How the data set is opened.
    """

    url: str
    numbers: tuple[int, ...]
    keys: tuple[str, ...]
    samples: int | None
    seed: int
    opening: dict[str, Any]


class TrainingRun(NamedTuple):
    """The run whose images are shown: shuffled, with random crops that are flipped at times.

    Attributes:
        draws: Of how many epochs.
        crop: Side of the crops in pixels.
        epoch: The first epoch.
        step: Which batch; ``None`` for none.
        rank: Which rank of how many, as ``"0/1"``.
        batch_size: Samples a batch.
        workers: Of its loader.
    """

    draws: int
    crop: int
    epoch: int
    step: int | None
    rank: str
    batch_size: int
    workers: int


def made_page(wanted: PageContent, run: TrainingRun | None, *, quiet: bool) -> tuple[str, str]:
    """The page, and in words what is on it."""
    if run is not None:
        return _of_training(wanted, run)
    from shardstream.diagnose.overview import overview  # with decoders, which text needs none of
    from shardstream.report.page import page

    with drawing("looking", quiet=quiet) as draw:
        found = overview(
            wanted.url,
            wanted.numbers,
            keys=wanted.keys,
            samples=wanted.samples or _SAMPLES,
            seed=wanted.seed,
            progress=draw,
            **wanted.opening,
        )
    return page(found), f"{plural(len(found.samples), 'sample')} of {found.total:,}"


def _of_training(wanted: PageContent, run: TrainingRun) -> tuple[str, str]:
    import shardstream as ss  # with torch

    matched = re.fullmatch(r"(\d+)/(\d+)", run.rank)
    if matched is None:
        raise UsageError(f"--rank {run.rank} must be R/W", hint="--rank 3/8 is rank 3 of 8, counted from 0")
    numbers = list(wanted.numbers)
    if wanted.keys:
        numbers += [one.number for one in diagnose.view(wanted.url, keys=wanted.keys, **wanted.opening).samples]
    ds = ss.ShardDataset(
        wanted.url,
        fields=_fields(ss.Reader(wanted.url, **wanted.opening).manifest, run.crop),
        shuffle=True,
        seed=wanted.seed,
        batch_size=run.batch_size,
        tail="exact",  # small data sets, too, have something to show
        ranks=(int(matched[1]), int(matched[2])),
        **wanted.opening,
    )
    shown = ss.view(
        ds,
        numbers,
        samples=wanted.samples,
        draws=run.draws,
        epoch=run.epoch,
        step=run.step,
        num_workers=run.workers,
    )
    what = f"{plural(len(shown.overview.samples), 'sample')} of {shown.overview.total:,}"
    batch = "" if run.step is None else f", those of step {run.step} of epoch {run.epoch}, rank {run.rank}"
    return shown.html, what + batch + (f", {plural(run.draws, 'draw')} each" if run.draws else "")


def _fields(manifest: Manifest, crop: int) -> dict[str, Any]:
    """Random crops of whichever image a sample has; of the first field of images if nothing says which is the image."""
    from shardstream import decode

    images = image_fields(manifest.fields)
    if not images:
        raise FieldError(
            "no field holds pictures",
            url=manifest.url,
            hint="from Python, ss.view(ds, draws=8) shows what your own fields= and transforms make",
        )
    output = IMAGE if virtual_image(manifest.fields) else images[0]
    return {output: decode.RandomResizedCrop(crop, flip=True, optional=True)}


def show_page(page: str, what: str, html: Path | None, port: int | None) -> None:
    """Write the page, and serve it until somebody interrupts that.

    Args:
        page: The page.
        what: What is on it.
        html: The file, if there is to be one.
        port: Where it is served, 0 for a free port; ``None``: it is not.
    """
    out = stdout()
    if html is not None:
        data = page.encode()
        open_store(html.absolute().parent).put(html.name, data)
        out.print(f"{in_one_line(html)}: {what}, {size(len(data))}")
        if port is None:
            out.print(f"next: open {in_one_line(html)} in a browser")
    if port is not None:
        from shardstream.report.serving import PageServer

        with PageServer(page, port) as server:
            out.print(f"{server.url}")
            stderr().print(f"serving {what} to this machine only; Ctrl-C ends it")
            server.serve_forever()
