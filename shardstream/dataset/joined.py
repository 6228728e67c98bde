"""Several datasets laid end to end: the samples of each shard, the fields, the identity."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.shards.fields import FieldType
from shardstream.shards.manifest import Manifest


def samples_of(manifests: Sequence[Manifest]) -> NDArray[Any]:
    """Samples of each shard of data sets that are laid end to end."""
    columns = [one.table.samples for one in manifests]
    return columns[0] if len(columns) == 1 else np.concatenate(columns)  # one alone stays mapped


def merge_fields(manifests: Sequence[Manifest]) -> tuple[dict[str, FieldType], dict[str, str]]:
    """The fields of all data sets, and what is wrong with those that they hold with different types."""
    found: dict[str, tuple[FieldType, str]] = {}
    conflicts: dict[str, str] = {}
    for one in manifests:
        for name, kind in one.fields.items():
            first, where = found.setdefault(name, (kind, one.url))
            if first != kind:
                conflicts[name] = f"the field is {first} in {where}, but {kind} in {one.url}"
            elif first.is_image and not kind.is_image:
                found[name] = kind, one.url  # bytes, not all of which are image files
    return {name: kind for name, (kind, _) in found.items()}, conflicts


def joint_identity(fingerprints: Sequence[str]) -> str:
    """The identity of several things in this order; of one, its own."""
    return fingerprints[0] if len(fingerprints) == 1 else digest(fingerprints)


def digest(value: Any) -> str:
    """32 hexadecimal digits of a JSON value."""
    return xxhash.xxh3_128_hexdigest(json.dumps(value, sort_keys=True).encode())
