"""Ranks compare what they read in each iteration, and none waits. Real processes do so in ``tests/distributed``.

Several ranks live in this process: each has a loader made at the same line, and takes turns with the others in random
order. A rank that waited for another would hang the test.
"""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from torch.distributed import distributed_c10d

import shardstream as ss
from shardstream.load.rank_check import RankCheck
from shardstream.stream.iteration.agreement import Agreement
from shardstream.stream.iteration.recipe import describe
from tests.grouped import grouped

from ..stream.making import numbered, write_dataset

Action = tuple[Any, ...]
WHOLE = ("take", None)
LOOK = ("take", 1)
ORDERS = 6  # random orders in which ranks take their turns


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("numbers"), numbered([30, 18]))


@pytest.fixture
def store() -> Iterator[dist.Store]:
    """The store of a process group, of this process alone."""
    made = dist.HashStore()
    dist.init_process_group("gloo", store=made, rank=0, world_size=1)
    yield made
    dist.destroy_process_group()


def dataset(folder: Path, rank: int = 0, world_size: int = 2, **settings: Any) -> ss.ShardDataset:
    defaults = {"fields": ["id"], "batch_size": 4, "shuffle": True, "seed": 1}
    return ss.ShardDataset(folder, **grouped(defaults | {"rank": rank, "world_size": world_size} | settings))


_jobs = count(1)


def on_each(ranks: int, make: Callable[[int], Any]) -> list[Any]:
    """What each rank of a job makes, as if it were a process that has made no loader yet."""
    made, first = [], 1000 * next(_jobs)
    for rank in range(ranks):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RankCheck, "_made", defaultdict(lambda: first))
            made.append(make(rank))
    return made


def turns(loader: Any, actions: Sequence[Action]) -> Iterator[None]:
    """A rank's program, in steps."""
    for name, *arguments in actions:
        yield
        if name == "take":  # so many batches, or all
            for number, _ in enumerate(loader, 1):
                yield
                if number == arguments[0]:
                    break
        elif name == "count":  # exactly the batches of an epoch, without asking for one more
            batches = iter(loader)
            for _ in range(len(loader)):
                next(batches)
                yield
        else:
            getattr(loader, name)(*arguments)


def played(loaders: Sequence[Any], programs: Sequence[Sequence[Action]], seed: int) -> dict[int, str]:
    """Every rank's program, with turns in a random order; the errors by rank."""
    draw, errors = random.Random(seed), {}
    running = dict(enumerate(map(turns, loaders, programs)))
    while running:
        rank = draw.choice(list(running))
        try:
            next(running[rank])
        except StopIteration:
            del running[rank]
        except ss.errors.RankError as error:
            errors[rank] = str(error)
            del running[rank]
    return errors


def saved(folder: Path, **settings: Any) -> dict[str, Any]:
    """A state in the midst of the first epoch."""
    loader = ss.Loader(dataset(folder, 0, 1, **settings), num_workers=0)
    for _ in zip(range(4), loader, strict=False):
        pass
    return loader.state_dict()


# What ranks do that rightly do not all do the same: the programs of two ranks.
HEALTHY: dict[str, tuple[Sequence[Action], Sequence[Action]]] = {
    "all alike": ([WHOLE, WHOLE, WHOLE], [WHOLE, WHOLE, WHOLE]),
    "a look at a batch": ([LOOK, WHOLE, LOOK, LOOK, WHOLE], [WHOLE, WHOLE]),
    "a look before an epoch is chosen": ([LOOK, ("set_epoch", 5), WHOLE, WHOLE], [("set_epoch", 5), WHOLE, WHOLE]),
    "a look while others break": ([("take", 3), LOOK, ("set_epoch", 1), WHOLE], [("take", 3), ("set_epoch", 1), WHOLE]),
    "one rank alone": ([WHOLE, WHOLE, WHOLE], []),
    "breaks on all": ([("take", 3), ("take", 2), WHOLE], [("take", 3), ("take", 2), WHOLE]),
    "loops that count": ([("count",), ("count",)], [WHOLE, WHOLE]),
    "the same epoch once more": ([WHOLE, ("set_epoch", 0), WHOLE], [WHOLE, ("set_epoch", 0), WHOLE]),
}


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("prefetched", [False, True])
@pytest.mark.parametrize("idiom", HEALTHY)
def test_ranks_that_rightly_differ_pass(folder: Path, idiom: str, *, prefetched: bool) -> None:
    for seed in range(2 if prefetched else ORDERS):
        loaders = on_each(2, lambda rank: ss.Loader(dataset(folder, rank), num_workers=0))
        if prefetched:
            loaders = [ss.DevicePrefetcher(loader, "cpu") for loader in loaders]
        assert played(loaders, HEALTHY[idiom], seed) == {}


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("extra", [[WHOLE], [("take", 2)], [("take", 3), WHOLE, LOOK]])
def test_in_stored_order_a_rank_may_evaluate_more_often(folder: Path, extra: Sequence[Action]) -> None:
    for seed in range(ORDERS):
        loaders = on_each(2, lambda rank: ss.Loader(dataset(folder, rank, shuffle=False), num_workers=0))
        assert played(loaders, [[*extra, WHOLE, WHOLE], [WHOLE, WHOLE]], seed) == {}


