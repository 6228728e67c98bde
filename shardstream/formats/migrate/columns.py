"""What the library calls the fields of a data set, where we call them otherwise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from shardstream.dataset.opened import OpenedDataset
from shardstream.errors import FormatError, NotFoundError
from shardstream.formats.arrow.columns import features_of, fields_of
from shardstream.formats.arrow.messages import read_schema
from shardstream.formats.catalog.catalog import Catalogue
from shardstream.formats.parquet.fields import fields_in
from shardstream.formats.parquet.footer import Footer
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.shards.field_names import usable_field

_SIDECAR = 16 << 20


@dataclass(frozen=True, slots=True)
class OwnColumns:
    """How a library stores fields.

    Attributes:
        names: What it calls them, where that is something else.
        encodings: How it encodes them, where it says so.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    encodings: Mapping[str, str] = field(default_factory=dict)


def own_columns(dataset: OpenedDataset, first: str, picture: str | None, label: str | None) -> OwnColumns:
    """How the library of a data set stores its fields.

    Args:
        dataset: The data set.
        first: Name of its first object.
        picture: The field of pictures, if any.
        label: The field of labels, if any.

    Raises:
        StorageError: It cannot be read.
    """
    manifest = dataset.manifest
    assert isinstance(manifest, Catalogue)
    renamed = {name: text.partition(":")[0] for name, text in manifest.reading.chosen.items()}
    found = OwnColumns()
    with suppress(
        NotFoundError, FormatError, ValueError, KeyError, TypeError, IndexError
    ):  # the name is the best guess
        found = _of_format(dataset, manifest, first, picture, label, renamed)
    names = {name: found.names.get(column, column) for name, column in renamed.items()} or found.names
    encodings = {name: found.encodings[column] for name, column in renamed.items() if column in found.encodings}
    return OwnColumns(names, encodings or found.encodings)


def _of_format(
    dataset: OpenedDataset,
    manifest: Catalogue,
    first: str,
    picture: str | None,
    label: str | None,
    renamed: Mapping[str, str],
) -> OwnColumns:
    source, store = manifest.reading.source, dataset.store
    if source == "mds":
        shard = json.loads(bytes(store.get("index.json", 0, min(store.size("index.json"), _SIDECAR))))["shards"][0]
        names = {usable_field(str(name)): str(name) for name in shard["column_names"]}
        return OwnColumns(names, dict(zip(names, map(str, shard["column_encodings"]), strict=True)))
    if source == "arrow":
        schema = read_schema(ObjectBytes(store, first, store.size(first), window=64 << 10))
        fields = fields_of(schema.columns, features_of(schema.metadata))
        return OwnColumns({one.name: one.source[0] for one in fields})
    if source == "parquet":
        data = ObjectBytes(store, first, store.size(first), window=64 << 10)
        columns = fields_in(data, Footer(data, data.size), {"chosen": [*renamed.values()]})
        return OwnColumns({one.name: one.field.source[0] for one in columns})
    if source == "hdf5":
        return OwnColumns({name: name.replace(".", "/") for name in (*manifest.fields, *renamed.values())})
    if source == "tfrecord" and any(name.startswith("image.") for name in manifest.fields):
        others = {name: name.replace(".", "/") for name in manifest.fields if name.startswith("image.")}
        slim = {picture: "image/encoded", label: "image/class/label"}
        return OwnColumns({name: column for name, column in (others | slim).items() if name is not None})
    if source in ("jsonl", "tfrecord"):
        return OwnColumns({label: "label"} if label == "cls" else {})
    return OwnColumns()
