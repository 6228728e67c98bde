"""``find_rows``: each sample of a view is asked once, and what it finds is a ``where=`` with everything that has."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.progress import ProgressEvent
from tests.grouped import grouped

from ..stream.making import numbered, photograph, write_dataset
from .finding import COUNT, KEPT, even, keep, text, write

EVEN = [n for n in range(COUNT) if n % 2 == 0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data set."""
    return write(tmp_path_factory.mktemp("found") / "data")


def _ids(dataset: Any) -> list[int]:
    return [int(sample["id"]) for sample in dataset.replace(fields=["id"])]


# ---------------------------------------------------------------------------------------------------------- finding


@pytest.mark.parametrize("workers", [0, 2])
def test_each_sample_of_the_view_is_asked_once_and_has_what_a_map_gets(folder: Path, workers: int) -> None:
    seen = multiprocessing.get_context("fork").SimpleQueue()

    def ask(sample: dict[str, Any]) -> Any:
        seen.put((int(sample["id"]), sorted(sample)))
        return np.int64(sample["id"] % 3)  # a truth value, of any type

    part: dict[str, Any] = {"split": ("a", {"a": 0.5, "b": 0.5}), "where": {"id": (">", 10)}}
    view = ss.ShardDataset(folder, weights="id", epoch_size=9, **grouped(part))
    events: list[ProgressEvent] = []
    rows = ss.find_rows(view, ask, workers=workers, progress=events.append)
    asked, names = Counter[int](), set()
    while not seen.empty():
        number, fields = seen.get()
        asked[number] += 1
        names.add(tuple(fields))
    expected = _ids(ss.ShardDataset(folder, **grouped(part)))
    assert sorted(asked) == expected
    assert set(asked.values()) == {1}
    assert names == {("__key__", "id", "txt")}
    assert _ids(ss.ShardDataset(folder, where=rows)) == [n for n in expected if n % 3]
    last = events[-1]
    assert (last.phase, last.done, last.total, last.unit) == ("find", len(expected), len(expected), "samples")
    assert last.found == len(rows)
    assert [one.done for one in events] == sorted(one.done for one in events)


def test_pictures_are_decoded_only_if_fields_ask_for_them(folder: Path) -> None:
    sizes = set()
    with pytest.raises(ss.errors.FieldError, match="'jpg'") as caught:
        ss.find_rows(folder, lambda sample: sample["jpg"], workers=0)
    assert "fields=" in str(caught.value)
    dataset = ss.ShardDataset(folder, fields={"jpg": ss.decode.CenterCrop(32, resize=40), "id": None})
    ss.find_rows(
        dataset, lambda sample: sizes.add(sample["jpg"].shape), fields=["jpg"], workers=0
    )  # as it decodes them
    assert sizes == {(32, 32, 3)}
    assert len(ss.find_rows(dataset, lambda sample: "jpg" in sample, workers=0)) == 0
    assert (
        len(ss.find_rows(dataset, lambda sample: set(sample) == {"__key__", "txt"}, fields=["txt"], workers=0)) == COUNT
    )


def test_maps_of_the_dataset_come_first(folder: Path) -> None:
    dataset = ss.ShardDataset(folder, fields=["id"]).map(lambda sample: {"double": 2 * sample["id"]})
    assert len(ss.find_rows(dataset, lambda sample: sample["double"] < 20, workers=0)) == 10
    dropping = ss.ShardDataset(folder, fields=["id"]).map(lambda sample: sample if sample["id"] < 50 else None)
    rows = ss.find_rows(dropping, even, workers=0)
    assert (len(rows), len(~rows)) == (25, 25)  # of what a map drops, nobody is asked


def test_random_numbers_are_those_of_the_sample_whatever_the_workers(folder: Path) -> None:
    drawn = [ss.find_rows(folder, lambda sample, rng: rng.random() < 0.5, workers=n).digest for n in (0, 2)]
    plain = [ss.find_rows(folder, lambda sample: np.random.rand() < 0.5, workers=n).digest for n in (0, 2)]
    assert drawn[0] == drawn[1] != plain[0] == plain[1]


