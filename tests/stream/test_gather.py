"""Values gathered over all shards of a batch are those that are read shard by shard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.dataset import gathered_rows as gather
from shardstream.dataset import rows
from shardstream.dataset.gathered_rows import RowGatherer
from shardstream.dataset.shared import source_and_shard
from shardstream.errors import ChecksumError
from shardstream.storage.base.held import address_of, can_copy
from shardstream.storage.base.memory import ObjectParts, gather_at
from shardstream.testing import MemoryStore
from tests.grouped import grouped

from .far import FarStore
from .making import numbered, write_dataset

TYPES = {"tok": "array:uint16:5", "wide": "array:uint8:20000", "half": "float16"}


def make(folder: Path, sizes: list[int], **arguments: Any) -> Path:
    fields = {
        "tok": lambda n: np.full(5, n, np.uint16),
        "wide": lambda n: np.full(20000, n % 251, np.uint8),
        "half": lambda n: n / 8,
        "txt": lambda n: "ä" * (n % 7),
        "x": lambda n: bytes([n % 256]) * (n % 300),
        "arr": lambda n: np.arange(n % 11, dtype=np.float32),
    }
    shards = numbered(sizes, **fields)
    for number, sample in enumerate(sample for shard in shards for sample in shard):
        sample["__key__"] = f"k{'é' * (number % 3)}{number}"
    return write_dataset(folder, shards, types=TYPES, **arguments)


@pytest.fixture(scope="module", params=["tar", "record"])
def mixed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("mixed"), [40, 1, 0, 30, 60], format=request.param)


def flat(value: Any) -> Any:
    if isinstance(value, ss.Ragged):
        return [row.tolist() for row in value]
    return value.tolist() if hasattr(value, "tolist") else value


def batches(*arguments: Any, **keywords: Any) -> list[dict[str, Any]]:
    found = ss.ShardDataset(*arguments, batch_size=16, shuffle=True, tail="exact", **grouped(keywords))
    return [{name: flat(value) for name, value in batch.items()} for batch in found]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize(
    "view", [{}, {"where": {"id": list(range(5, 120, 3))}}, {"split": ("b", {"a": 0.4, "b": 0.6})}]
)
def test_equal_to_reading_shard_by_shard(
    mixed: Path, view: dict[str, Any], verify: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(rows.RowReader, "_one_by_one", None)
        gathered = batches(mixed, verify=verify, **view)
    monkeypatch.setattr(RowGatherer, "read", lambda *_: None)
    assert gathered == batches(mixed, verify=verify, **view)
    assert len({key for batch in gathered for key in batch["__key__"]}) == sum(len(batch["id"]) for batch in gathered)


def gathered_and_not(monkeypatch: pytest.MonkeyPatch, *arguments: Any, **keywords: Any) -> None:
    """All steps are gathered, and are what is read shard by shard."""
    with monkeypatch.context() as patch:
        patch.setattr(rows.RowReader, "_one_by_one", None)
        gathered = batches(*arguments, **keywords)
    monkeypatch.setattr(RowGatherer, "read", lambda *_: None)
    assert gathered == batches(*arguments, **keywords)


def test_what_was_read_ahead_is_gathered(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gathered_and_not(monkeypatch, FarStore(mixed, pieces=1))


@pytest.mark.parametrize("prefetch", ["64KB", "256MB"], ids=["sample by sample", "in windows"])
def test_values_across_pieces_are_joined(mixed: Path, prefetch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    near = batches(mixed, lanes=4, window=20)
    monkeypatch.setattr(rows.RowReader, "_one_by_one", None)
    assert batches(FarStore(mixed, pieces=40), prefetch=prefetch, lanes=4, window=20) == near


def test_small_values_of_a_cache_are_gathered(mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keywords = {"cache": tmp_path / "cache", "fields": ["tok", "x", "half", "id"]}
    far = FarStore(mixed, pieces=1)
    batches(far, **keywords)
    read = far.bytes
    gathered_and_not(monkeypatch, far, **keywords)
    assert far.bytes == read


def test_large_values_of_a_cache_are_copied_one_by_one(mixed: Path, tmp_path: Path) -> None:
    keywords: dict[str, Any] = {"cache": tmp_path / "cache", "fields": ["wide", "x", "id"]}
    far = FarStore(mixed, pieces=1)
    first = batches(far, **keywords)
    read = far.bytes
    assert batches(far, **keywords) == first
    assert far.bytes == read


def test_near_and_far_shards_in_one_batch(mixed: Path) -> None:
    found = batches([mixed, FarStore(mixed, pieces=1)], fields=["tok", "x", "id"])
    assert sorted(number for batch in found for number in batch["id"]) == sorted(2 * list(range(131)))
    assert all(batch["tok"] == [[number] * 5 for number in batch["id"]] for batch in found)


def test_parts_of_objects() -> None:
    data = [memoryview(bytes(range(first, first + 10))) for first in (0, 10, 100)]
    nested = [memoryview(bytes(range(101, 103))), memoryview(bytes(range(100, 102)))]
    parts = ObjectParts(np.array([7, 7, 3, 3, 3]), [0, 10, 100, 101, 100], [*data, *nested])

    def views(*ranges: tuple[int, int, int]) -> list[bytes] | None:
        found = parts.views(*(np.array(one, np.int64) for one in zip(*ranges, strict=True)))
        return None if found is None else [bytes(one or b"") for one in found]

    assert views((7, 2, 4), (3, 108, 110), (7, 10, 13)) == [b"\2\3", b"lm", b"\n\v\f"]
    assert views((7, 0, 2), (9, 5, 5), (1, 0, 0)) == [b"\0\1", b"", b""]
    assert views((7, 8, 12), (3, 109, 110), (7, 0, 20)) == [bytes(range(8, 12)), b"m", bytes(range(20))]
    assert all(views(one) is None for one in [(7, 8, 21), (3, 99, 101), (3, 105, 111), (8, 0, 1), (2, 100, 101)])
    found = parts.gather(np.array([3, 7, 7]), np.array([101, 8, 10]), 2)
    assert found is not None
    assert found.tolist() == [[101, 102], [8, 9], [10, 11]]
    assert parts.gather(np.array([7]), np.array([19]), 2) is None
    across = parts.gather(np.array([7, 3]), np.array([9, 100]), 2)
    assert across is not None
    assert across.tolist() == [[9, 10], [100, 101]]
    assert ObjectParts(np.empty(0, np.int64), [], []).views(*(np.zeros(1, np.int64),) * 3) is None


def test_tar_and_record_shards_in_one_batch(tmp_path: Path) -> None:
    folders = [make(tmp_path / format, [20, 20], format=format) for format in ("tar", "record")]
    found = batches(folders)
    assert sorted(number for batch in found for number in batch["id"]) == sorted(2 * list(range(40)))
    assert all(batch["tok"] == [[number] * 5 for number in batch["id"]] for batch in found)


@pytest.mark.full
def test_more_shards_than_are_kept_open(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path, numbered([2] * 400, tok=lambda n: np.full(5, n, np.uint16)), types=TYPES)
    for batch_size in (3, 700):
        dataset = ss.ShardDataset(folder, fields=["tok", "id"], batch_size=batch_size, shuffle=True, tail="exact")
        for _ in range(2):
            found = [(batch["id"], batch["tok"]) for batch in dataset]
            assert sorted(number for ids, _ in found for number in ids.tolist()) == list(range(800))
            assert all((tokens.long() == ids[:, None]).all() for ids, tokens in found)


def test_a_filter_ends_with_its_shard_where_another_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "OPEN_INDEXES", 24)
    for name in ("few", "all"):
        write_dataset(tmp_path / name, numbered([8] * 40))

    def mixed() -> list[tuple[list[int], list[int]]]:
        where = {"id": [number for number in range(8 * 40) if number % 8]}
        few = ss.ShardDataset(tmp_path / "few", fields=["id"], where=where)
        every = ss.ShardDataset(tmp_path / "all", fields=["id"])
        mixture = ss.Mixture({"few": (few, 1), "all": (every, 1)}, batch_size=4)
        return [(batch["__source__"].tolist(), batch["id"].tolist()) for batch in mixture]

    gathered = mixed()
    monkeypatch.setattr(RowGatherer, "read", lambda *_: None)
    assert gathered == mixed()


def test_a_shard_that_is_always_used_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (gather, rows):
        monkeypatch.setattr(module, "OPEN_INDEXES", 24)
    looked_at, add = [], RowGatherer._add

    def counted(gatherer: RowGatherer, shard_id: int) -> bool:
        looked_at.append(source_and_shard(shard_id)[0])
        return add(gatherer, shard_id)

    monkeypatch.setattr(RowGatherer, "_add", counted)
    write_dataset(tmp_path / "one", numbered([400]))
    write_dataset(tmp_path / "many", numbered([4] * 100))
    parts = {name: (ss.ShardDataset(tmp_path / name, fields=["id"]), 1) for name in ("one", "many")}
    assert sum(len(batch["id"]) for batch in ss.Mixture(parts, batch_size=8)) == 800
    assert looked_at.count(0) == 1
    assert looked_at.count(1) > 100


def test_a_field_that_some_samples_lack(tmp_path: Path) -> None:
    shards = numbered([10, 10], txt=lambda n: f"{n}")
    del shards[1][4]["txt"]
    folder = write_dataset(tmp_path, shards)
    (batch,) = ss.ShardDataset(folder, fields=["txt"], batch_size=20)
    assert batch["txt"] == [None if n == 14 else str(n) for n in range(20)]


@pytest.mark.parametrize("field", ["tok", "x"])
def test_damage_is_explained(tmp_path: Path, field: str) -> None:
    folder = make(tmp_path, [20], format="record")
    (shard,) = folder.glob("*.rec")
    data = bytearray(shard.read_bytes())
    value = np.full(5, 7, np.uint16).tobytes() if field == "tok" else b"\7" * 7
    data[data.index(value)] ^= 1
    shard.write_bytes(data)
    dataset = ss.ShardDataset(folder, fields=[field, "id"], batch_size=20)
    with pytest.raises(ChecksumError, match=rf"sample 7, key ké7, field {field}"):
        list(dataset)
    (batch,) = ss.ShardDataset(folder, fields=[field, "id"], batch_size=20, on_error="skip")
    assert batch["id"].tolist() == [n for n in range(20) if n != 7]
    assert len(list(ss.ShardDataset(folder, fields=[field], batch_size=20, reads=ss.ReadOptions(verify=False)))) == 1


def test_tuples_without_keys_are_those_with_them(mixed: Path) -> None:
    dataset = ss.ShardDataset(mixed, fields=["id"], batch_size=16)
    with_keys = [(ids.tolist(), keys) for ids, keys in dataset.to_tuple("id", "__key__")]
    assert [ids for ids, _ in with_keys] == [ids.tolist() for (ids,) in dataset.to_tuple("id")]
    assert [key for _, keys in with_keys for key in keys][:3] == ["k0", "ké1", "kéé2"]


@pytest.mark.parametrize("width", [1, 3, 4096, 1 << 14, (1 << 14) + 1, 100_000])
def test_bytes_at_addresses(width: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, 400_000, dtype=np.uint8)
    offsets = np.array([0, 7, 300_000, 7, 12_345])
    found = gather_at(address_of(data) + offsets, width)
    assert (found == np.stack([data[offset : offset + width] for offset in offsets])).all()
    assert gather_at(address_of(data) + offsets[:0], width).shape == (0, width)


def forbidden(*arguments: Any) -> None:
    raise AssertionError("read shard by shard")


@pytest.mark.one_in(4)
@pytest.mark.skipif(not can_copy(), reason="this system does not copy from a process's own memory")
@pytest.mark.parametrize("mixed_in", [False, True])
def test_what_a_cache_holds_whole_is_gathered(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mixed_in: bool
) -> None:
    store = MemoryStore({str(path.relative_to(mixed)): path.read_bytes() for path in mixed.rglob("*")})

    def every(*, afar: bool) -> ss.ShardDataset | ss.Mixture:
        about: dict[str, Any] = {} if mixed_in else {"batch_size": 16, "shuffle": True, "tail": "exact"}
        one = ss.ShardDataset(
            store if afar else mixed, cache=str(tmp_path / "cache") if afar else None, **grouped(about)
        )
        if not mixed_in:
            return one
        other = ss.ShardDataset(tmp_path / "near")
        return ss.Mixture({"a": (one, 0.5), "b": (other, 0.5)}, batch_size=16, seed=1, epoch=160)

    make(tmp_path / "near", [50, 50], format=ss.Manifest.load(mixed).framing)
    cached, local = every(afar=True), every(afar=False)
    for _ in range(3):
        list(cached)  # fills the cache; what a mixture takes of a source in one epoch is not all of it
    monkeypatch.setattr(rows.RowReader, "_one_by_one", forbidden)
    for _ in range(3):
        list(local)
    for _ in range(2):
        found, expected = list(cached), list(local)
        assert [{name: flat(value) for name, value in batch.items()} for batch in found] == [
            {name: flat(value) for name, value in batch.items()} for batch in expected
        ]
