"""From stored values to what a training loop gets: field specs over images and fields. Knows nothing of files.

=============  ==============================================================================
``specs``      ``Decoder`` and those that are no images: ``Text``
``pictures``   ``Image``, ``Resize``, ``CenterCrop``, ``RandomResizedCrop``, ``Mask``
``plan``       ``compile_fields``: what a user wrote into a `DecodePlan` of `Output` objects
``context``    ``SampleContext``: which sample this is; its random words and geometries
``usercall``   ``UserCall``: a user's callable with keyed random numbers and errors that say where
=============  ==============================================================================
"""

from shardstream.decode.context import SampleContext
from shardstream.decode.pictures import CenterCrop, Image, Mask, RandomResizedCrop, Resize
from shardstream.decode.plan import DecodePlan, Output, compile_fields
from shardstream.decode.specs import Decoder, Slot, Text
from shardstream.decode.usercall import UserCall, global_states_kept

__all__ = [
    "CenterCrop",
    "DecodePlan",
    "Decoder",
    "Image",
    "Mask",
    "Output",
    "RandomResizedCrop",
    "Resize",
    "SampleContext",
    "Slot",
    "Text",
    "UserCall",
    "compile_fields",
    "global_states_kept",
]
