"""The error tree.

Grouped by what the caller would do about it::

    ShardStreamError
    ├── UsageError            fix the call (also a ValueError)
    │   ├── FieldError        a field name or field type that does not fit the data
    │   ├── DestinationError  the output folder already holds something else
    │   ├── MissingKeyError   no sample has this key (also a KeyError)
    │   ├── BatchError        samples that cannot become one batch
    │   └── RankError         ranks that read different things
    ├── MissingExtraError     install an optional package (also an ImportError)
    ├── StorageError          look at the store: path, rights, disk, network
    │   ├── NotFoundError     no object of that name
    │   ├── AccessError       the store refuses: look at credentials and rights
    │   └── ChangedError      an object was replaced while it was in use
    ├── SourceError           fix the input list or folder that is being packed
    │   ├── DuplicateKeyError two samples with one key
    │   └── TooManyRejectsError more samples cannot be packed than max_rejects allows
    ├── DataError             stored bytes are damaged or foreign: permanent, may be skipped
    │   ├── FormatError       not our format, truncated, or inconsistent
    │   │   └── VersionError  written by a newer version: upgrade
    │   ├── ChecksumError     bytes differ from what was written
    │   └── DecodeError       bytes are as written, but do not decode
    │       ├── UnsupportedError   valid data of a kind that isn't read (also a FormatError)
    │       └── PlaceholderError   a Git LFS pointer or a web page in place of the data (also a FormatError)
    ├── TransformError        a user's callable raised
    ├── WorkerError           a worker process died: look at memory, and at the sample named (also a RuntimeError)
    └── TooManySkipsError     on_error="skip" reached its limit

Every error says what happened, where, and what to do. ``error.place`` is a dict with any of ``url`` (no credentials),
``shard``, ``sample``, ``key``, ``field``, ``offset`` and ``line``. Its text has no credentials, and nothing that a
terminal obeys. Errors survive pickling, and re-raising from their text, which is how a DataLoader brings them along.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, ClassVar, TypeAlias

from shardstream.system_errors import HINTS
from shardstream.text import printable, safe_line, without_credentials

__all__ = [
    "AccessError",
    "BatchError",
    "ChangedError",
    "ChecksumError",
    "DataError",
    "DecodeError",
    "DestinationError",
    "DuplicateKeyError",
    "FieldError",
    "FormatError",
    "MissingExtraError",
    "MissingKeyError",
    "NotFoundError",
    "Place",
    "PlaceholderError",
    "RankError",
    "ShardStreamError",
    "SourceError",
    "StorageError",
    "TooManyRejectsError",
    "TooManySkipsError",
    "TransformError",
    "UnsupportedError",
    "UsageError",
    "VersionError",
    "WorkerError",
]

Place: TypeAlias = dict[str, str | int]

_ORDER = ("url", "shard", "sample", "key", "field", "offset", "line")


class ShardStreamError(Exception):
    """Base of every error of this package.

    Args:
        what: One sentence, without the place.
        hint: What to do about it.
        place: Where: any of url, shard, sample, key, field, offset, line. ``None`` values are left out.

    Attributes:
        code: A short name of the kind of error, such as ``"missing-key"``, for programs. Classes that are derived from
            one of these have its code, unless they set their own.

    Example:
        >>> try:
        ...     ss.Reader("out/").get("photo/200")
        ... except ss.errors.ShardStreamError as error:
        ...     print(error.code, error.place["key"])
        missing-key photo/200
    """

    code: ClassVar[str] = "error"

    def __init__(self, what: str, *, hint: str | None = None, **place: str | int | None) -> None:
        self.what = printable(without_credentials(what))
        self.hint = None if hint is None else printable(without_credentials(hint))
        place["url"] = place.get("url") and without_credentials(str(place["url"]))
        self.place: Place = {name: place[name] for name in _ORDER if place.get(name) is not None}  # type: ignore[misc]
        if unknown := set(place) - set(_ORDER):
            raise TypeError(f"unknown parts of a place: {sorted(unknown)}")
        super().__init__(self.what)

    def __str__(self) -> str:
        text = self.what
        if self.place:
            text += " [" + ", ".join(f"{name} {safe_line(value)}" for name, value in self.place.items()) + "]"
        if self.hint:
            text += f"\n  hint: {self.hint}"
        return text

    def at(self, **place: str | int | None) -> ShardStreamError:
        """The same error with the parts of the place that it lacks filled in: ``raise error.at(url=url)``."""
        merged: dict[str, Any] = {**place, **self.place}
        return type(self)(self.what, hint=self.hint, **merged).with_traceback(self.__traceback__)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.what, self.hint, self.place)


def _rebuild(kind: type[ShardStreamError], what: str, hint: str | None, place: Place) -> ShardStreamError:
    return kind(what, hint=hint, **place)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The beginning of a hint that proposes the nearest of ``names``; empty where none is near."""
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}? " if near else ""