def test_errors_name_the_sample_and_damaged_ones_are_skipped_on_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_dataset(tmp_path, numbered([40, 40], bad=lambda n: b"payload %06d" % n))
    broken = {3, *range(40, 80)}  # a whole shard among them
    for shard in tmp_path.glob("shard-*"):
        data = shard.read_bytes()
        for number in broken:
            data = data.replace(b"payload %06d" % number, b"damaged %06d" % number)
        shard.write_bytes(data)
    with pytest.raises(ss.errors.ChecksumError, match="k000003"):
        ss.find_rows(tmp_path, even, workers=1)
    rows = ss.find_rows(tmp_path, even, workers=1, on_error="skip")
    assert len(rows) + len(~rows) == 80 - len(broken)
    assert [one.getMessage() for one in caplog.records if "41 samples" in one.getMessage()]
    with pytest.raises(ss.errors.TransformError, match=r"predicate.*ZeroDivisionError") as caught:
        ss.find_rows(tmp_path, lambda sample: 1 / (sample["id"] - 7), fields=["id"], workers=1, on_error="skip")
    assert caught.value.place["key"] == "k000007"


def test_what_it_cannot_work_with_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mixture = ss.Mixture({"a": ss.ShardDataset(folder), "b": ss.ShardDataset(folder)})
    bad: list[tuple[Any, ...]] = [
        (folder, 3),
        (mixture, even),
        (folder, even, {"workers": -1}),
        (folder, even, {"on_error": "x"}),
    ]
    for data, predicate, *options in bad:
        with pytest.raises(ss.errors.UsageError) as caught:
            ss.find_rows(data, predicate, **(options[0] if options else {}))
        assert caught.value.hint
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda: "spawn")
    with pytest.raises(ss.errors.UsageError, match="pickled") as caught:
        ss.find_rows(folder, lambda sample: True, workers=2)
    assert "workers=0" in str(caught.value)


# -------------------------------------------------------------------------------------------------- what it is used for


@pytest.fixture(scope="module")
def kept(folder: Path) -> ss.Rows:
    """The rows of `KEPT`."""
    return ss.find_rows(folder, keep, workers=0)


def test_where_gives_full_batches_equal_steps_and_exact_lengths(folder: Path, kept: ss.Rows) -> None:
    assert len(kept) == len(KEPT)
    seen = []
    for rank in range(2):
        shape = {"rank": rank, "world_size": 2, "batch_size": 4, "shuffle": True, "tail": "drop"}
        loader = ss.Loader(ss.ShardDataset(folder, fields=["id"], where=kept, **grouped(shape)), num_workers=0)
        batches = [batch["id"].tolist() for batch in loader]
        assert [len(batch) for batch in batches] == [4] * (len(KEPT) // 8) == [4] * len(loader)
        seen += [number for batch in batches for number in batch]
    assert len(set(seen)) == len(seen)
    assert set(seen) <= set(KEPT)


Where = Callable[[ss.Rows], Any]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (lambda rows: rows, KEPT),
        (lambda rows: [rows], KEPT),
        (lambda rows: ~rows, [n for n in range(COUNT) if n not in KEPT]),
        (lambda rows: [rows, {"id": (">=", 20)}], [n for n in KEPT if n >= 20]),
        (lambda rows: [{"id": [3, 4, 7, 8]}, rows, {"id": [3, 4, 9]}], [n for n in (3, 4) if n in KEPT]),
        (lambda rows: ({"__key__": [f"k{n:06d}" for n in range(40)]}, rows), [n for n in KEPT if n < 40]),
        (lambda rows: [{"__key__": ["k000001", "k000002"]}, {"__key__": ["k000002"]}], [2]),
        (lambda rows: [], list(range(COUNT))),
    ],
)
def test_it_goes_with_other_conditions_everywhere(
    folder: Path, kept: ss.Rows, tmp_path: Path, where: Where, expected: list[int]
) -> None:
    asked = where(kept)
    dataset = ss.ShardDataset(folder, fields=["id"], where=asked)
    assert _ids(dataset) == expected
    assert len(dataset) == len(expected)
    assert _ids(ss.ShardDataset(folder).filter(asked)) == expected
    assert ss.Reader(folder).find(asked).tolist() == expected
    if expected and expected != list(range(COUNT)):
        ss.repack(folder, tmp_path / "part", where=asked, fields=["id"], shuffle=True)
        assert sorted(int(sample["id"]) for sample in ss.Reader(tmp_path / "part")) == expected