@pytest.mark.usefixtures("store")
def test_in_stored_order_epochs_of_other_samples_are_compared(folder: Path) -> None:
    loaders = on_each(2, lambda rank: ss.Loader(dataset(folder, rank, shuffle=False, epoch_size=32), num_workers=0))
    assert played(loaders, [[WHOLE, ("set_epoch", 5), WHOLE], [WHOLE, WHOLE]], 0)


@pytest.mark.usefixtures("store")
def test_a_state_that_all_ranks_load_passes(folder: Path) -> None:
    load = ("load_state_dict", saved(folder))
    for seed in range(ORDERS):
        loaders = on_each(3, lambda rank: ss.Loader(dataset(folder, rank, 3), num_workers=0))
        programs = [[LOOK, load, WHOLE, load, WHOLE, WHOLE], *2 * [[load, WHOLE, load, WHOLE, WHOLE]]]
        assert played(loaders, programs, seed) == {}


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("settings", [{"world_size": 1, "rank": 0}, {"compare": False}], ids=str)
def test_loaders_that_are_meant_to_differ_pass(folder: Path, settings: dict[str, Any]) -> None:
    settings, compare = dict(settings), settings.get("compare", True)
    settings.pop("compare", None)
    for seed in range(3):
        loaders = on_each(
            2,
            lambda rank: ss.Loader(
                dataset(folder, **{"rank": rank, "seed": rank, **settings}), num_workers=0, compare_ranks=compare
            ),
        )
        assert played(loaders, [[WHOLE, ("take", 3), WHOLE], [WHOLE, WHOLE]], seed) == {}


@pytest.mark.usefixtures("store")
def test_mixtures_and_single_samples_are_compared_too(folder: Path) -> None:
    def mixture(rank: int) -> ss.Mixture:
        sources = {name: (dataset(folder, rank, batch_size=None, shuffle=True), 1) for name in "ab"}
        return ss.Mixture(sources, batch_size=4, ranks=(rank, 2))

    for make in (mixture, lambda rank: dataset(folder, rank, batch_size=None)):
        healthy, other = (on_each(2, lambda rank, make=make: ss.Loader(make(rank), num_workers=0)) for _ in range(2))
        assert played(healthy, [[LOOK, WHOLE, WHOLE], [WHOLE, WHOLE]], 0) == {}
        assert "epoch is" in str(played(other, [[WHOLE, ("set_epoch", 5), WHOLE], [WHOLE, WHOLE]], 0))