class UsageError(ShardStreamError, ValueError):
    """An argument or a combination of arguments that cannot work.

    Example:
        >>> try:
        ...     ss.ShardDataset("out/", batch_size=0)
        ... except ss.errors.UsageError as error:
        ...     print(error)
        batch_size must be a positive integer or None, got 0
          hint: write batch_size=1 or more, or None
    """

    code = "usage"


class FieldError(UsageError):
    """A field that does not exist, or whose type does not fit.

    Example:
        >>> try:
        ...     ss.ShardDataset("out/", fields=["label"])
        ... except ss.errors.FieldError as error:
        ...     print(error)
        no field 'label' is stored
          hint: stored fields: 'cls', 'jpg'; source= names another one
    """

    code = "field"


class DestinationError(UsageError):
    """The destination already holds another data set.

    Example:
        >>> try:
        ...     ss.export("out/", "photos/", to="files")
        ... except ss.errors.DestinationError as error:
        ...     print(error.what)
        the destination holds 0.jpg
    """

    code = "destination"


class MissingKeyError(UsageError, KeyError):
    """No sample of a data set has this key.

    Example:
        >>> try:
        ...     ss.Reader("out/").get("photo/200")
        ... except ss.errors.MissingKeyError as error:
        ...     print(error.what)
        no sample has this key
    """

    code = "missing-key"


class BatchError(UsageError):
    """Samples that cannot be put into one batch.

    Example:
        >>> store = ss.testing.make_dataset(ss.testing.MemoryStore())  # images of different sizes
        >>> try:
        ...     ss.ShardDataset(store, batch_size=2).peek()
        ... except ss.errors.BatchError as error:
        ...     print(error.place)
        {'shard': 'shard-000000.tar', 'sample': 1, 'key': '000001', 'field': 'jpg'}
    """

    code = "batch"


class RankError(UsageError):
    """Ranks of one run that read different things.

    Example:
        >>> ss.errors.RankError.code, issubclass(ss.errors.RankError, ss.errors.UsageError)
        ('rank', True)
    """

    code = "rank"


class MissingExtraError(ShardStreamError, ImportError):
    """An optional package is not installed; the message has the line that installs it.

    Example:
        >>> from shardstream.extras import require
        >>> try:
        ...     require("missing_package", extra="zarr", purpose="to read Zarr")
        ... except ss.errors.MissingExtraError as error:
        ...     print(error.hint.startswith("pip install "))
        True
    """

    code = "missing-extra"


class StorageError(ShardStreamError, OSError):
    """A store could not be read or written.

    Example:
        >>> store = ss.testing.make_dataset(ss.testing.MemoryStore(patience=0.1), fields={"txt": "str"})
        >>> store.fail("busy")
        >>> try:
        ...     ss.Reader(store)
        ... except ss.errors.StorageError as error:
        ...     print(error.what)
        gave up reading after ... s; tried ... times, 0 bytes came: status 503: slow down
    """

    code = "storage"

    @classmethod
    def of(cls, error: OSError | ValueError, **place: str | int | None) -> StorageError:
        """What the system refused, in its words, with what to do about it.

        Args:
            error: Its error; a ValueError is of a name that is none.
            place: See `ShardStreamError`.
        """
        what = getattr(error, "strerror", None) or str(error)
        return cls(what, hint=HINTS.get(getattr(error, "errno", 0)), **place)


class NotFoundError(StorageError):
    """No object of that name.

    Example:
        >>> try:
        ...     ss.Reader("nowhere/")
        ... except ss.errors.NotFoundError as error:
        ...     print(error.what)
        there is no data set here: no such file or folder
    """

    code = "not-found"


class AccessError(StorageError):
    """The store refuses: no credentials, wrong or expired ones, or ones without the right.

    Example:
        >>> store = ss.testing.make_dataset(ss.testing.MemoryStore(patience=0.1), fields={"txt": "str"})
        >>> store.fail("denied")
        >>> try:
        ...     ss.Reader(store)
        ... except ss.errors.AccessError as error:
        ...     print(error.what)
        access denied, as this store was told
    """

    code = "access"


class ChangedError(StorageError):
    """An object was replaced by another one while it was in use.

    Example:
        >>> store = ss.testing.make_dataset(ss.testing.MemoryStore(patience=0.1), fields={"txt": "str"})
        >>> store.fail("changed", "shard-*")
        >>> try:
        ...     ss.Reader(store)[0]
        ... except ss.errors.ChangedError as error:
        ...     print(error.what)
        the object was replaced by another one
    """

    code = "changed"


class SourceError(ShardStreamError):
    """The input of a pack run is unusable.

    Example:
        >>> try:
        ...     ss.pack("lists.tsv", "new/")
        ... except ss.errors.SourceError as error:
        ...     print(error.what)
        there is no such list or folder
    """

    code = "source"


class DuplicateKeyError(SourceError):
    """Two samples of one pack run have the same key.

    Example:
        >>> samples = [{"__key__": "a", "n": 1}, {"__key__": "a", "n": 2}]
        >>> try:
        ...     ss.pack(samples, "twice/")
        ... except ss.errors.DuplicateKeyError as error:
        ...     print(error.what)
        sample 0 and sample 1 have the same key
    """

    code = "duplicate-key"


