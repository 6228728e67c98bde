"""From stored values to what a training loop gets: field specs over images and fields. Knows nothing of files.

================  ===================================================================================
``specs``         ``Decoder`` and those that are not images: ``Text``
``pictures``      ``Image``, ``Resize``, ``CenterCrop``
``crops``         ``RandomResizedCrop``, ``Crop`` by a stored box; ``Cut``, a crop that the device resizes
``masks``         ``Mask``: label maps that follow an image
``boxes``         ``Boxes``, ``PerBox``, ``Points``, which follow an image too
``calls``         ``Call``: a user's callable on a field of another name; several outputs of one call
``packed``        ``Packed``: bins of documents; what is made of them, ``packed_rows``
``placement``     ``Placement``, ``SourceSize``: what was done to an image
``plan``          `DecodePlan`, `Output`: what is made of a sample
``compiling``     ``compile_fields``: what a user wrote, as such a plan
``dtypes``        numbers in another dtype: ``Array``, numpy's types
``context``       ``SampleContext``: which sample this is; its random words and geometries
``usercall``      ``UserCall``: a user's callable with keyed random numbers and errors that say where
================  ===================================================================================
"""

from typing import TYPE_CHECKING, Any

from shardstream.attributes import no_attribute
from shardstream.decode.boxes import Boxes, PerBox, Points
from shardstream.decode.calls import Call
from shardstream.decode.compiling import compile_fields
from shardstream.decode.context import SampleContext
from shardstream.decode.crops import Crop, Cut, RandomResizedCrop
from shardstream.decode.dtypes import Array
from shardstream.decode.masks import Mask
from shardstream.decode.packed import Packed
from shardstream.decode.pictures import CenterCrop, Image, Resize
from shardstream.decode.placement import Placement, SourceSize
from shardstream.decode.plan import DecodePlan, Output
from shardstream.decode.specs import Decoder, Slot, Text
from shardstream.decode.usercall import UserCall, global_states_kept
from shardstream.images.backends import Backend, Job

__all__ = [
    "Array",
    "Backend",
    "Boxes",
    "Call",
    "CenterCrop",
    "Crop",
    "Cut",
    "DecodePlan",
    "Decoder",
    "Image",
    "Job",
    "Mask",
    "Output",
    "Packed",
    "PerBox",
    "Placement",
    "Points",
    "RandomResizedCrop",
    "Resize",
    "SampleContext",
    "Slot",
    "SourceSize",
    "Text",
    "UserCall",
    "compile_fields",
    "global_states_kept",
]


if not TYPE_CHECKING:  # type checkers find misspelt names themselves

    def __getattr__(name: str) -> Any:
        raise no_attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
