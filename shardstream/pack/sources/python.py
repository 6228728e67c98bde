"""Samples from Python: anything with a length and numbers, or anything that can be iterated over.

A sample is a dict as `ShardWriter.write` takes it, its key under ``"__key__"``. Where the first has none, samples are
numbered. Hugging Face's images, ``{"bytes": ..., "path": ...}``, become fields named by what they hold.

What has a length and numbers (a list, ``datasets.Dataset``, a map-style data set of torch) is read in any order. If it
pickles to little, as data sets do that lie in files, it goes to the workers, which read it there; else this process
reads its samples and sends them. An iterable is read once, in order, here, into temporary shards.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.errors import SourceError, UsageError
from shardstream.faults import fault_kind
from shardstream.images.formats import format_of
from shardstream.images.header import find_refusal
from shardstream.pack.sources.base import LABEL, Item, Reject, Source, SourcePart, StreamSource
from shardstream.pack.sources.declared import type_named
from shardstream.pack.sources.duplicates import check_unique
from shardstream.pack.sources.keys import check_mode
from shardstream.pack.sources.lists.labels import Classes, not_listed
from shardstream.pack.sources.values import KEY
from shardstream.shards.fields import FieldType

_SMALL = 1 << 20  # bytes of a pickle that goes along with every task
_IMAGE = frozenset(("bytes", "path"))


class Indexed(Protocol):
    """What has a length, and a sample for each number below it."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


def python_source(source: Any, *, key: str, classes: Classes | None = None) -> Source | StreamSource:
    """The source that an object is.

    Raises:
        UsageError: It is not one, or ``key`` names a column.
        SourceError: It is empty.
        DuplicateKeyError: Two samples with one key.
    """
    check_mode(key, "samples have no columns here", hint="use 'path' for '__key__', 'auto' or 'line'")
    if isinstance(source, Mapping | bytes | bytearray) or not hasattr(type(source), "__iter__") | _indexed(source):
        raise UsageError(
            f"the source must be a path, a URL or samples, got a {type(source).__name__}",
            hint="pass a path or URL, a list of paths, or dicts such as {'__key__': 'a', 'jpg': b'...'}",
        )
    kind = SequenceSource if _indexed(source) else IterableSource
    return kind(source, key=key, classes=classes)


def _indexed(source: Any) -> bool:
    return hasattr(type(source), "__len__") and hasattr(type(source), "__getitem__")


@dataclass(frozen=True, slots=True)
class Shape:
    """What samples look like.

    Attributes:
        numbered: Whether their numbers are their keys.
        label: The field that becomes ``cls``.
        classes: What a label that is a name is looked up in; ``None`` leaves it a name.
    """

    numbered: bool
    label: str | None = None
    classes: Classes | None = None

    def item(self, sample: object, number: int) -> Item | Reject:
        """A dict as a sample; its number counts from 0 here."""
        line = number + 1
        if not isinstance(sample, Mapping):
            return Reject(line, "", f"it is a {type(sample).__name__}, not a dict of fields")
        key = f"{number:010d}" if self.numbered else sample.get(KEY)
        if not isinstance(key, str) or not key:
            return Reject(line, "", f"its {KEY!r} is {key!r}, not a non-empty str")
        values: dict[str, Any] = {}
        for name, value in sample.items():
            if name == KEY or value is None:
                continue
            if isinstance(value, Mapping) and value.keys() == _IMAGE and isinstance(value["bytes"], bytes):
                data = value["bytes"]
                found = format_of(data)
                never = find_refusal(data) if found is None else None
                if never is not None:
                    return Reject(line, key, never.what, kind=fault_kind(never))
                values[name if found is None else _image_field(name, found.kind)] = data
            else:
                values[LABEL if name == self.label else str(name)] = value
        label = values.get(LABEL)
        if self.classes is not None and isinstance(label, str):
            values[LABEL] = self.classes.number(label, key=key)
            if values[LABEL] is None:
                return Reject(line, key, not_listed("label", label))
        return Item(line, key, key, values)


@dataclass(frozen=True, slots=True)
class SamplesPart(SourcePart):
    """Samples that were read already, and travel along."""

    shape: Shape
    numbers: NDArray[np.int64]
    samples: tuple[Any, ...]

    def __iter__(self) -> Iterator[Item | Reject]:
        for number, sample in zip(self.numbers.tolist(), self.samples, strict=True):
            yield self.shape.item(sample, number)


@dataclass(frozen=True, slots=True)
class PickledPart(SourcePart):
    """Samples of a sequence that comes along as a pickle, and is opened once in each process."""

    shape: Shape
    numbers: NDArray[np.int64]
    pickled: bytes

    def __iter__(self) -> Iterator[Item | Reject]:
        sequence = _unpickled(self.pickled)
        for number in self.numbers.tolist():
            yield self.shape.item(sequence[number], number)


@lru_cache(maxsize=1)
def _unpickled(data: bytes) -> Indexed:
    sequence: Indexed = pickle.loads(data)  # noqa: S301 - of this run's own parent process
    return sequence


def _image_field(name: str, kind: str) -> str:
    return kind if name == "image" else f"{name}.{kind}"


def _numbered(first: object, key: str) -> bool:
    return key == "line" or not (isinstance(first, Mapping) and KEY in first)


