"""Which sample is being decoded."""

from __future__ import annotations

from dataclasses import dataclass, field

from shardstream.images.geometry import Geometry
from shardstream.images.header import Encoded
from shardstream.images.region import ImageFile
from shardstream.rng import Domain, words


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
    """

    key: str
    shard: str
    row: int
    position: int
    seed: int
    epoch: int
    geometry: dict[str, Geometry] = field(default_factory=dict)
    _file: ImageFile | None = None

    def opened(self, data: Encoded) -> ImageFile:
        """An image file of this sample. Outputs that follow one another and show one file read its header once.

        Raises:
            DecodeError: The header is damaged.
        """
        if self._file is None or self._file.data is not data:
            self._file = ImageFile(data)
        return self._file

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