def test_repack_resumes_with_the_same_rows_only_and_refuses_none(folder: Path, kept: ss.Rows, tmp_path: Path) -> None:
    one = ss.repack(folder, tmp_path / "a", where=kept, workers=0)
    with pytest.raises(ss.errors.UsageError):  # other rows: another dataset
        ss.repack(folder, tmp_path / "a", where=~kept, workers=0)
    assert one.samples == len(KEPT)
    assert ss.repack(folder, tmp_path / "b", where=kept, take=3, workers=2).samples == 3
    with pytest.raises(ss.errors.UsageError, match="no sample"):
        ss.repack(folder, tmp_path / "c", where=kept & ~kept)


def test_a_state_of_other_rows_is_refused(folder: Path, kept: ss.Rows) -> None:
    loader = ss.Loader(ss.ShardDataset(folder, fields=["id"], where=kept, batch_size=4), num_workers=0)
    next(iter(loader))
    state = loader.state_dict()
    same = ss.find_rows(folder, keep, workers=0)
    resumed = ss.Loader(ss.ShardDataset(folder, fields=["id"], where=same, batch_size=4), num_workers=0)
    resumed.load_state_dict(state)
    assert next(iter(resumed))["id"].tolist() == KEPT[4:8]
    other = ss.Loader(ss.ShardDataset(folder, fields=["id"], where=~kept, batch_size=4), num_workers=0)
    with pytest.raises(ss.errors.UsageError, match="fingerprint"):
        other.load_state_dict(state)


def test_rows_are_valid_for_versions_that_grew_and_for_no_other_data(tmp_path: Path) -> None:
    data = tmp_path / "grows"
    with ss.ShardWriter(data) as writer:
        for n in range(20):
            writer.write({"__key__": f"k{n}", "id": n, "txt": text(n)})
    rows = ss.find_rows(data, even, workers=0)
    loader = ss.Loader(ss.ShardDataset(data, where=rows, batch_size=2), num_workers=0)
    next(iter(loader))
    state = loader.state_dict()
    with ss.ShardWriter(data, append=True) as writer:
        for n in range(20, 30):
            writer.write({"__key__": f"k{n}", "id": n, "txt": text(n)})
    grown = ss.ShardDataset(data, where=rows)
    assert _ids(grown) == list(range(0, 20, 2))
    assert _ids(ss.ShardDataset(data, where=~rows)) == list(range(1, 20, 2))  # nobody was asked about new samples
    resumed = ss.Loader(ss.ShardDataset(data, where=rows, batch_size=2), num_workers=0)
    resumed.load_state_dict(state)
    assert next(iter(resumed))["id"].tolist() == [4, 6]
    newer = ss.find_rows(data, even, workers=0)
    assert _ids(ss.ShardDataset(data, where=[rows, newer])) == list(range(0, 20, 2))
    for wrong in (lambda: rows & newer, lambda: ss.ShardDataset(data, version=1, where=newer)):
        with pytest.raises(ss.errors.UsageError) as caught:
            wrong()
        assert rows.fingerprint in str(caught.value)
        assert newer.fingerprint in str(caught.value)


def test_several_datasets_laid_end_to_end(folder: Path, tmp_path: Path) -> None:
    write_dataset(tmp_path / "more", numbered([5], txt=text, jpg=photograph))
    both = [str(folder), str(tmp_path / "more")]
    rows = ss.find_rows(ss.ShardDataset(both), even, workers=2)
    assert _ids(ss.ShardDataset(both, where=rows)) == [*EVEN, 0, 2, 4]
    with pytest.raises(ss.errors.UsageError, match="other data"):
        ss.ShardDataset(both[::-1], where=rows)


# ------------------------------------------------------------------------------------------------------- combinations


