"""What every framing has to hold. Subclass `FramingContract` and say how samples get into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardstream.errors import ChecksumError, DataError, FieldError, NotFoundError, StorageError
from shardstream.shards.fields import FieldType
from shardstream.shards.framing import FieldValues, Framing
from shardstream.storage import Buffers, FetchedBuffers, MappedBuffers
from shardstream.storage.local.store import LocalStore

from .making import TYPES, Sample, samples_of

COUNT = 23


class FramingContract:
    """Samples are those of `making.samples_of`, with the fields that the framing ``holds``.

    Attributes:
        framing: What is tested.
        holds: The fields of `making.TYPES` that it can hold.
        checks: Whether values carry checksums.
    """

    framing: Framing
    holds: tuple[str, ...] = tuple(TYPES)
    checks: bool = True

    def write(self, folder: Path, samples: list[Sample]) -> str:
        """Put a shard of these samples into ``folder``; its path there."""
        raise NotImplementedError

    def place_of(self, folder: Path, path: str, row: int) -> tuple[Path, int]:
        """The file and the offset of the first byte of the ``jpg`` of a row, found without the framing."""
        raise NotImplementedError

    # -------------------------------------------------------------------------------------------------------- helpers

    def samples(self, count: int = COUNT) -> list[Sample]:
        return [(key, {f: v for f, v in values.items() if f in self.holds}) for key, values in samples_of(count)]

    @pytest.fixture
    def shard(self, tmp_path):
        path = self.write(tmp_path, self.samples())
        store = LocalStore(tmp_path)
        return store, self.framing.scan(store, path)

    def fetched(self, store, index, rows, fields) -> Buffers:
        """Only what was planned, in another order than it was."""
        plan = self.framing.plan(index, rows, fields)
        return FetchedBuffers([(request, memoryview(bytes(store.get(*request)))) for request in reversed(plan)])

    def compare(self, found: dict[str, FieldValues], rows: np.ndarray, fields: list[str], count: int = COUNT) -> None:
        samples = self.samples(count)
        assert list(found) == fields
        for name in fields:
            values, kind = found[name], TYPES[name]
            expected = [samples[row][1].get(name) for row in rows.tolist()]
            assert values.type == kind
            if values.valid is not None:
                assert values.valid.dtype == np.bool_
                assert values.valid.tolist() == [one is not None for one in expected]
            else:
                assert None not in expected
            self.compare_data(values.data, kind, expected)

    def compare_data(self, data: Any, kind: FieldType, expected: list[Any]) -> None:
        if kind.kind == "payload":
            assert all(one is None or (isinstance(one, memoryview) and one.readonly) for one in data)
            stored = [one.encode() if isinstance(one, str) else one for one in expected]
            assert [None if one is None else bytes(one) for one in data] == stored
        else:
            assert data.dtype == kind.dtype
            assert data.shape == (len(expected), *kind.shape)
            assert data.flags.writeable
            assert data.flags.aligned
            for one, other in zip(data, expected, strict=True):
                np.testing.assert_array_equal(one, 0 if other is None else other)

    # ----------------------------------------------------------------------------------------------------------- scan

    def test_scan_tells_samples_keys_and_types(self, shard) -> None:
        store, index = shard
        assert index.samples == COUNT
        assert index.framing == self.framing.name
        assert store.exists(index.path)
        keys = [key for key, _ in self.samples()]
        assert list(index.keys) == keys
        assert [index.keys[i] for i in range(COUNT)] == keys
        assert index.keys[-1] == keys[-1]
        assert list(index.keys[3:-2:2]) == keys[3:-2:2]
        for bad in (COUNT, -COUNT - 1):
            with pytest.raises(IndexError):
                index.keys[bad]
        assert {name: column.type for name, column in index.columns.items()} == {f: TYPES[f] for f in self.holds}
        assert [index.column(name).name for name in self.holds] == list(self.holds)

    def test_columns_tell_which_rows_have_a_value(self, shard) -> None:
        _, index = shard
        rows = np.arange(COUNT)[::-1]
        for name in self.holds:
            valid = index.column(name).valid_rows(rows)
            has = [name in self.samples()[row][1] for row in rows]
            assert all(has) if valid is None else valid.tolist() == has

    @pytest.mark.parametrize("count", [0, 1, 8, 9])
    def test_any_number_of_samples(self, tmp_path, count) -> None:
        store = LocalStore(tmp_path)
        index = self.framing.scan(store, self.write(tmp_path, self.samples(count)))
        assert index.samples == count == len(index.keys)
        fields, rows = sorted(index.columns), np.arange(count)
        self.compare(self.framing.extract(index, MappedBuffers(store), rows, fields), rows, fields, count)

    def test_scan_of_what_is_not_there(self, tmp_path) -> None:
        with pytest.raises(NotFoundError):
            self.framing.scan(LocalStore(tmp_path), "none")

    @pytest.mark.parametrize("data", [b"", b"\0" * 4096, b"hello", bytes(range(256)) * 20])
    def test_scan_of_something_else(self, tmp_path, data) -> None:
        (tmp_path / "other").write_bytes(data)
        store = LocalStore(tmp_path)
        with pytest.raises(DataError) as caught:
            self.framing.scan(store, "other")
        assert caught.value.place["shard"] == "other"
        assert caught.value.place["url"] == store.url
        assert caught.value.hint

    # --------------------------------------------------------------------------------------------- plan and extract

    @pytest.mark.parametrize("verify", [True, False])
    def test_everything_in_stored_order(self, shard, verify) -> None:
        store, index = shard
        rows, fields = np.arange(COUNT), list(self.holds)
        self.compare(self.framing.extract(index, MappedBuffers(store), rows, fields, verify=verify), rows, fields)

    @pytest.mark.parametrize("seed", range(12))
    def test_any_rows_and_fields_mapped_or_from_exactly_what_was_planned(self, shard, seed) -> None:
        store, index = shard
        rng = np.random.default_rng(seed)
        rows = rng.integers(0, COUNT, int(rng.integers(0, 2 * COUNT)))  # in any order, some twice
        fields = [str(f) for f in rng.permutation(self.holds)[: int(rng.integers(1, len(self.holds) + 1))]]
        for buffers in (MappedBuffers(store), self.fetched(store, index, rows, fields)):
            self.compare(self.framing.extract(index, buffers, rows, fields), rows, fields)

    def test_no_rows(self, shard) -> None:
        store, index = shard
        rows, fields = np.empty(0, np.int64), list(self.holds)
        assert self.framing.plan(index, rows, fields) == []
        self.compare(self.framing.extract(index, FetchedBuffers([]), rows, fields), rows, fields)
        assert self.framing.extract(index, MappedBuffers(store), np.arange(3), []) == {}

    def test_rows_without_any_value(self, shard) -> None:
        _, index = shard
        samples = self.samples()
        for name in self.holds:
            rows = np.array([row for row, (_, values) in enumerate(samples) if name not in values], np.int64)
            assert self.framing.plan(index, rows, [name]) == []
            self.compare(self.framing.extract(index, FetchedBuffers([]), rows, [name]), rows, [name])

    def test_scalars_need_no_bytes(self, shard) -> None:
        _, index = shard
        rows = np.arange(COUNT)[::-1]
        assert self.framing.plan(index, rows, ["cls"]) == []
        self.compare(self.framing.extract(index, FetchedBuffers([]), rows, ["cls"]), rows, ["cls"])

    def test_requests_lie_in_their_objects_are_not_empty_and_come_once(self, shard) -> None:
        store, index = shard
        rows = np.concatenate([np.arange(COUNT), np.arange(COUNT)])
        plan = self.framing.plan(index, rows, list(self.holds))
        assert len(set(plan)) == len(plan)
        for path, offset, length in plan:
            assert length is None or (length > 0 and offset >= 0 and offset + length <= store.size(path))

    def test_what_was_not_planned_is_refused(self, shard) -> None:
        store, index = shard
        some = self.fetched(store, index, np.array([5]), ["jpg"])
        with pytest.raises(StorageError, match="not been planned"):
            self.framing.extract(index, some, np.array([6]), ["jpg"])

    def test_results_outlive_everything(self, tmp_path) -> None:
        store = LocalStore(tmp_path)
        index = self.framing.scan(store, self.write(tmp_path, self.samples()))
        rows, fields = np.arange(COUNT), list(self.holds)
        found = self.framing.extract(index, MappedBuffers(store), rows, fields)
        for meta in list(store.list()):
            store.delete(meta.path)
        del store, index
        self.compare(found, rows, fields)

    # --------------------------------------------------------------------------------------------------------- errors

    def test_unknown_fields_are_refused(self, shard) -> None:
        store, index = shard
        rows = np.arange(2)
        for ask in (
            lambda: self.framing.plan(index, rows, ["jpg", "nope"]),
            lambda: self.framing.extract(index, MappedBuffers(store), rows, ["jpg", "nope"]),
            lambda: index.column("nope"),
        ):
            with pytest.raises(FieldError, match="no field 'nope'") as caught:
                ask()
            assert caught.value.place["field"] == "nope"
            assert caught.value.place["shard"] == index.path
            assert "jpg" in str(caught.value.hint)

    @pytest.mark.parametrize("row", [1, 7, COUNT - 1])
    def test_a_damaged_value_is_found_with_its_place(self, tmp_path, row) -> None:
        if not self.checks:
            pytest.skip("values carry no checksums")
        path = self.write(tmp_path, self.samples())
        file, offset = self.place_of(tmp_path, path, row)
        data = bytearray(file.read_bytes())
        size = len(self.samples()[row][1]["jpg"])
        data[offset + size // 2] ^= 1
        file.write_bytes(data)
        store = LocalStore(tmp_path)
        index = self.framing.scan(store, path)
        rows = np.array([2, row, 3, row])
        with pytest.raises(ChecksumError) as caught:
            self.framing.extract(index, MappedBuffers(store), rows, ["cls", "jpg"])
        assert caught.value.place == {
            "url": store.url,
            "shard": path,
            "sample": row,
            "key": self.samples()[row][0],
            "field": "jpg",
            "offset": offset,
        }
        found = self.framing.extract(index, MappedBuffers(store), rows, ["jpg"], verify=False)["jpg"].data
        assert bytes(found[1]) == bytes(data[offset : offset + size])
        others = np.array([one for one in range(COUNT) if one != row])
        self.compare(self.framing.extract(index, MappedBuffers(store), others, ["jpg"]), others, ["jpg"])
