"""Which objects of a listing are tar files, and what lies beside them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from shardstream.dataset.lists.decompression import MAGIC_BYTES, compression_of
from shardstream.errors import FormatError, UnsupportedError
from shardstream.formats.contract import ObjectListing
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.yaml_files import read_yaml
from shardstream.formats.tar.headers import TarDamage, TarMembers
from shardstream.names.braces import without_braces
from shardstream.names.strays import find_stray
from shardstream.storage.base.store import ObjectMeta
from shardstream.text import in_one_line

TAR = ".tar"
_COMPRESSED = {
    ".tar.gz": "gzip",
    ".tgz": "gzip",
    ".tar.bz2": "bzip2",
    ".tbz2": "bzip2",
    ".tar.xz": "xz",
    ".txz": "xz",
    ".tar.zst": "zstd",
    ".tar.lz4": "lz4",
}
_BESIDE = (".json", ".txt", ".md", ".yaml", ".parquet", ".idx", ".csv", ".tsv")  # what describes shards
_LOOKED_AT = 8  # tars of a listing whose first member is looked at; of more, the first
_WINDOW = 4096
# Energon's dataset.yaml, as text: which keys name code. What is not code of its own needs none.
_ENERGON = ".nv-meta/dataset.yaml"
_NAMES_CODE = re.compile(
    r"""^[^#\n]*?["']?\b(sample_loader|part_filter|__module__)["']?[ \t]*:[ \t]*["']?([^"'\s,}#]*)""", re.MULTILINE
)
_SPLITS = ".nv-meta/split.yaml"
_SHOWN = 3  # tars of a split that an error names
_ENERGON_ITSELF = re.compile(r"megatron\.energon(\.\w+)*")


@dataclass(frozen=True, slots=True)
class Tars:
    """The tar files of a listing.

    Attributes:
        tars: Their paths and sizes.
        nested: Whether they hold tar files, and no samples.
        notes: What a user should know.
    """

    tars: tuple[ObjectMeta, ...]
    nested: bool
    notes: tuple[str, ...]


def found_tars(listing: ObjectListing) -> Tars | None:
    """The tar files of a listing, or where there are none those that are compressed; ``None`` where there is neither.

    Raises:
        FormatError: Some hold tar files and others samples.
        StorageError: They cannot be read.
    """
    tars, compressed = listing.ending(TAR), listing.ending(*_COMPRESSED)
    others = len(listing.ending("")) - len(listing.ending(TAR, *_COMPRESSED, *_BESIDE))
    inside = compression_of(listing.start(tars[0].path, MAGIC_BYTES)) if tars else None
    if inside is not None or not tars:
        if others or not (tars or compressed):  # perhaps of another format, and this is by the way
            return None
        return Tars(tuple(tars or compressed), False, ())
    kinds = {_is_nested(listing, one): one for one in (tars if len(tars) <= _LOOKED_AT else tars[:1])}
    if len(kinds) > 1:
        raise FormatError(
            f"{kinds[True].path} holds tar files, and {kinds[False].path} does not: they are not one data set",
            url=listing.url,
            hint="give the URL of one of them",
        )
    notes: tuple[str, ...] = ()
    if compressed:
        notes = (f"{len(compressed)} compressed tar files are left out, such as {compressed[0].path}",)
    return Tars(tuple(tars), True in kinds, notes)


def _is_nested(listing: ObjectListing, one: ObjectMeta) -> bool:
    return holds_tars(ObjectBytes(listing.store, one.path, one.size, window=_WINDOW))


def holds_tars(data: ObjectBytes) -> bool:
    """Whether the first member is a tar file."""
    try:
        first = next((one for one in TarMembers(data) if find_stray(one.name) is None), None)
        return first is not None and first.name.lower().endswith(TAR)
    except (FormatError, TarDamage):
        return False  # the scan says what is wrong with it


def energon_split(listing: ObjectListing) -> frozenset[str] | None:
    """The tars of the only split that Energon's ``split.yaml`` names; ``None`` where there is no such file.

    Raises:
        FormatError: It names several splits: says which tars are of which. Or it cannot be read.
        MissingExtraError: PyYAML is not installed.
        StorageError: It cannot be read.
    """
    if _SPLITS not in listing:
        return None
    parts = read_yaml(listing.read(_SPLITS), listing.store.locate(_SPLITS)).get("split_parts")
    named = list(parts.items()) if isinstance(parts, dict) else []
    tars = {name: some for name, some in named if some}
    if not tars or not all(isinstance(one, str) for some in tars.values() for one in [*some]):
        raise FormatError(
            "it does not say which tars are of which split ('split_parts')",
            url=listing.store.locate(_SPLITS),
            hint="name the tar files themselves",
        )
    if len(tars) > 1:
        told = "; ".join(f"{name}: {' '.join(map(listing.store.locate, some[:_SHOWN]))}" for name, some in tars.items())
        raise FormatError(
            f"{_SPLITS} names several splits: {', '.join(tars)}",
            url=listing.url,
            hint=f"give the tar files of one, in braces or as a glob ({in_one_line(told)})",
        )
    (only,) = tars.values()
    return frozenset(path for one in only for path in without_braces(one))


def energon_notes(listing: ObjectListing) -> tuple[str, ...]:
    """What Energon's description of a data set means for reading it.

    Raises:
        UnsupportedError: Its samples are made by code that lies beside it.
        StorageError: It cannot be read.
    """
    notes = []
    for path in (one.path for one in listing.everything if f"/{one.path}".endswith(f"/{_ENERGON}")):
        text = listing.read(path).decode("utf-8", "replace")
        for key, value in _NAMES_CODE.findall(text):
            if key == "__module__" and _ENERGON_ITSELF.fullmatch(value):
                continue
            raise UnsupportedError(
                f"its samples are made by code ({key}: {value}), which is never run",
                url=listing.store.locate(path),
                hint="name the tar files themselves to read their members as they are",
            )
        if "field_map" in text:
            notes.append(f"the field_map of {path} is not applied: fields have the extensions of members as names")
    return tuple(notes)
