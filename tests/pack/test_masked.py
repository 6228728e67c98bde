"""Masked arrays of numpy are refused on every path: numpy would drop the mask without a word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.errors import BatchError, FieldError, SourceError
from shardstream.shards.arrays import is_masked

MASKED = {
    "some": np.ma.array([1, 2], mask=[0, 1]),
    "none": np.ma.array([1, 2]),
    "zero dimensions": np.ma.array(3, mask=True),
    "constant": np.ma.masked,
    "list": [1, np.ma.masked],
    "nested": [[np.ma.array([1, 2], mask=[0, 1])], [[3, 4]]],
}
WHAT = "masked array .*mask would be lost"


@pytest.mark.parametrize("value", MASKED.values(), ids=MASKED)
@pytest.mark.parametrize("kind", [None, "array", "array:int16", "array:int64:2", "values:int64", "json", "int64"])
def test_a_writer_refuses_them(tmp_path: Path, value: Any, kind: str | None) -> None:
    with ss.ShardWriter(tmp_path / "out", fields={"x": kind} if kind else None) as writer:
        with pytest.raises(FieldError, match=WHAT) as caught:
            writer.write({"__key__": "a", "x": value})
        assert caught.value.place["field"] == "x"
        writer.write({"__key__": "b", "y": 1})


def test_pixels_are_refused(tmp_path: Path) -> None:
    with ss.ShardWriter(tmp_path / "out") as writer:
        with pytest.raises(FieldError, match=WHAT):
            writer.write({"__key__": "a", "png": np.ma.zeros((4, 4, 3), np.uint8)})
        writer.write({"__key__": "b", "png": np.zeros((4, 4, 3), np.uint8)})


def masked(_: Any) -> dict[str, Any]:
    return {"x": MASKED["some"]}


@pytest.mark.parametrize("make", [list, iter])
@pytest.mark.parametrize("transform", [None, masked])
def test_sources_and_transforms_are_refused(
    tmp_path: Path, make: Callable[[Any], Any], transform: Callable[[Any], Any] | None
) -> None:
    samples = [{"__key__": f"{n}", "x": MASKED["some"] if transform is None else 1} for n in range(3)]
    with pytest.raises((SourceError, FieldError), match=WHAT):
        ss.pack(make(samples), tmp_path / "out", transform=transform, workers=0)


def test_tokens_and_their_loss_are_refused(tmp_path: Path) -> None:
    for n, document in enumerate(({"ids": MASKED["some"]}, {"ids": [1, 2], "loss_mask": MASKED["none"].astype(bool)})):
        with pytest.raises(SourceError, match=WHAT):
            ss.pack([{"__key__": "a", **document}], tmp_path / f"{n}", bins=8, workers=0)


@pytest.mark.parametrize("spec", [lambda value: np.ma.array(value), (lambda value: np.ma.array(value), np.int64)])
def test_what_decoders_return_is_refused(tmp_path: Path, spec: Any) -> None:
    with ss.ShardWriter(tmp_path / "out") as writer:
        for n in range(2):
            writer.write({"__key__": f"{n}", "x": np.array([n, 1])})
    with pytest.raises((BatchError, FieldError), match=r"masked array .*mask would be lost"):
        next(iter(ss.Loader(ss.ShardDataset(tmp_path / "out", fields={"x": spec}), batch_size=2, num_workers=0)))


def test_what_has_no_mask_is_none() -> None:
    for value in ([1, [2, (3,)]], (np.arange(3), [np.zeros(2)]), {"a": 1}, "text", [], None, np.float32(1)):
        assert not is_masked(value)