# What one of two ranks does that makes all epochs from there on wrong; both then read an epoch.
DIVERGING: dict[str, tuple[Sequence[Action], Sequence[Action], str]] = {
    "set_epoch": ([WHOLE, ("set_epoch", 5)], [WHOLE], "epoch is"),
    "set_epoch at first": ([("set_epoch", 2)], [], "epoch is"),
    "break": ([("take", 3), WHOLE], [WHOLE], "epoch is"),
    "break later": ([WHOLE, WHOLE, ("take", 2), WHOLE], [WHOLE, WHOLE, WHOLE], "epoch is"),
    "one less": ([WHOLE, ("set_epoch", 0)], [("count",)], "epoch is"),
}


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("case", DIVERGING)
def test_a_rank_that_diverges_is_named_and_all_raise_the_same(folder: Path, case: str) -> None:
    *programs, text = DIVERGING[case]
    for seed in range(ORDERS):
        loaders = on_each(2, lambda rank: ss.Loader(dataset(folder, rank), num_workers=0))
        errors = played(loaders, [[*program, WHOLE] for program in programs], seed)
        assert errors
        assert all(text in error for error in errors.values()), errors
        for loader in loaders:  # who has not raised does so as it begins again, before its first batch
            with pytest.raises(ss.errors.RankError) as caught:
                next(iter(loader))
            assert {str(caught.value)} == set(errors.values())


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("loop", [WHOLE, ("count",)])
def test_who_came_first_raises_as_its_iteration_ends(folder: Path, loop: Action) -> None:
    first, second = on_each(2, lambda rank: ss.Loader(dataset(folder, rank), num_workers=0))
    steps = turns(first, [loop])
    for _ in range(4):
        next(steps)
    second.set_epoch(5)
    with pytest.raises(ss.errors.RankError) as found:
        list(second)
    with pytest.raises(ss.errors.RankError) as told:
        list(steps)
    assert str(told.value) == str(found.value)
    assert first.state_dict()["epoch"] == 0


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("settings", [{"batch_size": 24}, {"batch_size": 46, "tail": "exact"}], ids=str)
def test_epochs_of_one_batch_or_none_are_compared(folder: Path, settings: dict[str, Any]) -> None:
    """Of the 48 samples under ``tail="exact"``, one rank gets 46 or none of the last 2."""
    for seed in range(ORDERS):
        healthy, other = (
            on_each(2, lambda rank: ss.Loader(dataset(folder, rank, **settings), num_workers=0)) for _ in range(2)
        )
        assert played(healthy, [[WHOLE, WHOLE], [WHOLE, ("count",)]], seed) == {}
        assert "epoch is" in str(played(other, [[WHOLE, ("set_epoch", 5), WHOLE], [WHOLE, WHOLE]], seed))


@pytest.mark.usefixtures("store")
def test_a_state_that_one_rank_lacks_is_noticed(folder: Path) -> None:
    load = ("load_state_dict", saved(folder))
    for seed in range(ORDERS):
        loaders = on_each(3, lambda rank: ss.Loader(dataset(folder, rank, 3), num_workers=0))
        assert "position is" in str(played(loaders, [[load, WHOLE], [load, WHOLE], [WHOLE]], seed))


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"seed": 7}, "the same: seed is"),
        ({"batch_size": 8}, "the same: batch_size is"),
        ({"shuffle": False}, "the same: shuffle is True"),
        ({"split": ("a", {"a": 0.5, "b": 0.5})}, "the same: another dataset (another view of the same data): fingerp"),
        ({"tail": "pad"}, "the same: tail is"),
    ],
    ids=str,
)
def test_loaders_that_differ_do_so_before_the_first_batch(folder: Path, settings: dict[str, Any], text: str) -> None:
    first, second = on_each(2, lambda rank: ss.Loader(dataset(folder, rank, **settings if rank else {}), num_workers=0))
    batches = iter(first)
    next(batches)
    with pytest.raises(ss.errors.RankError) as caught:
        next(iter(second))
    assert text in str(caught.value).replace("shuffle is False on rank 0 (rank=1) and True", "shuffle is True")
    assert len(str(caught.value)) < 700
    with pytest.raises(ss.errors.RankError) as told:  # who came first, at the end of its iteration
        list(batches)
    assert str(told.value) == str(caught.value)


@pytest.mark.usefixtures("store")
def test_another_dataset_comes_first(folder: Path, tmp_path: Path) -> None:
    other = write_dataset(tmp_path / "other", numbered([30, 19]))
    one, two = on_each(2, lambda rank: ss.Loader(dataset((folder, other)[rank], rank, seed=rank), num_workers=0))
    list(one)
    with pytest.raises(
        ss.errors.RankError, match=r"the same: another dataset: fingerprint is .* seed is 1 on"
    ) as caught:
        list(two)
    assert "in the same order on all ranks" in (caught.value.hint or "")  # which `rank=` would only hide


