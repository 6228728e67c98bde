"""The program with the library that the data are of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from shardstream.formats.migrate import samples, streams
from shardstream.formats.migrate.facts import LISTS, Facts


class Before(NamedTuple):
    """What stood there before.

    Attributes:
        library: What people call it.
        code: The program.
    """

    library: str
    code: str


def before(facts: Facts) -> Before | None:
    """The program that people have for data of this format; ``None`` where there is none that everybody writes."""
    found = _choice(facts)
    return None if found is None else Before(found[0], found[1](facts))


def _choice(facts: Facts) -> tuple[str, Callable[[Facts], str]] | None:
    if facts.source in _ALWAYS:
        return _ALWAYS[facts.source]
    if facts.source == "files":
        return _files(facts)
    if facts.source == "lmdb" and facts.first_key.isdecimal():
        return "lmdb", samples.numbered_lmdb
    if facts.source in ("megatron", "nanogpt") and facts.fields[facts.chosen[0]].kind == "fixed":
        return "numpy", samples.tokens
    return None


def _files(facts: Facts) -> tuple[str, Callable[[Facts], str]] | None:
    first = facts.names[0]
    if first.endswith("data.csv") and "cls.csv" in facts.beside:
        return "MPDataset", samples.mp_dataset
    if first.lower().endswith(LISTS):  # of columns that were chosen nothing is known here
        return None if facts.columns or facts.label is None else ("a Dataset of a list", samples.listed_files)
    return None if facts.label is None else ("torchvision's ImageFolder", samples.image_folder)


_ALWAYS: Mapping[str, tuple[str, Callable[[Facts], str]]] = {
    "webdataset": ("webdataset", streams.webdataset),
    "mds": ("mosaicml-streaming", streams.streaming),
    "litdata": ("litdata", streams.litdata),
    "beton": ("FFCV", streams.ffcv),
    "tfrecord": ("tfrecord", streams.tfrecord),
    "parquet": ("Hugging Face's datasets", samples.huggingface),
    "arrow": ("Hugging Face's datasets", samples.huggingface),
    "jsonl": ("Hugging Face's datasets", samples.huggingface),
    "coco": ("torchvision's CocoDetection", samples.coco),
    "recordio": ("MXNet", samples.recordio),
    "zip": ("zipfile", samples.zipped),
    "hdf5": ("h5py", samples.hdf5),
    "npy": ("numpy", samples.numpy_arrays),
}
