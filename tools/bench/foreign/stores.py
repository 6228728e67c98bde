"""The samples in each format. Each function runs in a process of its own, as `bench.race.stores.bring` starts it."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from bench.data import SHARDS
from bench.foreign import written
from bench.foreign.corpora import VALUE_BYTES, Kind, python_of, samples, store
from bench.race.stores import bring, write_litdata, write_streaming

FIELD: dict[Kind, str] = {"photographs": "jpg", "values": "bin"}
"""What the bytes are called where a format lets its writer choose."""
_FILES = 4


def make(name: str, kind: Kind, count: int) -> Path:
    """The samples in a format, written if they are not there; ContenderError where its library cannot do it."""
    out = store(name, kind, count)
    bring(out, name, python_of(name), module="bench.foreign.stores", kind=kind, count=count)
    return out


def pack(name: str, kind: Kind, count: int) -> Path:
    """The samples of a format's data packed by us, in stored order and without checksums."""
    out = store(f"{name}-packed", kind, count)
    source = str(store(name, kind, count))
    bring(out, "packed", python_of(name), module="bench.foreign.stores", source=source)
    return out


def packed(out: str, source: str) -> None:
    """Shards of ours."""
    import shardstream as ss

    ss.repack(source, out, shards=ss.ShardOptions(checksums=False), shard_size="48MB")


