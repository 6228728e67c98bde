"""Names to backends."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import get_args

from shardstream.errors import UsageError, did_you_mean
from shardstream.images.backends.accimage import AccImage
from shardstream.images.backends.auto import Auto
from shardstream.images.backends.contract import Backend, BackendName, NamedBackend
from shardstream.images.backends.imageio import ImageIo
from shardstream.images.backends.opencv import OpenCv
from shardstream.images.backends.pillow import Pillow
from shardstream.images.backends.simplejpeg import SimpleJpeg
from shardstream.images.backends.torchvision import TorchVision

NAMES: tuple[BackendName, ...] = get_args(BackendName)

_MAKERS: dict[BackendName, Callable[[], NamedBackend]] = {
    "auto": Auto,
    "simplejpeg": SimpleJpeg,
    "pillow": Pillow,
    "opencv": OpenCv,
    "torchvision": TorchVision,
    "imageio": ImageIo,
    "accimage": AccImage,
}


def check_backend(backend: object) -> None:
    """Refuse what is neither a name nor a `Backend`; whether its library is installed is not looked at.

    Raises:
        UsageError: Proposes the nearest name.
    """
    if isinstance(backend, str):
        if backend not in NAMES:
            hint = did_you_mean(backend, NAMES) + "there are " + ", ".join(map(repr, NAMES))
            raise UsageError(f"there is no backend {backend!r}", hint=hint)
    elif isinstance(backend, type) or not isinstance(backend, Backend):
        raise UsageError(
            f"backend={backend!r} decodes nothing",
            hint="give a name, or an object with max_scale and decode (shardstream.decode.Backend)",
        )


def find(backend: Backend | BackendName) -> Backend:
    """The backend of this name, the same object each time; anything but a name is one itself.

    Raises:
        MissingExtraError: Its library is not installed.
    """
    return named(backend) if isinstance(backend, str) else backend


@cache
def named(name: BackendName) -> NamedBackend:
    """The backend of this name.

    Raises:
        MissingExtraError: Its library is not installed.
    """
    return _MAKERS[name]()
