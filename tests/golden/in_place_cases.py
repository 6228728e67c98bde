"""The datasets in place, packed sources, and refusals that `in_place` records, and where their files come from."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

FOREIGN = Path(__file__).parent / "foreign"
INPUTS = FOREIGN / "in_place" / "inputs.tar.xz"
WRITTEN_NS = 10**18  # when every file was written: catalogs hold it


@dataclass(frozen=True)
class Case:
    """How a dataset is opened.

    Attributes:
        inputs: Its directory in the archive, or below ``tests/golden/foreign``.
        opened: What of it is opened: a file, braces, or a glob; "" for all.
        format: Its format, where it has to be named.
        options: Of reading it.
        fields: Which fields `ss.index` takes.
        damaged: As of `ss.index`.
        pack: Arguments of `ss.pack`, where it is packed as well.
    """

    inputs: str
    opened: str = ""
    format: str | None = None
    options: Mapping[str, str] | None = None
    fields: Mapping[str, str] | None = None
    damaged: str = "error"
    pack: Mapping[str, Any] | None = None


CASES: dict[str, Case] = {
    "arrow": Case("arrow", pack={"damaged": "keep"}),
    "arrow-json": Case("arrow-every", options={"json": "j.structs"}),
    "arrow-datasets": Case("arrow-datasets"),
    "arrow-zstd": Case("arrow-zstd", "all.feather"),
    "beton": Case("beton-small", pack={"damaged": "keep"}),
    "beton-every": Case("beton-every", "every.beton"),
    "coco": Case("coco", pack={}),
    "coco-elsewhere": Case("coco-elsewhere", options={"images": "images", "annotations": "boxes.coco.json"}),
    "files-class-directories": Case("class-directories", pack={}),
    "files-flat": Case("lists", "images/*.jpg"),
    "files-mpdataset": Case("files-mpdataset"),
    "files-tsv": Case("lists", "train.tsv", "files", pack={}),
    "files-tsv-names": Case("lists", "names.tsv", "files", {"labels": "name"}),
    "files-csv": Case("lists", "train.csv", "files", {"path": "path", "label": "label"}),
    "files-csv-fields": Case("lists", "ids.csv", fields={"jpg": "id:file:images/{}.jpg", "score": "score:float32"}),
    "files-csv-rows": Case("lists", "ids.csv", fields={"text": "text", "score": "score:float64", "id": "id:str"}),
    "files-csv-gz": Case("lists", "train.csv.gz", "files"),
    "files-csv-bz2": Case("lists", "train.csv.bz2", "files"),
    "files-csv-root": Case("lists", "lists/elsewhere.csv", "files", {"root": "../images"}),
    "files-jsonl": Case("lists", "train.jsonl", "files"),
    "files-lst": Case("lists", "train.lst", "files"),
    "files-txt": Case("lists", "paths.txt", "files"),
    "hdf5": Case("hdf5", pack={}),
    "hdf5-gzip": Case("hdf5-gzip", options={"fields": "train.x,train.y"}),
    "hdf5-lzf": Case("hdf5-lzf", fields={"x": "test.x", "cls": "test.y"}),
    "hdf5-plain": Case("hdf5-plain"),
    "jsonl": Case("jsonl", options={"float": "n", "json": "tokens"}, pack={}),
    "jsonl-fields": Case("jsonl", "part-*.jsonl", fields={"caption": "text", "label": "n"}),
    "jsonl-packed": Case("jsonl-packed", options={"key": "id"}),
    "json-list": Case("json-list"),
    "litdata": Case("litdata/every", pack={}),
    "litdata-pairs": Case("litdata/pairs"),
    "litdata-tokens": Case("litdata/tokens", options={"block_size": "6"}),
    "litdata-zstd-batch": Case("litdata/zstd-batch"),
    "litdata-zstd-chunk": Case("litdata/zstd-chunk"),
    "lmdb": Case("lmdb", pack={}),
    "lmdb-datum": Case("lmdb-datum"),
    "lmdb-files": Case("lmdb-files"),
    "lmdb-msgpack": Case("lmdb-msgpack"),
    "lmdb-numbered": Case("lmdb-numbered"),
    "lmdb-pickles": Case("lmdb-pickles"),
    "mds": Case("mds/every", pack={}),
    "mds-merged": Case("mds/merged"),
    "mds-br": Case("mds/packed-br"),
    "mds-bz2": Case("mds/packed-bz2"),
    "mds-gz": Case("mds/packed-gz"),
    "mds-snappy": Case("mds/packed-snappy"),
    "mds-zstd": Case("mds-zstd", fields={"image": "jpg", "label": "cls"}, pack={}),
    "megatron": Case("megatron-merged", pack={}),
    "megatron-windows": Case("megatron", "int32.{idx,bin}", options={"length": "3"}),
    "nanogpt": Case("nanogpt", "tokens.bin", "nanogpt", {"length": "31", "dtype": "uint16"}, pack={}),
    "npy": Case("npy"),
    "npz": Case("npz", pack={}),
    "npz-shards": Case("npz-shards", options={"files": "shards"}),
    "parquet": Case("parquet", pack={}),
    "parquet-gzip": Case("parquet-gzip", "train.parquet"),
    "parquet-structs": Case("parquet-structs", options={"json": "about,odd"}),
    "parquet-zstd": Case("parquet-zstd", fields={"txt": "text", "tokens": "tokens"}),
    "recordio": Case("recordio", pack={}),
    "recordio-labels": Case("recordio-labels"),
    "tar-of-tars": Case("tar-of-tars", pack={}),
    "tfrecord": Case("tfrecord/imagenet", options={"first_label": "0"}, pack={}),
    "tfrecord-lists": Case("tfrecord/lists", options={"verify": "crc"}),
    "tfrecord-gzip": Case("tfrecord/gzip"),
    "tfrecord-zlib": Case("tfrecord/zlib"),
    "tfrecord-sequences": Case("tfrecord/sequences"),
    "tfrecord-tfds": Case("tfrecord/tfds"),
    "webdataset": Case("webdataset", pack={}),
    "webdataset-key": Case("webdataset", "part-{0,2}.tar", options={"group": "key"}),
    "webdataset-fields": Case("webdataset", fields={"picture": "jpg", "label": "cls"}),
    "webdataset-cut-off": Case("cut-off-tar", damaged="reject", pack={}),
    "webdataset-energon": Case("energon", "part-*.tar"),
    "webdataset-bz2": Case("tar-bz2"),
    "webdataset-frames": Case("tar-frames"),
    "webdataset-gz": Case("tar-gz", "part-*.tar.gz", pack={}),
    "webdataset-xz": Case("tar-xz"),
    "webdataset-zst": Case("tar-zst"),
    "yolo": Case("yolo", pack={}),
    "yolo-split": Case("yolo-splits", "data.yaml", options={"split": "val", "boxes": "xyxy"}),
    "zip": Case("zip", pack={}),
    "zip-deflated": Case("zip-deflated", options={"labels": "folder"}),
}


@dataclass(frozen=True)
class Packing:
    """A source that is packed: what of the inputs, and with which arguments of `ss.pack`."""

    inputs: str
    opened: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    make: Callable[[Path], Any] | None = None


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Samples from Python."""
    for row, path in enumerate(sorted((folder / "images").iterdir())):
        yield {"__key__": path.stem, "jpg": path.read_bytes(), "cls": row % 3, "json": {"row": row}, "x": row / 4}


