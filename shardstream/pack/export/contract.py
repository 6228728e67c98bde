"""The contract of a kind of output: small, picklable, one shard at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from shardstream.shards.fields import FieldType
from shardstream.shards.manifest import Manifest
from shardstream.storage import ObjectWriter, Store

FOLDER = ".export"
"""What an export that is not complete holds in the destination beside its output."""
STATE_NAME = "export.json"
"""What says which export this is, and whether it is complete."""
CLASSES_NAME = "classes.txt"
KEY = "__key__"
"""The column of keys, where there are columns."""

Compression: TypeAlias = Literal["zstd"]
"""How files of the output are compressed as a whole."""


def receipt_of(shard: int) -> str:
    """Name of the object that says that a shard was written, until the export is complete."""
    return f"{FOLDER}/{shard:06d}.done"


class Sample(NamedTuple):
    """A sample as it is stored.

    Attributes:
        key: Its key.
        values: By field that it has: payloads as bytes, scalars as Python numbers, rows of values and fixed arrays as
            numpy.
    """

    key: str
    values: Mapping[str, Any]


class Target(ABC):
    """A kind of output.

    Args:
        manifest: What is exported.
    """

    def __init__(self, manifest: Manifest) -> None:
        self.fields: Mapping[str, FieldType] = dict(manifest.fields)
        self.classes = manifest.classes
        self.shards = manifest.shards

    def check(self, store: Store, keys: Callable[[], Iterator[str]]) -> None:  # noqa: B027 - most take all keys
        """Whether this place can take these samples, before anything is written.

        Args:
            store: The destination.
            keys: Gives all keys, each time that it is called.

        Raises:
            UsageError: It cannot.
        """

    @abstractmethod
    def object_name(self, shard: int) -> str:
        """Name of the object that is written of a shard."""

    @abstractmethod
    def write(self, store: Store, out: ObjectWriter, samples: Iterator[Sequence[Sample]], *, again: bool) -> bytes:
        """Write the samples of a shard.

        Args:
            store: The destination.
            out: The object of the shard; the caller commits it.
            samples: Its samples, some at a time.
            again: Whether an earlier run was interrupted, so that some of it may be there.

        Returns:
            What `finish` has to know of this shard: it is in its receipt, see `receipt_of`.

        Raises:
            UsageError: A key or a field that this kind of output cannot hold.
            StorageError: The destination cannot be written.
        """

    def finish(self, store: Store) -> None:
        """All shards are written: what belongs to the whole. May be done twice."""
        if self.classes is not None:
            store.put(CLASSES_NAME, "".join(f"{name}\n" for name in self.classes).encode())
