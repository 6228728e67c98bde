"""``rows_of_keys``: where the samples of a list of keys lie, by the key tables of their data sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.joined import samples_of
from shardstream.dataset.keys.finder import KeyFinder
from shardstream.dataset.opened import OpenedDataset
from shardstream.dataset.selected.row_set import RowSet
from shardstream.errors import MissingKeyError, UsageError

_AT_ONCE = 1 << 16  # keys that are held
_NAMED = 5  # in an error


def rows_of_keys(datasets: Sequence[OpenedDataset], keys: Iterable[object], *, what: str, verify: bool) -> RowSet:
    """The rows of all samples of these keys, in data sets that are laid end to end.

    Args:
        datasets: The data sets.
        keys: The keys; read once, some at a time.
        what: The argument that lists them, for messages.
        verify: Compare checksums of indexes.

    Raises:
        MissingKeyError: Some are of no sample; names the first of them.
        UsageError: One is not a str.
        DataError, StorageError: A key table or an index cannot be read.
    """
    found = RowSet(samples_of([one.manifest for one in datasets]))
    finders = [KeyFinder(DatasetRows(one, (), verify=verify)) for one in datasets]
    left, total, missing, named = iter(keys), 0, 0, list[str]()
    while chunk := [_checked(key, what) for key in islice(left, _AT_ONCE)]:
        absent, begin = dict.fromkeys(chunk), 0
        total += len(absent)
        for dataset, finder in zip(datasets, finders, strict=True):
            matches = finder.find_all(dict.fromkeys(chunk))
            numbers = np.array([number for number, _ in matches], np.int64)
            shards, rows = dataset.numbering.find_all(numbers)
            for shard in np.unique(shards).tolist():
                found.add(begin + shard, rows[shards == shard])
            for _, key in matches:
                absent.pop(key, None)
            begin += dataset.manifest.shards
        missing += len(absent)
        named += islice(absent, _NAMED - len(named))
    if missing:
        raise _missing(datasets, what, missing, total, named)
    return found


def _checked(key: object, what: str) -> str:
    if isinstance(key, str):
        return key
    hint = "pass a list of strings, or the path of a file that has one a line"
    raise UsageError(f"{what} must list keys, got {key!r}", hint=hint)


def _missing(datasets: Sequence[OpenedDataset], what: str, missing: int, total: int, named: list[str]) -> UsageError:
    names = ", ".join(map(repr, named)) + (", ..." if missing > len(named) else "")
    return MissingKeyError(
        f"no sample has {missing:,} of the {total:,} keys in {what}: {names}",
        url=datasets[0].url if len(datasets) == 1 else None,
        hint="leave them out, or open the data set and the version that has them; keys are paths without extension, "
        "unless packed with another `key`",
    )
