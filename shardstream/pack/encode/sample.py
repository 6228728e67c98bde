"""From the contents of files to encoded values. What cannot be packed is said in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from shardstream.errors import DecodeError, FieldError, MissingExtraError, ShardStreamError
from shardstream.faults import fault_kind
from shardstream.pack.encode.files import Unreadable
from shardstream.pack.encode.images import ImageDecoding, ImageHandling
from shardstream.pack.sources.base import File, Item, LabelFile
from shardstream.pack.sources.declared import array_dtype
from shardstream.pack.sources.values import KEY, encode
from shardstream.placeholders import is_pointer, pointer_error
from shardstream.shards.fields import Encoded, FieldType, from_bytes

Transform: TypeAlias = Callable[[dict[str, Any]], "Mapping[str, Any] | None"]
"""A user's function of a sample: what is to be stored in its place, or ``None`` to leave it out."""

UNREADABLE = (DecodeError, FieldError, MissingExtraError)
"""What makes a reject of the sample whose value it is about."""


class Loaded(NamedTuple):
    """A sample as it is to be stored.

    Attributes:
        fields: Type and encoded value by name.
        kinds: By name of a JPEG field, what became of the file: ``"addressable"``, or what kind of file was kept.
    """

    fields: dict[str, tuple[FieldType, Encoded]]
    kinds: dict[str, str]

    @property
    def size(self) -> int:
        """Bytes of all fields as they are stored."""
        return sum(
            len(value) if isinstance(value, bytes | memoryview) else int(getattr(value, "nbytes", 8))
            for _, value in self.fields.values()
        )


@dataclass(frozen=True, slots=True)
class SampleEncoder:
    """How a sample becomes what is stored.

    Attributes:
        images: What becomes of image files.
        types: Types of fields that are known, of what the transform gets too.
        transform: Called with each sample before anything else.
        declared: Types of fields as they are stored, which go before those.
    """

    images: ImageHandling
    types: Mapping[str, FieldType] = field(default_factory=dict)
    transform: Transform | None = None
    declared: Mapping[str, FieldType] = field(default_factory=dict)

    @property
    def work(self) -> ImageDecoding | None:
        """What is done in another process; ``None``: nothing."""
        return self.images.decoding

    def load(self, item: Item, contents: Mapping[str, bytes]) -> Generator[bytes, bytes | None, Loaded | None]:
        """A sample as it is to be stored; ``None``: the transform leaves it out.

        A generator: it yields what `work` is to be called with, and is sent the result, or thrown the error.

        Args:
            item: The sample.
            contents: What its files hold.

        Raises:
            Unreadable: It cannot be packed.
        """
        values = values_of(item, contents) if self.transform is None else self.values(item, contents)
        if values is None:
            return None
        fields: dict[str, tuple[FieldType, Encoded]] = {}
        kinds: dict[str, str] = {}
        for name, value in values.items():
            if value is None:
                continue
            declared = self.declared.get(name) or self.types.get(name)
            try:
                kind, encoded = encode(name, value, declared)
                if kind.is_image:
                    assert isinstance(encoded, bytes | memoryview)
                    encoded, what = yield from self.images.prepare(bytes(encoded))
                    if what is not None:
                        kinds[name] = what
                elif isinstance(item.values.get(name), File) and _is_pointer(encoded):
                    raise pointer_error()  # text would be taken for what it says
            except UNREADABLE as error:
                named = name in self.declared or (declared is not None and array_dtype(declared) is not None)
                raise unreadable(error, name if named else None) from error
            fields[name] = kind, encoded
        return Loaded(fields, kinds)

    def values(self, item: Item, contents: Mapping[str, bytes]) -> Mapping[str, Any] | None:
        """The values of a sample as users know them, once they are transformed.

        Args, Returns, Raises: As of `load`.
        """
        try:
            values = self._decoded(values_of(item, contents))
        except UNREADABLE as error:
            raise unreadable(error, None) from error
        return values if self.transform is None else _transformed(self.transform, item.key, values)

    def _decoded(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values as users know them: text as str, JSON as what it holds; image files stay bytes."""
        found = dict(values)
        for name, value in values.items():
            kind = self.types.get(name)
            if isinstance(value, bytes) and kind is not None and kind.kind == "payload" and not kind.is_image:
                found[name] = from_bytes(kind, memoryview(value))
        return found


def unreadable(error: ShardStreamError, declared: str | None) -> Unreadable:
    """One of `UNREADABLE` as the reason of a reject; ``declared`` names the field if its type was."""
    if isinstance(error, MissingExtraError):  # of this file alone: others may need nothing
        return Unreadable(f"{error.what}; {error.hint}", fault_kind(error))
    named = isinstance(error, FieldError) and declared is not None
    return Unreadable(f"field {declared!r}: {error.what}" if named else error.what, fault_kind(error))


def values_of(item: Item, contents: Mapping[str, bytes]) -> dict[str, Any]:
    """The values of a sample, with what its files hold; `Unreadable` for a label that is none."""
    return {
        name: _content(value, contents[name]) if isinstance(value, File) else value
        for name, value in item.values.items()
    }


def _is_pointer(encoded: Encoded) -> bool:
    return isinstance(encoded, bytes | memoryview) and is_pointer(encoded)


def _content(file: File, data: bytes) -> bytes | int:
    if not isinstance(file, LabelFile):
        return data
    if is_pointer(data):
        raise unreadable(pointer_error(), None)
    try:
        return int(data)
    except ValueError:
        raise Unreadable(f"its label, {data[:20]!r}, is not an integer") from None


def _transformed(transform: Transform, key: str, values: Mapping[str, Any]) -> Mapping[str, Any] | None:
    try:
        found = transform({KEY: key, **values})
    except Exception as error:
        raise Unreadable(f"transform raised {type(error).__name__}: {error}") from error
    if found is None:
        return None
    if not isinstance(found, Mapping):
        raise Unreadable(f"transform returned a {type(found).__name__}, not a dict of fields")
    if found.get(KEY, key) != key:
        raise Unreadable(f"transform changed the key to {found[KEY]!r}")
    return {name: value for name, value in found.items() if name != KEY}
