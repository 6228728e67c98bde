"""What a pickled data set names, and what comes out of it."""

from __future__ import annotations

import copy
import gzip
import pickle
import pickletools
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss
from shardstream.errors import FormatError, UsageError

from .making import numbered, write_dataset
from .resuming import ORDER, ids_of

FROZEN = Path(__file__).with_name("frozen")
COPIES = [pickle.dumps, copy.copy, copy.deepcopy]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("pickles"), numbered([40, 30]))


def copied(how: Callable[[Any], Any], dataset: Any) -> Any:
    made = how(dataset)
    return pickle.loads(made) if isinstance(made, bytes) else made


def named_in(data: bytes) -> set[tuple[str, str]]:
    """The classes and functions that a pickle names, by module and name."""
    found, memo, strings = set(), [], [""]
    for code, argument, _ in pickletools.genops(data):
        if code.name == "MEMOIZE":
            memo.append(strings[-1])
        elif code.name in ("BINGET", "LONG_BINGET"):
            strings.append(memo[argument])
        elif code.name == "GLOBAL":
            module, _, name = argument.partition(" ")
            found.add((module, name))
        elif code.name == "STACK_GLOBAL":
            found.add((strings[-2], strings[-1]))
            strings.append("")
        else:
            strings.append(argument if isinstance(argument, str) else "")
    return found


def streams(folder: Path) -> Iterator[ss.ShardDataset | ss.Mixture]:
    whole = ss.ShardDataset(folder, fields=["id"], batch_size=4, **ORDER)
    yield whole
    yield ss.ShardDataset([folder, folder], fields={"id": None}, where={"id": range(20)}, replicas=[folder])
    yield whole.to_tuple("id").take(30).repeat(2)
    yield whole.filter({"id": [(">", 3), ("!=", 9)]}).filter({"id": lambda numbers: numbers < 65}).take(55)
    yield ss.ShardDataset([folder, folder], fields=["id"], where={"__key__": ["k000003"]}, exclude_keys=["k000004"])
    yield ss.Mixture({"a": (whole, 2), "b": (whole.take(10), 1)}, batch_size=4, by="batches")


def test_only_public_classes_are_named(folder: Path) -> None:
    for stream in streams(folder):
        data = pickle.dumps(stream)
        public = {("builtins", "getattr"), (type(stream).__module__, type(stream).__name__)}
        assert named_in(data) == public
        assert len(data) < 4096


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_reads_the_same(folder: Path, how: Any) -> None:
    for stream in streams(folder):
        made = copied(how, stream)
        assert type(made) is type(stream)
        assert repr(made) == repr(stream)
        assert made.fingerprint == stream.fingerprint
        first, second = (list(islice(one, 10)) for one in (stream, made))
        assert repr(first) == repr(second)


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_goes_on_where_the_original_would(folder: Path, how: Any) -> None:
    dataset = ss.ShardDataset(folder, fields=["id"], batch_size=4, **ORDER)
    dataset.set_epoch(3)
    batches = iter(dataset)
    begun = [ids_of(next(batches)) for _ in range(5)]
    state = dataset.state_dict()
    rest = [ids_of(batch) for batch in batches]
    following = [ids_of(batch) for batch in dataset]
    dataset.load_state_dict(state)
    made = copied(how, dataset)
    assert made.epoch == 3
    assert made.state_dict() == state
    assert [ids_of(batch) for batch in made] == rest
    assert [ids_of(batch) for batch in made] == following
    assert begun
    assert dataset.epoch == (5 if how is copy.copy else 3)  # a mere copy shares its epoch


@pytest.mark.parametrize("how", COPIES[::2])
def test_what_a_class_of_ones_own_has_comes_along(folder: Path, how: Any) -> None:
    dataset = Named("mine", folder)
    made = copied(how, dataset)
    assert type(made) is Named
    assert (made.name, len(made)) == ("mine", 70)


class Named(ss.ShardDataset):
    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(folder, fields=["id"])
        self.name = name


class Fixed(ss.ShardDataset):
    folder = Path()

    def __init__(self) -> None:
        super().__init__(self.folder, fields=["id"])


def test_a_class_of_ones_own_may_need_no_arguments(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fixed, "folder", folder)
    assert len(pickle.loads(pickle.dumps(Fixed()))) == 70


def test_the_version_that_was_opened_is_read(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "grows", numbered([10]))
    data = pickle.dumps(ss.ShardDataset(folder, fields=["id"]))
    with ss.ShardWriter(folder, append=True) as writer:
        for sample in numbered([3])[0]:
            writer.write(sample | {"__key__": f"more{sample['__key__']}"})
    assert len(ss.ShardDataset(folder)) == 13
    assert len(pickle.loads(data)) == 10


def test_another_data_set_at_the_same_place_is_an_error(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "moves", numbered([10]))
    data = pickle.dumps(ss.ShardDataset(folder).take(5))
    write_dataset(folder, numbered([11]))
    with pytest.raises(FormatError, match="replaced"):
        pickle.loads(data)


@pytest.mark.parametrize("kind", ["dataset", "mixture"])
def test_a_pickle_of_an_earlier_layout_is_one_clear_error(kind: str) -> None:
    data = gzip.decompress((FROZEN / f"{kind}_78a7b3e.pickle.gz").read_bytes())
    name = {"dataset": "ShardDataset", "mixture": "Mixture"}[kind]
    with pytest.raises(UsageError, match=f"{name} needs data .* an earlier version of shardstream") as caught:
        pickle.loads(data)
    assert f"with the arguments of ss.{name}" in str(caught.value)


def test_a_pickle_of_a_later_layout_is_one_clear_error(folder: Path) -> None:
    restore, (version, plain) = ss.ShardDataset(folder).__reduce__()
    with pytest.raises(UsageError, match="of version 2, known here is 1"):
        restore(version + 1, plain)
