"""``Rows``: some samples of stored data, about a bit per sample, as ``where=`` takes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.opened import OpenedDataset
from shardstream.dataset.selected.row_set import RowSet
from shardstream.dataset.selected.rows_file import RowsFile, ShardRecord, encode_head, parse
from shardstream.errors import FormatError, UsageError
from shardstream.shards.manifest import Manifest
from shardstream.sizes import plural
from shardstream.storage import locate, open_store


class FoundOn(NamedTuple):
    """The version of a dataset that rows were found on.

    Attributes:
        fingerprint: Of the version, 32 hexadecimal digits.
        shards: How many shards it has.
    """

    fingerprint: str
    shards: int

    @classmethod
    def of(cls, manifest: Manifest) -> FoundOn:
        """The version of this manifest."""
        return cls(manifest.fingerprint, manifest.shards)

    def fits(self, manifest: Manifest) -> bool:
        """Whether a dataset is at this version, or has grown from it."""
        return self == FoundOn.of(manifest) or any(self == (one.fingerprint, one.shards) for one in manifest.history)


class Rows:
    """Samples of a dataset that `find_rows` chose, about one bit per sample of the dataset.

    Pass them as ``where=rows``, alone or in a list with other conditions: ``where=[rows, {"cls": 3}]``. They fit the
    data they were found on, and every later version of a dataset that grew: samples that were appended since are not
    among them.

    ``a & b`` and ``a | b`` combine rows of the same data. ``~rows`` are the samples for which the predicate was called
    and said no: never samples outside the view, damaged ones that were skipped, or those that were appended later.

    Example:
        >>> rows = ss.find_rows("out/", lambda sample: sample["cls"] < 27, fields=["cls"])
        >>> len(rows), len(~rows), len(ss.ShardDataset("out/", where=rows))
        (10, 190, 10)
    """

    def __init__(
        self, found_on: Sequence[FoundOn], samples: NDArray[Any], chosen: RowSet, asked: RowSet | None
    ) -> None:
        """Not for users: `find_rows` and `load` make them.

        Args:
            found_on: The version of each dataset.
            samples: Samples of each shard of all of them: integers (shards,).
            chosen: The rows.
            asked: Those for which the predicate was called; ``None``: all.
        """
        self._found_on = tuple(found_on)
        self._samples = samples
        self._chosen = chosen
        self._asked = asked

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the data that they were found on; of several datasets, theirs with commas between."""
        return ", ".join(one.fingerprint for one in self._found_on)

    @cached_property
    def digest(self) -> str:
        """32 hexadecimal digits that tell different rows of the same data apart."""
        return self._chosen.digest

    @cached_property
    def _count(self) -> int:
        return len(self._chosen)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        asked = "" if self._asked is None else f", found among {len(self._asked):,}"
        return f"Rows({len(self):,} of {plural(int(self._samples.sum(dtype=np.int64)), 'sample')}{asked})"

    # ------------------------------------------------------------------------------------------------- combinations

    def __invert__(self) -> Rows:
        return Rows(self._found_on, self._samples, self._refused, self._asked)

    def __and__(self, other: object) -> Rows:
        return self._combined(other, np.bitwise_and, np.bitwise_or) if isinstance(other, Rows) else NotImplemented

    def __or__(self, other: object) -> Rows:
        return self._combined(other, np.bitwise_or, np.bitwise_and) if isinstance(other, Rows) else NotImplemented

    @property
    def _refused(self) -> RowSet:
        """The rows that the predicate said no of."""
        asked = RowSet.full(self._samples) if self._asked is None else self._asked
        return self._of_bits(asked.memory.bytes & ~self._chosen.memory.bytes)

    def _of_bits(self, bits: NDArray[np.uint8]) -> RowSet:
        made = RowSet(self._samples)
        made.memory.bytes[:] = bits
        return made

    def _combined(self, other: Rows, yes: Callable[..., Any], no: Callable[..., Any]) -> Rows:
        """Chosen by ``yes`` of what both chose, and refused by ``no`` of what both refused: nothing else is known."""
        if self._found_on != other._found_on:
            raise UsageError(
                f"rows of different data cannot be combined: fingerprints {self.fingerprint} and {other.fingerprint}",
                hint="find both on the same version; of a dataset that grew, pass both: where=[rows, others]",
            )
        chosen = self._of_bits(yes(self._chosen.memory.bytes, other._chosen.memory.bytes))
        if self._asked is None and other._asked is None:
            return Rows(self._found_on, self._samples, chosen, None)
        refused = no(self._refused.memory.bytes, other._refused.memory.bytes)
        return Rows(self._found_on, self._samples, chosen, self._of_bits(chosen.memory.bytes | refused))

    # ------------------------------------------------------------------------------------------------- opened data

    def of(self, datasets: Sequence[OpenedDataset]) -> RowSet:
        """The same as rows of opened datasets, which are laid end to end.

        Raises:
            UsageError: They were found on other data; names both fingerprints.
        """
        manifests = [one.manifest for one in datasets]
        fits = [one.fits(manifest) for one, manifest in zip(self._found_on, manifests, strict=False)]
        if len(manifests) != len(self._found_on) or not all(fits):
            raise UsageError(
                f"these rows were found on other data: fingerprint {self.fingerprint}, here it is "
                + ", ".join(one.fingerprint for one in manifests),
                url=manifests[0].url,
                hint="find them again: rows = ss.find_rows(url, predicate)",
            )
        here, there, runs = 0, 0, list[tuple[int, int, int]]()
        for known, manifest in zip(self._found_on, manifests, strict=True):
            runs.append((here, there, known.shards))
            here, there = here + known.shards, there + manifest.shards
        tables = [one.table.samples for one in manifests]
        return self._chosen.carried(np.concatenate(tables), runs)

    # ------------------------------------------------------------------------------------------------------- files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write them to a file, atomically and with checksums.

        Args:
            path: A path, or the URL of an object. What is there is replaced.

        Raises:
            StorageError: It cannot be written.

            >>> rows = ss.find_rows("out/", lambda sample: sample["cls"] < 27, fields=["cls"])
            >>> rows.save("few.rows")
            >>> len(ss.ShardDataset("out/", where=ss.Rows.load("few.rows")))
            10
        """
        directory, name = os.path.split(os.fspath(path))
        open_store(locate(directory or ".")).put(name, self._encoded())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Rows:
        """Read rows that `save` or ``find_rows(out=)`` has written.

        Args:
            path: A path, or the URL of an object.

        Raises:
            NotFoundError: There is no such file.
            DataError: It is damaged, cut short, unfinished, or no file of rows.
        """
        directory, name = os.path.split(os.fspath(path))
        data = open_store(locate(directory or ".")).get(name)
        return cls.of_file(parse(bytes(data), os.fspath(path)), os.fspath(path))

    @classmethod
    def of_file(cls, file: RowsFile, url: str) -> Rows:
        """The rows in a file; FormatError where some of its shards are missing."""
        if not file.complete:
            there = f"{len(file.records)} of {file.head['shards']} shards"
            if "search" in file.head:
                what, hint = "is not finished, or cut short", "call find_rows again with the same arguments and out="
            else:
                what, hint = "is cut short", "delete it, and find the rows again"
            raise FormatError(f"the file of rows {what}: it has {there}", url=url, hint=hint)
        samples = np.array([one.samples for one in file.records], np.int64)
        chosen, asked = RowSet(samples), RowSet.full(samples)
        whole = True
        for shard, record in enumerate(file.records):
            chosen.bits(shard)[:] = np.frombuffer(record.chosen, np.uint8)
            if record.asked is not None:
                whole = False
                asked.bits(shard)[:] = np.frombuffer(record.asked, np.uint8)
        found_on = [FoundOn(*one) for one in file.head["data"]]
        return cls(found_on, samples, chosen, None if whole else asked)

    def record(self, shard: int) -> ShardRecord:
        """What a file has of a shard."""
        samples, chosen = int(self._samples[shard]), self._chosen.bits(shard).tobytes()
        asked = None if self._asked is None else self._asked.bits(shard).tobytes()
        if asked is not None and asked == RowSet.full(self._samples[shard : shard + 1]).bits(0).tobytes():
            asked = None
        return ShardRecord(samples, chosen, asked)

    def head(self) -> dict[str, Any]:
        """What a file of them begins with."""
        return {"data": self._found_on, "shards": len(self._samples)}

    def _encoded(self) -> bytes:
        records = (self.record(shard).encode(shard) for shard in range(len(self._samples)))
        return b"".join([encode_head(self.head()), *records])

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_bytes, (self._encoded(),)


def _of_bytes(data: bytes) -> Rows:
    return Rows.of_file(parse(data, "a pickle"), "a pickle")


def listed(where: Any) -> tuple[list[Rows], list[Mapping[Any, Any]]] | None:
    """The rows and the dicts in what was given for ``where=``; ``None`` where it has anything else."""
    given: Iterable[Any] = where if isinstance(where, list | tuple) else [where]
    rows, dicts = list[Rows](), list[Mapping[Any, Any]]()
    for one in given:
        if isinstance(one, Rows):
            rows.append(one)
        elif isinstance(one, Mapping):
            dicts.append(one)
        else:
            return None
    return rows, dicts