class SequenceSource(Source):
    """What has a length and numbers.

    Args:
        samples: The sequence.
        key: ``"line"`` numbers the samples; else keys are theirs, where the first one has one.
        classes: The classes that labels are looked up in where they are names.

    Raises:
        SourceError: It is empty.
        DuplicateKeyError: Two samples have one key.
    """

    def __init__(self, samples: Indexed, *, key: str, classes: Classes | None = None) -> None:
        self.url = f"a {type(samples).__name__}"
        if not len(samples):
            raise SourceError(
                "it holds no samples", url=self.url, hint="pass a sequence or an iterable that holds some"
            )
        self._samples: Indexed = undecoded(samples)
        labels = labels_of(samples)
        self.classes = labels[1] if labels else None
        self._shape = Shape(_numbered(self._samples[0], key), labels[0] if labels else None, classes)
        self.implied = array_types_of(samples)
        self._pickled = _small_pickle(self._samples)
        if not self._shape.numbered:
            self.numbering = check_unique(
                self._keys,
                len(self),
                named=lambda number: f"sample {number}",
                url=self.url,
                hint="key='auto' numbers equal keys, key='line' all samples; or make keys unique",
                number=key == "auto",
            )

    def __len__(self) -> int:
        return len(self._samples)

    def part(self, numbers: NDArray[np.int64]) -> SourcePart:
        if self._pickled is not None:
            return PickledPart(self._shape, numbers, self._pickled)
        samples = tuple(self._samples[number] for number in numbers.tolist())
        return SamplesPart(self._shape, numbers, samples)

    @property
    def fingerprint(self) -> str:
        """By the data set's own fingerprint, as Hugging Face's have one, or by its pickle."""
        own = getattr(self._samples, "_fingerprint", None)
        if isinstance(own, str):
            return f"sequence {own}"
        hasher = xxhash.xxh3_128()
        try:
            pickle.dump(self._samples, _Hashing(hasher.update))
        except Exception:  # whatever an object of somebody else's raises
            keys = "" if self._shape.numbered else "\n".join(self._keys())
            hasher.update(f"{len(self)}\n{keys}".encode())
        return f"sequence {hasher.hexdigest()}"

    def _keys(self) -> Iterator[str]:
        for number in range(len(self)):
            item = self._shape.item(self._samples[number], number)
            yield f"/{number}" if isinstance(item, Reject) else item.key  # no key begins with a slash


class _Hashing(NamedTuple):
    """A file, as far as `pickle.dump` needs one, that hashes what is written to it."""

    write: Callable[[bytes], object]


class _Bounded(io.BytesIO):
    """A pickle that ends when it gets long."""

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > _SMALL:
            raise OverflowError
        return super().write(data)


def _small_pickle(samples: Indexed) -> bytes | None:
    out = _Bounded()
    try:
        pickle.dump(samples, out)
    except Exception:  # too long, or whatever an object of somebody else's raises
        return None
    return out.getvalue()


class IterableSource(StreamSource):
    """What can be iterated over once, in this process.

    Args:
        samples: The iterable.
        key: ``"line"`` numbers the samples; else keys are theirs, where the first one has one.
        classes: The classes that labels are looked up in where they are names.
    """

    travels = False

    def __init__(self, samples: Iterable[Any], *, key: str, classes: Classes | None = None) -> None:
        self.url = f"a {type(samples).__name__}"
        if key == "auto":
            raise UsageError(
                "key='auto' looks at all keys before the first sample is written, and this is read only once",
                url=self.url,
                hint="pass a sequence, or number the samples: key='line'",
            )
        self.streams: Sequence[SourcePart] = (_IterablePart(samples, key, classes),)
        self.key = "stem" if key == "stem" else "path"
        self.implied = array_types_of(samples)

    @property
    def fingerprint(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class _IterablePart(SourcePart):
    samples: Iterable[Any]
    key: str
    classes: Classes | None = None

    def __iter__(self) -> Iterator[Item | Reject]:
        shape = None
        for number, sample in enumerate(self.samples):
            shape = shape or Shape(_numbered(sample, self.key), classes=self.classes)
            yield shape.item(sample, number)


def undecoded(samples: Any) -> Any:
    """The same data set with its images as ``{"bytes", "path"}``, if it is one of Hugging Face; else as it is."""
    for name, feature in _features(samples).items():
        if type(feature).__name__ == "Image" and getattr(feature, "decode", False):
            samples = samples.cast_column(name, type(feature)(decode=False))
    return samples


def labels_of(samples: Any) -> tuple[str, tuple[str, ...]] | None:
    """The one column of class labels, and their names; ``None`` if there is none, or more than one."""
    found = [
        (name, tuple(feature.names))
        for name, feature in _features(samples).items()
        if type(feature).__name__ == "ClassLabel"
    ]
    return found[0] if len(found) == 1 else None


def array_types_of(samples: Any) -> dict[str, FieldType]:
    """The types of columns that hold lists of numbers: arrays, not JSON."""
    found = {name: _array_type(feature) for name, feature in _features(samples).items()}
    return {name: kind for name, kind in found.items() if kind is not None}


def _array_type(feature: Any) -> FieldType | None:
    """The type of the arrays that a feature stands for; ``None`` of anything but lists of numbers."""
    shape: list[int] = []
    while type(feature).__name__ in ("Sequence", "List", "LargeList"):
        shape.append(getattr(feature, "length", -1))
        feature = feature.feature
    if not shape and type(feature).__name__.startswith("Array"):  # Array2D and so on
        shape = [-1 if size is None else size for size in feature.shape]
    sizes = "" if -1 in shape else ":" + ",".join(map(str, shape))
    return type_named(f"array:{getattr(feature, 'dtype', None)}{sizes}") if shape else None


def _features(samples: Any) -> Mapping[str, Any]:
    """What ``datasets.Dataset`` knows of its columns. That package is not imported here."""
    features = getattr(samples, "features", None) if type(samples).__module__.startswith("datasets.") else None
    return features if isinstance(features, Mapping) else {}
