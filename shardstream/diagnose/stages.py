"""What each stage of a batch takes alone, for `sweep`: in one thread, one after another, of samples that are there."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.opened import OpenedDataset

_SHARDS = 8  # whose indexes are read
_READ = 64  # samples at once


@dataclass(frozen=True, slots=True)
class Stage:
    """How fast one stage is alone.

    Attributes:
        name: ``"index"``, ``"storage"``, ``"cut"``, ``"decode"``, ``"resize"``, ``"assembly"``, ``"transport"``,
            ``"copy"``.
        samples_per_second: Samples a second, in one thread; ``None``: the stage does not run here.
        note: Of what, or why it does not.
    """

    name: str
    samples_per_second: float | None
    note: str


def of_storage(dataset: OpenedDataset, ids: Sequence[int]) -> tuple[list[Stage], list[dict[str, Any]]]:
    """Indexes and stored values.

    Args:
        dataset: The data set, of which nothing was read yet.
        ids: Numbers of the samples to read.

    Returns:
        The stages, and the stored values of these samples by field.

    Raises:
        DataError, StorageError: It cannot be read.
    """
    rows = DatasetRows(dataset)
    shards = range(min(_SHARDS, dataset.manifest.shards))
    began = time.perf_counter()
    indexed = sum(index.samples for index in rows.indexes(shards))
    opened = time.perf_counter()
    parts = [ids[start : start + _READ] for start in range(0, len(ids), _READ)]
    read = [rows.read_ids(part) for part in parts]
    done = time.perf_counter()
    where = "over the network" if dataset.over_network else "on this machine"
    stages = [
        Stage("index", indexed / (opened - began), f"indexes of {len(shards)} of {dataset.manifest.shards} shards"),
        Stage("storage", len(ids) / (done - opened), f"stored values {where}, with their checksums"),
    ]
    values = [batch.values(row) for part, batch in zip(parts, read, strict=True) for row in range(len(part))]
    return stages, values


def of_images(files: Iterable[bytes], crop: int | None) -> list[Stage]:
    """Cutting, decoding and resizing of random crops.

    Args:
        files: Encoded images; none where there are none.
        crop: Side of the crops, ``None`` where images stay as they are.

    Raises:
        DecodeError: An image is damaged.
    """
    files = list(files)
    if crop is None or not files:
        return [Stage(name, None, "no images are decoded") for name in ("cut", "decode", "resize")]
    from shardstream.decode import RandomResizedCrop, SampleContext
    from shardstream.images.header import probe
    from shardstream.images.jpeg.cutting import read

    times = dict.fromkeys(("cut", "decode", "resize"), 0.0)

    class Timed(RandomResizedCrop):
        """Counts the time of resizing apart."""

        def show(self, *arguments: Any) -> Any:
            began = time.perf_counter()
            shown = super().show(*arguments)
            times["resize"] += time.perf_counter() - began
            return shown

    with _one_thread():
        decoder, out = Timed(crop, flip=True), np.empty((crop, crop, 3), np.uint8)
        decoder.apply(files[0], SampleContext("", "", 0, 0, 0, 0), name="", stream=0, out=out)  # compiles and loads
        times["resize"], cuttable = 0.0, 0
        for number, data in enumerate(files):
            context = SampleContext("", "", 0, number, 0, 0)
            began = time.perf_counter()
            decoder.apply(data, context, name="", stream=0, out=out)
            times["decode"] += time.perf_counter() - began
            began = time.perf_counter()
            addressable = read(data) if probe(data).kind == "jpg" else None
            if addressable is not None:
                addressable.cut(context.geometry[""].box)
                cuttable += 1
                times["cut"] += time.perf_counter() - began
    decoding = max(times["decode"] - times["resize"] - times["cut"], 1e-9)
    note = f"random crops of {crop}"
    cut = Stage("cut", None, "no addressable JPEG is stored")
    if cuttable:
        cut = Stage("cut", cuttable / times["cut"], f"{cuttable:,} of {len(files):,} images are addressable JPEG")
    return [
        cut,
        Stage("decode", len(files) / decoding, note),
        Stage("resize", len(files) / times["resize"], f"to {crop} x {crop}"),
    ]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Torch's operators in the calling thread alone, as in a worker."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
