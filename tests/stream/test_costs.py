"""Batches by cost as they are used: equal steps, equal costs, any shape at a resume, and what does not go together."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from torch.utils.data import DataLoader

import shardstream as ss
from shardstream.errors import FieldError, UsageError
from tests.grouped import grouped

from .far import from_afar
from .making import write_dataset
from .resuming import ResumingContract, Run, flat, ids_and_padding, ids_of, in_turn, through_json

SIZES = [700, 1, 0, 500, 60]
BUDGET = {"seconds": 40}


def clips(sizes: list[int] = SIZES, seed: int = 0) -> Iterator[list[dict[str, Any]]]:
    draws, number = np.random.default_rng(seed), 0
    for size in sizes:
        shard = []
        for _ in range(size):
            seconds = float(np.clip(np.exp(draws.normal(np.log(4), 0.6)), 0.1, 30))
            wave = draws.integers(-99, 99, int(10 * seconds), dtype=np.int16)
            shard.append({"__key__": f"c{number:05}", "id": number, "seconds": seconds, "wave": wave})
            number += 1
        yield shard


TYPES = {"seconds": "float32", "wave": "values:int16"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("costs") / "clips", clips(), format="record", types=TYPES)


def data(folder: Path, **options: Any) -> ss.ShardDataset:
    return ss.ShardDataset(folder, **grouped({"batch_size": BUDGET, "shuffle": True, "seed": 3} | options))


def test_every_sample_comes_once_in_batches_of_about_the_same_cost(folder: Path) -> None:
    made = data(folder)
    assert made.batch_size == {"seconds": 40.0}
    assert "as batches of 40 of 'seconds'" in repr(made)
    for _ in range(2):
        batches = list(made)
        assert len(batches) == len(made)
        assert sorted(flat(map(ids_of, batches))) == list(range(sum(SIZES)))
        costs = np.array([float(batch["seconds"].sum()) for batch in batches])
        assert costs.max() <= 40
        assert (costs > 36).mean() > 0.9  # but for small shards
        assert len({len(batch["id"]) for batch in batches}) > 5
        assert isinstance(batches[0]["wave"], ss.Ragged)
        assert [len(row) for row in batches[0]["wave"]] == [int(10 * one) for one in batches[0]["seconds"].tolist()]


@pytest.mark.full
def test_batches_are_the_same_with_any_workers_and_from_afar(folder: Path) -> None:
    expected = [ids_of(batch) for batch in data(folder)]
    for workers in (1, 2):
        assert [ids_of(batch) for batch in ss.Loader(data(folder), num_workers=workers)] == expected
    plain = DataLoader(data(folder), batch_size=None, num_workers=2)
    assert [ids_of(batch) for batch in plain] == expected
    far, _ = from_afar(folder, batch_size=BUDGET, shuffle=True, seed=3)
    batches = list(far)
    assert [ids_of(batch) for batch in batches] == expected
    assert batches[3]["wave"][0].tolist() == next(islice(data(folder), 3, None))["wave"][0].tolist()


@pytest.mark.parametrize("tail", ["drop", "pad", "exact"])
def test_ranks_make_equal_steps(tail: Any, folder: Path) -> None:
    whole = [ids_of(batch) for batch in data(folder, tail="exact", lanes=6, chunk=1, window=9)]
    ranks = []
    for rank in range(3):
        one = data(folder, tail=tail, rank=rank, world_size=3, lanes=6, chunk=1, window=9)
        batches = list(one)
        assert len(batches) == len(one)
        for batch in batches:
            assert tail != "pad" or len(set(batch["__valid__"].tolist())) == 1
        kept = [batch for batch in batches if tail != "pad" or batch["__valid__"].all()]
        ranks.append([ids_of(batch) for batch in kept])
        if tail != "exact":
            assert len(batches) == (len(whole) // 3 if tail == "drop" else -(-len(whole) // 3))
    found = in_turn(ranks)
    assert found == (whole[: len(whole) // 3 * 3] if tail == "drop" else whole)


def test_a_run_goes_on_with_other_ranks_and_workers(folder: Path) -> None:
    order = {"lanes": 8, "chunk": 1, "window": 5}
    straight = [ids_of(batch) for batch in data(folder, tail="exact", **order)]
    first = ss.Loader(data(folder, **order), num_workers=2)
    seen = [ids_of(batch) for batch in islice(first, 21)]
    state = through_json(first.state_dict())
    assert state["position"] == 21
    ranks = []
    for rank in range(2):
        loader = ss.Loader(data(folder, tail="exact", rank=rank, world_size=2, **order), num_workers=1)
        loader.load_state_dict(state)
        ranks.append([ids_of(batch) for batch in loader])
    assert seen + in_turn(ranks) == straight
    with pytest.raises(UsageError, match="another view of this data"):
        data(folder, batch_size={"seconds": 41}).load_state_dict(state)
    with pytest.raises(UsageError, match="another view of this data"):
        data(folder, batch_size=8).load_state_dict(state)


def test_a_number_of_values_is_a_cost(folder: Path) -> None:
    batches = list(data(folder, batch_size={"wave": 500}, fields=["wave", "id"]))
    assert sorted(flat(map(ids_of, batches))) == list(range(sum(SIZES)))
    sizes = [len(batch["wave"].values) for batch in batches]
    assert max(sizes) <= 500
    assert np.mean(sizes) > 450


def test_views_keep_whole_batches_of_their_own(folder: Path) -> None:
    long = data(folder, where={"seconds": (">", 4)}, batch_size={"seconds": 40})
    assert all((batch["seconds"] > 4).all() for batch in long)
    parts = {"train": 0.8, "val": 0.2}
    sets = [data(folder, split=(name, parts), tail="exact") for name in parts]
    assert sorted(flat(map(ids_of, [*sets[0], *sets[1]]))) == list(range(sum(SIZES)))
    assert sorted(flat(map(ids_of, data(folder).take(99)))) == list(range(99))
    both = data(folder).filter({"seconds": ("<", 2)})
    assert sorted(flat(map(ids_of, both))) == sorted(
        flat(map(ids_of, data(folder, batch_size=1, where={"seconds": ("<", 2)})))
    )
    twice = ss.ShardDataset([folder, folder], batch_size=BUDGET)
    assert sorted(flat(map(ids_of, twice))) == sorted([*range(sum(SIZES))] * 2)


def test_settings_may_be_replaced(folder: Path) -> None:
    made = data(folder)
    plain = made.replace(batch_size=7)
    assert plain.batch_size == 7
    assert plain.fingerprint == data(folder, batch_size=7).fingerprint != made.fingerprint
    assert len(next(iter(plain))["id"]) == 7
    again = plain.replace(batch_size=BUDGET)
    assert again.fingerprint == made.fingerprint
    assert made.replace(seed=4).fingerprint == made.fingerprint
    assert len(ss.Loader(made, num_workers=0, batch_size=5)) == sum(SIZES) // 5
    loader = ss.Loader(plain, num_workers=0, batch_size=BUDGET)
    assert [ids_of(batch) for batch in loader] == [ids_of(batch) for batch in data(folder)]


def test_a_pickle_has_what_was_found(folder: Path) -> None:
    made = data(folder)
    other = pickle.loads(pickle.dumps(made))
    assert (other.fingerprint, len(other)) == (made.fingerprint, len(made))
    assert [ids_of(batch) for batch in other] == [ids_of(batch) for batch in made]


def drawn(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"id": sample["id"], "drawn": int(rng.integers(1 << 40))}


def test_each_sample_draws_by_itself_and_the_same_after_a_resume(folder: Path) -> None:
    def numbers(batches: Any) -> dict[int, int]:
        pairs = [(batch["id"].tolist(), batch["drawn"].tolist()) for batch in batches]
        return {one: number for ids, found in pairs for one, number in zip(ids, found, strict=True)}

    made = data(folder, transform=drawn)
    whole = numbers(made)
    assert len(set(whole.values())) == len(whole)
    loader = ss.Loader(made.replace(), num_workers=1)
    loader.set_epoch(0)
    first = numbers(islice(loader, 9))
    state = loader.state_dict()
    other = data(folder, transform=drawn)
    other.load_state_dict(state)
    assert first | numbers(other) == whole
    assert numbers(other) != whole


def test_the_device_draws_by_the_same_positions(folder: Path) -> None:
    seen: list[tuple[int, list[int]]] = []

    def look(batch: Any, *, positions: Any) -> Any:
        seen.append((len(batch["id"]), positions.values.tolist()))
        return batch

    loader = ss.Loader(data(folder, fields=["id"]), num_workers=1)
    list(ss.DevicePrefetcher(loader, "cpu", transform=look))
    assert [len(values) for _, values in seen] == [count for count, _ in seen]
    every = [value for _, values in seen for value in values]
    assert len(set(every)) == sum(SIZES)
    assert [values[0] for _, values in seen] == list(range(len(seen)))


def test_broken_samples_are_skipped_inside_of_their_batch(folder: Path) -> None:
    def fails(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["id"] % 50 == 7:
            raise ValueError("broken")
        return sample

    bad = [f"c{number:05}" for number in range(3, sum(SIZES), 200)]
    made = data(folder, exclude_keys=bad)
    kept, _ = ids_and_padding(list(made))
    assert sorted(kept) == sorted(set(range(sum(SIZES))) - set(range(3, sum(SIZES), 200)))
    loader = ss.Loader(made.replace(), num_workers=1, collate_fn=list)
    assert sorted(sample["id"] for batch in loader for sample in batch) == sorted(kept)
    with pytest.raises(ss.errors.TransformError, match="broken"):
        list(data(folder, transform=fails))


def test_what_does_not_go_together(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="weights= draws some more often"):
        data(folder, weights="seconds")
    for wrong in (lambda: data(folder, epoch_size=9), lambda: data(folder).repeat(2), lambda: data(folder).choose(9)):
        with pytest.raises(UsageError, match="epochs of another size count samples"):
            wrong()
    with pytest.raises(UsageError, match=r"source 'a' has batches by cost[^\n]*\n.*batch_size=\{'seconds': 40.0\}"):
        ss.Mixture({"a": data(folder)}, batch_size=1)
    plain = data(folder, batch_size=None)
    with pytest.raises(UsageError, match="epochs of another size count samples"):
        ss.Mixture({"a": plain.replace(epoch_size=9)}, batch_size=BUDGET)
    with pytest.raises(UsageError, match="weights= draws some more often"):
        ss.Mixture({"a": plain, "b": data(folder, batch_size=None, weights="seconds")}, batch_size=BUDGET)
    with pytest.raises(UsageError, match="what a mixture's positions count"):
        ss.Loader(ss.Mixture({"a": plain}, batch_size=BUDGET), batch_size=8)
    with pytest.raises(FieldError, match=r"no field 'secnds'[^\n]*\n.*did you mean 'seconds'"):
        data(folder, batch_size={"secnds": 40})
    with pytest.raises(FieldError, match=r"costs 2\d\.\d+, and a batch may cost 20"):
        len(data(folder, batch_size={"seconds": 20}))
    with pytest.raises(
        UsageError, match=r"a batch of 40 of 'seconds' on each of 500 ranks needs more than the \d+ batches there are"
    ):
        list(data(folder, rank=0, world_size=500))


def test_budgets_far_from_what_samples_cost(folder: Path) -> None:
    assert len(data(folder, batch_size={"seconds": 1e90}, tail="exact")) == 4  # one a shard that has any
    with pytest.raises(FieldError, match="and a batch may cost 1e-90"):
        len(data(folder, batch_size={"seconds": 1e-90}))


@pytest.mark.parametrize(("value", "what"), [(-1.0, "costs -1.0"), (float("nan"), "costs nan"), (None, "has no value")])
def test_costs_that_are_none(value: float | None, what: str, tmp_path: Path) -> None:
    samples = [{"__key__": "a", "id": 0, "seconds": 1.0}, {"__key__": "b", "id": 1, "seconds": value}]
    shards = [[{name: one for name, one in sample.items() if one is not None} for sample in samples]]
    write_dataset(tmp_path / "odd", shards, types={"seconds": "float32"})
    with pytest.raises(FieldError, match=what) as caught:
        len(data(tmp_path / "odd"))
    assert caught.value.place["key"] == "b"


USES: dict[str, Callable[[ss.ShardDataset], Any]] = {
    "len": len,
    "iter": lambda dataset: next(iter(dataset)),
    "peek": lambda dataset: dataset.peek(),
    "state_dict": lambda dataset: dataset.state_dict(),
    "fingerprint": lambda dataset: dataset.fingerprint,
    "pickle": pickle.dumps,
    "loader": lambda dataset: next(iter(ss.Loader(dataset, num_workers=0))),
    "plain loader": lambda dataset: next(iter(DataLoader(dataset, batch_size=None, num_workers=1))),
}


@pytest.mark.parametrize("name", USES)
def test_the_view_that_is_read_has_the_costs(name: str, tmp_path: Path) -> None:
    samples = [{"__key__": str(i), "id": i, "seconds": 200.0 if i == 30 else 5.0} for i in range(40)]
    write_dataset(tmp_path / "long", [samples[:20], samples[20:]], types={"seconds": "float32"})
    made = data(tmp_path / "long", batch_size={"seconds": 120}, tail="exact")
    cheap = {"seconds": ("<=", 120)}
    narrower = {
        "filter": made.filter(cheap),
        "filter by a callable": made.filter({"seconds": lambda seconds: seconds < 120}),
        "take": made.take(30),
        "all of it": made.map(dict).filter(cheap).take(30).replace(shuffle=False),
    }
    with pytest.raises(FieldError, match="costs 200, and a batch may cost 120") as caught:
        USES[name](made)
    assert "key 30" in str(caught.value)
    for dataset in narrower.values():
        USES[name](dataset)
    assert sorted(flat(map(ids_of, narrower["filter"]))) == [i for i in range(40) if i != 30]
    assert sorted(flat(map(ids_of, narrower["all of it"]))) == list(range(30))


def test_fields_that_say_no_cost(tmp_path: Path) -> None:
    sample = {"__key__": "a", "txt": "a text", "wave": b"12"}
    write_dataset(tmp_path / "texts", [[sample]], types={"wave": "values:int16"})
    with pytest.raises(FieldError, match="batch_size needs a number that stands in the index, and 'txt' is str") as got:
        data(tmp_path / "texts", batch_size={"txt": 5})
    assert got.value.hint == "there are wave"  # how many numbers it has is counted


class TestByCost(ResumingContract):
    """The whole contract of resuming, a step being a batch of any number of samples."""

    batch_size: ClassVar[Any] = {"seconds": 9}

    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        shards = clips([130, 1, 0, 70, 59], seed=5)
        short = [[sample | {"seconds": min(sample["seconds"], 8.0)} for sample in shard] for shard in shards]
        return write_dataset(tmp_path_factory.mktemp("clips"), short, types=TYPES)

    def run(self, source: Any) -> Run:
        return Run(ss.Loader(source, num_workers=0))

    @pytest.mark.parametrize("share", [0.5])
    def test_goes_on_in_another_shape(self, folder: Path, epochs: Any, share: float) -> None:
        """Of ranks: a number of samples would be another view."""
        stop = int(share * len(epochs[0]))
        run = self.make(folder)
        list(islice(run, stop))
        state = through_json(run.state_dict())
        streams = []
        for rank in range(3):
            shape = {"rank": rank, "world_size": 3, "batch_size": self.batch_size, "tail": "exact"}
            loader = ss.Loader(self.source(folder, **shape), num_workers=0)
            loader.load_state_dict(state)
            streams.append([ids_of(batch) for batch in loader])
        assert in_turn(streams) == epochs[0][stop:]


@pytest.mark.full
class TestByCostWithWorkers(TestByCost):
    def run(self, source: Any) -> Run:
        return Run(ss.Loader(source, num_workers=2))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("mixed")
    return {
        name: write_dataset(root / name, clips(sizes, seed), format="record", types=TYPES)
        for seed, (name, sizes) in enumerate({"talk": [900, 400], "song": [300, 250]}.items())
    }


def mixed(folders: dict[str, Path], **options: Any) -> ss.Mixture:
    sources = {
        name: (ss.ShardDataset(folder), weight) for (name, folder), weight in zip(folders.items(), (3, 1), strict=True)
    }
    return ss.Mixture(sources, **grouped({"batch_size": BUDGET, "seed": 3} | options))


def source_and_ids(batches: Any) -> list[tuple[int, list[int]]]:
    found = []
    for batch in batches:
        (source,) = set(batch["__source__"].tolist())
        assert float(batch["seconds"].sum()) <= 40
        found.append((source, ids_of(batch)))
    return found


@pytest.mark.parametrize("by", ["samples", "batches"])
def test_batches_of_a_mixture_have_one_source_and_their_share_of_the_cost(by: Any, folders: dict[str, Path]) -> None:
    made = mixed(folders, by=by)
    assert "as batches of 40 of 'seconds'" in repr(made)
    batches = [one for _ in range(3) for one in source_and_ids(made)]
    assert len(batches) == 3 * len(made)
    assert abs(np.mean([source for source, _ in batches]) - 0.25) < 0.02
    seen = made.seen()
    assert [one.samples for one in seen.values()] == np.bincount([source for source, _ in batches]).tolist()
    for source, (one, sizes) in enumerate(zip(seen.values(), (1300, 550), strict=True)):
        uses = np.bincount(flat(ids for number, ids in batches if number == source), minlength=sizes)
        assert uses.max() - uses.min() <= 1
        assert abs(one.epochs - uses.mean()) < 0.1


def test_ranks_and_workers_of_a_mixture_go_on_with_others(folders: dict[str, Path]) -> None:
    order = {"lanes": 6, "chunk": 1, "window": 9, "tail": "exact"}
    straight = source_and_ids(mixed(folders, **order))
    first = ss.Loader(mixed(folders, **order), num_workers=1)
    seen = source_and_ids(islice(first, 20))
    state = through_json(first.state_dict())
    ranks = []
    for rank in range(2):
        loader = ss.Loader(mixed(folders, rank=rank, world_size=2, **order), num_workers=0)
        loader.load_state_dict(state)
        ranks.append(source_and_ids(loader))
    assert seen + in_turn(ranks) == straight
    schedule = [(0, {"talk": 1, "song": 0}), (30, {"talk": 0, "song": 1})]
    sources = {name: ss.ShardDataset(folder) for name, folder in folders.items()}
    planned = ss.Mixture(sources, batch_size=BUDGET, schedule=schedule, order=ss.OrderOptions(lanes=1))
    by_schedule = [source for source, _ in source_and_ids(islice(planned, 40))]
    assert sum(by_schedule[:10]) < 4
    assert by_schedule[30:] == [1] * 10
    with pytest.raises(UsageError, match="another view of this data"):
        mixed(folders, batch_size={"seconds": 41}).load_state_dict(state)
