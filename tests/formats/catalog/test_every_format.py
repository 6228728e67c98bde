"""Every format that is known has all that our own shards have: equal values by every way in which samples are read."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.diagnose import info, verify, view
from shardstream.formats.registry import format_named, format_names
from shardstream.testing import MemoryStore
from tests.formats.catalog.every import OTHERS, SETS, ForeignSet, same
from tests.grouped import grouped

ALL = [*SETS.items(), *((name, one) for name, several in OTHERS.items() for one in several)]
SEED = 3
full = pytest.mark.full


@dataclass(frozen=True)
class Made:
    """A data set that was written, with a catalogue in the user's folder."""

    name: str
    number: str | None
    folder: Path
    options: Mapping[str, str]
    expected: Sequence[Mapping[str, Any]]
    fields: Mapping[str, Any]
    samples: Mapping[str, bytes]
    """What every field of a sample is, as a digest, by key, in stored order."""

    def opening(self) -> dict[str, Any]:
        return {"source_format": self.name, "format_options": self.options or None}

    def dataset(self, url: Any = None, **arguments: Any) -> ss.ShardDataset:
        given = {"fields": self.fields} | self.opening() | arguments
        return ss.ShardDataset(self.folder if url is None else url, **grouped(given))

    def in_memory(self) -> MemoryStore:
        return MemoryStore(
            {
                path.relative_to(self.folder).as_posix(): path.read_bytes()
                for path in self.folder.rglob("*")
                if path.is_file()
            }
        )


def digest(sample: Mapping[str, Any]) -> bytes:
    """Of all values of a sample, with their types."""
    out = hashlib.sha256()
    for name in sorted(sample):
        value = sample[name]
        value = value.item() if isinstance(value, np.generic) else value
        told = (str(value.dtype), value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value
        out.update(repr((name, told)).encode())
    return out.digest()


def keyed(samples: Iterator[Mapping[str, Any]]) -> list[tuple[str, bytes]]:
    return [(sample["__key__"], digest(sample)) for sample in samples]


def read(dataset: ss.ShardDataset, workers: int = 0) -> list[tuple[str, bytes]]:
    """Key and digest of an epoch."""
    context = "fork" if workers else None
    return keyed(iter(ss.Loader(dataset, num_workers=workers, multiprocessing_context=context)))


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[int, Made] = {}

    def one_of(name: str, one: ForeignSet) -> Made:
        if id(one) not in made:
            folder = tmp_path_factory.mktemp("data")
            expected = one.make(folder)
            how = {"source_format": name, "format_options": one.options or None}
            fields = ss.ShardDataset(folder, **grouped(how)).manifest.fields
            raw = {field: "bytes" if kind.is_image else None for field, kind in fields.items()}
            samples = keyed(iter(ss.Reader(folder, fields=raw, **grouped(how))))
            made[id(one)] = Made(name, one.number, folder, one.options, expected, raw, dict(samples))
            assert len(samples) == len(made[id(one)].samples) > 0
        return made[id(one)]

    return one_of


@pytest.fixture(params=SETS)
def made(request: pytest.FixtureRequest, make: Any) -> Made:
    return make(request.param, SETS[request.param])


def test_every_format_has_a_data_set_here() -> None:
    assert set(SETS) == set(format_names())
    assert set(OTHERS) <= set(SETS)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("number", range(len(ALL)), ids=[f"{name}-{i}" for i, (name, _) in enumerate(ALL)])
def test_values_are_those_that_were_written(number: int, make: Any) -> None:
    found = make(*ALL[number])
    samples = list(found.dataset())
    if found.expected:
        assert len(samples) == len(found.expected)
        for sample, expected in zip(samples, found.expected, strict=True):
            assert all(same(sample[field], value) for field, value in expected.items())
    assert keyed(iter(samples)) == list(found.samples.items())


@pytest.mark.one_in(5)
@pytest.mark.parametrize("place", ["memory", pytest.param("folder", marks=full)])
def test_with_workers_stored_and_shuffled(made: Made, place: str) -> None:
    url = made.folder if place == "folder" else made.in_memory()
    assert read(made.dataset(url), 2) == list(made.samples.items())
    shuffled = read(made.dataset(shuffle=True, seed=SEED))
    assert dict(shuffled) == made.samples
    assert [key for key, _ in shuffled] != list(made.samples)
    assert read(made.dataset(url, shuffle=True, seed=SEED), 2) == shuffled


@pytest.mark.one_in(3)
def test_over_a_network_with_a_cache(made: Made, tmp_path: Path) -> None:
    store = made.in_memory()
    shuffled = read(made.dataset(shuffle=True, seed=SEED))
    read_in = []
    for _ in range(2):
        before = sum(request.kind == "open" for request in store.requests)
        assert read(made.dataset(store, shuffle=True, seed=SEED, cache=tmp_path / "cache")) == shuffled
        read_in.append(sum(request.kind == "open" for request in store.requests) - before)
    assert read_in[1] < read_in[0], read_in  # files that describe others are read again


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("first", "then"), [(2, 0), pytest.param(0, 2, marks=full), pytest.param(2, 1, marks=full)])
def test_resumed_elsewhere_with_other_workers(made: Made, first: int, then: int) -> None:
    loader = ss.Loader(
        made.dataset(shuffle=True, seed=SEED), num_workers=first, multiprocessing_context="fork" if first else None
    )
    iterator = iter(loader)
    samples = keyed(islice(iterator, 4))
    state = json.loads(json.dumps(loader.state_dict()))
    del iterator
    elsewhere = ss.Loader(
        made.dataset(made.in_memory(), shuffle=True, seed=SEED),
        num_workers=then,
        multiprocessing_context="fork" if then else None,
    )
    elsewhere.load_state_dict(state)
    assert samples + keyed(iter(elsewhere)) == read(made.dataset(shuffle=True, seed=SEED))


