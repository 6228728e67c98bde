"""Everybody's own reader, shuffled, as batches made by workers; of WebDataset, MDS and LitData those of the race."""

from __future__ import annotations

import zipfile
from functools import partial
from typing import Any

import torch

from bench.foreign.corpora import FORMATS, Kind
from bench.foreign.stores import FIELD
from bench.race import raw

QUEUE = 1000  # samples that TFRecord's package shuffles, as many as WebDataset


def ours(store: str, name: str, kind: Kind, workers: int) -> dict[str, Any]:
    """shardstream, in place."""
    names = FORMATS[name].names[kind]
    assert names is not None
    return raw.with_shardstream(store, workers, batched=True, verify=True, names=names)


def theirs(store: str, name: str, kind: Kind, workers: int) -> dict[str, Any]:
    """The library whose format it is, or a data set of ten lines."""
    if name in ("lmdb", "zip", "hdf5"):
        dataset = {"lmdb": Database, "zip": Members, "hdf5": Rows}[name](store, FIELD[kind])
        return raw.by_loader(dataset, workers, shuffle=True)
    if name == "arrow":
        return raw.by_loader(_rows(store, FIELD[kind]), workers, FIELD[kind], shuffle=True)
    if name.startswith("parquet"):
        return raw.by_loader(_streamed(store, FIELD[kind]), workers, FIELD[kind])
    if name == "tfrecord":
        return _tfrecord(store, kind, workers)
    reader: Any = {"webdataset": raw.with_webdataset, "streaming": raw.with_streaming, "litdata": raw.with_litdata}
    found: dict[str, Any] = reader[name](store, workers, FIELD[kind])
    return found


def _tfrecord(store: str, kind: Kind, workers: int) -> dict[str, Any]:
    from tfrecord.torch.dataset import TFRecordDataset

    octets, label = ("image/encoded", "image/class/label") if kind == "photographs" else ("bin", "label")
    dataset = TFRecordDataset(
        f"{store}/train.tfrecord",
        f"{store}/train.idx",
        {octets: "byte", label: "int"},
        shuffle_queue_size=QUEUE,
        transform=lambda sample: (sample[octets], sample[label][0]),
    )
    return raw.by_loader(dataset, workers)


def _rows(store: str, field: str) -> Any:
    """What `datasets` loads; images are not decoded."""
    from datasets import Image, load_from_disk

    rows = load_from_disk(store)
    if not isinstance(rows.features[field], Image):
        return rows
    return rows.cast_column(field, Image(decode=False)).with_transform(partial(_files, field))


def _streamed(store: str, field: str) -> Any:
    """What `datasets` streams from Parquet files; images are not decoded."""
    from datasets import Image, load_dataset

    rows = load_dataset("parquet", data_files=f"{store}/*.parquet", split="train", streaming=True)
    if isinstance(rows.features[field], Image):
        rows = rows.cast_column(field, Image(decode=False)).map(partial(_file, field))
    return rows.shuffle(seed=0, buffer_size=QUEUE)


def _file(field: str, row: dict[str, Any]) -> dict[str, Any]:
    return {**row, field: row[field]["bytes"]}


def _files(field: str, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {**batch, field: [one["bytes"] for one in batch[field]]}


class Database(torch.utils.data.Dataset[tuple[bytes, int]]):
    """Images and labels of an LMDB, opened where it is read."""

    def __init__(self, store: str, _: str) -> None:
        self.store = store
        self.reading: Any = None
        with _opened(store) as database, database.begin() as reading:
            self.count = int(reading.get(b"num-samples"))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> tuple[bytes, int]:
        if self.reading is None:
            self.reading = _opened(self.store).begin()
        return self.reading.get(b"image-%09d" % (number + 1)), int(self.reading.get(b"label-%09d" % (number + 1)))


def _opened(store: str) -> Any:
    from lmdb import open as open_database

    return open_database(store, readonly=True, lock=False, readahead=False)


class Members(torch.utils.data.Dataset[tuple[bytes, int]]):
    """Pairs of members of a zip, opened where it is read."""

    def __init__(self, store: str, extension: str) -> None:
        self.path, self.extension = f"{store}/train.zip", extension
        self.file: zipfile.ZipFile | None = None
        with zipfile.ZipFile(self.path) as file:
            self.keys = [name.removesuffix(".cls") for name in file.namelist() if name.endswith(".cls")]

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, number: int) -> tuple[bytes, int]:
        if self.file is None:
            self.file = zipfile.ZipFile(self.path)
        key = self.keys[number]
        return self.file.read(f"{key}.{self.extension}"), int(self.file.read(f"{key}.cls"))


class Rows(torch.utils.data.Dataset[tuple[bytes, int]]):
    """Rows of two data sets of an HDF5 file, opened where it is read."""

    def __init__(self, store: str, field: str) -> None:
        self.path, self.field = f"{store}/train.h5", field
        self.file: Any = None
        with _hdf5(self.path) as file:
            self.count = len(file["cls"])

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> tuple[bytes, int]:
        if self.file is None:
            self.file = _hdf5(self.path)
        return self.file[self.field][number].tobytes(), int(self.file["cls"][number])


def _hdf5(path: str) -> Any:
    from h5py import File

    return File(path)
