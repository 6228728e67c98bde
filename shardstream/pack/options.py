"""What determines the bytes of a packed data set, checked in one place."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import xxhash

from shardstream.errors import UsageError
from shardstream.extras import require
from shardstream.options import SourceOptions, check_choices, option
from shardstream.pack.bins.binning import Binning
from shardstream.pack.bins.sequences import PackedSequences as PackedSequences  # public from here
from shardstream.pack.bins.texts import Texts
from shardstream.pack.encode.images import Damaged, ImageHandling, ImageOptions
from shardstream.pack.encode.sample import Transform
from shardstream.pack.output.places import StorageOptions
from shardstream.pack.output.rows import check_rows
from shardstream.pack.output.shard_options import ShardOptions as ShardOptions  # public from here
from shardstream.pack.sources.classes import ClassesArgument, check_classes
from shardstream.pack.sources.lists.labels import Classes, LabelMode
from shardstream.pack.sources.lists.mapping import parse_fields
from shardstream.shards.field_names import check_field_name
from shardstream.shards.framings import Format, framing_of
from shardstream.sizes import parse_size

_MADE = ("meta", "reading", "images", "shards")  # whose defaults are objects: ``None`` stands for them


OF_PACK: dict[str, type] = {
    "reading": SourceOptions,
    "bins": PackedSequences,
    "images": ImageOptions,
    "shards": ShardOptions,
    "storage": StorageOptions,
}
"""The options of `pack` in objects, by the argument that has them."""


@dataclass(frozen=True, kw_only=True)
class PackOptions:
    """The arguments of `pack` that have a part in what is written, with their defaults: the only list of them.

    `pack`, `pack_plan` and `repack` take these, and the flags of their commands are made of them.

    Raises:
        UsageError: A value that is not allowed; says which are.
    """

    # what is packed
    key: str = option("path", "Keys: path, auto (path, equal ones numbered), stem, line, or a column of the list.")
    labels: LabelMode | None = option(
        None,
        "int, or name to number names: as --classes says, else in sorting order. (default: name for class folders; in "
        "lists int, with --classes as the first label is)",
    )
    fields: Mapping[str, str] | None = option(
        None,
        "Field and the column it comes from; TYPE is file (content of a path or URL), int, str, json, "
        "array:uint16:2048, values:uint16, ... 'x=f*:float32' makes one array of many columns. NAME=TYPE alone "
        "declares the type of a field of any source. May be repeated.",
        flag="--field",
        metavar="NAME=COLUMN[:TYPE]",
    )
    classes: ClassesArgument | None = option(
        None,
        "Names of the classes, label 0 first: a file (one a line, or JSON), or a packed data set, as train/.",
        metavar="FILE|URL",
    )
    transform: Transform | None = option(
        None, "Function of a sample, by module and name; None drops it.", metavar="MODULE:NAME"
    )
    dedup: bool = option(False, "Leave out exact copies; reads everything twice.")
    damaged: Damaged = option("reject", "Damaged pictures: reject leaves them out, keep stores them as they are.")
    meta: Mapping[str, Any] = field(default_factory=dict)
    # order and shards
    format: Format = option("tar", "Framing of the shards.")
    shard_size: int | str = option("256MB", "Size to aim for: 256MB, 256MiB, or bytes.", metavar="SIZE")
    shuffle: bool = option(True, "Shuffle, or keep the order of the source.", flag="--shuffle/--no-shuffle")
    seed: int = option(0, "Of the shuffle.", least=0)
    # in objects
    reading: SourceOptions = SourceOptions()
    bins: PackedSequences | None = None
    images: ImageOptions = field(default_factory=ImageOptions)
    shards: ShardOptions = field(default_factory=ShardOptions)

    def __post_init__(self) -> None:
        check_format(self.format, self.shards)
        check_choices(self)
        parse_size(self.shard_size, name="shard_size")
        check_classes(self.classes)
        check_meta(self.meta)
        _check_seed(self.seed)
        if self.transform is not None and not callable(self.transform):
            raise UsageError(
                f"transform must be a function of a sample, got {self.transform!r}",
                hint="give a function that takes and returns a dict",
            )
        parse_fields(self.fields)
        if self.shards.rows:
            check_rows()
        if self.shards.rows and self.bins is not None:
            raise UsageError(
                "rows=True lists a sample a row, and with bins= samples are bins of documents",
                hint="leave `rows` out: the keys of documents stand beside their bins",
            )
        if not self.key:
            raise UsageError("key is empty", hint="use 'path', 'auto', 'stem', 'line' or the name of a column")
        unknown = self.reading.unknown
        if unknown != "error" and self.classes is None:
            raise UsageError(f"unknown={unknown!r} without classes", hint="give the list: classes= (--classes)")

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of all options, those first that people use."""
        return tuple(one.name for one in fields(cls))

    @classmethod
    def take(cls, given: dict[str, Any]) -> PackOptions:
        """Those of the arguments of a verb; they are taken out of ``given``."""
        found = {name: given.pop(name) for name in cls.names() if name in given}
        return cls(**{name: value for name, value in found.items() if value is not None or name not in _MADE})

    @property
    def listed(self) -> Classes | None:
        """The classes, once they are read."""
        return None if self.classes is None else Classes(tuple(self.classes), self.reading.unknown)  # type: ignore[arg-type]

    @property
    def shard_bytes(self) -> int:
        """The target size of a shard."""
        return parse_size(self.shard_size, name="shard_size")

    @cached_property
    def handling(self) -> ImageHandling:
        """What becomes of images."""
        return ImageHandling.of(self.images, self.damaged)

    @property
    def binning(self) -> Binning | None:
        """How documents become bins; ``None`` where samples are stored."""
        return None if self.bins is None else self.bins.binning

    @property
    def texts(self) -> Texts | None:
        """How texts become tokens; ``None`` where they are tokens."""
        return None if self.bins is None else self.bins.texts

    @property
    def document_field(self) -> str | None:
        """The field that makes a document what it is; ``None`` where samples are stored."""
        return None if self.bins is None else self.bins.document_field

    @property
    def seen_images(self) -> ImageHandling | None:
        """What becomes of files that are called images; ``None`` if a user may want their bytes, whatever they are."""
        return None if self.transform is not None or self.fields else self.first_pass

    @property
    def first_pass(self) -> ImageHandling:
        """What becomes of images on their way through temporary shards, where samples still have their places.

        They are looked at there, and are decoded once; but a transform is to get all of them.
        """
        return ImageHandling.as_found("keep") if self.transform is not None else self.handling.unchanged

    @property
    def identity(self) -> dict[str, Any]:
        """JSON of everything here that changes a byte of the data set."""
        found = {
            "format": self.format,
            "seed": self.seed if self.shuffle else None,
            **self.handling.identity,
            "key": self.key,
            "labels": self.labels,
            "classes": None if self.listed is None else list(self.listed.names),
            "meta": dict(self.meta),
            "zstd": sorted(self.shards.compressed),
            "checksums": self.shards.checksums,
        }
        if self.binning is not None:
            found["bins"] = self.binning.identity
        if self.texts is not None:
            found["texts"] = self.texts.field
        if self.dedup:
            found["dedup"] = True
        if self.reading.allow_other_origins:
            found["allow_other_origins"] = True
        if self.transform is not None:
            found["transform"] = _identity_of(self.transform)
        return found


