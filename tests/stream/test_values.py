"""Rows of values as they come out: `Ragged` in batches, arrays from a `Reader`, bytes and pictures of nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import shardstream as ss
from shardstream.decode import compile_fields
from shardstream.diagnose import info, verify, view
from shardstream.errors import BatchError, DecodeError, FieldError, ShardStreamError
from shardstream.shards.fields import FieldType
from shardstream.stream.tensors.joined import JoinedRows
from tests.grouped import grouped

from .making import numbered, write_dataset

COUNT = 60
TYPES = {"row": "values:uint16", "wave": "values:float32", "flags": "values:bool", "one": "values:uint16"}


def row(number: int) -> list[int]:
    return [65_535 - number] * (number % 5)


def shards(sizes: tuple[int, ...] = (40, 20)) -> list[list[dict[str, Any]]]:
    return numbered(
        sizes,
        row=lambda n: np.array(row(n), np.uint16),
        wave=lambda n: np.full(n % 3, n / 2, np.float32),
        flags=lambda n: np.array([n % 2 == 0] * (n % 4), np.bool_),
        one=lambda n: np.array([n, n], np.uint16),
    )


@pytest.fixture(scope="module", params=["tar", "record"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("values"), shards(), format=request.param, types=TYPES)


def meaning(folder: Path, field: str, kind: str | None) -> None:
    """Say of stored bytes what they are."""
    head = folder / "dataset.json"
    said = json.loads(head.read_text())
    said["fields"][field].pop("as", None)
    said["fields"][field] |= {} if kind is None else {"as": kind}
    said.pop("checksum", None)
    head.write_text(json.dumps(said))


def middle(folder: Path, **options: Any) -> Path:
    """A data set one of whose rows, that of k000003, ends in the middle of a number."""
    made = numbered([6], row=lambda n: b"12" * n + b"3" * (n == 3))
    write_dataset(folder, made, types={"row": "bytes"}, **options)
    meaning(folder, "row", "values:uint16")
    return folder


def expected(batch: Mapping[str, Any]) -> list[list[int]]:
    return [row(int(number)) for number in batch["id"]]


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_ragged(folder: Path, workers: int) -> None:
    seen = 0
    for batch in ss.Loader(ss.ShardDataset(folder, batch_size=16), num_workers=workers):
        rows, wave, flags, one = (batch[name] for name in ("row", "wave", "flags", "one"))
        assert all(isinstance(found, ss.Ragged) for found in (rows, wave, flags, one))
        kinds = [found.values.dtype for found in (rows, wave, flags, one)]
        assert kinds == [torch.uint16, torch.float32, torch.bool, torch.uint16]
        assert [one.tolist() for one in rows] == expected(batch)
        for number, found, truth, same in zip(batch["id"].tolist(), wave, flags, one, strict=True):
            assert found.tolist() == [number / 2] * (number % 3)
            assert truth.tolist() == [number % 2 == 0] * (number % 4)
            assert same.tolist() == [number, number]
        seen += len(rows)
    assert seen == COUNT


@pytest.mark.parametrize("dtype", ["int64", "int32", "float32", "uint16"])
@pytest.mark.parametrize("transform", [False, True])
def test_a_wider_dtype(folder: Path, dtype: str, transform: bool) -> None:
    dataset = ss.ShardDataset(folder, batch_size=COUNT, fields={"row": ss.decode.Array(dtype), "id": None})
    batch = (dataset.map(dict) if transform else dataset).peek()
    assert batch["row"].values.dtype == getattr(torch, dtype)
    assert [one.tolist() for one in batch["row"]] == expected(batch)


def test_what_may_not_fit_is_refused_when_the_data_set_is_opened(folder: Path) -> None:
    with pytest.raises(FieldError, match="int16 does not hold every value of uint16 exactly"):
        ss.ShardDataset(folder, fields={"row": ss.decode.Array("int16")})
    batch = ss.ShardDataset(folder, batch_size=4, shuffle=False, fields={"row": np.int32}).peek()
    assert batch["row"].values.dtype == torch.int32


@pytest.mark.parametrize("decoder", [ss.decode.CenterCrop(8), ss.decode.Text(len), ss.decode.Boxes(like="x")])
def test_no_other_decoder_takes_them(folder: Path, decoder: Any) -> None:
    with pytest.raises(FieldError):
        ss.ShardDataset(folder, fields={"row": decoder})


def test_bytes_callables_and_transforms(folder: Path) -> None:
    fields = {"row": "bytes", "wave": lambda wave: wave.sum(), "id": None}
    batch = ss.ShardDataset(folder, batch_size=8, fields=fields).peek()
    assert [batch["row"].tobytes(i) for i in range(8)] == [np.array(one, "<u2").tobytes() for one in expected(batch)]
    assert batch["wave"].tolist() == [number / 2 * (number % 3) for number in batch["id"].tolist()]

    def reversed_row(sample: dict[str, Any]) -> dict[str, Any]:
        return sample | {"row": sample["row"][::-1].astype(np.int64)}

    batch = ss.ShardDataset(folder, batch_size=8, fields=["row", "id"]).map(reversed_row).peek()
    assert batch["row"].values.dtype == torch.int64


def test_a_reader_gives_arrays(folder: Path) -> None:
    reader = ss.Reader(folder)
    sample = reader[7]
    assert (sample["row"].dtype, sample["row"].tolist(), sample["row"].flags.owndata) == (np.uint16, row(7), True)
    sample["row"][:] = 0
    assert reader[7]["row"].tolist() == row(7)
    assert ss.Reader(folder, fields={"row": ss.decode.Array("int64")})[7]["row"].dtype == np.int64


def test_where_and_views(folder: Path) -> None:
    dataset = ss.ShardDataset(folder, batch_size=4, where={"id": (">=", 50)})
    assert sorted(number for batch in dataset for number in batch["id"].tolist()) == list(range(50, 60))
    with pytest.raises(ShardStreamError, match="row"):
        ss.ShardDataset(folder, where={"row": 3})


def test_info_view_and_verify(folder: Path, tmp_path: Path) -> None:
    assert {one.name: one.type for one in info(folder).fields if one.name in TYPES} == TYPES
    found = view(folder, [3], save=tmp_path)
    shown = {one.name: one for one in found.samples[0].fields}
    assert (shown["row"].type, shown["row"].shape) == ("values:uint16", (3,))
    assert shown["row"].text == "uint16 3: 65532 65532 65532"
    assert np.load(tmp_path / "k000003.row").tolist() == row(3)
    assert verify(folder).ok


def test_some_samples_have_none(tmp_path: Path) -> None:
    made = numbered([4], row=lambda n: None if n == 2 else np.array([n], np.uint16))
    made = [[{name: one for name, one in sample.items() if one is not None} for sample in shard] for shard in made]
    write_dataset(tmp_path / "some", made, types={"row": "values:uint16"})
    found = ss.ShardDataset(tmp_path / "some", batch_size=4, shuffle=False).peek()["row"]
    assert [None if one is None else one.tolist() for one in found] == [[0], [1], None, [3]]
    with pytest.raises(DecodeError, match="no 'row'"):
        ss.ShardDataset(tmp_path / "some", batch_size=4, fields={"row": ss.decode.Array("int64")}).peek()


@pytest.mark.parametrize("format", ["tar", "record"])
@pytest.mark.parametrize("fields", [None, {"row": ss.decode.Array("int64")}])
def test_a_row_that_ends_in_the_middle_of_a_number(tmp_path: Path, format: str, fields: Any) -> None:
    folder = middle(tmp_path / "middle", format=format)
    for read in (
        lambda: ss.ShardDataset(folder, batch_size=6, shuffle=False, fields=fields).peek(),
        lambda: ss.Reader(folder, fields=fields)[3],
    ):
        with pytest.raises(DecodeError, match="not valid values:uint16: 7 bytes are not a multiple of 2") as caught:
            read()
        place = caught.value.place
        assert (place["key"], place["sample"], place["field"], "shard" in place) == ("k000003", 3, "row", True)
    batch = ss.ShardDataset(folder, batch_size=6, shuffle=False, fields=fields, on_error="skip").peek()
    assert [len(one) for one in batch["row"]] == [n for n in range(6) if n != 3]
    (problem,) = verify(folder).problems
    assert (problem.check, problem.sample, problem.key, problem.field) == ("value", 3, "k000003", "row")
    assert problem.what == "the value has 7 bytes, no multiple of the 2 of values:uint16"
    assert "7 bytes are not a multiple" in view(folder, [3]).samples[0].fields[-1].text
    with pytest.raises(DecodeError, match=r"7 bytes .*key k000003, field row"):
        view(folder, [3], save=tmp_path / "saved")


@pytest.mark.parametrize("format", ["tar", "record"])
def test_max_value(tmp_path: Path, format: str) -> None:
    made = numbered([4], row=lambda n: np.zeros(n * 100, np.uint16))
    folder = write_dataset(tmp_path / "large", made, format=format, types={"row": "values:uint16"})
    with pytest.raises(DecodeError, match="the value has 600 bytes, and max_value is 599") as caught:
        ss.ShardDataset(folder, batch_size=4, reads=ss.ReadOptions(max_value=599)).peek()
    assert caught.value.place["key"] == "k000003"
    assert len(ss.ShardDataset(folder, batch_size=4, reads=ss.ReadOptions(max_value=600)).peek()["row"]) == 4
    assert not verify(folder, max_value=599).ok


def test_compressed(tmp_path: Path) -> None:
    with ss.ShardWriter(
        tmp_path / "z", format="record", fields={"row": "values:uint16"}, shards=ss.ShardOptions(zstd=["row"])
    ) as writer:
        for number in range(8):
            writer.write({"__key__": f"{number}", "id": number, "row": row(number)})
    batch = ss.ShardDataset(tmp_path / "z", batch_size=8).peek()
    assert [one.tolist() for one in batch["row"]] == expected(batch)


def test_a_meaning_that_other_versions_lost_or_have_yet_to_find(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    for kind in (None, "values:complex64", "of the future"):
        meaning(copy, "row", kind)
        assert ss.ShardDataset(copy, batch_size=4).peek()["row"].values.dtype == torch.uint8
        assert verify(copy).ok
    meaning(copy, "row", "values:int8")
    with pytest.raises(ShardStreamError, match="the shard holds values:uint16, the manifest says values:int8"):
        ss.Reader(copy)[0]
    assert not verify(copy).ok


def test_data_sets_of_several_dtypes_mix_where_one_holds_all(tmp_path: Path) -> None:
    for kind in ("uint16", "uint8"):
        made = numbered([8], row=lambda n, kind=kind: np.full(n, 7, kind))
        write_dataset(tmp_path / kind, made, types={"row": f"values:{kind}"})

    def mixture(**options: Any) -> Any:
        sources = {kind: ss.ShardDataset(tmp_path / kind, **grouped(options)) for kind in ("uint16", "uint8")}
        return ss.Mixture(sources, batch_size=8)

    batch = mixture(fields={"row": ss.decode.Array("int64")}).peek()
    assert batch["row"].values.dtype == torch.int64
    with pytest.raises(BatchError, match="uint16"):
        mixture().peek()


@given(
    st.sampled_from(["uint8", "uint16", "float64"]),
    st.lists(st.none() | st.binary(max_size=24), min_size=1, max_size=5),
    st.booleans(),
)
def test_joined_rows_are_those_that_are_made_one_by_one(kind: str, values: list[bytes | None], cast: bool) -> None:
    type_ = FieldType.parse(f"values:{kind}")
    spec = ss.decode.Array("float64") if cast else None
    (output,) = compile_fields({"x": spec}, {"x": type_}).outputs
    how = JoinedRows.of(output, {"x": type_})
    assert how is not None
    size = np.dtype(kind).itemsize
    whole = all(value is not None and len(value) % size == 0 for value in values)
    assert how.fit(values) == whole
    if whole:
        alone = [type_.decode(memoryview(value)) for value in values if value is not None]
        joined = how.join(values)
        assert joined.values.dtype == getattr(torch, "float64" if cast else kind)
        for one, other in zip(joined, alone, strict=True):
            assert np.array_equal(one.numpy(), other.astype(how.dtype), equal_nan=True)
