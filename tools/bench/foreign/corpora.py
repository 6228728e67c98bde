"""The samples, and the formats in which they lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from bench import data
from bench.data import HOME
from bench.race import environments
from bench.race.stores import photographs

FOLDER = HOME / "foreign"
PHOTOGRAPHS, VALUES = 2400, 20_000
VALUE_BYTES, CLASSES = 1024, 1000
Kind: TypeAlias = Literal["photographs", "values"]
KINDS: tuple[Kind, ...] = ("photographs", "values")


class Sample(NamedTuple):
    """A sample as every format has it."""

    key: str
    octets: bytes
    label: int


@dataclass(frozen=True)
class Format:
    """A format in which the samples lie.

    Attributes:
        title: In the tables.
        names: What the fields of bytes and label are called when we read it; of photographs, then of values. ``None``
            where it does not hold such samples.
        source: Its name as `shardstream` knows it.
        peer: In whose layer of `bench.race.environments` it is written and read; ``None``: in that of the bench.
        blocks: Of which samples it compresses values together.
    """

    title: str
    names: dict[Kind, tuple[str, str] | None]
    source: str
    peer: str | None = None
    blocks: tuple[Kind, ...] = ()


def _named(photographs: str | None, values: str, label: str = "cls") -> dict[Kind, tuple[str, str] | None]:
    return {"photographs": None if photographs is None else (photographs, label), "values": (values, label)}


FORMATS = {
    "webdataset": Format("WebDataset tar", _named("jpg", "bin"), "webdataset"),
    "streaming": Format("MDS", _named("jpg", "bin"), "mds"),
    "litdata": Format("LitData", _named("jpg", "bin"), "litdata"),
    "tfrecord": Format("TFRecord", _named("jpg", "bin"), "tfrecord"),
    "recordio": Format("RecordIO", _named("jpg", "data"), "recordio"),
    "lmdb": Format("LMDB", _named("jpg", "bin", "txt"), "lmdb"),
    "arrow": Format("Arrow, `save_to_disk`", _named("jpg", "bin"), "arrow", "datasets"),
    "parquet": Format("Parquet of `datasets`", _named("jpg", "bin"), "parquet", "datasets", ("values",)),
    "parquet_snappy": Format("Parquet, snappy", _named("jpg", "bin"), "parquet", "datasets", KINDS),
    "hdf5": Format("HDF5", _named("jpg", "bin"), "hdf5"),
    "zip": Format("zip, stored", _named("jpg", "bin"), "zip"),
    "npz": Format("npz", _named(None, "bin"), "npy"),
    "jsonl": Format("JSON lines", _named(None, "txt"), "jsonl"),
    "jsonl_gz": Format("JSON lines, `.gz`", _named(None, "txt"), "jsonl", blocks=KINDS),
    "beton": Format("FFCV beton", _named("image", "bytes", "label"), "beton"),
}
"""By the names of functions in `stores` and `readers`."""


def python_of(name: str) -> str | None:
    """The interpreter of a format's environment; ``None``: this one."""
    peer = FORMATS[name].peer if name in FORMATS else None
    return None if peer is None else environments.python(peer)


def samples(kind: Kind, count: int) -> Iterator[Sample]:
    """The samples, photographs in the shuffled order in which every store of the race has them."""
    if kind == "photographs":
        folder = data.exactly(count).folder
        for path, label in photographs(str(folder)):
            yield Sample(str(path.relative_to(folder).with_suffix("")), path.read_bytes(), label)
        return
    for number in range(count):
        octets = np.random.default_rng(number).bytes(VALUE_BYTES)
        yield Sample(f"{number % CLASSES:03d}/{number:06d}", octets, number % CLASSES)


def store(name: str, kind: Kind, count: int) -> Path:
    """Where a format's data lie."""
    return FOLDER / f"{kind}-{count}" / name