def wrong_list(folder: Path) -> Path:
    """A list of which some lines cannot be packed."""
    lines = ["images/000.jpg\t1", "images/001.jpg\tant", "images/nothing.jpg\t1", "images/002.jpg\t2\t3", "lists\t1"]
    (folder / "wrong.tsv").write_text("\n".join(lines) + "\n")
    return folder / "wrong.tsv"


PACKINGS: dict[str, Packing] = {
    "tsv": Packing("lists", "train.tsv"),
    "tsv-wrong": Packing("lists", make=lambda folder: wrong_list(folder)),
    "tsv-names": Packing("lists", "names.tsv", {"labels": "name", "key": "line"}),
    "csv": Packing("lists", "train.csv", {"fields": {"jpg": "path", "cls": "label:int", "note": "note"}}),
    "csv-gz": Packing("lists", "train.csv.gz", {"format": "record"}),
    "csv-template": Packing("lists", "ids.csv", {"fields": {"jpg": "id:file:images/{}.jpg", "score": "score:float32"}}),
    "jsonl-list": Packing("lists", "train.jsonl", {"fields": {"jpg": "path", "cls": "label:int", "tags": "tags"}}),
    "parquet-list": Packing("lists", "train.parquet", {"fields": {"jpg": "path", "cls": "label:int"}}),
    "list-elsewhere": Packing("lists", "lists/elsewhere.csv", {"format_options": {"root": "../images"}}),
    "glob": Packing("lists", "images/*.jpg", {"shuffle": False}),
    "class-directories": Packing("class-directories", "", {"shard_size": "4KB"}),
    "groups": Packing("grouped", "", {"group": "stem"}),
    "tar": Packing("webdataset", "part-0.tar", {"format": "record"}),
    "tar-gz": Packing("tar-gz", "part-1.tar.gz"),
    "zip": Packing("zip-deflated", "all.zip"),
    "rows": Packing("lists", make=lambda folder: rows(folder)),
    "dedup": Packing("class-directories", "", {"dedup": True, "classes": ["cat", "ant", "dog é", "empty"]}),
}


