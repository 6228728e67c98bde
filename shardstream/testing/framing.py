"""What every framing has to hold."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import ChecksumError, DataError, FieldError, NotFoundError, StorageError
from shardstream.shards.fields import FieldType
from shardstream.shards.framing import FieldValues, Framing
from shardstream.shards.index import ShardIndex
from shardstream.storage import Buffers, FetchedBuffers, MappedBuffers, Store
from shardstream.storage.local.store import LocalStore
from shardstream.testing.asserting import check, check_arrays, check_equal, expect, skip

KeyedValues: TypeAlias = tuple[str, dict[str, Any]]
"""A sample: its key, and the values of the fields that it has."""

TYPES = {name: FieldType.parse(kind) for name, kind in
         {"jpg": "jpg", "cls": "int64", "emb": "array:float32:2,3", "txt": "str"}.items()}  # fmt: skip
COUNT = 23
_FOREIGN = (b"", b"\0" * 4096, b"hello", bytes(range(256)) * 20)


def samples_of(count: int) -> list[KeyedValues]:
    """A few samples of `TYPES`, with some values missing and some empty."""
    found = []
    for i in range(count):
        values: dict[str, Any] = {"jpg": bytes([i % 256]) * (37 * i % 1000), "cls": i - 3}
        if i % 3:
            values["emb"] = np.arange(6, dtype=np.float32).reshape(2, 3) + i
        if i % 4 == 2:
            values["txt"] = "é" * (i % 5)
        found.append((f"folder/{i:03d}", values))
    return found


class FramingConformance:
    """What every `Framing` has to hold, as test methods; subclass it as ``Test...``.

    The tests write samples with a ``jpg`` of up to 1,000 bytes (bytes that are not an image), an int64 ``cls``, an
    ``emb`` of float32 (2, 3) and a ``txt``; the last two are missing in some samples, and some values are empty.

    Attributes:
        framing: What is tested.
        holds: Which of these fields it can hold; ``jpg`` and ``cls`` it must.
        checks: Whether values carry checksums, so that damage must be found, and with its place.
        counts: Numbers of samples that a shard is tried with; without 0 for a framing that has no empty shards.

    Example:
        >>> from shardstream.shards.framings import framing_of
        >>> class TestRecord(FramingConformance):
        ...     framing = framing_of("record")
        ...     def write(self, folder, samples):  # puts a shard into the folder, by code of your own
        ...         return "shard.rec"
    """

    framing: Framing
    holds: tuple[str, ...] = tuple(TYPES)
    checks: bool = True
    counts: tuple[int, ...] = (0, 1, 8, 9)

    # ---------------------------------------------------------------------------------------------------- to override

    def write(self, folder: Path, samples: list[KeyedValues]) -> str:
        """Put a shard of these samples into ``folder``.

        Args:
            folder: An empty folder.
            samples: Key and values by field, in the order of the shard; values that are missing have no entry.

        Returns:
            The path of the shard in ``folder``.
        """
        raise NotImplementedError(f"{type(self).__name__} must override write(folder, samples)")

    def place_of(self, folder: Path, path: str, row: int) -> tuple[Path, int]:
        """The file and the offset of the first byte of the ``jpg`` of a row, found without the framing.

        Asked only where `checks` holds.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must override place_of(folder, path, row), or set checks = False"
        )

    # -------------------------------------------------------------------------------------------------------- helpers

    def samples(self, count: int = COUNT) -> list[KeyedValues]:
        """The samples that are written, with the fields that the framing `holds`."""
        return [(key, {f: v for f, v in values.items() if f in self.holds}) for key, values in samples_of(count)]

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="shardstream-testing-") as name:
            yield Path(name)

    @contextmanager
    def _shard(self) -> Iterator[tuple[Store, ShardIndex]]:
        with self._folder() as folder:
            path = self.write(folder, self.samples())
            store = LocalStore(folder)
            yield store, self.framing.scan(store, path)

    def _fetched(self, store: Store, index: ShardIndex, rows: NDArray[np.int64], fields: Sequence[str]) -> Buffers:
        """Only what was planned, in another order than it was."""
        plan = self.framing.plan(index, rows, fields)
        return FetchedBuffers([(request, memoryview(bytes(store.get(*request)))) for request in reversed(plan)])

    def _compare(
        self, found: dict[str, FieldValues], rows: NDArray[np.int64], fields: Sequence[str], count: int = COUNT
    ) -> None:
        samples = self.samples(count)
        check_equal(list(found), list(fields), "the fields that extract returns")
        for name in fields:
            values, kind = found[name], TYPES[name]
            expected = [samples[row][1].get(name) for row in rows.tolist()]
            check_equal(values.type, kind, f"the type of {name!r}")
            if values.valid is None:
                missing = [row for row, one in zip(rows.tolist(), expected, strict=True) if one is None]
                check(not missing, f"valid=None says that all rows have {name!r}, but rows {missing} have none")
            else:
                check_equal(values.valid.dtype, np.dtype(bool), f"the dtype of valid of {name!r}")
                check_equal(values.valid.tolist(), [one is not None for one in expected], f"valid of {name!r}")
            if kind.kind == "payload":
                _compare_payloads(values.data, name, expected)
            else:
                _compare_elements(values.data, name, kind, expected)

    # ----------------------------------------------------------------------------------------------------------- scan

    def test_scan_tells_samples_keys_and_types(self) -> None:
        """The index knows how many samples there are, their keys in order, and the fields with their types."""
        with self._shard() as (store, index):
            check_equal(index.samples, COUNT, "samples of the index")
            check_equal(index.framing, self.framing.name, "framing of the index")
            check(store.exists(index.path), f"path of the index is {index.path!r}, and there is no such object")
            keys = [key for key, _ in self.samples()]
            check_equal(list(index.keys), keys, "keys of the index")
            check_equal([index.keys[i] for i in range(COUNT)], keys, "keys of the index, one at a time")
            check_equal(index.keys[-1], keys[-1], "keys[-1] of the index")
            check_equal(list(index.keys[3:-2:2]), keys[3:-2:2], "keys[3:-2:2] of the index")
            for bad in (COUNT, -COUNT - 1):
                expect(IndexError, f"keys[{bad}] of {COUNT} samples", index.keys.__getitem__, bad)
            types = {name: column.type for name, column in index.columns.items()}
            check_equal(types, {name: TYPES[name] for name in self.holds}, "types of the index's columns")
            check_equal([index.column(name).name for name in self.holds], list(self.holds), "names of the columns")

    def test_columns_tell_which_rows_have_a_value(self) -> None:
        """Validity of a column, for rows in any order."""
        with self._shard() as (_, index):
            rows = np.arange(COUNT)[::-1]
            for name in self.holds:
                valid = index.column(name).valid_rows(rows)
                has = [name in self.samples()[row][1] for row in rows]
                found = [True] * COUNT if valid is None else valid.tolist()
                check_equal(found, has, f"valid_rows of {name!r}")

    def test_any_number_of_samples(self) -> None:
        """Shards of few samples: none, one, and as many as fill a byte of a bitmap."""
        for count in self.counts:
            with self._folder() as folder:
                store = LocalStore(folder)
                index = self.framing.scan(store, self.write(folder, self.samples(count)))
                check_equal(index.samples, count, "samples of the index")
                check_equal(len(index.keys), count, "the number of keys")
                fields, rows = sorted(index.columns), np.arange(count)
                self._compare(self.framing.extract(index, MappedBuffers(store), rows, fields), rows, fields, count)

    def test_scan_of_what_is_not_there(self) -> None:
        """No object of that name: NotFoundError."""
        with self._folder() as folder:
            expect(
                NotFoundError, "scan of a name that is not there", lambda: self.framing.scan(LocalStore(folder), "no")
            )

    def test_scan_of_something_else(self) -> None:
        """Objects that are not shards: a DataError with URL, shard and a hint."""
        for data in _FOREIGN:
            with self._folder() as folder:
                (folder / "other").write_bytes(data)
                store = LocalStore(folder)
                what = f"scan of an object that is not a shard ({len(data)} bytes)"
                error = expect(DataError, what, self.framing.scan, store, "other")
                check_equal(error.place.get("shard"), "other", f"shard in the place of the error of {what}")
                check_equal(error.place.get("url"), store.url, f"url in the place of the error of {what}")
                check(error.hint, f"the error of {what} must have a hint")

    # ------------------------------------------------------------------------------------------------ plan and extract

    def test_everything_in_stored_order(self) -> None:
        """All fields of all rows, with and without comparing checksums."""
        with self._shard() as (store, index):
            rows, fields = np.arange(COUNT), list(self.holds)
            for verify in (True, False):
                found = self.framing.extract(index, MappedBuffers(store), rows, fields, verify=verify)
                self._compare(found, rows, fields)

    def test_any_rows_and_fields_mapped_or_from_exactly_what_was_planned(self) -> None:
        """Rows in any order, repeated or not, from a mapped store and from buffers that hold the plan and no more."""
        with self._shard() as (store, index):
            for seed in range(12):
                rng = np.random.default_rng(seed)
                rows = rng.integers(0, COUNT, int(rng.integers(0, 2 * COUNT)))
                fields = [str(f) for f in rng.permutation(self.holds)[: int(rng.integers(1, len(self.holds) + 1))]]
                for buffers in (MappedBuffers(store), self._fetched(store, index, rows, fields)):
                    self._compare(self.framing.extract(index, buffers, rows, fields), rows, fields)

    def test_no_rows(self) -> None:
        """No rows need no bytes; no fields give nothing."""
        with self._shard() as (store, index):
            rows, fields = np.empty(0, np.int64), list(self.holds)
            check_equal(self.framing.plan(index, rows, fields), [], "the plan of no rows")
            self._compare(self.framing.extract(index, FetchedBuffers([]), rows, fields), rows, fields)
            found = self.framing.extract(index, MappedBuffers(store), np.arange(3), [])
            check_equal(found, {}, "what extract returns for no fields")

    def test_rows_without_any_value(self) -> None:
        """Values that are missing need no bytes."""
        with self._shard() as (_, index):
            samples = self.samples()
            for name in self.holds:
                rows = np.array([row for row, (_, values) in enumerate(samples) if name not in values], np.int64)
                check_equal(self.framing.plan(index, rows, [name]), [], f"the plan of rows that have no {name!r}")
                self._compare(self.framing.extract(index, FetchedBuffers([]), rows, [name]), rows, [name])

    def test_scalars_need_no_bytes(self) -> None:
        """Scalars stand in the index."""
        with self._shard() as (_, index):
            rows = np.arange(COUNT)[::-1]
            check_equal(self.framing.plan(index, rows, ["cls"]), [], "the plan of a scalar field")
            self._compare(self.framing.extract(index, FetchedBuffers([]), rows, ["cls"]), rows, ["cls"])

    def test_requests_lie_in_their_objects_are_not_empty_and_come_once(self) -> None:
        """A plan names each range once, and none that is empty or outside of its object."""
        with self._shard() as (store, index):
            rows = np.concatenate([np.arange(COUNT), np.arange(COUNT)])
            plan = self.framing.plan(index, rows, list(self.holds))
            twice = sorted({request for request in plan if plan.count(request) > 1}, key=str)
            check(not twice, f"a plan must hold each request once, but holds {twice[:3]} more often")
            for request in plan:
                path, offset, length = request
                inside = length is None or (length > 0 and offset >= 0 and offset + length <= store.size(path))
                check(inside, f"{request} is empty, or not inside an object of {store.size(path)} bytes")

    def test_what_was_not_planned_is_refused(self) -> None:
        """Extracting from buffers without the bytes: StorageError."""
        with self._shard() as (store, index):
            some = self._fetched(store, index, np.array([5]), ["jpg"])
            what = "extract from buffers that lack the row's bytes"
            error = expect(StorageError, what, lambda: self.framing.extract(index, some, np.array([6]), ["jpg"]))
            check("not been planned" in str(error), f"{what} must say what has not been planned, got {error}")

    def test_results_outlive_everything(self) -> None:
        """Values stay when shard, store and index are gone."""
        with self._folder() as folder:
            store = LocalStore(folder)
            index = self.framing.scan(store, self.write(folder, self.samples()))
            rows, fields = np.arange(COUNT), list(self.holds)
            found = self.framing.extract(index, MappedBuffers(store), rows, fields)
            for meta in list(store.list()):
                store.delete(meta.path)
            del store, index
            self._compare(found, rows, fields)

    # --------------------------------------------------------------------------------------------------------- errors

    def test_unknown_fields_are_refused(self) -> None:
        """FieldError with field, shard, and a hint that names the fields there are."""
        with self._shard() as (store, index):
            rows = np.arange(2)
            for what, ask in (
                ("plan", lambda: self.framing.plan(index, rows, ["jpg", "nope"])),
                ("extract", lambda: self.framing.extract(index, MappedBuffers(store), rows, ["jpg", "nope"])),
                ("column", lambda: index.column("nope")),
            ):
                error = expect(FieldError, f"{what} of a field that is not there", ask)
                check("no field 'nope'" in str(error), f"the error of {what} must name the field, got {error}")
                check_equal(error.place.get("field"), "nope", f"field in the place of the error of {what}")
                check_equal(error.place.get("shard"), index.path, f"shard in the place of the error of {what}")
                check("jpg" in str(error.hint), f"the hint of {what} must name the fields there are, got {error.hint}")

    def test_a_damaged_value_is_found_with_its_place(self) -> None:
        """One byte of a value is changed: ChecksumError with the whole place, and other rows stay readable."""
        if not self.checks:
            skip("values carry no checksums")
        for row in (1, 7, COUNT - 1):
            with self._folder() as folder:
                self._damaged(folder, row)

    def _damaged(self, folder: Path, row: int) -> None:
        path = self.write(folder, self.samples())
        file, offset = self.place_of(folder, path, row)
        data = bytearray(file.read_bytes())
        key, values = self.samples()[row]
        size = len(values["jpg"])
        data[offset + size // 2] ^= 1
        file.write_bytes(data)
        store = LocalStore(folder)
        index = self.framing.scan(store, path)
        buffers = MappedBuffers(store)
        rows = np.array([2, row, 3, row])
        what = f"extract of row {row}, of whose jpg a byte was changed,"
        error = expect(ChecksumError, what, lambda: self.framing.extract(index, buffers, rows, ["cls", "jpg"]))
        place = {"url": store.url, "shard": path, "sample": row, "key": key, "field": "jpg", "offset": offset}
        check_equal(error.place, place, "the place of the error of a damaged value")
        found = self.framing.extract(index, buffers, rows, ["jpg"], verify=False)["jpg"].data[1]
        check_equal(bytes(found or b""), bytes(data[offset : offset + size]), "a damaged value, with verify=False")
        others = np.array([one for one in range(COUNT) if one != row])
        self._compare(self.framing.extract(index, buffers, others, ["jpg"]), others, ["jpg"])


def _compare_payloads(data: Any, name: str, expected: list[Any]) -> None:
    kinds = [type(one).__name__ for one in data if one is not None and not isinstance(one, memoryview)]
    check(not kinds, f"payloads of {name!r} must be memoryviews, got {sorted(set(kinds))}")
    check(all(one is None or one.readonly for one in data), f"buffers of {name!r} must be read-only")
    stored = [one.encode() if isinstance(one, str) else one for one in expected]
    check_equal(len(data), len(stored), f"the number of values of {name!r}")
    for number, (one, other) in enumerate(zip(data, stored, strict=True)):
        check_equal(None if one is None else bytes(one), other, f"value {number} of {name!r}")


def _compare_elements(data: Any, name: str, kind: FieldType, expected: list[Any]) -> None:
    assert kind.dtype is not None
    assert kind.shape is not None
    zeros = np.zeros(kind.shape, kind.dtype)
    wanted = np.array([zeros if one is None else one for one in expected], kind.dtype)
    check_arrays(data, wanted.reshape(len(expected), *kind.shape), f"the values of {name!r}")
    check(data.flags.writeable and data.flags.aligned, f"the array of {name!r} must be writeable and aligned")