def test_they_combine_as_sets_of_what_was_asked(folder: Path) -> None:
    """``~`` stays among what was asked, and De Morgan holds whatever views the rows were found on."""
    views = [
        ss.ShardDataset(folder),
        ss.ShardDataset(folder).filter({"id": ("<", 60)}),
        ss.ShardDataset(folder).take(33),
    ]
    found = [ss.find_rows(view, one, workers=0, fields=["id", "txt"]) for view in views for one in (keep, even)]

    def ids(rows: ss.Rows) -> list[int]:
        return ss.Reader(folder).find(rows).tolist()

    for a in found:
        assert ids(~~a) == ids(a)
        for b in found:
            assert ids(a & b) == sorted(set(ids(a)) & set(ids(b)))
            assert ids(a | b) == sorted(set(ids(a)) | set(ids(b)))
            assert ids(~(a & b)) == ids(~a | ~b)
            assert ids(~(a | b)) == ids(~a & ~b)
    assert ids(~found[3]) == [n for n in range(60) if n % 2]
    with pytest.raises(TypeError):
        _ = found[0] & {"id": 3}  # type: ignore[operator]


# -------------------------------------------------------------------------------------------------------------- files


def test_files_and_pickles_hold_the_same_rows(folder: Path, kept: ss.Rows, tmp_path: Path) -> None:
    view = ss.find_rows(ss.ShardDataset(folder).take(33), even, workers=0)
    for number, rows in enumerate((kept, view, ~view, kept & ~kept)):
        path = tmp_path / f"{number}.rows"
        rows.save(path)
        for again in (ss.Rows.load(path), pickle.loads(pickle.dumps(rows))):
            assert (again.digest, len(again), (~again).digest) == (rows.digest, len(rows), (~rows).digest)
            assert repr(again) == repr(rows)
    assert sorted(os.listdir(tmp_path)) == [f"{number}.rows" for number in range(4)]
    kept.save(f"file://{tmp_path}/url.rows")
    assert ss.Rows.load(f"file://{tmp_path}/url.rows").digest == kept.digest


def test_they_take_about_a_bit_a_sample(tmp_path: Path) -> None:
    with ss.ShardWriter(tmp_path / "many", format="record") as writer:
        for n in range(20_000):
            writer.write({"__key__": str(n), "id": n})
    rows = ss.find_rows(tmp_path / "many", even, workers=0)
    rows.save(tmp_path / "many.rows")
    assert 2_500 <= (tmp_path / "many.rows").stat().st_size < 2_900
    assert len(pickle.dumps(rows)) < 3_100


def test_every_damage_of_a_file_is_one_clear_error(folder: Path, kept: ss.Rows, tmp_path: Path) -> None:
    kept.save(tmp_path / "rows")
    whole = (tmp_path / "rows").read_bytes()
    path = tmp_path / "damaged"
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(ss.errors.DataError) as caught:
            ss.Rows.load(path)
        assert str(path) in str(caught.value)
        assert caught.value.hint
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(ss.errors.DataError):
            ss.Rows.load(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(ss.errors.DataError):
        ss.Rows.load(path)
    with pytest.raises(ss.errors.NotFoundError):
        ss.Rows.load(tmp_path / "none")


# ------------------------------------------------------------------------------------------------------ foreign formats


def _jsonl(folder: Path) -> Path:
    lines = [json.dumps({"id": n, "txt": text(n)}) for n in range(COUNT)]
    (folder / "a.jsonl").write_text("\n".join(lines[:60]) + "\n")
    (folder / "b.jsonl").write_text("\n".join(lines[60:]) + "\n")
    return folder


def _parquet(folder: Path) -> Path:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    table = pa.table({"id": list(range(COUNT)), "txt": [text(n) for n in range(COUNT)]})
    pq.write_table(table, folder / "a.parquet", row_group_size=33)
    return folder


@pytest.mark.parametrize("make", [_jsonl, _parquet])
def test_data_of_other_libraries_in_place(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    place = make(tmp_path)
    rows = ss.find_rows(str(place), keep, workers=2, out=tmp_path.parent / f"{tmp_path.name}.rows")
    assert _ids(ss.ShardDataset(str(place), where=rows)) == KEPT
    assert _ids(ss.ShardDataset(str(place), where=[~rows, {"id": ("<", 30)}])) == [
        n for n in range(30) if n not in KEPT
    ]
