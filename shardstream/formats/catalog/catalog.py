"""A catalogue: a data set of ours without the bytes, which lie in objects of other libraries.

::

    shardstream-catalogue.json                   for people and totals, like dataset.json
    shardstream-objects-CHECKSUM.table           the objects and the shards: names, sizes, where each index lies
    shardstream-indexes-FINGERPRINT.bin          the indexes of all shards, one after another

A shard is a run of samples of one object; its index is one of ours, and says where in the object each value lies. What
identifies the data set are the names, sizes and indexes of its objects; when they were last written, or their ETags,
stands beside, only to notice that one was replaced. ``docs/foreign.md`` specifies the bytes.
"""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.errors import FormatError
from shardstream.faults import FAULT_KINDS
from shardstream.formats.blocks import ObjectBlocks
from shardstream.formats.blocks.codecs import PLAIN
from shardstream.formats.catalog import CATALOGUE_NAME
from shardstream.formats.catalog.object_table import RESTORE, ObjectTable
from shardstream.formats.catalog.whole_scans import is_web, web_lineage
from shardstream.formats.contract import SourceFormat
from shardstream.formats.framing import FRAMING
from shardstream.formats.loose import LOOSE
from shardstream.formats.plugins import Plugin
from shardstream.formats.registry import brought_by, check_known, format_named, plugin_of, restore
from shardstream.formats.scans.rows import Loss, Remark, sentences, told_losses
from shardstream.shards.external import ExternalInfo
from shardstream.shards.field_names import check_field_name
from shardstream.shards.fields import FieldType, meant_type
from shardstream.shards.framing import Framing
from shardstream.shards.heads import parse_head, seal
from shardstream.shards.index import Keys
from shardstream.shards.layout import FORMAT_VERSION, checksum
from shardstream.shards.manifest import Manifest, field_entry
from shardstream.shards.table import ShardTable
from shardstream.storage import Store

FORMAT = "shardstream-catalogue"
OURS = re.compile(r"shardstream-(catalogue\.json|objects-[0-9a-f]{16}\.table|indexes-[0-9a-f]{16}\.bin)")
"""Names of the three objects of a catalogue, which may lie beside the data."""
_BLOCKS_KEPT = 256  # objects whose blocks are at hand: as many as there are lanes, and some more
_TABLE = re.compile(r"shardstream-objects-[0-9a-f]{16}\.table")


@dataclass(frozen=True, slots=True)
class Reading:
    """How objects of another library are read; what was scanned in one way is not what another one gives.

    Attributes:
        source: Name of the format, see `foreign`.
        options: Of reading it, as they were given.
        chosen: Which fields there are of those of the format, ``{"label": "cls"}``; empty for all, under their names.
        checked: Whether values have checksums, which takes reading them all.
    """

    source: str
    options: Mapping[str, str]
    chosen: Mapping[str, str]
    checked: bool

    @property
    def format(self) -> SourceFormat:
        """The format; UsageError where there is none of the name."""
        return format_named(self.source)

    @property
    def framing(self) -> Framing:
        """What reads its values."""
        return LOOSE if self.format.loose else FRAMING

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (plugin_of(self.source), self.source, self.options, self.chosen, self.checked)


def _restored(plugin: Plugin | None, *values: Any) -> Reading:
    restore(plugin)
    return Reading(*values)


