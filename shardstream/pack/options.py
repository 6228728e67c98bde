"""What determines the bytes of a packed data set, checked in one place."""

from __future__ import annotations

import inspect
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import xxhash

from shardstream.errors import UsageError
from shardstream.extras import require
from shardstream.images.jpeg.transcode import DEFAULT_WIDTH
from shardstream.pack.bins.binning import Binning, Long, Packing, TokenDtype
from shardstream.pack.bins.texts import DEFAULT_SECONDS, Texts
from shardstream.pack.bins.tokenizers import Tokenizer, tokenizer_of
from shardstream.pack.encode.images import ANY_PIXELS, DEFAULT_MAX_PIXELS, Check, Damaged, ImageOptions, Jpeg
from shardstream.pack.encode.sample import Transform
from shardstream.pack.output.rows import check_rows
from shardstream.pack.sources.classes import ClassesArgument, check_classes
from shardstream.pack.sources.folders import Group
from shardstream.pack.sources.lists.labels import Classes, LabelMode, Unknown
from shardstream.pack.sources.lists.mapping import parse_fields
from shardstream.shards.field_names import check_field_name
from shardstream.shards.framings import Format, framing_of
from shardstream.sizes import parse_size

LABEL_MODES = ("int", "name")
GROUPS = ("file", "stem")
UNKNOWN = ("error", "reject")
_OF_BINS = ("bin_field", "bin_min", "packing", "long", "pad", "token_dtype", "bos", "eos", "tokenize", "tokenizer_id")
_OF_TEXT = ("text_field", "messages", "template_seconds", "allow_special")


