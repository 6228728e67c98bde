"""Batches of which samples are dropped: they have the others, or repeat one, and everything else is as in full ones.

Each test compares with the same run over a data set of which nothing is dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import shardstream as ss
from shardstream.augment import ImageBatch
from shardstream.errors import BatchError, UsageError
from tests.grouped import grouped

from ..stream.making import numbered, photograph, write_dataset
from ..stream.resuming import flat, in_turn, through_json

COUNT = 70
SIZES = [30, 1, 0, 25, 14]
BAD = {4, 11, 12, 47}  # do not decode
FIELDS: dict[str, Any] = {
    "jpg": ss.decode.RandomResizedCrop(16),
    "view": ss.decode.CenterCrop(8, resize=8, optional=True),
    "row": None,
    "txt": None,
    "raw": "bytes",
    "vector": None,
    "id": None,
}


def shards(*, damaged: bool) -> list[list[dict[str, Any]]]:
    def jpg(n: int) -> bytes | None:
        return b"no image" if damaged and n in BAD else photograph(n)

    made = numbered(
        SIZES,
        jpg=jpg,
        row=lambda n: np.arange(n % 5, dtype=np.int32),
        txt=lambda n: f"caption {n}",
        raw=lambda n: bytes([n]) * (n % 7),
        vector=lambda n: np.full(3, n, np.float32),
        view=lambda n: photograph(n, 12, 12),
        cost=lambda n: 1 + n % 4,
    )
    for sample in (one for shard in made for one in shard if one["id"] % 9 == 5):
        del sample["view"]
    return made


TYPES = {"row": "values:int32", "raw": "bytes", "vector": "array:float32:3", "view": "jpg"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """The same samples, whole and with some images damaged."""
    root = tmp_path_factory.mktemp("dropped")
    return {
        damaged: write_dataset(root / str(damaged), shards(damaged=damaged), types=TYPES) for damaged in (False, True)
    }


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("many"), numbered([2000, 1000], score=lambda n: n * 7919 % 1000))


def few(sample: dict[str, Any]) -> dict[str, Any] | None:
    return None if sample["id"] % 3 == 1 else sample


def kept(number: int, how: str) -> bool:
    return number % 3 != 1 if how == "map" else number not in BAD


def as_it_is(sample: dict[str, Any]) -> dict[str, Any]:
    return sample


def drawn(batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return batch | {"drawn": rng.random()}


HOW = ["map", "exclude", "damaged", "both"]


def of(folders: Mapping[bool, Path], how: str, **options: Any) -> ss.ShardDataset:
    """A data set that drops samples; ``""``: none; ``"mapped"``: none, with a map."""
    made = ss.ShardDataset(
        folders[how in ("damaged", "both")],
        fields=FIELDS,
        on_error="skip" if how in ("damaged", "both") else "raise",
        exclude_keys=[f"k{n:06d}" for n in sorted(BAD)] if how == "exclude" else None,
        **grouped(options),
    )
    return made.map(few) if how in ("map", "both") else made.map(as_it_is) if how == "mapped" else made


def survives(number: int, how: str) -> bool:
    return all(kept(number, one) for one in (("map", "damaged") if how == "both" else (how,)))


def cut(value: Any, slots: list[int]) -> Any:
    """These slots of a value of a batch, as plain values."""
    if isinstance(value, torch.Tensor):
        return value[slots].tolist()
    if isinstance(value, ss.Ragged):
        return [value[slot].tolist() for slot in slots]
    if isinstance(value, list):
        return [
            value[slot].tolist() if isinstance(value[slot], np.ndarray | torch.Tensor) else value[slot]
            for slot in slots
        ]
    return value


def check(batch: dict[str, Any], whole: dict[str, Any], how: str, dropped: str, *, pad: bool) -> None:
    """A batch against the one of which nothing was dropped."""
    numbers = whole["id"].tolist()
    own = [slot for slot, number in enumerate(numbers) if survives(number, how)]
    valid = whole["__valid__"].tolist() if pad else [True] * len(numbers)
    chosen = own
    if dropped == "repeat":
        chosen = [slot if slot in own else own[0] for slot in range(len(numbers))]
        valid = [slot in own and valid[slot] for slot in range(len(numbers))]
    else:
        valid = [valid[slot] for slot in own]
    assert ("__valid__" in batch) == (pad or dropped == "repeat")
    for name, value in whole.items():
        if name == "__valid__":
            assert batch[name].tolist() == valid
        elif name == "__source__" and dropped == "repeat":
            assert batch[name].tolist() == value.tolist()
        else:
            everything = list(range(len(chosen)))
            assert cut(batch[name], everything) == cut(value, chosen), name
    if dropped == "repeat" and not pad:
        assert batch["__valid__"].tolist() == valid


@given(
    how=st.sampled_from(HOW),
    dropped=st.sampled_from(["short", "repeat"]),
    tail=st.sampled_from(["drop", "exact", "pad"]),
    size=st.sampled_from([9, 16, {"cost": 24}]),
    kind=st.sampled_from(["data set", "samples", "batches"]),
    ranks=st.integers(1, 3),
    draws=st.booleans(),
)
def test_a_batch_has_the_kept_samples_of_a_full_one(
    folders: dict[bool, Path], how: str, dropped: Any, tail: Any, size: Any, kind: str, ranks: int, draws: bool
) -> None:
    def run(what: str, **options: Any) -> Iterator[Any]:
        shape = {"batch_size": size, "tail": tail, "seed": 5, "rank": ranks - 1, "world_size": ranks} | options
        shape |= {"batch_transform": drawn} if draws else {}
        if kind == "data set":
            return iter(of(folders, what, shuffle=True, **shape))
        sources = {"a": (of(folders, what), 2), "b": (of(folders, what), 1)}
        return iter(ss.Mixture(sources, by=kind, epoch=150, **grouped(shape)))  # type: ignore[arg-type]

    batches = run(how, dropped=dropped)
    for whole in run("mapped" if how in ("map", "both") else ""):
        if not any(survives(number, how) for number in whole["id"].tolist()):
            with pytest.raises(BatchError, match=r"none of the(.|\n)*find_rows"):
                next(batches)
            return
        check(next(batches), whole, how, dropped, pad=tail == "pad")
    assert next(batches, None) is None


@pytest.mark.parametrize("how", ["map", "damaged"])
@pytest.mark.parametrize("workers", [0, 2])
def test_short_batches_are_views_of_memory_of_full_ones(folders: dict[bool, Path], how: str, workers: int) -> None:
    options: dict[str, Any] = {"batch_size": 10, "tail": "drop"}
    fields = {"jpg": ss.decode.CenterCrop(64, resize=64), "id": None}
    dataset = of(folders, how, **options).replace(fields=fields)
    sizes = [one["jpg"].untyped_storage().nbytes() for one in of(folders, "", **options).replace(fields=fields)]
    assert len(set(sizes)) == 1
    for batch in ss.Loader(dataset, num_workers=workers):
        assert batch["jpg"].is_contiguous(memory_format=torch.channels_last)
        assert batch["jpg"].untyped_storage().nbytes() >= sizes[0]
        assert len(batch["jpg"]) == len(batch["id"])
    assert any(len(batch["id"]) < 10 for batch in dataset)


def test_repeating_is_an_argument_that_positions_and_states_know_nothing_of(folders: dict[bool, Path]) -> None:
    one, other = (of(folders, "map", batch_size=16, shuffle=True, dropped=how) for how in ("short", "repeat"))
    assert (len(one), one.fingerprint) == (len(other), other.fingerprint)
    loader = ss.Loader(one, num_workers=0)
    begun = [batch["id"] for batch in islice(loader, 2)]
    state = through_json(loader.state_dict())
    assert "dropped" not in state
    again = ss.Loader(one.replace(dropped="repeat"), num_workers=0)
    again.load_state_dict(state)
    rest = [batch["id"][batch["__valid__"]] for batch in again]
    straight = [batch["id"] for batch in of(folders, "map", batch_size=16, shuffle=True)]
    assert [ids.tolist() for ids in begun + rest] == [ids.tolist() for ids in straight]
    with pytest.raises(UsageError, match=r"dropped must be 'short' or 'repeat', got 'repeated'(.|\n)*mean 'repeat'"):
        of(folders, "map", dropped="repeated")


# ---------------------------------------------------------------------------------------------------------- loaders

LOADERS: dict[str, Callable[[Any], Iterable[Any]]] = {
    "iteration": lambda dataset: dataset,
    "Loader": partial(ss.Loader, num_workers=2),
    "DataLoader": partial(DataLoader, batch_size=None, num_workers=2),
}


def stateful(dataset: Any) -> Iterable[Any]:
    return pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader(  # type: ignore[no-any-return]
        dataset, batch_size=None, num_workers=2
    )


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata 0.11 calls it
@pytest.mark.parametrize(
    ("loader", "dropped", "tail", "how"),
    [
        ("iteration", "short", "pad", "map"),
        ("Loader", "short", "exact", "both"),
        ("Loader", "repeat", "pad", "exclude"),
        ("DataLoader", "short", "drop", "damaged"),
        ("DataLoader", "repeat", "exact", "map"),
        ("StatefulDataLoader", "short", "pad", "both"),
        ("StatefulDataLoader", "repeat", "drop", "exclude"),
    ],
)
def test_all_loaders_hand_out_the_same(
    folders: dict[bool, Path], loader: str, dropped: Any, tail: Any, how: str
) -> None:
    shape = {"batch_size": 12, "shuffle": True, "tail": tail, "seed": 1}
    found = list((LOADERS | {"StatefulDataLoader": stateful})[loader](of(folders, how, dropped=dropped, **shape)))
    whole = list(of(folders, "mapped" if how in ("map", "both") else "", **shape))
    assert len(found) == len(whole)
    for batch, full in zip(found, whole, strict=True):
        check(batch, full, how, dropped, pad=tail == "pad")


@pytest.mark.parametrize("workers", [0, 2])
def test_stats_tell_filtered_from_skipped(folders: dict[bool, Path], workers: int) -> None:
    mixture = ss.Mixture(
        {"some": (of(folders, "both", max_skips=2 * len(BAD)), 1), "all": (of(folders, "mapped"), 1)},
        batch_size=20,
        epoch=140,
        tail="exact",
    )
    loader = ss.Loader(mixture, num_workers=workers)
    ids = [
        (int(source), int(n)) for batch in loader for source, n in zip(batch["__source__"], batch["id"], strict=True)
    ]
    stats = loader.stats
    here = [n for source, n in ids if source == 0]
    assert stats.sources == {"some": len(here), "all": 70}
    assert all(survives(n, "both") for n in here)
    assert (stats.samples, stats.skipped, stats.filtered) == (len(ids), len(BAD), 140 - len(ids) - len(BAD))
    assert stats.as_dict()["filtered_samples_total"] == stats.filtered > 10
    assert f"samples dropped: {stats.filtered} filtered (None), 4 damaged or excluded" in stats.report()
    singles = ss.Loader(of(folders, "map"), num_workers=workers)
    assert len(list(singles)) == COUNT - singles.stats.filtered == sum(survives(n, "map") for n in range(COUNT))


@pytest.mark.parametrize("dropped", ["short", "repeat"])
def test_a_run_goes_on_with_other_ranks(folders: dict[bool, Path], dropped: Any) -> None:
    def loader(rank: int, ranks: int, size: int) -> ss.Loader:
        shape = {"rank": rank, "world_size": ranks, "batch_size": size, "tail": "pad", "dropped": dropped}
        return ss.Loader(of(folders, "map", shuffle=True, lanes=6, chunk=2, window=9, **shape), num_workers=0)

    def own(batch: dict[str, Any]) -> list[int]:
        return batch["id"][batch["__valid__"]].tolist()  # type: ignore[no-any-return]

    first = [loader(rank, 2, 8) for rank in range(2)]
    steps = [[own(batch) for batch in islice(one, 2)] for one in first]
    states = [through_json(one.state_dict()) for one in first]
    assert states[0] == states[1]
    ranks = [loader(rank, 3, 5) for rank in range(3)]
    for one in ranks:
        one.load_state_dict(states[0])
    found = flat(in_turn(steps)) + flat(in_turn([[own(batch) for batch in one] for one in ranks]))
    straight = loader(0, 1, 8)
    assert found == [number for batch in straight for number in own(batch)]


@pytest.mark.parametrize(
    ("size", "tail", "how"), [(8, "pad", "map"), ({"cost": 20}, "exact", "map"), ({"cost": 20}, "pad", "exclude")]
)
def test_kept_samples_are_augmented_as_in_a_full_batch(
    folders: dict[bool, Path], size: Any, tail: Any, how: str
) -> None:
    def images(what: str, **options: Any) -> Iterator[dict[str, Any]]:
        shape = {"batch_size": size, "tail": tail, "shuffle": True, "world_size": 2, "rank": 1} | options
        augment = ImageBatch((0, 0, 0), (1, 1, 1), flip=True, color_jitter=0.4, erase=0.5, image="jpg", label="id")
        return iter(ss.DevicePrefetcher(ss.Loader(of(folders, what, **shape), num_workers=0), "cpu", transform=augment))

    for batch, whole in zip(images(how), images(""), strict=True):
        slots = [slot for slot, number in enumerate(whole["id"].tolist()) if survives(number, how)]
        torch.testing.assert_close(batch["jpg"], whole["jpg"][slots], rtol=0, atol=1e-5)


# ------------------------------------------------------------------------------------------------------------ masks


def without_mask(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in batch.items() if name != "__valid__"}


@pytest.mark.parametrize("options", [{"tail": "pad"}, {"dropped": "repeat"}])
def test_a_mask_is_never_lost(folders: dict[bool, Path], options: dict[str, Any]) -> None:
    dataset = of(folders, "map", batch_size=16, **options)
    argument = next(f'{name}="{value}"' for name, value in options.items())
    line = r'write to_tuple\("id", "txt", "__valid__"\)'
    with pytest.raises(UsageError, match=rf"{argument} repeats samples(.|\n)*{line}"):
        dataset.to_tuple("id", "txt")
    with pytest.raises(UsageError, match=line):
        of(folders, "map", batch_size=16).to_tuple("id", "txt").replace(**options)
    ids, _, valid = dataset.to_tuple("id", "txt", "__valid__").peek()
    assert ids[valid].tolist() == [n for n in range(16) if survives(n, "map")]
    # A transform of batches may have done with it what is to be done.
    with pytest.raises(UsageError, match=r'write to_tuple\("id", "__valid__"\)'):
        dataset.replace(batch_transform=as_it_is).to_tuple("id").peek()
    assert len(dataset.replace(batch_transform=without_mask).to_tuple("id").peek()) == 1
    for view in (dataset.map(ids_alone), dataset.map(ids_alone).with_settings(deliver="lists")):
        with pytest.raises(UsageError, match="the transform returned tuple, which has no place for it"):
            view.peek()


def ids_alone(sample: dict[str, Any]) -> tuple[int]:
    return (sample["id"],)


def test_a_mask_that_marks_nothing_can_be_named(folders: dict[bool, Path]) -> None:
    for how in ("", "map", "damaged"):
        dataset = of(folders, how, batch_size=16).to_tuple("id", "__valid__")
        for ids, valid in ss.Loader(dataset, num_workers=0):
            assert valid.tolist() == [True] * len(ids)
    assert of(folders, "map").to_tuple("id", "__valid__").peek() == (0, True)


def collated(samples: list[dict[str, Any]]) -> list[Any]:
    return [(sample["id"], sample.get("__valid__")) for sample in samples]


def test_a_collate_fn_gets_the_kept_samples_or_full_lists(folders: dict[bool, Path]) -> None:
    def first(how: str, **options: Any) -> Any:
        dataset = of(folders, how, batch_size=6, **options)
        return next(iter(ss.Loader(dataset, num_workers=0, collate_fn=collated)))

    assert first("map") == [(n, None) for n in (0, 2, 3, 5)]
    found = [(0, True), (0, False), (2, True), (3, True), (0, False), (5, True)]
    assert first("map", dropped="repeat") == found
    assert first("damaged", dropped="repeat") == [(n if n != 4 else 0, n != 4) for n in range(6)]
    with pytest.raises(BatchError, match=r"none of the 1 samples(.|\n)*find_rows"):
        list(ss.Loader(of(folders, "map", batch_size=1), num_workers=0, collate_fn=collated))


# ------------------------------------------------------------------------------------------------- what needs one shape


def test_static_buffers_need_batches_of_one_shape(folders: dict[bool, Path]) -> None:
    fields = {"vector": None, "id": None}
    for how in ("map", "exclude"):
        dataset = of(folders, how, batch_size=16, tail="drop").replace(fields=fields)
        with pytest.raises(UsageError, match=r'reuse=True needs(.|\n)*ShardDataset\(..., dropped="repeat"\)'):
            ss.DevicePrefetcher(ss.Loader(dataset, num_workers=0), "cpu", reuse=True)
        loader = ss.Loader(dataset.replace(dropped="repeat"), num_workers=0)
        assert len({id(batch["id"]) for batch in ss.DevicePrefetcher(loader, "cpu", reuse=True)}) == 1
    whole = of(folders, "", batch_size=16, tail="drop").replace(fields=fields)
    assert len(list(ss.DevicePrefetcher(ss.Loader(whole, num_workers=0), "cpu", reuse=True))) == 4


# ------------------------------------------------------------------------------------------------------ the warning


def often(sample: dict[str, Any], share: int) -> dict[str, Any] | None:
    return None if sample["score"] < share else sample


@pytest.mark.parametrize(
    ("workers", "share", "options", "said"),
    [
        (0, 100, {}, "batches keep "),
        (0, 100, {"collate_fn": collated}, "batches keep "),
        (2, 100, {}, "batches keep "),
        (0, 40, {}, ""),
    ],
)
def test_many_filtered_samples_are_said_once(
    many: Path, caplog: pytest.LogCaptureFixture, workers: int, share: int, options: Any, said: str
) -> None:
    dataset = ss.ShardDataset(many, batch_size=10, shuffle=True).map(partial(often, share=share))
    loader = ss.Loader(dataset, num_workers=workers, **options)
    with caplog.at_level(logging.WARNING, "shardstream"):
        for _ in islice(loader, 190):
            pass
        if not workers:  # workers are ahead of the loop
            assert not caplog.records
        for _ in range(2):
            list(loader)
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == bool(said)
    for text in texts:
        assert text.startswith(said)
        assert "the chance that a batch of 10 keeps none, which is an error, is" in text
        assert "rows = ss.find_rows(dataset, predicate), then where=rows" in text


def test_a_source_of_which_nothing_is_kept_leaves_the_others(tmp_path: Path) -> None:
    """Reading a block of single samples, or a source's part of a batch, may find nothing to keep in it."""
    for name in "ab":
        with ss.ShardWriter(tmp_path / name) as writer:
            for number in range(200):
                writer.write({"__key__": f"{name}{number}", "id": number})
    left_out = [f"a{number}" for number in range(130)]
    one = ss.ShardDataset(tmp_path / "a", fields=["id"], exclude_keys=left_out)
    for loader in (one, ss.Loader(one, num_workers=0)):
        assert [sample["id"] for sample in loader] == list(range(130, 200))
    two = ss.ShardDataset(tmp_path / "b", fields=["id"]).map(dict)

    def batches(first: ss.ShardDataset) -> list[list[str]]:
        mixture = ss.Mixture({"a": (first, 0.2), "b": (two, 0.8)}, batch_size=8)
        return [batch["__key__"] for batch in ss.Loader(mixture, num_workers=0)]

    whole = batches(ss.ShardDataset(tmp_path / "a", fields=["id"]))
    kept = [[key for key in keys if key not in left_out] for keys in whole]
    assert batches(one) == kept
    assert any(not any(key.startswith("a") for key in keys) for keys in kept)
