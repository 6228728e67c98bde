"""Callables with a source, several outputs of one call, and what varies in length among what users' code makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shardstream as ss
from shardstream.errors import BatchError, DecodeError, FieldError, UsageError

from ..load.lending import is_lent
from .making import labels, numbered, photograph, write_dataset

Call = ss.decode.Call


def waveform(number: int) -> np.ndarray[Any, Any]:
    return np.arange(number % 5 * 1000 + 1, dtype=np.int16)


def samples_and_rate(data: bytes) -> tuple[np.ndarray[Any, Any], int]:
    return np.frombuffer(data, np.int16), 16_000


def noisy(data: bytes, rng: np.random.Generator) -> tuple[np.ndarray[Any, Any], float]:
    return np.frombuffer(data, np.int16), rng.random()


def words(text: str) -> list[int]:
    return [len(word) for word in text.split()]


AUDIO: dict[Any, Any] = {("audio", "rate"): Call(samples_and_rate, source="wav;flac"), "id": None}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 samples, each with audio in one of two fields."""
    shards = numbered((12, 8), txt=lambda n: "word " * (n % 4), jpg=photograph, seg=lambda n: labels(96 - n % 2))
    for shard in shards:
        for sample in shard:
            sample["flac" if sample["id"] % 3 else "wav"] = waveform(sample["id"]).tobytes()
    return write_dataset(tmp_path_factory.mktemp("calls"), shards, types={"seg": "png"})


def batches(folder: Path, fields: Any = None, *, batch_size: int = 20, **options: Any) -> list[Any]:
    return list(ss.ShardDataset(folder, fields=fields, batch_size=batch_size, **options))


def check_audio(batch: Any) -> None:
    assert isinstance(batch["audio"], ss.Ragged)
    assert batch["audio"].values.dtype == torch.int16
    for number, row in zip(batch["id"].tolist(), batch["audio"], strict=True):
        assert row.tolist() == waveform(number).tolist()
    assert batch["rate"].tolist() == [16_000] * len(batch["id"])
    assert batch["rate"].dtype == torch.int64


def test_one_call_makes_several_outputs_of_whichever_field_there_is(folder: Path) -> None:
    (batch,) = batches(folder, AUDIO)
    assert list(batch) == ["__key__", "audio", "rate", "id"]
    check_audio(batch)
    reader = ss.Reader(folder, fields=AUDIO)
    assert reader[3]["audio"].tolist() == waveform(3).tolist()
    assert reader[4]["rate"] == 16_000
    rates, audio = next(iter(ss.ShardDataset(folder, fields=AUDIO, batch_size=4).to_tuple("rate", "audio")))
    assert len(rates) == len(audio) == 4


def test_it_is_called_once_a_sample(folder: Path) -> None:
    seen = []

    def count(data: bytes) -> list[int]:
        seen.append(data)
        return [1, 2, 3]

    (batch,) = batches(folder, {("a", "b", "c"): Call(count, source="wav;flac")})
    assert len(seen) == 20
    assert [batch[name].tolist() for name in "abc"] == [[1] * 20, [2] * 20, [3] * 20]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("context", ["fork", "forkserver"])
def test_calls_travel_to_workers_and_states_go_on(folder: Path, context: str) -> None:
    fields = AUDIO | {("loud", "noise"): Call(noisy, source="wav;flac", ragged=True)}
    options: dict[str, Any] = {"fields": fields, "batch_size": 4, "shuffle": True, "seed": 3}
    straight = list(ss.ShardDataset(folder, **options))
    loader = ss.Loader(ss.ShardDataset(folder, **options), num_workers=1, multiprocessing_context=context)
    taken = iter(loader)
    made = [next(taken), next(taken)]
    rest = ss.Loader(ss.ShardDataset(folder, **options), num_workers=0)
    rest.load_state_dict(loader.state_dict())
    made += list(rest)
    assert len(made) == len(straight) == 5
    for batch, expected in zip(made, straight, strict=True):
        check_audio(batch)
        assert batch["__key__"] == expected["__key__"]
        assert batch["noise"].tolist() == expected["noise"].tolist()


def test_a_call_is_a_callable_but_for_its_source(folder: Path) -> None:
    fields = {
        "double": Call(lambda n: n * 2, source="id"),
        "small": Call(np.float32, source="id"),
        "size": Call(len, source="jpg"),
        "red": Call(lambda pixels: pixels[..., 0].mean(), source="jpg"),
        "bytes": ["bytes", Call(len, source="jpg")],
        "crop": [ss.decode.RandomResizedCrop(8, source="jpg"), Call(lambda pixels: pixels / 255)],
    }
    (batch,) = batches(folder, fields)
    assert batch["double"].dtype == torch.int64
    assert batch["double"].tolist() == [2 * n for n in range(20)]
    assert batch["small"].dtype == torch.float32
    assert batch["size"].tolist() == [72] * 20
    assert batch["bytes"].tolist() == [len(photograph(n)) for n in range(20)]
    assert batch["red"].shape == (20,)
    assert batch["crop"].shape == (20, 3, 8, 8)