def test_reader_and_a_part_by_a_number(made: Made) -> None:
    reader = ss.Reader(made.folder, fields=made.fields, **grouped(made.opening()))
    keys = list(made.samples)
    assert digest(reader.get(keys[-1])) == made.samples[keys[-1]]
    assert digest(reader[1]) == made.samples[keys[1]]
    if made.number is None:
        return
    numbers = {sample["__key__"]: sample[made.number] for sample in made.dataset()}
    wanted = next(iter(numbers.values()))
    some = read(made.dataset(where={made.number: wanted.item() if isinstance(wanted, np.generic) else wanted}))
    assert [key for key, _ in some] == [key for key, number in numbers.items() if number == wanted]


@pytest.mark.one_in(3)
def test_info_view_and_verify(made: Made, tmp_path: Path) -> None:
    shutil.copytree(made.folder, tmp_path / "own")
    checked = not format_named(made.name).loose  # files of their own have none
    ss.index(tmp_path / "own", checksums=checked, workers=0, **grouped(made.opening()))
    told = info(tmp_path / "own")
    assert (told.format, told.samples, told.checksums) == (made.name, len(made.samples), checked)
    assert {one.name for one in told.fields} == set(made.fields)
    seen = view(tmp_path / "own", [-1])
    assert [one.key for one in seen.samples] == [list(made.samples)[-1]]
    report = verify(tmp_path / "own")
    assert report.ok, report.problems
    if not checked:
        return
    for path in [path for path in (tmp_path / "own").rglob("*") if path.is_file()]:
        when = path.stat().st_mtime_ns
        path.write_bytes((np.fromfile(path, np.uint8) ^ 1).tobytes())
        os.utime(path, ns=(when, when))  # what rots on a disk keeps its time
    assert not whole(tmp_path / "own")


def whole(folder: Path) -> bool:
    """Whether a data set is found to be as it was written; an index beside the data may be refused before."""
    try:
        return verify(folder).ok
    except ss.errors.DataError:
        return False


@pytest.mark.one_in(3)
def test_packed_and_read_again(made: Made, tmp_path: Path) -> None:
    ss.repack(made.folder, tmp_path / "packed", workers=0)
    packed = ss.Reader(tmp_path / "packed", fields=made.fields)
    assert dict(keyed(iter(packed))) == made.samples


@full
def test_what_is_packed_is_exported_and_read_in_place_again(made: Made, tmp_path: Path) -> None:
    ss.repack(made.folder, tmp_path / "packed", workers=0, format="tar")
    (tmp_path / "packed/dataset.json").unlink()
    for path in (tmp_path / "packed").glob("*.table"):
        path.unlink()
    found = ss.Reader(tmp_path / "packed", reading=ss.SourceOptions(format="webdataset"))
    assert len(found) == len(made.samples)
