"""How fast each image backend decodes here, in one thread, and which of them ``auto`` takes."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.image_field import image_fields
from shardstream.dataset.opened import OpenedDataset
from shardstream.dataset.opening import open_dataset
from shardstream.errors import DecodeError, MissingExtraError, SourceError, UsageError
from shardstream.images.backends import NAMES, BackendName, decode
from shardstream.images.backends.contract import NamedBackend
from shardstream.images.backends.dispatch import Auto, named
from shardstream.images.encode import encode
from shardstream.images.formats import ImageKind
from shardstream.images.geometry import Geometry, whole
from shardstream.images.header import ImageInfo, probe
from shardstream.images.resize import render
from shardstream.options import takes_flat
from shardstream.progress import OnProgress, ProgressEvent, ignore
from shardstream.storage.base.location import flat_transport

_ROUNDS = 5
_MADE = 16
_MADE_SIZE = 375, 500

_Work: TypeAlias = Callable[[bytes, int, BackendName], Any]


@dataclass(frozen=True, slots=True)
class DecodeSpeed:
    """One backend on images of one kind.

    Attributes:
        kind: ``"jpg"``, ``"png"`` or ``"webp"``.
        full: Images a second, decoded whole; ``None`` where the backend leaves such files to ``auto``, or refused one.
        crop: Images a second, decoded to random resized crops.
        taken: Whether ``auto`` takes this backend for most of them.
    """

    kind: ImageKind
    full: float | None
    crop: float | None
    taken: bool


@dataclass(frozen=True, slots=True)
class BackendReport:
    """One backend.

    Attributes:
        backend: Its name.
        library: The library with its version; ``None`` where it is not installed.
        missing: What to do about that.
        speeds: By kind of image, in the order of `DecodeReport.images`.
    """

    backend: BackendName
    library: str | None
    missing: str | None
    speeds: tuple[DecodeSpeed, ...]


@dataclass(frozen=True, slots=True)
class DecodeReport:
    """What `bench_decode` measured.

    Attributes:
        source: Where the images are from.
        images: How many of each kind.
        sizes: Width and height of the middle one of each kind, by pixels.
        crop: Pixels of a side of the crops.
        backends: All of them, installed or not.
    """

    source: str
    images: Mapping[ImageKind, int]
    sizes: Mapping[ImageKind, tuple[int, int]]
    crop: int
    backends: tuple[BackendReport, ...]


@takes_flat(flat_transport("places"))
def bench_decode(
    *places: str | os.PathLike[str],
    images: int = 64,
    crop: int = 224,
    seconds: float = 0.5,
    storage_options: Mapping[str, Any] | None = None,
    progress: OnProgress | None = None,
) -> DecodeReport:
    """Decode images with every backend that is installed, in one thread, and say how fast each is.

    All decode the same images in turn, five times over; the median counts. Nothing is read while time is taken.

    Args:
        places: The folder or URL of a data set, of which images all over it are taken; or image files. Default:
            photographs made of noise, 500 x 375.
        images: How many at most.
        crop: Size of the random crops, as ``RandomResizedCrop`` draws them.
        seconds: How long one measurement takes with ``auto``; there are two for each backend and kind of image.
        storage_options: Credentials and settings of the store by name. Default: those of the environment.
        progress: Called with a `ProgressEvent` before each measurement.

    Raises:
        NotFoundError: There is no data set.
        SourceError: A file cannot be read, or there is no image that decodes.
        UsageError: An argument that cannot work.
        MissingExtraError: Nothing is installed that decodes such images.

    Example:
        >>> bench_decode("out/", seconds=0.01).images
        {'jpg': 64}
    """
    for name, value in (("images", images), ("crop", crop), ("seconds", seconds)):
        if not value > 0:
            raise UsageError(f"{name} must be positive, got {value!r}", hint=f"leave out --{name} for the default")
    source, files = _files(places, images, storage_options)
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _measured(source, _by_kind(source, files), crop, seconds, progress)
    finally:
        torch.set_num_threads(threads)


# ----------------------------------------------------------------------------------------------------------- the images


def _files(
    places: Sequence[str | os.PathLike[str]],
    count: int,
    storage_options: Mapping[str, Any] | None,
) -> tuple[str, list[bytes]]:
    if not places:
        return f"photographs made of noise, {_MADE_SIZE[1]} x {_MADE_SIZE[0]}", [_made(i) for i in range(_MADE)]
    if all(os.path.isfile(place) for place in places):
        chosen = places[:count]
        try:
            return f"{len(chosen)} files", [Path(place).read_bytes() for place in chosen]
        except OSError as error:
            raise SourceError(
                f"a file cannot be read: {error}", hint="let this user read it (chmod u+r), or name another file"
            ) from error
    if len(places) > 1:
        raise UsageError("several places must all be image files", hint="give one data set, or image files")
    return _stored(open_dataset(places[0], storage_options=storage_options), count)


def _stored(dataset: OpenedDataset, count: int) -> tuple[str, list[bytes]]:
    """The first image of samples from all over a data set."""
    names = image_fields(dataset.manifest.fields)
    if not names:
        hint = "fields of the types jpg, png, webp and image are"
        raise UsageError("the data set has no image field", url=dataset.url, hint=hint)
    total = dataset.manifest.samples
    numbers = np.linspace(0, total - 1, min(count, total)).round().astype(np.int64)
    batch = DatasetRows(dataset, names).read_ids(numbers)
    values = (batch.values(i) for i in range(len(numbers)))
    images = (next((one[name] for name in names if name in one), None) for one in values)
    return dataset.url, [bytes(image) for image in images if image is not None]


def _made(number: int) -> bytes:
    rng = np.random.Generator(np.random.Philox(number))
    coarse = rng.integers(0, 256, (24, 32, 3), np.uint8)
    pixels = render(coarse, Geometry((24, 32), whole((24, 32)), _MADE_SIZE)).astype(np.int16)
    return encode((pixels + rng.integers(-12, 13, pixels.shape)).clip(0, 255).astype(np.uint8), "jpg", quality=90)


def _by_kind(source: str, files: Sequence[bytes]) -> dict[ImageKind, list[bytes]]:
    """The files that decode, by kind, the most frequent first."""
    kinds: dict[ImageKind, list[bytes]] = {}
    for data in files:
        try:
            decode(data)
        except DecodeError:
            continue
        kinds.setdefault(probe(data).kind, []).append(data)
    if not kinds:
        raise SourceError("there is no image that decodes", url=source, hint="`shardstream view` says what is stored")
    return dict(sorted(kinds.items(), key=lambda item: -len(item[1])))


# ------------------------------------------------------------------------------------------------------------ the time


def _measured(
    source: str, kinds: dict[ImageKind, list[bytes]], crop: int, seconds: float, progress: OnProgress | None
) -> DecodeReport:
    found, missing = _installed()
    speeds: dict[BackendName, list[DecodeSpeed]] = {name: [] for name in found}
    works = (_whole, _cropper(crop))
    tell, done = ignore if progress is None else progress, itertools.count()
    for kind, files in kinds.items():
        infos = [probe(data) for data in files]
        readers = [name for name, backend in found.items() if all(backend.max_scale(info) for info in infos)]
        rates: list[dict[BackendName, float]] = []
        for work in works:
            tell(ProgressEvent("decode", next(done), len(kinds) * len(works), "measurements", {"now": kind}))
            rates.append(_rates(work, readers, files, seconds))
        auto = statistics.mode(map(Auto().takes, infos))
        for name in found:
            full, cropped = (rate.get(name) for rate in rates)
            speeds[name].append(DecodeSpeed(kind, full, cropped, name == auto))
    return DecodeReport(
        source,
        {kind: len(files) for kind, files in kinds.items()},
        {kind: _middle([probe(data) for data in files]) for kind, files in kinds.items()},
        crop,
        tuple(
            BackendReport(name, found[name].library, None, tuple(speeds[name]))
            if name in found
            else BackendReport(name, None, missing[name], ())
            for name in NAMES
            if name != "auto"
        ),
    )


def _rates(work: _Work, readers: Sequence[BackendName], files: Sequence[bytes], seconds: float) -> dict[Any, float]:
    """Images a second of each; those that refuse one of the files are left out."""
    count = max(1, round(seconds / _ROUNDS / _time(work, "auto", files, len(files)) * len(files)))
    taken: dict[BackendName, list[float]] = {name: [] for name in readers}
    for _ in range(_ROUNDS):
        for name in list(taken):
            try:
                taken[name].append(_time(work, name, files, count))
            except DecodeError:
                del taken[name]
    return {name: count / statistics.median(times) for name, times in taken.items()}


def _installed() -> tuple[dict[BackendName, NamedBackend], dict[BackendName, str]]:
    """The backends that can be used, and what to do about the others."""
    found: dict[BackendName, NamedBackend] = {}
    missing: dict[BackendName, str] = {}
    for name in NAMES:
        try:
            if name != "auto":
                found[name] = named(name)
        except MissingExtraError as error:
            missing[name] = error.hint or error.what
    return found, missing


def _time(work: _Work, name: BackendName, files: Sequence[bytes], n: int) -> float:
    began = time.perf_counter()
    for number in range(n):
        work(files[number % len(files)], number, name)
    return time.perf_counter() - began


def _whole(data: bytes, _number: int, backend: BackendName) -> Any:
    return decode(data, backend=backend)


def _cropper(size: int) -> _Work:
    from shardstream.decode import RandomResizedCrop, SampleContext

    out = np.empty((size, size, 3), np.uint8)
    crops = {name: RandomResizedCrop(size, backend=name) for name in NAMES}

    def work(data: bytes, number: int, backend: BackendName) -> Any:
        context = SampleContext("", "", 0, number, 0, 0)
        return crops[backend].apply(data, context, name="", stream=0, out=out)

    return work


def _middle(infos: Sequence[ImageInfo]) -> tuple[int, int]:
    info = sorted(infos, key=lambda info: info.width * info.height)[len(infos) // 2]
    return info.width, info.height