def test_several_outputs_of_pixels(folder: Path) -> None:
    def halves(pixels: np.ndarray[Any, Any]) -> tuple[Any, Any, str]:
        return pixels[:36], pixels[36:].mean(2), "both"

    (batch,) = batches(folder, {("top", "grey", "note"): [ss.decode.Image(source="jpg"), halves]})
    assert batch["top"].shape == (20, 3, 36, 96)
    assert batch["grey"].shape == (20, 36, 96)
    assert batch["note"] == ["both"] * 20


def test_a_sample_without_the_source(folder: Path) -> None:
    with pytest.raises(DecodeError, match="the sample has no 'wav'") as caught:
        batches(folder, {("audio", "rate"): Call(samples_and_rate, source="wav")})
    assert caught.value.place["key"] == "k000001"
    (batch,) = batches(folder, {("audio", "rate"): Call(samples_and_rate, source="wav", optional=True)})
    assert [value is None for value in batch["audio"]] == [n % 3 > 0 for n in range(20)]
    assert batch["rate"][:3] == [16_000, None, None]


def one_row(data: bytes) -> list[Any]:
    return [np.frombuffer(data, np.int16)]


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({("a", "b"): Call(one_row, source="wav;flac")}, UsageError, r"fields\[\('a', 'b'\)\] returned 1 values"),
        ({("a", "b"): Call(len, source="wav;flac")}, UsageError, "returned int, not a tuple"),
        ({("a", "b"): Call(len)}, FieldError, r"no source for the outputs \('a', 'b'\)"),
        ({("a", "b"): len}, FieldError, "no source"),
        ({("a", "b"): None}, FieldError, "only a callable makes the outputs"),
        ({("a", "b"): ss.decode.Image(source="jpg")}, FieldError, "only a callable"),
        ({("a", "a"): Call(one_row, source="wav")}, FieldError, "two outputs have the name 'a'"),
        ({"id": None, ("a", "id"): Call(one_row, source="wav")}, FieldError, "two outputs have the name 'id'"),
        ({("a", 3): Call(one_row, source="wav")}, FieldError, "3 cannot name an output"),
        ({(): Call(one_row, source="wav")}, FieldError, r"\(\) cannot name an output"),
        ({("a", "__b"): Call(one_row, source="wav")}, FieldError, "'__b' cannot name an output"),
        ({"a": Call(len, source="wave")}, FieldError, r"no field 'wave' is stored .asked for by output 'a'.*'wav'"),
        ({"a": Call}, FieldError, "Call without arguments"),
        (
            {("a", "b"): [ss.decode.Image(source="jpg"), len], "m": ss.decode.Mask(source="seg", like="b")},
            FieldError,
            "'m' cannot be like 'b', one of several",
        ),
    ],
)
def test_calls_that_cannot_be(folder: Path, fields: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match="(?s)" + message) as caught:
        batches(folder, fields)
    assert caught.value.hint  # type: ignore[attr-defined]


def test_what_a_call_returned_is_refused_with_its_place(folder: Path) -> None:
    with pytest.raises(UsageError) as caught:
        batches(folder, {("a", "b"): Call(one_row, source="wav;flac")})
    assert caught.value.place["key"] == "k000000"
    with pytest.raises(UsageError, match="Call of 3, which is not callable"):
        Call(3)  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------- what varies in length

ROWS = [list(range(n % 4)) for n in range(20)]


def by_array(sample: dict[str, Any]) -> Any:
    return {"rows": np.arange(sample["id"] % 4)}


def by_tensor(sample: dict[str, Any]) -> Any:
    return {"rows": torch.arange(sample["id"] % 4)}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    "recipe",
    [
        {"transform": by_array},
        {"transform": by_tensor},
        {"fields": {"rows": Call(lambda n: np.arange(n % 4), source="id")}},
        {"fields": {"rows": Call(lambda n: torch.arange(n % 4), source="id", ragged=True)}},
        {"fields": {"rows": ss.decode.Text(lambda text: range(len(text.split())), source="txt")}},
    ],
    ids=["array", "tensor", "call", "ragged call", "text"],
)
def test_rows_that_a_worker_makes(folder: Path, workers: int, recipe: dict[str, Any]) -> None:
    loader = ss.Loader(ss.ShardDataset(folder, batch_size=20, **recipe), num_workers=workers)
    (batch,) = loader
    assert isinstance(batch["rows"], ss.Ragged)
    assert batch["rows"].values.dtype == torch.int64
    assert [row.tolist() for row in batch["rows"]] == ROWS


