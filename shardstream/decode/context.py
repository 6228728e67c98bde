"""Which sample is being decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DecodeError
from shardstream.images.formats import Encoded
from shardstream.images.geometry import Geometry, Size, Turn
from shardstream.images.region import ImageFile, ImagePart
from shardstream.rng import Domain, words
from shardstream.shards.fields import FieldType


class Placed(NamedTuple):
    """What is to be done to an encoded image, as it is known before any pixel is decoded.

    Attributes:
        geometry: Of the image as it is stored.
        turn: What is done to the result at last.
        scale: The DCT scale it is decoded at.
        part: What of it is decoded.
    """

    geometry: Geometry
    turn: Turn
    scale: int
    part: ImagePart


@dataclass(slots=True)
class SampleContext:
    """One sample on its way into a batch.

    Attributes:
        key: The sample's key.
        shard: Its shard.
        row: Its number in the shard.
        position: Its place in the epoch's order: what its random numbers are keyed by.
        seed: The data set's seed.
        epoch: The epoch.
        geometry: By output name, what was done to each image of this sample so far; ``like=`` reads it.
        kept: By output name, which entries of an output of boxes are left: bool (N,).
        upright: By output name, of those whose image was turned as its EXIF orientation says, how.
        beside: The stored fields that decoders read beside their own, with their types; ``None`` where it lacks them.
        parts: By their names, the values of calls that make several outputs.
        placed: By output name, of those that were begun early, see `Picture.begin`.
        memory: By output name, of those whose values are `Cut`: gives uint8 (height, width, 3) to write pixels to.

    Example:
        >>> context = SampleContext(key="photo/3", shard="shard-000000.tar", row=3, position=17, seed=0, epoch=2)
        >>> context.place
        {'shard': 'shard-000000.tar', 'sample': 3, 'key': 'photo/3'}
    """

    key: str
    shard: str
    row: int
    position: int
    seed: int
    epoch: int
    geometry: dict[str, Geometry] = field(default_factory=dict)
    kept: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    upright: dict[str, Turn] = field(default_factory=dict)
    beside: dict[str, tuple[FieldType, Any]] = field(default_factory=dict)
    parts: dict[tuple[str, ...], Sequence[Any]] = field(default_factory=dict)
    placed: dict[str, Placed] = field(default_factory=dict)
    memory: Mapping[str, Callable[[int, int], NDArray[np.uint8]]] = field(default_factory=dict)
    _file: ImageFile | None = None

    @property
    def place(self) -> dict[str, str | int]:
        """Where the sample is, for errors."""
        return {"shard": self.shard, "sample": self.row, "key": self.key}

    def opened(self, data: Encoded) -> ImageFile:
        """An image file of this sample. Outputs that follow one another and show one file read its header once.

        Raises:
            DecodeError: The header is damaged.
        """
        if self._file is None or self._file.data is not data:
            self._file = ImageFile(data)
        return self._file

    def replayed(self, like: str, source: Size | None = None) -> Geometry:
        """What was done to the image of the output ``like``.

        Args:
            like: Its name.
            source: (height, width) of the picture to which the same is to be done, where it is one.

        Raises:
            DecodeError: The sample has no such image, or it is of another size.
        """
        plan = self.geometry.get(like)
        if plan is None:
            raise DecodeError(f"like={like!r}, but this sample has no {like!r}", hint="leave out such samples")
        if source is not None and plan.source != source:
            own, other = (f"{width} x {height}" for height, width in (source, plan.source))
            hint = "store both in one size"
            if plan.source == source[::-1]:
                hint += ", and upright where the image has upright=True"
            raise DecodeError(f"{own} pixels cannot be cropped like {like!r} of {other}", hint=hint)
        return plan

    def value_beside(self, name: str) -> Any:
        """The value of a stored field that a decoder reads beside its own, by its type.

        Raises:
            DecodeError: The sample has none, or it does not decode.
        """
        kind, raw = self.beside[name]
        if raw is None:
            raise DecodeError(f"the sample has no {name!r}", hint="every sample needs the field that is read beside")
        return kind.decode(raw)

    def words(self, stream: int, n: int) -> list[int]:
        """``n`` random 64-bit words for the augmentation of one output.

        Args:
            stream: The output's own number: outputs with different streams draw independently.
            n: How many; fewer words are the beginning of more.
        """
        drawn: list[int] = words(
            n, seed=self.seed, domain=Domain.AUGMENT, epoch=self.epoch, a=self.position, b=stream
        ).tolist()
        return drawn