def _identity_of(function: Transform) -> str:
    """A user's function, as far as it can be told apart: by its name and its text. What it calls is not looked at."""
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', type(function).__qualname__)}"
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):  # typed in at a prompt, or an object that is called
        return name
    return f"{name} {xxhash.xxh3_64_hexdigest(text.encode())}"


def _check_seed(seed: object) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 64:
        raise UsageError(
            f"seed must be an integer in [0, 2**64), got {seed!r}", hint="write seed=0: it is as good as any"
        )


def check_format(name: str, shards: ShardOptions) -> None:
    """Refuse unknown formats, and compression where the format has none.

    Raises:
        UsageError: Names what is allowed.
        MissingExtraError: Compression is asked for, but zstandard is not installed.
    """
    framing_of(name)
    if isinstance(shards.zstd, str):
        raise UsageError(
            f"zstd must be a collection of field names, got {shards.zstd!r}",
            hint=f"shards=ShardOptions(zstd=[{shards.zstd!r}])",
        )
    for one in shards.compressed:
        check_field_name(one)
    if shards.compressed and name == "tar":
        raise UsageError("tar shards cannot hold compressed fields", hint="use format='record' with zstd")
    if shards.compressed:
        require("zstandard", extra="zstd", purpose="to compress fields")


def check_meta(meta: Mapping[str, Any]) -> None:
    """Refuse ``meta`` that is not a JSON object; UsageError."""
    try:
        json.dumps(dict(meta), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"meta must be a JSON object: {error}", hint="use dict, list, str, int, float, bool and None"
        ) from error