def test_large_rows_of_a_transform_are_lent(folder: Path) -> None:
    for recipe in (
        {"transform": lambda sample: {"id": sample["id"], "wide": np.full(sample["id"] * 1000, 1.0)}},
        {"transform": lambda sample: {"id": sample["id"], "wide": torch.full((sample["id"] * 1000,), 1.0)}},
    ):
        (batch,) = ss.Loader(ss.ShardDataset(folder, batch_size=20, **recipe), num_workers=1)
        assert batch["wide"].lengths.tolist() == [n * 1000 for n in range(20)]
        assert is_lent(batch["wide"].values)
        assert (batch["wide"].values == 1).all()


def test_rows_stay_rows_in_a_plain_loader(folder: Path) -> None:
    dataset = ss.ShardDataset(folder, fields=AUDIO, batch_size=10)
    for workers in (0, 1):
        for batch in torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers):
            check_audio(batch)


def test_rows_in_tuples_and_with_dimensions(folder: Path) -> None:
    def pair(sample: dict[str, Any]) -> Any:
        return np.full((2, sample["id"]), 7, np.float32), sample["id"]

    (batch,) = batches(folder, transform=pair)
    assert [tuple(row.shape) for row in batch[0]] == [(2, n) for n in range(20)]
    assert batch[1].tolist() == list(range(20))


def test_equal_rows_are_a_tensor_unless_they_are_declared(folder: Path) -> None:
    same: Callable[[Any], Any] = lambda n: np.zeros(3)  # noqa: E731 - beside its twin
    twin: Callable[[Any], Any] = lambda n: torch.zeros(3)  # noqa: E731
    fields = {
        "slab": Call(same, source="id"),
        "rows": Call(same, source="id", ragged=True),
        "tensors": Call(twin, source="id", ragged=True),
        "number": Call(lambda n: torch.tensor(1.0), source="id", ragged=True),
        "text": ss.decode.Text(lambda _: [1, 2], source="txt"),
        "strings": ss.decode.Text(source="txt"),
    }
    for transform in (None, lambda sample: sample):
        (batch,) = batches(folder, fields, transform=transform)
        assert batch["slab"].shape == (20, 3)
        assert batch["number"].shape == (20,)
        assert isinstance(batch["strings"], list)
        for name, length in (("rows", 3), ("tensors", 3), ("text", 2)):
            assert isinstance(batch[name], ss.Ragged)
            assert batch[name].lengths.tolist() == [length] * 20


def test_rows_of_a_mixture(folder: Path) -> None:
    sources = {
        "a": (ss.ShardDataset(folder, fields={"x": Call(lambda n: np.arange(n % 3), source="id")}), 1),
        "b": (ss.ShardDataset(folder, transform=lambda s: {"__key__": "b", "x": np.arange(s["id"] % 2)}), 1),
    }
    for batch in ss.Mixture(sources, batch_size=16, epoch=64):
        assert isinstance(batch["x"], ss.Ragged)


def test_rows_have_one_dtype_in_all_batches(folder: Path) -> None:
    def other_later(sample: dict[str, Any]) -> Any:
        return {"x": np.zeros(sample["id"], np.float32 if sample["id"] < 10 else np.float64)}

    with pytest.raises(BatchError, match="float32 in an earlier batch and are float64 now"):
        batches(folder, transform=other_later, batch_size=10)


def uneven(pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return pixels[: len(pixels) - int(pixels[0, 0, 0]) % 2]


def made(function: Callable[[int], Any]) -> dict[str, Any]:
    return {"transform": lambda sample: {"x": function(sample["id"])}}


@pytest.mark.parametrize(
    ("recipe", "message", "hint"),
    [
        ({"fields": {"x": [ss.decode.Image(source="jpg"), uneven]}}, "uint8", "RandomResizedCrop"),
        (made(lambda n: np.zeros((9, n, 3), np.uint8)), r"\[9, 2, 3\] uint8, \.\.\.\)", "RandomResizedCrop"),
        ({"fields": {"x": ss.decode.Mask(source="seg")}}, r"\(\[72, 95\] uint8, \[72, 96\] uint8\)", r"Mask\(like="),
        (made(lambda n: np.zeros(1 if n else (0, 1))), "different shapes", r"np\.zeros\(\(0, 4\)"),
        (made(lambda n: np.zeros(2, "f4" if n else "f8")), "different shapes or dtypes", r"astype\(np\.float32\)"),
        ({"fields": {"x": Call(lambda n: torch.zeros(n).to([torch.half, torch.int][n % 2]), source="id", ragged=True)}},
         "arrays of different kinds", r"astype\(np\.float32\)"),
    ],
)  # fmt: skip
def test_hints_fit_what_differs(folder: Path, recipe: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(BatchError, match=message) as caught:
        batches(folder, **recipe)
    assert caught.value.place["field"] == "x"
    assert str(caught.value.place["key"]) > "k000000"
    caught.match(hint)
    assert ("RandomResizedCrop" in str(caught.value)) == (hint == "RandomResizedCrop")
