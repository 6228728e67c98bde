"""``features.json`` of TensorFlow Datasets: what the files beside it say of the features of TFRecord files."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from shardstream.errors import FormatError
from shardstream.formats.contract import ObjectListing

_NAME = "features.json"
_DEPTH = 32


@dataclass(frozen=True, slots=True)
class DescribedFeatures:
    """What is known of the features of a folder's files.

    Attributes:
        lists: Names of those that hold any number of values.
        text: Names of those that are text.
        label: The name of the class label, if there is one.
        classes: Names of its classes.
    """

    lists: frozenset[str] = frozenset()
    text: frozenset[str] = frozenset()
    label: str | None = None
    classes: tuple[str, ...] | None = None


def described(listing: ObjectListing, folders: Collection[str]) -> dict[str, DescribedFeatures]:
    """By folder, what its ``features.json`` says; nothing where there is none.

    Raises:
        FormatError: One is malformed.
    """
    return {folder: _read(listing, f"{folder}/" if folder else "") for folder in folders}


def _read(listing: ObjectListing, folder: str) -> DescribedFeatures:
    path = folder + _NAME
    if path not in listing:
        return DescribedFeatures()
    try:
        tree = json.loads(listing.read(path).decode())
        leaves = list(_leaves(tree, "", False, 0))
    except (ValueError, AttributeError, RecursionError) as error:
        raise FormatError(
            f"the description of the features is malformed: {error}",
            url=listing.store.locate(path),
            hint="fetch it again, or take it away: it names the classes only",
        ) from error
    labels = [name for name, leaf, listed in leaves if "classLabel" in leaf and not listed and "/" not in name]
    label = labels[0] if len(labels) == 1 else None
    return DescribedFeatures(
        lists=frozenset(name for name, _, listed in leaves if listed),
        text=frozenset(name for name, leaf, _ in leaves if "text" in leaf),
        label=label,
        classes=_classes(listing, f"{folder}{label}.labels.txt") if label else None,
    )


def _leaves(node: dict[str, Any], name: str, listed: bool, depth: int) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Name, description, and whether it is in a list, of each feature; nested names are joined by slashes."""
    if depth > _DEPTH:
        raise ValueError(f"features nested more than {_DEPTH} deep")
    if not isinstance(node, dict):
        raise ValueError(f"feature {name!r} is not an object")  # noqa: TRY004 # of a file, not of a caller
    if "featuresDict" in node:
        for part, child in node["featuresDict"].get("features", {}).items():
            yield from _leaves(child, f"{name}/{part}" if name else part, listed, depth + 1)
    elif "sequence" in node:
        yield from _leaves(node["sequence"].get("feature", {}), name, True, depth + 1)
    else:
        yield name, node, listed


def _classes(listing: ObjectListing, path: str) -> tuple[str, ...] | None:
    """The names in a file of one a line."""
    if path not in listing:
        return None
    try:
        names = listing.read(path).decode().splitlines()
    except UnicodeDecodeError as error:
        raise FormatError(
            f"names of classes that are not UTF-8: {error}", url=listing.store.locate(path), hint="fetch the file again"
        ) from error
    return tuple(name for name in (one.strip() for one in names) if name)