def webdataset(out: str, kind: Kind, count: int) -> None:
    """Tar files, equally long."""
    from webdataset import ShardWriter

    Path(out).mkdir()
    with ShardWriter(f"{out}/%05d.tar", verbose=0, maxcount=-(-count // SHARDS)) as writer:
        for sample in samples(kind, count):
            writer.write({"__key__": sample.key, FIELD[kind]: sample.octets, "cls": sample.label})


def streaming(out: str, kind: Kind, count: int) -> None:
    """MDS shards."""
    columns = {FIELD[kind]: "bytes", "cls": "int"}
    write_streaming(out, columns, ({FIELD[kind]: one.octets, "cls": one.label} for one in samples(kind, count)))


def litdata(out: str, kind: Kind, count: int) -> None:
    """Chunks, equally long."""
    found = [{FIELD[kind]: one.octets, "cls": one.label} for one in samples(kind, count)]
    write_litdata(out, _same, found, chunk_size=-(-count // SHARDS))


def _same(sample: dict[str, Any]) -> dict[str, Any]:
    return sample


def tfrecord(out: str, kind: Kind, count: int) -> None:
    """One file of Examples, and the index that the package's workers need."""
    from tfrecord import TFRecordWriter
    from tfrecord.tools import tfrecord2idx

    Path(out).mkdir()
    names = ("image/encoded", "image/class/label") if kind == "photographs" else ("bin", "label")
    writer = TFRecordWriter(f"{out}/train.tfrecord")
    for sample in samples(kind, count):
        writer.write({names[0]: (sample.octets, "byte"), names[1]: (sample.label, "int")})
    writer.close()
    tfrecord2idx.create_index(f"{out}/train.tfrecord", f"{out}/train.idx")


def recordio(out: str, kind: Kind, count: int) -> None:
    """One file with its index."""
    Path(out).mkdir()
    written.recordio(Path(out) / "train", samples(kind, count))


def lmdb(out: str, kind: Kind, count: int) -> None:
    """One database of ``image-%09d`` and ``label-%09d``, as data of text recognition lie."""
    from lmdb import open as open_database

    with open_database(out, map_size=1 << 30) as database, database.begin(write=True) as change:
        change.put(b"num-samples", b"%d" % count)
        for number, sample in enumerate(samples(kind, count), 1):
            change.put(b"image-%09d" % number, sample.octets)
            change.put(b"label-%09d" % number, b"%d" % sample.label)


def _table(kind: Kind, count: int) -> Any:
    """The samples as `datasets` has them."""
    from datasets import Dataset, Features, Image, Value

    field = FIELD[kind]
    features = Features({field: Image() if kind == "photographs" else Value("binary"), "cls": Value("int64")})
    found = [
        {field: {"bytes": one.octets, "path": None} if kind == "photographs" else one.octets, "cls": one.label}
        for one in samples(kind, count)
    ]
    return Dataset.from_list(found, features=features)


def arrow(out: str, kind: Kind, count: int) -> None:
    """What ``save_to_disk`` of `datasets` writes: in one file, of images as it has them."""
    _table(kind, count).save_to_disk(out)


def parquet(out: str, kind: Kind, count: int) -> None:
    """What ``to_parquet`` of `datasets` writes, in files enough that its workers share them."""
    Path(out).mkdir()
    table = _table(kind, count)
    for number in range(_FILES):
        part = table.shard(_FILES, number, contiguous=True)
        part.to_parquet(f"{out}/train-{number:05d}-of-{_FILES:05d}.parquet")


def parquet_snappy(out: str, kind: Kind, count: int) -> None:
    """As most others write it: compressed, with row groups as large as may be."""
    from pyarrow.parquet import write_table  # type: ignore[import-untyped]

    Path(out).mkdir()
    write_table(_table(kind, count).data.table, f"{out}/train.parquet")


def hdf5(out: str, kind: Kind, count: int) -> None:
    """One file of two data sets: bytes, of any length where they are photographs, and labels."""
    from h5py import File, vlen_dtype

    Path(out).mkdir()
    with File(f"{out}/train.h5", "w") as file:
        octets = vlen_dtype(np.uint8) if kind == "photographs" else f"V{VALUE_BYTES}"
        found, labels = file.create_dataset(FIELD[kind], (count,), octets), file.create_dataset("cls", (count,), "i8")
        for number, sample in enumerate(samples(kind, count)):
            found[number] = np.frombuffer(sample.octets, np.uint8) if kind == "photographs" else np.void(sample.octets)
            labels[number] = sample.label


def zip(out: str, kind: Kind, count: int) -> None:
    """One zip of members that are not compressed."""
    Path(out).mkdir()
    with zipfile.ZipFile(f"{out}/train.zip", "w", zipfile.ZIP_STORED) as file:
        for sample in samples(kind, count):
            file.writestr(f"{sample.key}.{FIELD[kind]}", sample.octets)
            file.writestr(f"{sample.key}.cls", str(sample.label))


def npz(out: str, kind: Kind, count: int) -> None:
    """Two arrays: bytes of one length, and labels."""
    Path(out).mkdir()
    found = list(samples(kind, count))
    octets = np.frombuffer(b"".join(one.octets for one in found), np.uint8).reshape(count, -1)
    np.savez(f"{out}/train.npz", bin=octets, cls=np.array([one.label for one in found]))


def jsonl(out: str, kind: Kind, count: int) -> None:
    """One file; values are text of as many letters."""
    Path(out).mkdir()
    Path(out, "train.jsonl").write_bytes(_lines(kind, count))


def jsonl_gz(out: str, kind: Kind, count: int) -> None:
    """The same, compressed."""
    Path(out).mkdir()
    Path(out, "train.jsonl.gz").write_bytes(gzip.compress(_lines(kind, count)))


def _lines(kind: Kind, count: int) -> bytes:
    rows = ({"txt": one.octets[: len(one.octets) // 2].hex(), "label": one.label} for one in samples(kind, count))
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def beton(out: str, kind: Kind, count: int) -> None:
    """One file."""
    Path(out).mkdir()
    written.beton(Path(out) / "train", samples(kind, count), images=kind == "photographs")


def files(out: str, kind: Kind, count: int) -> None:
    """A file each, and a list of them."""
    folder = Path(out)
    folder.mkdir()
    lines = ["path\tlabel\n"]
    for number, sample in enumerate(samples(kind, count)):
        name = f"{number // 1000}/{number:06d}.{FIELD[kind]}"
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(sample.octets)
        lines.append(f"{name}\t{sample.label}\n")
    (folder / "list.tsv").write_text("".join(lines))
