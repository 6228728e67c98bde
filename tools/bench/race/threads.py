"""Peers that decode in two threads of one process: FFCV, DALI, SPDL."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.boxes import random_box
from bench.data import BATCH, WORKERS
from bench.race.epochs import planes, steady
from bench.race.processes import RESIZED, SIZE
from bench.race.stores import photographs


def with_ffcv(store: str, work: str, count: int, batch: int = BATCH) -> dict[str, Any]:
    """FFCV's pipeline of its documentation, the file in memory."""
    from ffcv.fields.decoders import CenterCropRGBImageDecoder, IntDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip, ToTensor, ToTorchImage

    random_order = work == "crop"
    if random_order:
        decoding = [RandomResizedCropRGBImageDecoder((SIZE, SIZE)), RandomHorizontalFlip()]
    else:
        decoding = [CenterCropRGBImageDecoder((SIZE, SIZE), ratio=SIZE / RESIZED)]
    loader = Loader(
        store,
        batch_size=batch,
        num_workers=WORKERS,
        order=OrderOption.RANDOM if random_order else OrderOption.SEQUENTIAL,
        os_cache=True,
        drop_last=True,
        pipelines={"image": [*decoding, ToTensor(), ToTorchImage()], "label": [IntDecoder(), ToTensor()]},
    )
    return steady(loader, count, batch=batch)


def with_dali(store: str, work: str, count: int, *, fast: bool, batch: int = BATCH) -> dict[str, Any]:
    """A CPU pipeline of DALI over WebDataset's tar files.

    Args:
        store: The tar files.
        work: "crop" or "center".
        count: Photographs.
        fast: The fast inverse DCT and a resize that is not antialiased.
        batch: Size of the batches.
    """
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    urls = sorted(str(path) for path in Path(store).glob("*.tar"))
    resize = {"interp_type": types.INTERP_LINEAR, "antialias": not fast}

    @pipeline_def(batch_size=batch, num_threads=WORKERS, device_id=None, seed=1)  # type: ignore[untyped-decorator]
    def pipeline() -> Any:
        files, labels = fn.readers.webdataset(
            paths=urls, ext=["jpg", "cls"], random_shuffle=work == "crop", initial_fill=1000, name="tar"
        )
        if work == "crop":
            images = fn.decoders.image_random_crop(
                files, device="cpu", random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3], use_fast_idct=fast
            )
            images = fn.flip(fn.resize(images, size=[SIZE, SIZE], **resize), horizontal=fn.random.coin_flip())
        else:
            images = fn.decoders.image(files, device="cpu", use_fast_idct=fast)
            images = fn.crop(fn.resize(images, resize_shorter=RESIZED, **resize), crop=[SIZE, SIZE])
        return images, fn.pad(labels, fill_value=ord(" "))

    iterator = DALIGenericIterator([pipeline()], ["pictures", "labels"], reader_name="tar", auto_reset=True)

    def batches() -> Iterator[tuple[Tensor, list[int]]]:
        for (one,) in iterator:
            yield planes(one["pictures"]), [int(bytes(digits)) for digits in one["labels"].numpy()]

    return steady(batches(), count, batch=batch)


def with_spdl(store: str, work: str, count: int, batch: int = BATCH) -> dict[str, Any]:
    """SPDL's pipeline: FFmpeg decodes in threads, its filters crop and resize."""
    import spdl.io
    from spdl.pipeline import PipelineBuilder

    entries = photographs(store)
    if work == "center":
        entries = sorted(entries)
    rng = random.Random(1)

    def decoded(entry: tuple[Path, int]) -> tuple[Any, int]:
        path, label = entry
        packets = spdl.io.demux_image(path.read_bytes())
        codec = packets.codec
        steps = _spdl_filter(work, codec.width, codec.height, rng)
        return spdl.io.decode_packets(packets, filter_desc=f"{steps},format=pix_fmts=rgb24"), label

    def joined(samples: list[tuple[Any, int]]) -> tuple[Tensor, Tensor]:
        frames, labels = zip(*samples, strict=True)
        pictures = spdl.io.to_torch(spdl.io.convert_frames(list(frames)))
        return planes(pictures), torch.tensor(labels)

    builder = PipelineBuilder().add_source(entries).pipe(decoded, concurrency=WORKERS).aggregate(batch)
    pipeline = builder.pipe(joined).add_sink(2).build(num_threads=WORKERS + 1)
    with pipeline.auto_stop():
        return steady(pipeline.get_iterator(), count, batch=batch)


def _spdl_filter(work: str, width: int, height: int, rng: random.Random) -> str:
    if work == "crop":
        x, y, w, h = random_box(width, height, rng)
        flip = ",hflip" if rng.random() < 0.5 else ""
        return f"crop={w}:{h}:{x}:{y},scale=w={SIZE}:h={SIZE}:flags=bilinear{flip}"
    short = min(width, height)
    w, h = RESIZED * width // short, RESIZED * height // short
    return f"scale=w={w}:h={h}:flags=bilinear,crop={SIZE}:{SIZE}:{(w - SIZE) // 2}:{(h - SIZE) // 2}"