def double(value: Any) -> Any:
    return value


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("here", "there", "name"),
    [
        ({"fields": ["id"]}, {"fields": ["id", "text"]}, "outputs"),
        ({"fields": {"id": np.float64}}, {"fields": {"id": np.float32}}, "decoders"),
        ({"fields": {"id": ss.decode.Array("int64")}}, {"fields": {"id": None}}, "decoders"),
        ({"fields": {"id": lambda value: value}}, {"fields": {"id": double}}, "decoders"),
        ({"transform": lambda sample: sample}, {}, "transforms"),
        ({"batch_transform": lambda batch: batch}, {}, "batch_transform"),
        ({"workers": 0}, {"workers": 1}, "num_workers"),
        ({"collate": list}, {"collate": tuple}, "collate_fn"),
    ],
)
def test_ranks_of_one_replica_must_make_the_same_of_the_same_samples(
    tmp_path: Path, here: dict[str, Any], there: dict[str, Any], name: str
) -> None:
    folder = write_dataset(tmp_path, numbered([30, 18], text=str))

    def make(process: int, replicas: Sequence[int]) -> ss.Loader:
        settings = dict(there if process == 1 else here)
        workers, collate = settings.pop("workers", 0), settings.pop("collate", None)
        made = dataset(folder, replicas[process], **settings)
        return ss.Loader(made, num_workers=workers, collate_fn=collate)

    # Processes 0 and 1 are one replica, and must agree; if each is one of its own, they may differ.
    for replicas, differ in (((0, 0, 1), True), ((0, 1, 0), False)):
        loaders = on_each(3, partial(make, replicas=replicas))
        next(iter(loaders[0]))
        if differ:
            with pytest.raises(ss.errors.RankError, match=f"the same: {name} is"):
                next(iter(loaders[1]))
            with pytest.raises(ss.errors.RankError, match=f"the same: {name} is"):  # another replica hears of it
                next(iter(loaders[2]))
        else:
            for loader in loaders[1:]:
                next(iter(loader))
    for loader in loaders:
        loader._iterator = None  # ends its workers


def test_what_is_made_of_samples_is_described_without_addresses() -> None:
    class Tokenizer:
        def __call__(self, text: str) -> list[int]:
            return [len(text)]

        def encode(self, text: str) -> list[int]:
            return [len(text)]

    for make in (Tokenizer, lambda: Tokenizer().encode, lambda: partial(Tokenizer(), text="a"), lambda: lambda x: x):
        assert describe(ss.decode.Text(make())) == describe(ss.decode.Text(make()))
        assert "0x" not in str(describe(make()))
    assert describe(ss.decode.CenterCrop(32)) != describe(ss.decode.CenterCrop(33))
    assert describe(ss.decode.CenterCrop(32, source="jpg")) != describe(ss.decode.CenterCrop(32))
    # one rank runs the program, another one imports it
    ours, theirs = type("Same", (), {"__module__": "__main__"}), type("Same", (), {"__module__": "__mp_main__"})
    assert describe(ours()) == describe(theirs())


class Counting:
    """A store that counts what it is asked, and has nothing that could wait."""

    def __init__(self, store: dist.Store) -> None:
        self.store = store
        self.trips = 0

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        self.trips += 1
        answer: bytes = self.store.compare_set(key, expected, desired)
        return answer