@cache
def _archive() -> Mapping[str, bytes | None]:
    """The files of the archive by name; directories have none."""
    found: dict[str, bytes | None] = {}
    with tarfile.open(INPUTS) as archive:
        for member in archive:
            data = archive.extractfile(member)
            found[member.name] = None if data is None else data.read()
    return found


def put(inputs: str, folder: Path) -> Path:
    """Put a dataset into a directory, which must not exist, with fixed times."""
    if (FOREIGN / inputs).exists():
        shutil.copytree(FOREIGN / inputs, folder, ignore=shutil.ignore_patterns("expected.json"))
    else:
        for name, data in _archive().items():
            if name.split("/")[0] != inputs:
                continue
            path = folder / name[len(inputs) + 1 :]
            (path if data is None else path.parent).mkdir(parents=True, exist_ok=True)
            if data is not None:
                path.write_bytes(data)
    return dated(folder)


def dated(folder: Path) -> Path:
    """The same directory, with the times of all in it fixed."""
    for path in folder.rglob("*"):
        os.utime(path, ns=(WRITTEN_NS, WRITTEN_NS))
    return folder


@dataclass(frozen=True)
class Refusal:
    """What cannot be read, or be packed.

    Attributes:
        case: As of a dataset that can; nothing but this is opened.
        change: What is done to the directory before.
        call: What is called with the URL: indexing, opening, reading all, or packing into a directory.
    """

    case: Case
    change: Callable[[Path], object] = lambda folder: None
    call: str = "index"
    arguments: Mapping[str, Any] = field(default_factory=dict)


def cut(name: str, at: int) -> Callable[[Path], None]:
    """Cut a file off."""

    def change(folder: Path) -> None:
        (folder / name).write_bytes((folder / name).read_bytes()[:at])

    return change


def written(name: str, data: bytes) -> Callable[[Path], None]:
    """Put these bytes into a file."""

    def change(folder: Path) -> None:
        (folder / name).write_bytes(data)

    return change


def copied(name: str, to: str) -> Callable[[Path], object]:
    return lambda folder: shutil.copy(folder / name, folder / to)


def pointers(folder: Path) -> None:
    """Put a pointer of Git LFS into the place of every image."""
    for path in (folder / "images").iterdir():
        path.write_bytes(POINTER)


def renamed(folder: Path) -> None:
    """Name tars after splits."""
    for number, split in enumerate(("train", "val", "test")):
        (folder / f"part-{number}.tar").rename(folder / f"{split}-0.tar")


def lance(folder: Path) -> None:
    """Add what looks like a table of Lance."""
    for name in ("_versions", "data"):
        (folder / "table.lance" / name).mkdir(parents=True)
    (folder / "table.lance/_versions/1.manifest").write_bytes(b"")


