"""The contract of sources: numbered samples that can be read in any order, a part of them in any process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FieldError
from shardstream.faults import FaultKind
from shardstream.options import SourceOptions
from shardstream.pack.sources.duplicates import KeyNumbers
from shardstream.pack.sources.paths import Origin, extension_of
from shardstream.progress import OnProgress, ignore
from shardstream.shards.bins import Bins
from shardstream.shards.field_names import check_field_name
from shardstream.shards.fields import FieldType
from shardstream.text import valid_unicode, without_credentials

LABEL = "cls"
_SAME_FIELD = {"jpeg": "jpg"}


class File(NamedTuple):
    """A value that is the content of a file, by its path in the local file system or its URL."""

    path: str


class LabelFile(File):
    """A file whose content is a label: an integer in decimal digits, as WebDataset's ``.cls`` members."""


Value: TypeAlias = "File | Any"
"""What a sample's field holds: a file's content, or a plain value, which is stored by its type."""


class Item(NamedTuple):
    """A sample before it is read.

    Attributes:
        line: Its line in the list, from 1; its number in the listing for folders.
        path: Its file as the source names it, for messages.
        key: Its key.
        values: Fields by name.
        size: Bytes of its files together, where a listing told; else ``None``.
    """

    line: int
    path: str
    key: str
    values: Mapping[str, Value]
    size: int | None = None


class _RejectParts(NamedTuple):
    line: int
    path: str
    reason: str
    samples: int | None = 1
    kind: FaultKind = "invalid"


class Reject(_RejectParts):
    """A sample that could not be read, or the rest of a file; one line of ``rejects.jsonl``.

    Lists of signed URLs are common, and rejects are published with the dataset: they are made without credentials.

    Attributes:
        line: As of `Item`.
        path: As of `Item`.
        reason: Why.
        samples: Number of samples lost; ``None`` if it cannot be known.
        kind: What is at fault.
    """

    __slots__ = ()

    def __new__(cls, line: int, path: str, reason: str, samples: int | None = 1, kind: FaultKind = "invalid") -> Self:
        return super().__new__(cls, line, without_credentials(path), without_credentials(reason), samples, kind)

    @property
    def is_rest(self) -> bool:
        """Whether a file, or the rest of one, is lost and not a single sample."""
        return self.samples is None or self.samples > 1


class SourcePart(ABC):
    """Some samples of a source in a fixed order. Picklable, and small: it goes to the process that reads it."""

    @abstractmethod
    def __iter__(self) -> Iterator[Item | Reject]:
        """The samples; a `Reject` for one that cannot even be tried."""


class Source(ABC):
    """Where samples come from.

    Attributes:
        url: What it is, for messages.
        classes: Names of the labels, ``None`` if labels are plain integers or missing.
        notes: What the user should know about how it was understood, as whole sentences.
        rejects: What is known to be lost before anything is read, beyond the samples that are counted.
        root: The folder all of whose files are being packed, if the source is one.
        origin: Where all its files have to lie, if it is a list that is not trusted; ``None``: anywhere.
        types: Types of fields that are known: of what it gives, and of what a transform makes of that. Values of other
            fields are stored by their Python type.
        implied: Types that its own schema gives fields, as that of a table; a transform may make anything of them.
        declared: Types of fields as they are to be stored, also of those that a transform makes.
        mean_bytes: Mean size of a sample, where all sizes are known and part of the fingerprint.
        numbering: How equal keys are told apart, if there are any; `numbered` does it.
        bins: What a manifest says of its samples, where they are bins of documents.
        decoded: Whether all its pictures have been decoded already, so that nobody has to do it again to find damage.
        lendable: Whether a worker process of this machine can open it from a pickle, see `lending.Lent`; its `part` is
            then called there.
    """

    url: str
    types: Mapping[str, FieldType] = MappingProxyType({})
    implied: Mapping[str, FieldType] = MappingProxyType({})
    declared: Mapping[str, FieldType] = MappingProxyType({})
    mean_bytes: float | None = None
    classes: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    rejects: Sequence[Reject] = ()
    root: str | None = None
    numbering: KeyNumbers | None = None
    decoded: bool = False
    bins: Bins | None = None
    lendable: bool = False
    origin: Origin | None = None

    @abstractmethod
    def __len__(self) -> int:
        """Number of samples, unreadable ones included."""

    @abstractmethod
    def part(self, numbers: NDArray[np.int64]) -> SourcePart:
        """These samples, each number in [0, len), in this order."""

    def first_without(self, field: str, *, of: str) -> str | None:
        """The key of the first sample that has no value in a field, while others have one.

        Only samples with a value in the field ``of`` count. ``None`` also if only reading all samples would tell.
        """
        return None

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Hash of everything that says which samples there are: the same on every host, whatever lies in the files."""


class DerivedSource(Source):
    """What another source has, changed.

    Args:
        source: The other one.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.url, self.classes, self.notes = source.url, source.classes, source.notes
        self.root, self.types, self.mean_bytes = source.root, dict(source.types), source.mean_bytes
        self.implied, self.declared = dict(source.implied), dict(source.declared)
        self.lendable, self.origin, self.decoded = source.lendable, source.origin, source.decoded
        self.rejects, self.bins = source.rejects, source.bins

    def __len__(self) -> int:
        return len(self._source)

    def first_without(self, field: str, *, of: str) -> str | None:
        return self._source.first_without(field, of=of)

    @property
    def fingerprint(self) -> str:
        return self._source.fingerprint