@dataclass(frozen=True, eq=False, repr=False)
class Catalogue(Manifest):
    """The manifest of a foreign data set.

    Attributes:
        reading: How they are read.
        objects: The objects and shards.
        notes: What was left out or decided, a sentence each.
        lost: Samples that cannot be read, by the name of the object.
        remarks: What a user should know of the values of objects, by the object's name.
        named: Whether a user named the format, which then counts also where others are found.
        listing: Digest of the names of all files that were there, by which new ones are noticed; "" if unknown.
    """

    reading: Reading = None  # type: ignore[assignment] # there is none by default
    objects: ObjectTable = None  # type: ignore[assignment] # there is no empty one
    notes: tuple[str, ...] = ()
    lost: Mapping[str, tuple[Loss, ...]] = field(default_factory=dict)
    remarks: Mapping[str, tuple[Remark, ...]] = field(default_factory=dict)
    named: bool = False
    listing: str = ""

    @classmethod
    def made(
        cls,
        objects: ObjectTable,
        fields: Mapping[str, FieldType],
        *,
        reading: Reading,
        classes: Sequence[str] | None,
        notes: Sequence[str],
        lost: Mapping[str, tuple[Loss, ...]],
        remarks: Mapping[str, Sequence[Remark]],
        url: str,
    ) -> Self:
        """The catalogue of objects that were scanned."""
        rows = objects.objects
        table = ShardTable(objects.samples, objects.shown_sizes()[rows], objects.checksums[rows])
        largest = int(np.diff(objects.index_ends, prepend=np.uint64(0)).max(initial=0))
        return cls(
            framing=reading.framing.name,
            fields=dict(sorted(fields.items())),
            naming=(),
            table=table,
            classes=None if classes is None else tuple(classes),
            index_bytes=largest,
            url=url,
            reading=reading,
            objects=objects,
            notes=tuple(notes),
            lost=dict(lost),
            remarks={name: tuple(found) for name, found in remarks.items()},
        )

    @property
    def bytes(self) -> int:  # not of shards: an object may be several
        return int(self.objects.sizes.sum(dtype=np.uint64))

    @cached_property
    def fingerprint(self) -> str:
        identity = {
            "format_version": FORMAT_VERSION,
            "source": self.reading.source,
            "fields": {name: field_entry(kind) for name, kind in self.fields.items()},
            "objects": self.objects.identity,
        }
        return xxhash.xxh3_128_hexdigest(json.dumps(identity, sort_keys=True).encode())

    @property
    def lineage(self) -> str:
        """As of all manifests; where values are objects of their own, one for each state that these were in.

        A cache knows such objects by their sizes alone. Below a URL of a web server it is the same for all datasets: it
        has to be known before objects are scanned, and theirs are known by size and version.
        """
        if not self.reading.format.loose:
            return web_lineage(self.url) if is_web(self.url) else self.fingerprint
        states = self.objects.versions.tobytes() + self.objects.abouts.tobytes()
        return xxhash.xxh3_128_hexdigest(self.fingerprint.encode() + states)

    @property
    def format(self) -> str:
        return self.reading.source

    @cached_property
    def external(self) -> ExternalInfo:
        reading = self.reading
        return ExternalInfo(self.title, len(self.objects.sizes), reading.format.loose, reading.checked, self.told)

    @property
    def told(self) -> tuple[str, ...]:
        """What was left out or decided, a sentence each, what is lost of damaged objects among it."""
        losses = (f"{name}: {told_losses(lost)}" for name, lost in self.lost.items())
        choice = self.told_choice()
        return *([f"Read with {choice}, as it was indexed."] if choice else []), *self.notes, *self.warnings, *losses

    def told_choice(self, *, source: bool = True, options: bool = True, chosen: bool = True) -> str:
        """What a user said of reading, of these arguments of `index`; "" where all are the default."""
        reading = self.reading
        how = [f"format={reading.source!r}"] if source and self.named else []
        how += [f"options={dict(reading.options)}"] if options and reading.options else []
        parts = [f"SourceOptions({', '.join(how)})"] if how else []
        parts += [f"fields={dict(reading.chosen)}"] if chosen and reading.chosen else []
        return " and ".join(parts)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user should know of the values, a sentence each."""
        return sentences(one for found in self.remarks.values() for one in found)

    @property
    def title(self) -> str:
        """What people call its format."""
        return self.reading.format.title

    @property
    def reader(self) -> Framing:
        return self.reading.framing

    @property
    def table_name(self) -> str:
        return _table_named(self.objects.pack())

    @property
    def indexes_name(self) -> str:
        """Object name of the indexes."""
        return f"shardstream-indexes-{self.fingerprint[:16]}.bin"

    @property
    def indexes_bytes(self) -> int:
        """Bytes of all indexes."""
        ends = self.objects.index_ends
        return int(ends[-1]) if len(ends) else 0

    def index_range(self, shard: int) -> tuple[int, int]:
        """Offset and length of the index of a shard, in the object of indexes."""
        ends = self.objects.index_ends
        start = int(ends[shard - 1]) if shard else 0
        return start, int(ends[shard]) - start

    @cached_property
    def shown_bytes(self) -> int:
        return int(self.objects.shown_sizes().sum(dtype=np.uint64))

    @cached_property
    def largest_block(self) -> int:
        inflated = self.objects.block_sizes[self.objects.block_codecs != PLAIN]
        return int(inflated.max(initial=0))

    @property
    def compressed(self) -> bool:
        """Whether objects are compressed, and have to be shown inflated."""
        return len(self.objects.block_offsets) > 0

    def blocks_of(self, name: str) -> ObjectBlocks | None:
        """The blocks of the object of this name; ``None`` for one that is not compressed, or not of these."""
        return self._blocks(name)

    @cached_property
    def _blocks(self) -> Callable[[str], ObjectBlocks | None]:
        def find(name: str) -> ObjectBlocks | None:
            shard = self.number_of(name)
            return None if shard is None else self.objects.blocks_of(int(self.objects.objects[shard]))

        return lru_cache(maxsize=_BLOCKS_KEPT)(find)

    @cached_property
    def names(self) -> Keys:
        """Names of the objects."""
        return Keys(self.objects.name_ends, self.objects.names, shard=CATALOGUE_NAME)

    def shard_name(self, shard: int) -> str:
        if not 0 <= shard < self.shards:
            raise IndexError(f"shard {shard} of {self.shards}")
        return self.names[int(self.objects.objects[shard])]

    @cached_property
    def _sorted_names(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Hashes of the names of all shards, sorted, and which shard each is of."""
        hashes = np.array([checksum(name.encode()) for name in self.names], np.uint64)[self.objects.objects]
        order = np.argsort(hashes, kind="stable")
        return hashes[order], order

    def number_of(self, name: str) -> int | None:
        hashes, shards = self._sorted_names
        at = int(np.searchsorted(hashes, np.uint64(checksum(name.encode()))))
        if at == len(hashes) or self.shard_name(int(shards[at])) != name:
            return None
        return int(shards[at])

    def version_of(self, name: str) -> int:
        """The version that an object had when it was indexed, see `ObjectMeta.version`; 0 if it is unknown."""
        shard = self.number_of(name)
        return 0 if shard is None else int(self.objects.versions[self.objects.objects[shard]])

    # --------------------------------------------------------------------------------------------------- its bytes

    @classmethod
    def parse_catalogue(
        cls, head: memoryview, table: Callable[[str], memoryview], *, place: str, url: str
    ) -> Catalogue:
        """The catalogue in the bytes of its two objects.

        Args:
            head: ``shardstream-catalogue.json``.
            table: Gives the bytes of the table of this name.
            place: Where it lies.
            url: Where the data lie.

        Raises:
            VersionError: A newer version wrote it.
            FormatError, ChecksumError: It is damaged.
        """

        def read(found: dict[str, Any]) -> Catalogue:
            for name in found["fields"]:
                check_field_name(name)
            options, chosen, notes, classes = (found[name] for name in ("options", "chosen", "notes", "classes"))
            lost = {name: _losses(entry) for name, entry in found.get("lost", {}).items()}
            pairs = [text for given in (options, chosen) for text in (*given, *given.values())]
            pairs += [*lost, *(one.what for some in lost.values() for one in some)]
            if not all(type(text) is str for text in [*pairs, *notes, *(classes or ())]):
                raise TypeError("options, chosen fields, notes, what is lost, and classes must be text")
            remarks = {name: [_remark(*one) for one in some] for name, some in found.get("remarks", {}).items()}
            check_known(found["source"], found.get("plugin", {}), url=url)
            data = table(_table_name(found))
            catalogue = cls.made(
                ObjectTable.parse(data, url=f"{place}/{found['table']}"),
                {name: meant_type(entry["type"], entry.get("as")) for name, entry in found["fields"].items()},
                reading=Reading(found["source"], options, chosen, found["checked"] is True),
                classes=classes,
                notes=notes,
                lost=lost,
                remarks=remarks,
                url=url,
            )
            catalogue = replace(catalogue, named=found.get("named") is True, listing=str(found.get("listing", "")))
            if found["fingerprint"] != catalogue.fingerprint or found["table"] != _table_named(data):
                raise FormatError(f"{CATALOGUE_NAME} and the table of objects disagree", url=place, hint=RESTORE)
            return catalogue

        return parse_head(head, read, url=place, name=CATALOGUE_NAME, format=FORMAT)

    def head(self) -> builtins.bytes:
        """The bytes of ``shardstream-catalogue.json``."""
        return seal(
            {
                "format": FORMAT,
                "format_version": FORMAT_VERSION,
                "source": self.reading.source,
                **({"plugin": plugin} if (plugin := brought_by(self.reading.source)) else {}),
                "options": dict(self.reading.options),
                "chosen": dict(self.reading.chosen),
                "checked": self.reading.checked,
                "samples": self.samples,
                "objects": len(self.objects.sizes),
                "shards": self.shards,
                "bytes": self.bytes,
                "fields": {name: field_entry(kind) for name, kind in self.fields.items()},
                "classes": None if self.classes is None else list(self.classes),
                "notes": list(self.notes),
                "lost": {name: [list(one) for one in lost] for name, lost in self.lost.items()},
                **({"remarks": {name: list(some) for name, some in self.remarks.items()}} if self.remarks else {}),
                **({"named": True} if self.named else {}),
                **({"listing": self.listing} if self.listing else {}),
                "table": self.table_name,
                "indexes": self.indexes_name,
                "fingerprint": self.fingerprint,
            }
        )

    def save(self, store: Store) -> None:
        """Write the table, then the head; the indexes are there already."""
        store.put(self.table_name, self.objects.pack())
        store.put(CATALOGUE_NAME, self.head())