def test_an_iteration_costs_three_round_trips_and_no_key(
    folder: Path, store: dist.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Counting(distributed_c10d._get_default_store())
    monkeypatch.setattr(distributed_c10d, "_get_default_store", lambda: counting)
    loaders = on_each(2, lambda rank: ss.Loader(dataset(folder, rank), num_workers=0))
    for loader in loaders:
        list(loader)
    keys = store.num_keys()
    for _ in range(10):
        for loader in loaders:
            counting.trips = 0
            list(loader)
            assert counting.trips <= 3
    assert store.num_keys() == keys


@pytest.mark.usefixtures("store")
def test_a_store_that_cannot_be_reached_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("Broken pipe\nframe #0: ...")

    loader = ss.Loader(dataset(folder), num_workers=0)
    list(loader)
    monkeypatch.setattr(distributed_c10d, "_get_default_store", fail)
    with caplog.at_level(logging.DEBUG, "shardstream.load.rank_check"):
        for _ in range(3):
            assert len(list(loader)) == len(loader)
    (record,) = caplog.records
    assert record.levelno == logging.DEBUG
    assert record.getMessage().endswith("Broken pipe")


def test_without_a_process_group_nothing_is_compared(folder: Path) -> None:
    for rank in range(2):
        assert len(list(ss.Loader(dataset(folder, rank, seed=rank), num_workers=0))) == 6


def make_one(folder: Path, rank: int, seed: int) -> None:
    list(ss.Loader(dataset(folder, rank, seed=seed), num_workers=0))


@pytest.mark.usefixtures("store")
def test_loaders_are_told_apart_by_place_and_number(folder: Path) -> None:
    def program(rank: int) -> None:
        if rank == 0:
            make_one(folder, rank, 77)  # rank 0 looks at something of its own
        for seed in (1, 2):
            make_one(folder, rank, seed)
        make_one(folder, rank, 3)

    on_each(2, program)
    with pytest.raises(ss.errors.RankError, match=r"seed is 3 on rank 0 \(rank=1\) and 1 on rank 0 \(rank=0\)"):
        on_each(2, lambda rank: make_one(folder, rank, 1 + 2 * rank))


PLAN = {"fingerprint": "abc", "data": "abc", "seed": 1, "epoch": 0, "position": 128, "lanes": 3}


@pytest.mark.parametrize("kind", ["hash", "file", "tcp", "prefix"])
def test_the_protocol_holds_on_every_kind_of_store(tmp_path: Path, kind: str) -> None:
    stores: dict[str, Callable[[], dist.Store]] = {
        "hash": dist.HashStore,
        "file": lambda: dist.FileStore(str(tmp_path / "file"), 1),
        "tcp": lambda: dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False),
        "prefix": lambda: dist.PrefixStore("of a group", dist.HashStore()),
    }
    store = stores[kind]()
    first, second, third = (Agreement("key", f"rank {rank}", 0.0) for rank in range(3))
    for number in range(4):
        for rank in (second, first):
            assert rank.begin(store, PLAN, fixed=True) is None
            assert rank.compare(store, number, PLAN | {"epoch": number}) is None
            assert rank.look(store) is None
    # a third one that comes late is compared with the newest two iterations, and changes nothing with older ones
    assert third.begin(store, PLAN | {"epoch": 9, "position": 0, "lanes": 4}, fixed=True) is None
    assert third.compare(store, 0, PLAN | {"epoch": 9}) is None
    assert third.compare(store, 1, PLAN | {"epoch": 9}) is None
    text = third.compare(store, 2, PLAN | {"epoch": 9})
    assert text == "epoch is 9 on rank 2 and 2 on rank 1"
    assert first.look(store) == second.compare(store, 4, PLAN) == text
    assert Agreement("key", "rank 3", 0.0).begin(store, PLAN, fixed=True) == text
    assert third.publish(store, "a second difference") == text


def test_what_an_earlier_start_has_left_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    store = dist.HashStore()
    monkeypatch.setattr("time.time", lambda: 100.0)
    before = Agreement("key", "rank 0", 50.0)
    assert before.begin(store, PLAN, fixed=True) is None
    assert before.compare(store, 7, PLAN) is None
    assert before.publish(store, "a difference") == "a difference"
    monkeypatch.setattr("time.time", lambda: 200.0)
    first, second = (Agreement("key", f"rank {rank}", 150.0) for rank in range(2))
    other = PLAN | {"seed": 2, "position": 0}
    assert first.begin(store, other, fixed=True) is None
    assert first.compare(store, 0, other) is None
    assert second.begin(store, other, fixed=True) is None
    assert second.compare(store, 0, other | {"position": 1}) == "position is 1 on rank 1 and 0 on rank 0"


def test_very_long_values_are_compared_by_digests() -> None:
    store, knots = dist.HashStore(), [[number, [1, 2]] for number in range(10_000)]
    first, second = (Agreement("key", f"rank {rank}", 0.0) for rank in range(2))
    assert first.compare(store, 0, {"schedule": knots}) is None
    assert second.compare(store, 0, {"schedule": list(knots)}) is None
    text = second.compare(store, 0, {"schedule": [*knots[:-1], [0, [2, 1]]]})
    assert text is not None
    assert "schedule is" in text
    assert len(text) < 1000


@pytest.mark.usefixtures("store")
def test_a_state_of_a_version_with_other_fields_is_no_difference(tmp_path: Path) -> None:
    """A look at the newest version, then a state of the one before: other fields, and another fingerprint."""
    url = str(tmp_path / "grown")
    ss.pack([{"__key__": f"a{number}", "id": number} for number in range(30)], url)
    state = saved(Path(url), fields=None)
    ss.pack([{"__key__": f"b{number}", "id": number, "text": "x"} for number in range(30)], url, append=True)
    for seed in range(2):
        loaders = on_each(2, lambda _: ss.Loader(dataset(Path(url), 0, fields=None), num_workers=0))
        load = ("load_state_dict", state)
        assert played(loaders, [[LOOK, load, WHOLE, WHOLE], [load, WHOLE, WHOLE]], seed) == {}