@dataclass(frozen=True, kw_only=True)
class PackOptions:
    """The arguments of `pack` that have a part in what is written, with their defaults: the only list of them.

    `pack`, `pack_plan` and `repack` take these, and the flags of their commands are made of them.

    Raises:
        UsageError: A value that is not allowed; says which are.
    """

    # what is packed
    key: str = "path"
    labels: LabelMode | None = None
    fields: Mapping[str, str] | None = None
    group: Group = "file"
    classes: ClassesArgument | None = None
    unknown: Unknown = "error"
    split_names: bool = True
    source_format: str | None = None
    format_options: Mapping[str, str] | None = None
    transform: Transform | None = None
    dedup: bool = False
    meta: Mapping[str, Any] = field(default_factory=dict)
    # order and shards
    format: Format = "tar"
    shard_size: int | str = "256MB"
    shuffle: bool = True
    seed: int = 0
    # documents into bins
    bins: int | None = None
    bin_field: str = "ids"
    bin_min: int | None = None
    packing: Packing = "fit"
    long: Long = "split"
    pad: int | str = 0
    token_dtype: TokenDtype | None = None
    # text into tokens
    tokenize: Any = None
    text_field: str = "text"
    messages: str | None = None
    template_seconds: float = DEFAULT_SECONDS
    bos: int | str | None = None
    eos: int | str | None = None
    allow_special: bool = False
    tokenizer_id: str | None = None
    # images
    jpeg: Jpeg = "addressable"
    max_side: int | None = None
    quality: int | None = None
    strip: bool = False
    damaged: Damaged = "reject"
    check: Check = "header"
    # expert
    segment_width: int = DEFAULT_WIDTH
    max_pixels: int = DEFAULT_MAX_PIXELS
    zstd: Collection[str] = ()
    checksums: bool = True
    key_table: bool = True
    rows: bool = False
    allow_other_origins: bool = False

    def __post_init__(self) -> None:
        check_format(self.format, self.zstd)
        parse_size(self.shard_size, name="shard_size")
        check_classes(self.classes)
        check_meta(self.meta)
        _check_seed(self.seed)
        _ = self.images, self.binning
        if self.texts is not None:  # large ones take a second to be written down
            object.__setattr__(self, "tokenize", self.texts.tokenizer)
        if self.transform is not None and not callable(self.transform):
            raise UsageError(
                f"transform must be a function of a sample, got {self.transform!r}",
                hint="give a function that takes and returns a dict",
            )
        parse_fields(self.fields)
        if self.rows:
            check_rows()
        if self.rows and self.bins is not None:
            raise UsageError(
                "rows=True lists a sample a row, and with bins= samples are bins of documents",
                hint="leave `rows` out: the keys of documents stand beside their bins",
            )
        if self.group not in GROUPS:
            raise UsageError(
                f"group must be 'file' or 'stem', got {self.group!r}",
                hint="write group='stem' for several files a sample, else leave it out",
            )
        if not self.key:
            raise UsageError("key is empty", hint="use 'path', 'auto', 'stem', 'line' or the name of a column")
        if self.labels is not None and self.labels not in LABEL_MODES:
            raise UsageError(
                f"labels must be 'int' or 'name', got {self.labels!r}",
                hint="write labels='name' to number names in sorting order",
            )
        if self.unknown not in UNKNOWN:
            raise UsageError(
                f"unknown must be 'error' or 'reject', got {self.unknown!r}", hint="'reject' leaves such samples out"
            )
        if self.unknown != "error" and self.classes is None:
            raise UsageError(f"unknown={self.unknown!r} without classes", hint="give the list: classes= (--classes)")

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of all options, those first that people use."""
        return tuple(one.name for one in fields(cls))

    @property
    def listed(self) -> Classes | None:
        """The classes, once they are read."""
        return None if self.classes is None else Classes(tuple(self.classes), self.unknown)  # type: ignore[arg-type]

    @property
    def shard_bytes(self) -> int:
        """The target size of a shard."""
        return parse_size(self.shard_size, name="shard_size")

    @property
    def images(self) -> ImageOptions:
        """What becomes of images."""
        given = {one.name: getattr(self, one.name) for one in fields(ImageOptions)}
        return ImageOptions(**given)

    @cached_property
    def binning(self) -> Binning | None:
        """How documents become bins; ``None`` where samples are stored.

        Raises:
            UsageError: An option of bins that is not allowed, or without ``bins``.
        """
        texts = self.texts
        if self.bins is None:
            self._check_unset(_OF_BINS, "bins", "say how long they are: bins=8192 (--bins)")
            return None
        tokenizer = None if texts is None else texts.tokenizer
        small = tokenizer is not None and tokenizer.fits("uint16")
        pad: Any = self._token("pad", tokenizer)
        return Binning(
            self.bins,
            self.bin_field,
            self.bin_min or 0,
            self.packing,
            self.long,
            pad,
            self.token_dtype or ("uint16" if small else "uint32"),
            self._token("bos", tokenizer),
            self._token("eos", tokenizer),
            self.tokenizer_id if tokenizer is None else tokenizer.identity,
        )

    @cached_property
    def texts(self) -> Texts | None:
        """How texts become tokens; ``None`` where they are tokens.

        Raises:
            UsageError: A tokenizer that is none, or an option of text without one.
        """
        if self.tokenize is None:
            self._check_unset(_OF_TEXT, "texts that are tokenized", "say by what: tokenize= (--tokenize)")
            return None
        field = self.text_field if self.messages is None else self.messages
        check_field_name(field)
        _check_seconds(self.template_seconds)
        conversations = self.messages is not None
        special = self.allow_special
        made = tokenizer_of(self.tokenize, name=self.tokenizer_id, allow_special=special, conversations=conversations)
        return Texts(made, field, conversations, self.template_seconds)

    @property
    def document_field(self) -> str | None:
        """The field that makes a document what it is; ``None`` where samples are stored."""
        if self.binning is None:
            return None
        return self.binning.field if self.texts is None else self.texts.field

    def _token(self, name: str, tokenizer: Tokenizer | None) -> int | None:
        """The number of a token that an option names."""
        given = getattr(self, name)
        if not isinstance(given, str):
            return given  # type: ignore[no-any-return] # what it is not, `Binning` refuses
        found = None if tokenizer is None else tokenizer.token(given)
        if found is None:
            who = "no tokenizer is given that knows it" if tokenizer is None else "the tokenizer has no such token"
            raise UsageError(f"{name} names the token {given!r}, and {who}", hint="give it by its number")
        return found

    def _check_unset(self, names: Collection[str], of: str, hint: str) -> None:
        for one in fields(self):
            if one.name in names and getattr(self, one.name) != one.default:
                raise UsageError(f"{one.name} is an option of {of}", hint=hint)

    @property
    def seen_images(self) -> ImageOptions | None:
        """What becomes of files that are called images; ``None`` if a user may want their bytes, whatever they are."""
        return None if self.transform is not None or self.fields else self.first_pass

    @property
    def first_pass(self) -> ImageOptions:
        """What becomes of images on their way through temporary shards, where samples still have their places.

        They are looked at there, and are decoded once; but a transform is to get all of them.
        """
        if self.transform is not None:
            return ImageOptions(jpeg="keep", max_pixels=ANY_PIXELS, damaged="keep")
        check = self.check if self.damaged == "reject" else "header"
        return ImageOptions(jpeg="keep", max_pixels=self.max_pixels, damaged=self.damaged, check=check)

    @property
    def identity(self) -> dict[str, Any]:
        """JSON of everything here that changes a byte of the data set."""
        found = {
            "format": self.format,
            "seed": self.seed if self.shuffle else None,
            **self.images.identity,
            "key": self.key,
            "labels": self.labels,
            "classes": None if self.listed is None else list(self.listed.names),
            "meta": dict(self.meta),
            "zstd": sorted(self.zstd),
            "checksums": self.checksums,
        }
        if self.binning is not None:
            found["bins"] = self.binning.identity
        if self.texts is not None:
            found["texts"] = self.texts.field
        for name in ("dedup", "allow_other_origins"):
            if getattr(self, name):
                found[name] = True
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


def _check_seconds(seconds: object) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
        raise UsageError(
            f"template_seconds must be a number above 0, got {seconds!r}", hint="leave it out for 10 seconds"
        )


def check_format(name: str, zstd: Collection[str]) -> None:
    """Refuse unknown formats, and compression where the format has none.

    Raises:
        UsageError: Names what is allowed.
        MissingExtraError: Compression is asked for, but zstandard is not installed.
    """
    framing_of(name)
    if isinstance(zstd, str):
        raise UsageError(f"zstd must be a collection of field names, got {zstd!r}", hint=f"zstd=[{zstd!r}]")
    for one in zstd:
        check_field_name(one)
    if zstd and name == "tar":
        raise UsageError("tar shards cannot hold compressed fields", hint="use format='record' with zstd")
    if zstd:
        require("zstandard", extra="zstd", purpose="to compress fields")


def check_meta(meta: Mapping[str, Any]) -> None:
    """Refuse ``meta`` that is not a JSON object; UsageError."""
    try:
        json.dumps(dict(meta), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"meta must be a JSON object: {error}", hint="use dict, list, str, int, float, bool and None"
        ) from error
