"""Bytes of a batch, which are copied to its memory where they are verified, are those that were stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.errors import DataError
from shardstream.shards.manifest import Manifest
from tests.grouped import grouped

from .making import photograph

COUNT = 37
BROKEN = 5  # a photograph that cannot be decoded; its checksum is right
FIELDS = {"jpg": "bytes", "raw": "bytes", "cls": "int64"}


def value(number: int) -> bytes:
    return np.random.default_rng(number).bytes(0 if number == 3 else 1 + number * 97)


@pytest.fixture(params=["tar", "record"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with ss.ShardWriter(tmp_path / "set", format=request.param, shard_size="8kB", fields=FIELDS) as writer:
        for number in range(COUNT):
            picture = b"no picture" if number == BROKEN else photograph(number)
            writer.write({"__key__": f"{number:02}", "jpg": picture, "raw": value(number), "cls": number})
    return tmp_path / "set"


def rows(url: Path, workers: int, **options: Any) -> dict[str, bytes]:
    dataset = ss.ShardDataset(url, shuffle=True, batch_size=10, tail="exact", **grouped(options))
    found = {}
    for batch in ss.Loader(dataset, num_workers=workers):
        assert isinstance(batch["raw"], ss.Ragged)
        found |= {key: bytes(row.numpy()) for key, row in zip(batch["__key__"], batch["raw"], strict=True)}
    return found


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("verify", [True, False])
def test_every_value_comes_as_it_was_stored(url: Path, workers: int, *, verify: bool) -> None:
    expected = {f"{number:02}": value(number) for number in range(COUNT)}
    assert rows(url, workers, fields={"raw": "bytes"}, verify=verify) == expected


def test_one_field_as_bytes_and_as_pixels(url: Path) -> None:
    fields = {"raw": "bytes", "jpg": ss.decode.CenterCrop(8, resize=8), "cls": None}
    dataset = ss.ShardDataset(url, fields=fields, batch_size=10, on_error="skip")
    for one, numbers in (
        (dataset, [number for number in range(10) if number != BROKEN]),
        (dataset.replace(dropped="repeat"), [0 if number == BROKEN else number for number in range(10)]),
    ):
        batch = next(iter(ss.Loader(one, num_workers=0)))
        assert batch["cls"].tolist() == numbers
        assert [bytes(row.numpy()) for row in batch["raw"]] == list(map(value, numbers))


def test_a_damaged_value_is_named_and_not_handed_out(url: Path) -> None:
    manifest = Manifest.load(url)
    shard = url / manifest.shard_name(0)
    data = bytearray(shard.read_bytes())
    at = data.index(value(1))
    data[at] ^= 1
    shard.write_bytes(data)
    with pytest.raises(DataError, match="raw") as caught:
        rows(url, 0, fields={"raw": "bytes"})
    assert caught.value.place["key"] == "01"
    assert rows(url, 0, fields={"raw": "bytes"}, on_error="skip").keys() == {
        f"{number:02}" for number in range(COUNT) if number != 1
    }