def removed(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"
PAGE = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n"
NO_COLUMN = {"fields": {"jpg": "file", "cls": "label:int"}}

OUTSIDE = written("lists/elsewhere.csv", b"../a.jpg,1\n")

REFUSALS: dict[str, Refusal] = {
    "arrow-cut-off": Refusal(Case("arrow"), cut("part-0.arrow", 1000)),
    "arrow-option": Refusal(Case("arrow", options={"jsn": "about"})),
    "beton-cut-off": Refusal(Case("beton-small"), cut("small.beton", 300)),
    "coco-annotations": Refusal(Case("coco-elsewhere", options={"annotations": "bxs.coco.json"})),
    "files-missing": Refusal(Case("lists", "train.tsv", "files"), removed("images/004.jpg"), "read"),
    "files-outside": Refusal(Case("lists", "lists/elsewhere.csv", "files"), OUTSIDE),
    "files-root": Refusal(Case("lists", "lists/elsewhere.csv", "files", {"root": "../nowhere"}), call="read"),
    "files-labels": Refusal(Case("lists", "train.tsv", "files"), written("train.tsv", b"a.jpg\t1\nb.jpg\tcat\n")),
    "files-columns": Refusal(Case("lists", "train.csv", "files", {"path": "file"})),
    "format-unknown": Refusal(Case("webdataset", format="webdatset")),
    "format-other": Refusal(Case("webdataset", format="parquet")),
    "formats-two": Refusal(Case("jsonl"), lambda folder: put("zip", folder / "more")),
    "formats-none": Refusal(Case("webdataset", "data.xyz"), written("data.xyz", b"abc")),
    "formats-nothing": Refusal(Case("webdataset", "nothing")),
    "hdf5-lengths": Refusal(Case("hdf5-gzip")),
    "hdf5-field": Refusal(Case("hdf5", options={"fields": "imag"})),
    "jsonl-broken": Refusal(Case("jsonl"), written("part-1.jsonl", b'{"text": "a", "n": 1}\n{"text": \n')),
    "jsonl-types": Refusal(Case("jsonl"), written("part-1.jsonl", b'{"text": 5, "n": "x"}\n')),
    "jsonl-pointer": Refusal(Case("jsonl"), written("part-1.jsonl", POINTER)),
    "litdata-compressed": Refusal(Case("litdata/zstd-sample")),
    "litdata-encrypted": Refusal(Case("litdata/encrypted")),
    "litdata-pickled": Refusal(Case("litdata/pickled")),
    "litdata-chunk": Refusal(Case("litdata/pairs"), removed("chunk-0-1.bin")),
    "lmdb-db": Refusal(Case("lmdb-files", options={"db": "train"})),
    "lmdb-cut-off": Refusal(Case("lmdb-files"), cut("data.mdb", 5000)),
    "mds-cut-off": Refusal(Case("mds-zstd"), cut("shard.00001.mds.zstd", 100), "read"),
    "mds-missing": Refusal(Case("mds-zstd"), removed("shard.00000.mds.zstd")),
    "mds-pickled": Refusal(Case("mds/pickled")),
    "mds-splits": Refusal(Case("mds/splits")),
    "mds-field": Refusal(Case("mds-zstd", fields={"jpg": "jpeg"})),
    "mds-index": Refusal(Case("mds-zstd"), written("index.json", b'{"version": 2, "shards": [{}]}')),
    "megatron-alone": Refusal(Case("megatron", "merged.idx")),
    "nanogpt-dtype": Refusal(Case("nanogpt", "tokens.bin", "nanogpt", {"length": "31"})),
    "nanogpt-length": Refusal(Case("nanogpt", "tokens.bin", "nanogpt", {"dtype": "uint16"})),
    "npy-cut-off": Refusal(Case("npy"), cut("features.npy", 100)),
    "npz-several": Refusal(Case("npz-shards")),
    "parquet-cut-off": Refusal(Case("parquet"), cut("part-1.parquet", 4000)),
    "parquet-json": Refusal(Case("parquet-structs", options={"json": "abot"})),
    "parquet-pointer": Refusal(Case("parquet"), written("part-1.parquet", POINTER)),
    "recordio-cut-off": Refusal(Case("recordio"), cut("part-0.rec", 2000)),
    "tfrecord-damaged": Refusal(Case("tfrecord/package"), cut("data.tfrecord", 1000)),
    "webdataset-cut-off": Refusal(Case("cut-off-tar")),
    "webdataset-group": Refusal(Case("webdataset", options={"group": "kye"})),
    "webdataset-page": Refusal(Case("webdataset"), written("part-1.tar", PAGE)),
    "webdataset-splits": Refusal(Case("webdataset"), renamed),
    "yolo-splits": Refusal(Case("yolo-splits")),
    "yolo-labels": Refusal(Case("yolo"), written("labels/train/001.txt", b"0 0.5 0.5 2\n")),
    "zip-cut-off": Refusal(Case("zip"), cut("part-1.zip", 3000)),
    "open-field": Refusal(Case("webdataset"), call="open", arguments={"fields": ["jpg", "clss"]}),
    "open-where": Refusal(Case("webdataset"), call="open", arguments={"where": {"label": 1}}),
    "open-fingerprint": Refusal(Case("webdataset"), call="open", arguments={"fingerprint": "0" * 32}),
    "open-option": Refusal(Case("webdataset", options={"grp": "key"}), call="open"),
    "open-lance": Refusal(Case("webdataset", "table.lance"), lance, "open"),
    "pack-format": Refusal(Case("webdataset", format="webdatset"), call="pack"),
    "pack-option": Refusal(Case("jsonl", options={"flaot": "n"}), call="pack"),
    "pack-missing": Refusal(Case("lists", "nothing.tsv"), call="pack"),
    "pack-field": Refusal(Case("lists", "train.csv"), call="pack", arguments=NO_COLUMN),
    "pack-splits": Refusal(Case("mds/splits"), call="pack"),
    "pack-tars": Refusal(Case("tar-gz"), call="pack"),
    "pack-two": Refusal(Case("jsonl"), lambda folder: put("zip", folder / "more"), "pack"),
    "pack-empty": Refusal(Case("lists", "train.tsv"), written("train.tsv", b""), "pack"),
    "pack-pointers": Refusal(Case("lists", "train.tsv"), pointers, "pack"),
}
"""One for each kind of message that users see most, over all formats."""