def _losses(entry: Any) -> tuple[Loss, ...]:
    """The losses of an object, as a head has them; earlier versions wrote one text."""
    if isinstance(entry, str):
        return (Loss(entry),)
    losses = tuple(Loss(*one) for one in entry)
    if not losses or not all(
        (one.samples is None or type(one.samples) is int) and type(one.line) is int and one.kind in FAULT_KINDS
        for one in losses
    ):
        raise TypeError("a loss is a text, a number of samples or null, a line, and a kind of fault")
    return losses


def _remark(text: object, values: object, files: object, first: object) -> Remark:
    if not (type(text) is type(first) is str and type(values) is type(files) is int):
        raise TypeError("remarks must be text and numbers")
    return Remark(text, values, files, first)


def table_name_of(head: memoryview, *, url: str) -> str:
    """Object name of the table that a head speaks of; raises as `Catalogue.parse_catalogue`."""
    return parse_head(head, _table_name, url=url, name=CATALOGUE_NAME, format=FORMAT)


def _table_named(data: builtins.bytes | memoryview) -> str:
    return f"shardstream-objects-{checksum(data):016x}.table"


def _table_name(head: dict[str, Any]) -> str:
    if not _TABLE.fullmatch(name := head["table"]):
        raise ValueError(f"not the name of a table: {name!r}")
    return str(name)