class StreamSource(ABC):
    """Where samples come from that can only be read in order, and are not counted yet.

    They are written to temporary shards first, which then are a `Source`: a second pass can shuffle them.

    Attributes:
        url: What it is, for messages.
        notes: What the user should know about how it was understood, as whole sentences.
        classes: Names of the labels, ``None`` if labels are plain integers or missing.
        types: As of `Source`.
        implied: As of `Source`.
        declared: As of `Source`.
        streams: Parts that can be read independently, each in order.
        travels: Whether streams can be sent to other processes.
        origin: As of `Source`.
        key: What is still to be made of the keys that samples have: nothing (``"path"``), their last parts
            (``"stem"``), numbers in their place (``"line"``), or numbers behind equal ones (``"auto"``).
    """

    url: str
    notes: tuple[str, ...] = ()
    classes: tuple[str, ...] | None = None
    types: Mapping[str, FieldType] = MappingProxyType({})
    implied: Mapping[str, FieldType] = MappingProxyType({})
    declared: Mapping[str, FieldType] = MappingProxyType({})
    streams: Sequence[SourcePart]
    travels: bool = True
    origin: Origin | None = None
    key: str = "path"

    @property
    @abstractmethod
    def fingerprint(self) -> str | None:
        """As of `Source`; ``None`` where only reading it all would tell."""


@dataclass(frozen=True, kw_only=True)
class SourceReading(SourceOptions):
    """How a source is read, if it is not samples from Python.

    Attributes:
        progress: Called for each object that is indexed.
    """

    progress: OnProgress = ignore


@dataclass(frozen=True, slots=True)
class FieldOfExtension:
    """The name of a field, or ``None`` and the reason why there is none."""

    field: str | None
    reason: str = ""


@lru_cache(maxsize=1024)
def field_of_extension(extension: str) -> FieldOfExtension:
    """The field that a file with this extension becomes."""
    if not extension:
        return FieldOfExtension(None, "the file name has no extension, from which the field takes its name")
    field = extension.lower()
    field = _SAME_FIELD.get(field, field)
    try:
        check_field_name(field)
    except FieldError:
        name, mark, _ = valid_unicode(extension).partition("?")  # behind it, a query may sign the URL
        return FieldOfExtension(None, f"its extension {name + mark!r} cannot be the name of a field")
    if field == LABEL:
        return FieldOfExtension(None, f"its extension is {LABEL!r}, the name of the field that holds the label")
    return FieldOfExtension(field)


def file_item(line: int, path: str, key: str, file: File, *, label: int | None) -> Item | Reject:
    """The sample of a single file: its extension names the field, the label goes to ``cls``."""
    extension = field_of_extension(extension_of(path))
    if extension.field is None:
        return Reject(line, valid_unicode(path), extension.reason)
    values: dict[str, Value] = {extension.field: file}
    if label is not None:
        values[LABEL] = label
    return Item(line, path, key, values)
