"""What the bare kernels take, in a plain loop, beside the same photographs and crops through the data set."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.data import BATCH
from bench.race.epochs import one_thread
from bench.race.processes import SIZE

BATCHES = 12

Job = Callable[[NDArray[np.uint8]], object]


def share(store: str) -> dict[str, Any]:
    """Images a second of both, batch by batch in turns, in this process by one thread.

    The plain loop has the files in memory, their headers read and the crops drawn, and fills one batch over and over:
    what is left is to cut, to decode and to resize. The data set does all of its work.
    """
    import shardstream as ss

    one_thread()
    crop = ss.decode.RandomResizedCrop(SIZE, flip=True)
    dataset = ss.ShardDataset(store, fields={"jpg": crop}, shuffle=True, batch_size=BATCH)
    jobs = list(_jobs(dataset.replace(fields={"jpg": "bytes"}), crop))
    slab = np.empty((BATCH, SIZE, SIZE, 3), np.uint8)
    loop = through = 0.0
    batches = iter(dataset)
    for number in range(BATCHES):
        start = time.perf_counter()
        batch = next(batches)
        between = time.perf_counter()
        for i, job in enumerate(jobs[number * BATCH : (number + 1) * BATCH]):
            job(slab[i])
        end = time.perf_counter()
        if not np.array_equal(batch["jpg"].permute(0, 2, 3, 1).numpy(), slab):
            raise ValueError("the plain loop makes other pixels")
        if number:  # the first batch opens files
            through += between - start
            loop += end - between
    images = (BATCHES - 1) * BATCH
    figures = {"share": loop / through, "plain loop": images / loop, "data set": images / through}
    return {"figures": figures, "delivered": {}}


def _jobs(files: Any, crop: Any) -> Iterator[Job]:
    """For each photograph of the first batches, what the kernels have to do for it."""
    from shardstream.decode import SampleContext
    from shardstream.decode.usercall import stream_of
    from shardstream.images import backends, resize
    from shardstream.images.geometry import scaled_box
    from shardstream.images.region import ImageFile

    out = np.empty((SIZE, SIZE, 3), np.uint8)
    stored = (batch["jpg"].tobytes(i) for batch in islice(files, BATCHES) for i in range(BATCH))
    for position, data in enumerate(stored):
        context = SampleContext(key="", shard="", row=0, position=position, seed=0, epoch=0)
        crop.apply(data, context, name="jpg", stream=stream_of("jpg"), out=out)
        plan, file = context.geometry["jpg"], ImageFile(data)
        scale = backends.jpeg_scale(file.info, plan.box.size, plan.size)
        yield partial(_cut_decode_resize, resize.render, file, plan, scaled_box(plan.box, scale), scale)


def _cut_decode_resize(render: Any, file: Any, plan: Any, box: Any, scale: int, out: NDArray[np.uint8]) -> None:
    pixels, origin = file.decode(box, scale=scale)
    render(pixels, plan, out, scale=scale, origin=origin)
