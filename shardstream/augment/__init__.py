"""Augmentation of whole batches on the device that they are on, with numbers of its own for every sample; resizes.

================ ===========================================================================
``image_batch``  ``ImageBatch``: all of the below as one module
``chain``        operations one after another, with few passes over memory
``operation``    ``Operation``: what one is; how it is carried out on the samples it touches
``geometric``    ``RandomCrop``, ``RandomHorizontalFlip``
``resized_crop`` ``RandomResizedCrop`` of images that lie in a batch already
``color``        ``ColorJitter``, ``RandomGrayscale``
``blur``         ``GaussianBlur``
``erasing``      ``RandomErasing``
``mixing``       mixup, cutmix, soft labels
``normalize``    torchvision's ``ToTensor`` and ``Normalize``, to the bit
``resize``       ``resize_crops``, ``resized``: `shardstream.Crops` to images of one size
``products``     resizing as two batched matrix products
``draws``        random numbers by key and position, the same on every device
``batch``        where in a batch images and labels are
``kornia``       ``Kornia``: modules of kornia and the like
================ ===========================================================================
"""

from typing import TYPE_CHECKING, Any

from shardstream.attributes import no_attribute
from shardstream.augment.blur import GaussianBlur
from shardstream.augment.color import ColorJitter, RandomGrayscale
from shardstream.augment.draws import Positions
from shardstream.augment.erasing import RandomErasing
from shardstream.augment.geometric import RandomCrop, RandomHorizontalFlip
from shardstream.augment.image_batch import ImageBatch
from shardstream.augment.kornia import Kornia
from shardstream.augment.operation import Operation
from shardstream.augment.resize import resize_crops, resized
from shardstream.augment.resized_crop import RandomResizedCrop

__all__ = [
    "ColorJitter",
    "GaussianBlur",
    "ImageBatch",
    "Kornia",
    "Operation",
    "Positions",
    "RandomCrop",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "resize_crops",
    "resized",
]


if not TYPE_CHECKING:  # type checkers find misspelt names themselves

    def __getattr__(name: str) -> Any:
        raise no_attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
