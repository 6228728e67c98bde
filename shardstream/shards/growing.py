"""Manifests of several data sets as one: growing by new shards, merging. No shard is opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shardstream.errors import FieldError, UsageError
from shardstream.shards.bins import Bins
from shardstream.shards.fields import FieldType
from shardstream.shards.manifest import Manifest, united, united_fields
from shardstream.shards.table import ShardTable


def grown(old: Manifest, new: Manifest) -> Manifest:
    """The next version of a data set: its shards, then new ones. Costs what copying the table costs.

    Args:
        old: The data set as it is.
        new: The new shards, under names that ``old`` does not use. Its ``meta`` replaces entries of the same name.

    Raises:
        UsageError: Other framing, or class names that do not continue those there are.
        FieldError: A field of another type.
    """
    return replace(
        joined([old, new], ["the data set", "the new shards"]),
        meta={**old.meta, **new.meta},
        plan=new.plan,
        version=old.version + 1,
        history=(*old.history, old.as_old),
        url=old.url,
    )


def check_grows(
    old: Manifest,
    *,
    framing: str,
    fields: Mapping[str, FieldType],
    classes: Sequence[str] | None,
    bins: Bins | None = None,
) -> None:
    """Refuse, before they are written, new shards that `grown` would refuse.

    Args:
        old: The data set.
        framing: Of the new shards.
        fields: As far as they are known.
        classes: Names of their labels.
        bins: What they have in place of single documents.

    Raises:
        UsageError, FieldError: See `grown`.
    """
    names = None if classes is None else tuple(classes)
    grown(old, Manifest(framing, fields, (), ShardTable.of(()), classes=names, bins=bins))


def joined(manifests: Sequence[Manifest], names: Sequence[str]) -> Manifest:
    """The shards of all, in this order, as one data set of version 1, without ``meta`` and plan.

    Args:
        manifests: At least one; no two name a shard alike.
        names: What they are called in messages.

    Raises:
        UsageError: Their framings differ, or their class names.
        FieldError: They hold a field with different types.
    """
    first = manifests[0]
    for one, name in zip(manifests, names, strict=True):
        if one.framing != first.framing:
            raise UsageError(
                f"{names[0]} has {first.framing} shards, {name} {one.framing} shards",
                hint="all shards of a data set are framed alike: write them with the same format",
            )
    columns = zip(*(one.table.columns for one in manifests), strict=True)
    seeds = {one.seed for one in manifests}
    return Manifest(
        framing=first.framing,
        fields=_fields(manifests, names),
        naming=tuple(run for one in manifests for run in one.naming),
        table=ShardTable(*map(np.concatenate, columns)),
        classes=_classes(manifests, names),
        seed=seeds.pop() if len(seeds) == 1 else None,
        index_bytes=max(one.index_bytes for one in manifests),
        codecs={name: codec for one in manifests for name, codec in sorted(one.codecs.items())},
        kinds=_kinds(one.kinds for one in manifests),
        bins=_bins(manifests, names),
    )


def _fields(manifests: Sequence[Manifest], names: Sequence[str]) -> dict[str, FieldType]:
    def differ(name: str, kind: FieldType, first: str, other: FieldType, where: str) -> FieldError:
        what = f"the field is {kind} in {first}, but {other} in {where}"
        return FieldError(what, field=name, hint="write it with one type, or under another name")

    return united_fields([one.fields for one in manifests], names, differ)


def _classes(manifests: Sequence[Manifest], names: Sequence[str]) -> tuple[str, ...] | None:
    """The longest list of class names, if all others are beginnings of it: then equal labels mean the same."""
    found: tuple[str, ...] | None = None
    whose = ""
    for one, where in zip(manifests, names, strict=True):
        if one.classes is None:
            continue
        for label, (known, here) in enumerate(zip(found or (), one.classes, strict=False)):
            if known != here:
                raise UsageError(
                    f"label {label} means {known!r} in {whose}, but {here!r} in {where}",
                    field="cls",
                    hint="write both with one list: classes= (--classes) takes that of another data set, and new names "
                    "go behind those there are",
                )
        if found is None or len(one.classes) > len(found):
            found, whose = one.classes, where
    return found


def _bins(manifests: Sequence[Manifest], names: Sequence[str]) -> Bins | None:
    """The bins of all, if all have bins of one kind."""
    found, whose = manifests[0].bins, names[0]
    for one, where in zip(manifests[1:], names[1:], strict=True):
        if found is None or one.bins is None:
            if found is not one.bins:
                binned, other = (whose, where) if one.bins is None else (where, whose)
                hint = "pack both with the same bins="
                raise UsageError(f"{binned} has bins of documents, {other} has samples", hint=hint)
        else:
            found = found.plus(one.bins, whose, where)
    return found


def _kinds(all_kinds: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {}
    for kinds in all_kinds:
        for name, counts in kinds.items():
            found.setdefault(name, Counter()).update(counts)
    return {
        name: dict(sorted(counts.items(), key=lambda one: (-one[1], one[0]))) for name, counts in sorted(found.items())
    }


def united_meta(manifests: Sequence[Manifest], names: Sequence[str]) -> dict[str, Any]:
    """The entries of all ``meta``.

    Raises:
        UsageError: An entry of one name has two values.
    """

    def differ(name: str, value: Any, first: str, other: Any, where: str) -> UsageError:
        what = f"meta[{name!r}] is {value!r} in {first}, but {other!r} in {where}"
        return UsageError(what, hint="say meta= for the result")

    return united(zip(names, (one.meta for one in manifests), strict=True), differ)
