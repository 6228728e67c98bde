"""The manifest of a data set: ``dataset.json`` for people and totals, one binary table with a row a shard.

The table is read without copying and costs 20 bytes a shard; no Python object exists for a sample or a shard. Its name
holds its checksum, so that replacing ``dataset.json`` switches from one complete data set to the next in one step.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import xxhash

from shardstream.errors import FieldError, FormatError, NotFoundError, UsageError, did_you_mean
from shardstream.options import takes_flat
from shardstream.shards.bins import Bins
from shardstream.shards.external import ExternalInfo
from shardstream.shards.field_names import check_field_name
from shardstream.shards.fields import FieldType, meant_type
from shardstream.shards.framing import Framing
from shardstream.shards.framings import framing_of
from shardstream.shards.heads import (
    MANIFEST_NAME,
    TABLE_NAME,
    OldVersion,
    no_data_set,
    old_version,
    parse_head,
    parse_history,
    seal,
)
from shardstream.shards.index import Codec
from shardstream.shards.layout import FORMAT_VERSION, checksum
from shardstream.shards.table import NamedShards, ShardTable
from shardstream.shards.writing import ShardSummary
from shardstream.sizes import plural, size
from shardstream.storage import PathOrUrl, Store, open_store
from shardstream.storage.base.location import flat_transport
from shardstream.text import cut, html_table, html_text, in_one_line, text_table

T = TypeVar("T")

DAMAGED = "damaged"
"""The kind of a file that is stored although it is damaged, in `Manifest.kinds`."""
_SHOWN = 40  # fields
_NAMES = 10  # of classes
_LISTED = 20  # of them in a hint
_RESTORE = "restore the data set's files from their source"


@dataclass(frozen=True, slots=True, eq=False)
class Manifest:
    """What a data set is: totals, fields, class names and the table of its shards.

    Attributes:
        framing: ``"tar"`` or ``"record"``.
        fields: Field types by name.
        naming: How the shards are named, in order.
        table: A row a shard.
        classes: Names of the classes, label i being ``classes[i]``; ``None`` if unknown.
        meta: Anything that belongs to the data set; JSON.
        seed: Seed of the write-time shuffle; ``None`` if samples lie as they came.
        plan: Fingerprint of the pack plan that made it; ``None`` for data sets of a `ShardWriter`.
        version: Counts up whenever the data set grows.
        history: The versions before this one that can still be read, oldest first.
        index_bytes: Size of the largest index, so that one read from the end of a shard surely gets it.
        codecs: Fields whose payloads are compressed one by one.
        kinds: By JPEG field, how many of its files are addressable, and of each kind that was kept as it is; by any
            field of pictures, how many are stored although they are damaged. Empty where there is nothing to count.
        bins: What it has in place of single documents, if its samples are bins of them; else ``None``.
        url: Where it was loaded from; empty before it was written.

    Example:
        >>> Manifest.load("out/").samples
        200
    """

    framing: str
    fields: Mapping[str, FieldType]
    naming: tuple[NamedShards, ...]
    table: ShardTable
    classes: tuple[str, ...] | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    plan: str | None = None
    version: int = 1
    history: tuple[OldVersion, ...] = ()
    index_bytes: int = 0
    codecs: Mapping[str, Codec] = field(default_factory=dict)
    kinds: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    bins: Bins | None = None
    url: str = ""

    def __repr__(self) -> str:
        title, rows, notes = self._shown()
        return "\n".join([title, text_table(rows), *notes])

    def _repr_html_(self) -> str:
        """For notebooks."""
        title, rows, notes = self._shown()
        parts = [f"<p>{html_text(title)}</p>", html_table(rows), *(f"<p>{html_text(note)}</p>" for note in notes)]
        return f"<div>{''.join(parts)}</div>"

    def _shown(self) -> tuple[str, list[tuple[str, str, str]], list[str]]:
        """What it is in a line, its fields as a table, and what else there is to say, fit for a terminal."""
        of = f" of {in_one_line(self.url)}" if self.url else ""
        title = f"Manifest{of}: {plural(self.samples, 'sample')} in {plural(self.shards, 'shard')}, {size(self.bytes)}"
        rows = [("field", "type", "stored as")]
        rows += [(name, str(kind), self._stored(name)) for name, kind in islice(self.fields.items(), _SHOWN)]
        notes = [f"... and {len(self.fields) - _SHOWN:,} more fields"] if len(self.fields) > _SHOWN else []
        notes.append(f"format {self.format}, version {self.version}, fingerprint {self.fingerprint}")
        if self.told_bins is not None:
            notes.append(f"bins of {self.told_bins}")
        if self.classes is not None:
            names = ", ".join(cut(in_one_line(name), 40) for name in self.classes[:_NAMES])
            notes.append(f"{len(self.classes):,} classes: {names}{', ...' if len(self.classes) > _NAMES else ''}")
        return title, rows, notes

    def _stored(self, name: str) -> str:
        kinds = (f"{count:,} {cut(in_one_line(kind), 40)}" for kind, count in self.kinds.get(name, {}).items())
        return ", ".join(filter(None, [self.codecs.get(name, ""), *islice(kinds, 4)]))

    @property
    def format(self) -> str:
        """How samples lie in its shards, for people."""
        return self.framing

    @property
    def external(self) -> ExternalInfo | None:
        """What there is to say of a dataset in another library's format; ``None`` for ours."""
        return None

    @property
    def told_bins(self) -> str | None:
        """How its bins are packed, how many documents and tokens they hold, and how full they are, for people."""
        return None if self.bins is None else f"{self.bins}: {self.bins.told(self.samples)}"

    @property
    def samples(self) -> int:
        """Number of samples."""
        return int(self.table.samples.sum(dtype=np.int64))

    @property
    def shards(self) -> int:
        """Number of shards."""
        return len(self.table.samples)

    @property
    def bytes(self) -> int:
        """Bytes of all shards."""
        return int(self.table.sizes.sum(dtype=np.uint64))

    @property
    def shown_bytes(self) -> int:
        """The same as they are read: of objects that are compressed as a whole, inflated."""
        return self.bytes

    @property
    def largest_block(self) -> int:
        """Bytes of the largest block of such objects, inflated; 0 where there is none."""
        return 0

    @property
    def fingerprint(self) -> str:
        """Identity of the stored data: 32 hexadecimal digits. Class names and ``meta`` have no part in it."""
        identity = {
            "format_version": FORMAT_VERSION,
            "framing": self.framing,
            "fields": {name: kind.stored for name, kind in self.fields.items()},
            "naming": [[run.pattern, run.count] for run in self.naming],
            "table": f"{self.table.checksum:016x}",
        }
        return xxhash.xxh3_128_hexdigest(json.dumps(identity, sort_keys=True).encode())

    @property
    def lineage(self) -> str:
        """The fingerprint of the oldest version: all versions have it, and each holds the shards of those before it."""
        return self.history[0].fingerprint if self.history else self.fingerprint

    @property
    def as_old(self) -> OldVersion:
        """What newer versions say of this one."""
        return OldVersion(self.version, self.samples, self.shards, self.table_name, self.fingerprint)

    @property
    def reader(self) -> Framing:
        """The framing that reads these shards."""
        return framing_of(self.framing)

    def shard_name(self, shard: int) -> str:
        """Object name of a shard, relative to the data set.

        Raises:
            IndexError: No such shard.
        """
        left = shard
        for run in self.naming:
            if 0 <= left < run.count:
                return run.pattern.format(left)
            left -= run.count
        raise IndexError(f"shard {shard} of {self.shards}")

    def number_of(self, name: str) -> int | None:
        """The shard of this object name; ``None`` if there is none."""
        before = 0
        for run in self.naming:
            number = run.number_of(name)
            if number is not None:
                return before + number
            before += run.count
        return None

    @classmethod
    def of(
        cls,
        summaries: Sequence[ShardSummary],
        pattern: str,
        *,
        framing: str,
        zstd: Collection[str] = (),
        classes: Sequence[str] | None = None,
        meta: Mapping[str, Any] | None = None,
        seed: int | None = None,
        plan: str | None = None,
    ) -> Manifest:
        """The manifest of shards that were just written, the i-th as ``pattern.format(i)``.

        Raises:
            FieldError: Two shards hold one field with different types; names both.
        """
        fields = merge_fields(summaries, [pattern.format(i) for i in range(len(summaries))])
        return cls(
            framing=framing,
            fields=fields,
            naming=(NamedShards(pattern, len(summaries)),),
            table=ShardTable.of(summaries),
            classes=None if classes is None else tuple(classes),
            meta=dict(meta or {}),
            seed=seed,
            plan=plan,
            index_bytes=max((one.index_bytes for one in summaries), default=0),
            codecs={name: "zstd" for name in sorted(zstd) if name in fields},
        )

    @classmethod
    @takes_flat(flat_transport("url"))
    def load(
        cls,
        url: PathOrUrl,
        *,
        version: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Manifest:
        """Read the manifest of the data set at a URL or in a folder.

        Args:
            url: Where it lies.
            version: Of a data set that grew, which version of it. Default: the newest.
            storage_options: Credentials and settings of the store, see `ShardDataset`.

        Raises:
            NotFoundError: There is no ``dataset.json``.
            VersionError: A newer version of shardstream wrote it.
            UsageError: The data set has no such ``version``; names those it has.
            FormatError, ChecksumError: It is damaged.
            StorageError: The store cannot be read.
        """
        return cls.read(open_store(url, storage_options=storage_options), version=version)

    @classmethod
    def read(cls, store: Store, *, version: int | None = None) -> Manifest:
        """`load`, from a store that is open."""
        try:
            head = store.get(MANIFEST_NAME)
        except NotFoundError as error:
            raise no_data_set(store.locate(MANIFEST_NAME), error) from error
        old = old_version(head, version, url=store.url)
        return cls.parse(head if old is None else store.get(old.head), store.get, url=store.url, old=old)

    @classmethod
    def parse(
        cls, head: memoryview, table: Callable[[str], memoryview], *, url: str, old: OldVersion | None = None
    ) -> Manifest:
        """The manifest in the bytes of its two objects.

        Args:
            head: ``dataset.json``.
            table: Gives the bytes of the table of this name.
            url: Where the data set lies.
            old: What the newest manifest says of it, if it is that of an old version.

        Raises:
            VersionError: A newer version wrote it.
            FormatError, ChecksumError: It is damaged, or not the version that the newest one speaks of.
        """
        name = MANIFEST_NAME if old is None else old.head
        found = parse_head(head, lambda parsed: cls._parse(parsed, table, url), url=url, name=name)
        if old is not None and found.fingerprint != old.fingerprint:
            raise FormatError(f"{MANIFEST_NAME} and {old.head} disagree", url=url, hint=_RESTORE)
        return found

    @classmethod
    def _parse(cls, head: dict[str, Any], table: Callable[[str], memoryview], url: str) -> Manifest:
        name, fields, classes = head["table"], head["fields"], head["classes"]
        for one in fields:
            check_field_name(one)
        if not TABLE_NAME.fullmatch(name):
            raise ValueError(f"not the name of a table: {name!r}")
        for key, kind in (("seed", int | None), ("plan", str | None), ("version", int), ("index_bytes", int)):
            if not isinstance(head[key], kind):
                raise TypeError(f"{key} is {head[key]!r}")
        if not isinstance(head["meta"], dict) or not (classes is None or all(type(one) is str for one in classes)):
            raise TypeError("meta must be an object, and classes null or a list of names")
        data = table(name)
        manifest = cls(
            framing=framing_of(head["framing"]).name,
            fields={field: meant_type(entry["type"], entry.get("as")) for field, entry in fields.items()},
            naming=tuple(NamedShards(run["pattern"], run["shards"]) for run in head["naming"]),
            table=ShardTable.parse(data, url=f"{url}/{name}"),
            classes=None if classes is None else tuple(classes),
            meta=head["meta"],
            seed=head["seed"],
            plan=head["plan"],
            version=head["version"],
            history=parse_history(head),
            index_bytes=max(0, head["index_bytes"]),
            codecs={field: entry["codec"] for field, entry in fields.items() if entry.get("codec", "none") != "none"},
            kinds={field: _counts(entry["kinds"]) for field, entry in fields.items() if "kinds" in entry},
            url=url,
        )
        manifest = replace(manifest, bins=Bins.parse(head.get("bins"), manifest.fields))
        said = name, sum(run.count for run in manifest.naming), head["fingerprint"]
        if said != (_table_name(checksum(data)), manifest.shards, manifest.fingerprint):
            raise FormatError("dataset.json and the table of shards disagree", url=url, hint=_RESTORE)
        return manifest

    def save(self, store: Store) -> None:
        """Write the table, then ``dataset.json``: from that moment the data set is the one described here."""
        table = self.table.pack()
        name = self.table_name
        head = {
            "format": "shardstream",
            "format_version": FORMAT_VERSION,
            "version": self.version,
            "framing": self.framing,
            "samples": self.samples,
            "shards": self.shards,
            "bytes": self.bytes,
            "fields": {field: self._entry(field) for field in sorted(self.fields)},
            "classes": None if self.classes is None else list(self.classes),
            "meta": dict(self.meta),
            "naming": [{"pattern": run.pattern, "shards": run.count} for run in self.naming],
            "table": name,
            "index_bytes": self.index_bytes,
            "seed": self.seed,
            "plan": self.plan,
            "fingerprint": self.fingerprint,
        }
        if self.bins is not None:
            head["bins"] = self.bins.entry
        if self.history:
            head["history"] = [one._asdict() for one in self.history]
        try:
            sealed = seal(head)
        except (TypeError, ValueError, RecursionError) as error:
            raise FieldError(
                f"meta must be JSON: {error}", hint="use dict, list, str, int, float, bool and None"
            ) from error
        store.put(name, table)
        store.put(MANIFEST_NAME, sealed)

    def _entry(self, field: str) -> dict[str, Any]:
        entry = field_entry(self.fields[field])
        if field in self.codecs:
            entry["codec"] = self.codecs[field]
        if field in self.kinds:
            entry["kinds"] = dict(self.kinds[field])
        return entry

    @property
    def table_name(self) -> str:
        """Object name of the table: it holds the table's checksum."""
        return _table_name(self.table.checksum)


def field_entry(kind: FieldType) -> dict[str, Any]:
    """What a head says of a field of this type: the type that is stored, and what it means besides."""
    return {"type": kind.stored} | ({} if str(kind) == kind.stored else {"as": str(kind)})


def _counts(entry: Mapping[str, Any]) -> dict[str, int]:
    if not all(type(count) is int and count >= 0 for count in entry.values()):
        raise TypeError("kinds must be counts")
    return dict(entry)


def _table_name(value: int) -> str:
    return f"shards-{value:016x}.table"


def unknown_field(name: str, fields: Collection[str], *, url: str | None = None) -> FieldError:
    """The error for a field that does not exist, with the nearest that does."""
    hint = f"{did_you_mean(name, fields)}fields are {', '.join(fields)}"
    return FieldError(f"there is no field {name!r}", url=url, field=name, hint=hint)


def class_label(
    name: str, classes: Sequence[str], *, url: str, error: type[UsageError] = UsageError, field: str | None = None
) -> int:
    """The number of the one class of this name; ``error`` where there is none, or where there are several."""
    labels = [label for label, one in enumerate(classes) if one == name]
    if len(labels) == 1:
        return labels[0]
    if labels:
        raise error(f"several classes are called {name!r}", url=url, field=field, hint=f"their labels are {labels}")
    shown = ", ".join(classes[:_LISTED]) + (", ..." if len(classes) > _LISTED else "")
    hint = f"{did_you_mean(name, classes)}classes are {shown}"
    raise error(f"no class is called {name!r}", url=url, field=field, hint=hint)


def merge_fields(summaries: Sequence[ShardSummary], names: Sequence[str]) -> dict[str, FieldType]:
    """The fields of all shards together.

    Raises:
        FieldError: Two shards hold one field with different types; names both.
    """

    def differ(name: str, kind: FieldType, where: str, other: FieldType, shard: str) -> FieldError:
        what = f"the field is {kind} in {where}, but {other} here"
        return FieldError(what, shard=shard, field=name, hint="declare the field's type")

    return united_fields([one.fields for one in summaries], names, differ)


def united_fields(
    parts: Sequence[Mapping[str, FieldType]],
    names: Sequence[str],
    differ: Callable[[str, FieldType, str, FieldType, str], Exception],
) -> dict[str, FieldType]:
    """`united` types, in order of name. Bytes are image files only where they are in all parts that have the field."""
    found = united(zip(names, parts, strict=True), differ)
    for name, kind in found.items():
        if kind.is_image:
            found[name] = next((one[name] for one in parts if name in one and not one[name].is_image), kind)
    return dict(sorted(found.items()))


def united(
    parts: Iterable[tuple[str, Mapping[str, T]]], differ: Callable[[str, T, str, T, str], Exception]
) -> dict[str, T]:
    """The entries of several mappings, of which those of one name must be equal.

    Args:
        parts: The mappings, each with what it belongs to.
        differ: The error for a name with two values: name, value, whose it is, the other value, whose that is.
    """
    found: dict[str, tuple[T, str]] = {}
    for where, entries in parts:
        for name, value in entries.items():
            known, first = found.setdefault(name, (value, where))
            if known != value:
                raise differ(name, known, first, value, where)
    return {name: value for name, (value, _) in found.items()}
