"""Valid data of a kind that is not read is never called damaged, in any format: what its own reader reads is sound."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.errors import UnsupportedError
from tests.pack.test_streams import write_tar

MAKERS: dict[str, Callable[[Path], str]] = {}


def makes(make: Callable[[Path], str]) -> Callable[[Path], str]:
    """Writes a file, or several, into a directory; gives the name of what is to be opened."""
    MAKERS[make.__name__] = make
    return make


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def _npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def _npys() -> Iterator[tuple[str, Any]]:
    yield "big_endian", np.arange(3, dtype=">i4")
    yield "objects", np.array([{}, None], dtype=object)
    yield "structures", np.zeros(3, [("a", "i4"), ("b", "f4")])
    yield "fortran", np.asfortranarray(np.ones((3, 2, 2)))
    yield "single", np.float32(1)
    yield "long_double", np.ones(3, np.longdouble)
    yield "empty", np.ones((3, 0))


for _name, _array in _npys():

    def _make(folder: Path, array: Any = _array) -> str:
        (folder / "a.npy").write_bytes(_npy(array))
        return "a.npy"

    MAKERS[f"npy_{_name}"] = _make


@makes
def npz_compressed(folder: Path) -> str:
    np.savez_compressed(folder / "a.npz", a=np.arange(3))
    return "a.npz"


@makes
def tar_npy_objects(folder: Path) -> str:
    write_tar(folder / "a.tar", [("0.npy", _npy(np.array([{}], dtype=object)))])
    return "a.tar"


@makes
def tar_npy_structures(folder: Path) -> str:
    write_tar(folder / "a.tar", [("0.npy", _npy(np.zeros(3, [("a", "i4")])))])
    return "a.tar"


@makes
def tar_latin_1(folder: Path) -> str:
    write_tar(folder / "a.tar", [("0.txt", "café".encode("latin-1"))])
    return "a.tar"


@makes
def tar_hard_link(folder: Path) -> str:
    with tarfile.open(folder / "a.tar", "w") as archive:
        link = tarfile.TarInfo("0.txt")
        link.type, link.linkname = tarfile.LNKTYPE, "elsewhere.txt"
        archive.addfile(link)
    return "a.tar"


@makes
def tar_lz4(folder: Path) -> str:
    (folder / "a.tar").write_bytes(b"\x04\x22\x4d\x18" + bytes(600))
    return "a.tar"


@makes
def zip_lzma(folder: Path) -> str:
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("0.txt", "text")
    return "a.zip"


@makes
def zip_after_a_program(folder: Path) -> str:
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("0.txt", "text")
    data = (folder / "a.zip").read_bytes()
    (folder / "b.zip").write_bytes(b"#!/bin/sh\n" + data)
    assert zipfile.ZipFile(folder / "b.zip").read("0.txt") == b"text"
    return ""


@makes
def zip_encrypted(folder: Path) -> str:
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("0.txt", "text")
    data = bytearray((folder / "a.zip").read_bytes())
    data[data.index(b"PK\1\2") + 8] |= 1
    (folder / "a.zip").write_bytes(data)
    return "a.zip"


def _parquet(folder: Path, values: Any, **how: Any) -> str:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"a": values}), folder / "a.parquet", **how)
    parquet.read_table(folder / "a.parquet")
    return "a.parquet"


@makes
def parquet_int96(folder: Path) -> str:
    times = np.array([0, 1], "datetime64[ns]")
    return _parquet(folder, times, use_deprecated_int96_timestamps=True)


@makes
def parquet_list_with_gaps(folder: Path) -> str:
    return _parquet(folder, [[1, None], [2]])


@makes
def parquet_infinity_in_json(folder: Path) -> str:
    return _parquet(folder, [{"b": [{"c": float("inf")}]}])


@makes
def parquet_page_of_one_value(folder: Path) -> str:
    """A page that inflates to more than 4,096 times its bytes."""
    return _parquet(folder, [{"b": "x" * (40 << 20)}], compression="brotli", use_dictionary=False)


@makes
def parquet_without_rows(folder: Path) -> str:
    return _parquet(folder, np.zeros(0, np.int64))


def _arrow(folder: Path, column: Any, **how: Any) -> str:
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"a": column})
    with arrow.OSFile(str(folder / "a.arrow"), "wb") as file, arrow.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return "a.arrow"


@makes
def arrow_union(folder: Path) -> str:
    arrow = pytest.importorskip("pyarrow")
    kinds = arrow.array([0, 1], arrow.int8())
    return _arrow(folder, arrow.UnionArray.from_sparse(kinds, [arrow.array([1, 2]), arrow.array(["a", "b"])]))


@makes
def arrow_run_ends(folder: Path) -> str:
    arrow = pytest.importorskip("pyarrow")
    return _arrow(folder, arrow.RunEndEncodedArray.from_arrays([2, 3], [1, 2]))


@makes
def arrow_list_with_gaps(folder: Path) -> str:
    arrow = pytest.importorskip("pyarrow")
    return _arrow(folder, arrow.array([[1, None]]))


@makes
def arrow_feather_1(folder: Path) -> str:
    arrow, feather = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.feather")
    with warnings.catch_warnings(action="ignore"):
        feather.write_feather(arrow.table({"a": [1]}), str(folder / "a.feather"), version=1)
    return "a.feather"


def _hdf5(folder: Path, write: Callable[[Any], Any]) -> str:
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "a.h5", "w") as file:
        write(file)
    return "a.h5"


@makes
def hdf5_latin_1(folder: Path) -> str:
    return _hdf5(folder, lambda file: file.create_dataset("a", data=np.array([b"caf\xe9", b"th\xe9"])))


@makes
def hdf5_latin_1_of_any_length(folder: Path) -> str:
    h5py = pytest.importorskip("h5py")
    kind = h5py.string_dtype("ascii")
    return _hdf5(folder, lambda file: file.create_dataset("a", data=[b"caf\xe9", b"th\xe9 noir"], dtype=kind))


@makes
def hdf5_scale_offset(folder: Path) -> str:
    return _hdf5(folder, lambda file: file.create_dataset("a", data=np.arange(9), scaleoffset=0))


@makes
def hdf5_structures(folder: Path) -> str:
    rows = np.zeros((3, 2), [("a", "i4")])
    return _hdf5(folder, lambda file: file.create_dataset("a", data=rows))


@makes
def hdf5_link(folder: Path) -> str:
    h5py = pytest.importorskip("h5py")
    return _hdf5(folder, lambda file: file.__setitem__("a", h5py.ExternalLink("other.h5", "b")))


@makes
def jsonl_utf_16(folder: Path) -> str:
    (folder / "a.jsonl").write_text('{"a": 1}\n{"a": 2}\n', encoding="utf-16")
    return "a.jsonl"


@makes
def jsonl_latin_1(folder: Path) -> str:
    (folder / "a.jsonl").write_bytes('{"a": "b"}\n{"a": "café"}\n'.encode("latin-1"))
    return "a.jsonl"


@makes
def csv_utf_16(folder: Path) -> str:
    (folder / "a.csv").write_text("a.jpg,1\nb.jpg,2\n", encoding="utf-16")
    return "a.csv"


@makes
def coco_lvis(folder: Path) -> str:
    image = {"id": 1, "coco_url": "http://images.cocodataset.org/train2017/000000391895.jpg", "height": 8, "width": 8}
    lvis = {"images": [image], "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1]}]}
    (folder / "lvis_v1_train.json").write_text(json.dumps(lvis))
    return "lvis_v1_train.json"


@makes
def lmdb_big_endian(folder: Path) -> str:
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(folder / "a"), 1 << 20) as database, database.begin(write=True) as write:
        write.put(b"0", b"text")
    path = folder / "a" / "data.mdb"
    data = bytearray(path.read_bytes())
    for at in (16, os.sysconf("SC_PAGE_SIZE") + 16):
        data[at : at + 4] = data[at : at + 4][::-1]
    path.write_bytes(data)
    return "a"


@makes
def lmdb_of_pickled_classes(folder: Path) -> str:
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(folder / "a"), 1 << 20) as database, database.begin(write=True) as write:
        for row in range(3):
            write.put(struct.pack(">I", row), pickle.dumps(Decimal(row)))
    return "a"


def read(place: Path) -> None:
    ss.index(place, workers=0)  # however long it takes
    reader = ss.Reader(place)
    for row in range(len(reader)):
        reader[row]


@pytest.mark.parametrize("name", MAKERS)
def test_valid_data_are_called_unsupported(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    place = folder / MAKERS[name](folder)
    with pytest.raises(UnsupportedError) as raised:
        read(place)
    text = str(raised.value).lower().replace("--damaged reject", "")
    for word in ("damag", "fetch", "cut off", "wrongly", "corrupt"):
        assert word not in text
    assert raised.value.hint
    assert raised.value.code == "unsupported"