class TooManyRejectsError(SourceError):
    """More samples could not be packed than ``max_rejects`` allows.

    Example:
        >>> try:
        ...     ss.pack([{"__key__": "a", "n": 1}, {"n": 2}], "new/", reading=ss.SourceOptions(max_rejects=0))
        ... except ss.errors.TooManyRejectsError as error:
        ...     print(error.what)
        1 of 2 samples read so far cannot be packed; max_rejects is 0
    """

    code = "too-many-rejects"


class DataError(ShardStreamError):
    """Stored data is damaged or foreign. Permanent: reading it again gives the same.

    Example:
        >>> store = ss.testing.make_dataset(ss.testing.MemoryStore(), fields={"txt": "str"})
        >>> store.fail("damaged byte", "shard-*", after=520)
        >>> try:
        ...     ss.ShardDataset(store, batch_size=8).peek()
        ... except ss.errors.DataError as error:
        ...     print(error.code, error.place["key"], error.place["offset"])
        checksum 000000 512
    """

    code = "data"


class FormatError(DataError):
    """Bytes that are not a shard, an index or a manifest, or contradict themselves.

    Example:
        >>> store = ss.testing.MemoryStore({"dataset.json": b"{"})
        >>> try:
        ...     ss.Reader(store)
        ... except ss.errors.FormatError as error:
        ...     print(error.what)
        the manifest is malformed: ...
    """

    code = "format"


class VersionError(FormatError):
    """Written by a newer version of the format.

    Example:
        >>> head = '{"format": "shardstream", "format_version": 99}'
        >>> store = ss.testing.MemoryStore({"dataset.json": head.encode()})
        >>> try:
        ...     ss.Reader(store)
        ... except ss.errors.VersionError as error:
        ...     print(error.what)
        format version 99 is newer than 1, the newest that this shardstream reads
    """

    code = "version"


class ChecksumError(DataError):
    """Bytes differ from those that were written.

    Example:
        >>> store = ss.testing.make_dataset(ss.testing.MemoryStore(), fields={"txt": "str"})
        >>> store.fail("damaged byte", "shard-*", after=520)
        >>> try:
        ...     ss.ShardDataset(store, batch_size=8).peek()
        ... except ss.errors.ChecksumError as error:
        ...     print(error.what)
        stored bytes differ from those that were written
    """

    code = "checksum"


class DecodeError(DataError):
    """A payload that does not decode as its type.

    Example:
        >>> with ss.ShardWriter("torn/", damaged="keep") as writer:
        ...     writer.write({"__key__": "a", "jpg": jpeg_bytes[:300]})
        >>> try:
        ...     ss.ShardDataset("torn/", batch_size=1).peek()
        ... except ss.errors.DecodeError as error:
        ...     print(error.place)
        {'shard': 'shard-000000.tar', 'sample': 0, 'key': 'a', 'field': 'jpg'}
    """

    code = "decode"


class UnsupportedError(DecodeError, FormatError):
    """Valid data of a kind that isn't read: an encoding, a layout, or a type.

    Example:
        >>> issubclass(ss.errors.UnsupportedError, ss.errors.DecodeError)
        True
    """

    code = "unsupported"


class PlaceholderError(DecodeError, FormatError):
    """A Git LFS pointer or a web page is where the data should be.

    Example:
        >>> issubclass(ss.errors.PlaceholderError, ss.errors.DecodeError)
        True
    """

    code = "placeholder"


class TransformError(ShardStreamError):
    """A user's transform raised; the cause is chained and quoted.

    Example:
        >>> try:
        ...     ss.ShardDataset("out/", fields={"cls": len}, batch_size=8).peek()
        ... except ss.errors.TransformError as error:
        ...     print(error.what)
        fields['cls'] (len) raised TypeError: object of type 'numpy.int64' has no len()
    """

    code = "transform"


class WorkerError(ShardStreamError, RuntimeError):
    """A worker process could not be started, died without a word, or gave no batch in the time of ``timeout=``.

    Example:
        >>> import os
        >>> ds = ss.ShardDataset("out/", fields={"cls": os._exit}, batch_size=8)
        >>> try:
        ...     next(iter(ss.Loader(ds, num_workers=1)))
        ... except ss.errors.WorkerError as error:
        ...     print(error.place["shard"])
        shard-000000.tar
    """

    code = "worker"


class TooManySkipsError(ShardStreamError):
    """More samples had to be skipped than ``max_skips`` allows.

    Example:
        >>> store = ss.testing.make_dataset(ss.testing.MemoryStore(), fields={"txt": "str"})
        >>> store.fail("damaged byte", "shard-*", after=520)
        >>> try:
        ...     ss.ShardDataset(store, batch_size=8, on_error="skip", max_skips=0).peek()
        ... except ss.errors.TooManySkipsError as error:
        ...     print(error.what)
        1 sample had to be skipped, max_skips is 0; the last: ...
    """

    code = "too-many-skips"


def __dir__() -> list[str]:
    return sorted(__all__)
