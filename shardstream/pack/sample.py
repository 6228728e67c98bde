"""From files to encoded values. What cannot be read is said in one sentence, for ``rejects.jsonl``."""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple

from shardstream.errors import DecodeError, FieldError, StorageError
from shardstream.pack.images import ImageOptions
from shardstream.pack.sources.base import File, Item
from shardstream.shards.fields import FieldType, type_of_extension
from shardstream.shards.writing import Encoded, encode_value

_INT64 = FieldType.parse("int64")
# Not the sample's fault: the run must stop, or every sample after it would be rejected too.
_EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))


class Unreadable(Exception):
    """A sample that cannot be packed; the message says why."""


class Loaded(NamedTuple):
    """A sample as it is to be stored.

    Attributes:
        fields: Type and encoded value by name.
        size: How many bytes were read.
        kinds: By name of a JPEG field, what became of the file: ``"addressable"``, or what kind of file was kept.
    """

    fields: dict[str, tuple[FieldType, Encoded]]
    size: int
    kinds: dict[str, str]


def load(item: Item, images: ImageOptions) -> Loaded:
    """Read the files of a sample.

    Args:
        item: The sample.
        images: What becomes of its images.

    Raises:
        Unreadable: A file is missing, no file, empty, or not what its extension says.
        StorageError: The machine is out of memory or file handles.
    """
    fields: dict[str, tuple[FieldType, Encoded]] = {}
    kinds: dict[str, str] = {}
    size = 0
    for name, value in item.values.items():
        if isinstance(value, File):
            data = read_file(value.path)
            size += len(data)
            kind = type_of_extension(name)
            encoded, what = _encode(name, kind, data, images)
            fields[name] = kind, encoded
            if what is not None:
                kinds[name] = what
        else:
            fields[name] = _INT64, value
    return Loaded(fields, size, kinds)


def _encode(name: str, kind: FieldType, data: bytes, images: ImageOptions) -> tuple[Encoded, str | None]:
    try:
        if kind.is_image:
            return images.prepare(data)
        return encode_value(name, kind, data), None
    except (DecodeError, FieldError) as error:
        raise Unreadable(error.what) from error


def read_file(path: str) -> bytes:
    """The content of a regular file.

    Raises:
        Unreadable: It cannot be read, is no regular file, or is empty.
        StorageError: The machine is out of memory or file handles.
    """
    try:
        # Opening a pipe would wait for its writer; the flag means nothing for files.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _explain(error, path) from error
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise Unreadable("it is a directory" if stat.S_ISDIR(found.st_mode) else "it is no regular file")
        data = os.read(handle, found.st_size + 1)
        if len(data) != found.st_size:  # larger than one read can be, or being written just now
            data += b"".join(iter(lambda: os.read(handle, 1 << 24), b""))
    except OSError as error:
        raise _explain(error, path) from error
    finally:
        os.close(handle)
    if not data:
        raise Unreadable("the file is empty")
    return data


def _explain(error: OSError | ValueError, path: str) -> Unreadable | StorageError:
    if isinstance(error, ValueError):  # a zero byte in the path
        return Unreadable(f"no file can be called so: {error}")
    if error.errno in _EXHAUSTED:
        return StorageError(f"{error.strerror}", url=path, hint="raise the limit (ulimit -n), or use fewer workers")
    if error.errno == errno.ENOENT:
        return Unreadable("there is no such file")
    return Unreadable(error.strerror or str(error))
