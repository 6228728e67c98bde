#!/usr/bin/env python3
"""Built the archive of data in place, once: ``python -m tests.golden.build_in_place FILE``.

It is never built again, and this program never changes. The archive has a small dataset of each format that is read in
place, in a directory each, beside what other golden files have. ``in_place.py`` says how each is opened, and what has
to come of it.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

PICTURES = 9
CLASSES = ("ant", "cat", "dog é")


def pictures(folder: Path) -> None:
    """Pictures in one directory, ``images/``, for lists beside it."""
    from tests.dataset.foreign.making import jpeg

    (folder / "images").mkdir()
    for row in range(PICTURES):
        (folder / f"images/{row:03d}.jpg").write_bytes(jpeg(row) + bytes(row))


def lists(folder: Path) -> None:
    """Lists of all kinds, some compressed, with and without columns beside the path and the label."""
    pictures(folder)
    names = [f"images/{row:03d}.jpg" for row in range(PICTURES)]
    texts = {
        "train.tsv": "".join(f"{name}\t{row % 3}\n" for row, name in enumerate(names)),
        "names.tsv": "".join(f"{name}\t{CLASSES[row % 3]}\n" for row, name in enumerate(names)),
        "train.csv": "path,label,note\n" + "".join(f'{name},{row % 3},"a, {row}"\n' for row, name in enumerate(names)),
        "ids.csv": "id,score,text\n" + "".join(f"{row:03d},{row / 4},t {row}\n" for row in range(PICTURES)),
        "train.jsonl": "".join(
            json.dumps({"path": name, "label": row % 3, "tags": [row]}) + "\n" for row, name in enumerate(names)
        ),
        "paths.txt": "".join(f"{name}\n" for name in names),
        "train.lst": "".join(f"{row}\t{row % 3}.0\t{name}\n" for row, name in enumerate(names)),
        "lists/elsewhere.csv": "".join(f"{row:03d}.jpg,{row % 3}\n" for row in range(PICTURES)),
    }
    (folder / "lists").mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    for suffix, compress in (("gz", lambda data: gzip.compress(data, mtime=0)), ("bz2", bz2.compress)):
        (folder / f"train.csv.{suffix}").write_bytes(compress(texts["train.csv"].encode()))
    import pyarrow as pa
    import pyarrow.parquet

    table = pa.table({"path": names, "label": [row % 3 for row in range(PICTURES)]})
    pa.parquet.write_table(table, folder / "train.parquet")


def class_directories(folder: Path) -> None:
    """Class directories, one of them empty, with names that are not data."""
    from tests.dataset.foreign.making import jpeg

    for row in range(PICTURES):
        (folder / CLASSES[row % 3]).mkdir(exist_ok=True)
        (folder / CLASSES[row % 3] / f"p {row:03d}.jpg").write_bytes(jpeg(row) + bytes(row))
    (folder / "empty").mkdir()
    (folder / "cat/Thumbs.db").write_bytes(b"thumbs")
    (folder / ".git").mkdir()
    (folder / ".git/config").write_text("[core]\n")


def grouped(folder: Path) -> None:
    """Files of which some share their names, for ``group="stem"``."""
    from tests.dataset.foreign.making import jpeg

    for row in range(6):
        (folder / f"{row}.jpg").write_bytes(jpeg(row))
        (folder / f"{row}.cls").write_text(str(row % 2))
        (folder / f"{row}.json").write_text(json.dumps({"row": row}))


def energon(folder: Path) -> None:
    """Tars with the metadata of Energon beside them, of which one part is chosen."""
    from tests.dataset.foreign.making import webdataset

    webdataset(folder, tars=2, samples=4)
    (folder / ".nv-meta").mkdir()
    (folder / ".nv-meta/split.yaml").write_text("split_parts:\n  train: [part-0.tar]\n  val: [part-1.tar]\n")
    counts = json.dumps({"shard_counts": {"part-0.tar": 4, "part-1.tar": 4}})
    (folder / ".nv-meta/.info.json").write_text(counts)


def tars(compression: str) -> Callable[[Path], None]:
    """Two tars of WebDataset, compressed; ``frames``: with zstd, 4 KB a frame."""

    def make(folder: Path) -> None:
        from tests.dataset.foreign.making import COMPRESSED, webdataset

        webdataset(folder, tars=2, samples=5)
        for path in sorted(folder.glob("*.tar")):
            data, zstd = path.read_bytes(), COMPRESSED["zstd"]
            if compression in ("frames", "zst"):
                step = 4096 if compression == "frames" else len(data)
                packed = b"".join(zstd(data[start : start + step]) for start in range(0, len(data), step))
            else:
                packed = COMPRESSED[compression](data)
            suffix = "zst" if compression == "frames" else compression
            path.with_name(f"{path.name}.{suffix}").write_bytes(packed)
            path.unlink()

    return make


def deflated_zip(folder: Path) -> None:
    """Pictures in class directories of a zip file, deflated."""
    from tests.dataset.foreign.making import jpeg

    with zipfile.ZipFile(folder / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for row in range(PICTURES):
            archive.writestr(f"{'abc'[row % 3]}/{row:02d}.jpg", jpeg(row))


def parquet(**options: object) -> Callable[[Path], None]:
    """One Parquet file of several row groups, compressed so."""

    def make(folder: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet

        rows = [{"id": row, "text": f"text {row % 4} " * 3, "tokens": list(range(row))} for row in range(12)]
        pa.parquet.write_table(pa.Table.from_pylist(rows), folder / "train.parquet", row_group_size=5, **options)

    return make


def parquet_structs(folder: Path) -> None:
    """Columns that have to be chosen as JSON."""
    import pyarrow as pa
    import pyarrow.parquet

    rows = [{"id": row, "about": {"a": row, "b": [1, None]}, "odd": [row, None]} for row in range(8)]
    pa.parquet.write_table(pa.Table.from_pylist(rows), folder / "train.parquet")


def hdf5(compression: str) -> Callable[[Path], None]:
    """Chunks that are compressed so, two groups of datasets that do not belong together."""

    def make(folder: Path) -> None:
        import h5py
        import numpy as np

        with h5py.File(folder / "all.h5", "w") as file:
            for name, rows in (("train", 10), ("test", 4)):
                values = np.arange(rows * 6, dtype=np.float32).reshape(rows, 6)
                file.create_dataset(f"{name}/x", data=values, chunks=(3, 6), compression=compression, fletcher32=True)
                file.create_dataset(f"{name}/y", data=np.arange(rows, dtype=np.int32) % 3)

    return make


def arrow_zstd(folder: Path) -> None:
    """A table, compressed with zstd."""
    from tests.shards.foreign.arrow_tables import photographs, write

    write(folder / "all.feather", photographs(range(10)), rows=4, codec="zstd")


def datasets(folder: Path) -> None:
    """What ``save_to_disk`` of the package `datasets` writes."""
    from tests.shards.foreign.arrow_tables import photographs, write

    for part in range(2):
        write(folder / f"data-{part}.arrow", photographs(range(5 * part, 5 * part + 5)), rows=3, stream=True)
    files = [{"filename": f"data-{part}.arrow"} for part in range(2)]
    (folder / "state.json").write_text(json.dumps({"_data_files": files}))


def jsonl(*suffixes: str) -> Callable[[Path], None]:
    """JSON lines in a file for each suffix."""

    def make(folder: Path) -> None:
        from tests.dataset.foreign.making import COMPRESSED

        compress = {"": bytes, "zst": COMPRESSED["zstd"], **COMPRESSED, "xz": lzma.compress}
        for number, suffix in enumerate(suffixes):
            rows = [{"id": f"k{number}-{row}", "n": row, "text": f"é {row}", "m": [row]} for row in range(5)]
            data = "".join(json.dumps(row) + "\n" for row in rows).encode()
            (folder / f"part-{number}.jsonl{suffix and '.'}{suffix}").write_bytes(compress[suffix](data))

    return make


def coco_elsewhere(folder: Path) -> None:
    """Annotations, and pictures in a directory that has to be named."""
    pictures(folder)
    images = [{"id": 5 * row, "file_name": f"{row:03d}.jpg", "width": 24, "height": 16} for row in range(PICTURES)]
    seen = [{"id": row, "image_id": 5 * (row % 4), "category_id": 1, "bbox": [0, 1, row, 2.5]} for row in range(6)]
    about = {"images": images, "annotations": seen, "categories": [{"id": 1, "name": "one"}]}
    (folder / "boxes.coco.json").write_text(json.dumps(about))


def yolo_splits(folder: Path) -> None:
    """Two splits, of which one is chosen, without a YAML file's help in one more directory."""
    from tests.dataset.foreign.making import jpeg

    for number, split in enumerate(("train", "val")):
        for kind in ("images", "labels"):
            (folder / kind / split).mkdir(parents=True)
        for row in range(6 - 2 * number):
            (folder / f"images/{split}/{row:03d}.jpg").write_bytes(jpeg(row))
            (folder / f"labels/{split}/{row:03d}.txt").write_text(f"{row % 2} 0.5 0.5 0.25 0.5\n")
    (folder / "data.yaml").write_text("train: images/train\nval: images/val\nnames: {0: a, 1: b}\n")


def shards_of_npz(folder: Path) -> None:
    """Several npz files with the same arrays."""
    import numpy as np

    for part in range(3):
        values = np.arange(12, dtype=np.float64).reshape(4, 3) + part
        np.savez(folder / f"part-{part}.npz", x=values, y=np.arange(4, dtype=np.uint8))


def compressed_mds(folder: Path) -> None:
    """Two shards with checksums, compressed with zstd."""
    from tests.dataset.foreign.making import mds

    mds(folder, "zstd", shards=2, samples=6)


def half_damaged_tars(folder: Path) -> None:
    """Two tars, of which the second is cut off within its third sample."""
    from tests.dataset.foreign.making import webdataset

    webdataset(folder, tars=2, samples=5)
    data = (folder / "part-1.tar").read_bytes()
    (folder / "part-1.tar").write_bytes(data[: len(data) * 2 // 5])


MADE: dict[str, Callable[[Path], object]] = {
    "arrow-datasets": datasets,
    "arrow-zstd": arrow_zstd,
    "class-directories": class_directories,
    "coco-elsewhere": coco_elsewhere,
    "cut-off-tar": half_damaged_tars,
    "energon": energon,
    "grouped": grouped,
    "hdf5-gzip": hdf5("gzip"),
    "hdf5-lzf": hdf5("lzf"),
    "jsonl-packed": jsonl("", "gz", "bz2", "xz", "zst"),
    "lists": lists,
    "mds-zstd": compressed_mds,
    "npz-shards": shards_of_npz,
    "parquet-gzip": parquet(compression="gzip"),
    "parquet-structs": parquet_structs,
    "parquet-zstd": parquet(compression="zstd", use_dictionary=False),
    "tar-bz2": tars("bz2"),
    "tar-frames": tars("frames"),
    "tar-gz": tars("gz"),
    "tar-xz": tars("xz"),
    "tar-zst": tars("zst"),
    "yolo-splits": yolo_splits,
    "zip-deflated": deflated_zip,
}
OTHERS = {  # of those that the tests of every format write
    "arrow": (0, "arrow-every"),
    "beton": (0, "beton-small"),
    "lmdb": (4, "lmdb-datum"),
    "recordio": (0, "recordio-labels"),
    "npy": (0, "npy"),
    "hdf5": (0, "hdf5-plain"),
    "jsonl": (1, "json-list"),
}
LMDB = ("files", "numbered", "pickles", "msgpack")
SETS = ("arrow", "coco", "files", "hdf5", "jsonl", "lmdb", "nanogpt", "npy", "parquet", "recordio", "tar-of-tars")
MORE = ("webdataset", "yolo", "zip")


def add(archive: tarfile.TarFile, folder: Path, paths: Iterable[Path]) -> None:
    """Put files and directories into the archive, with nothing of this machine in them."""
    for path in paths:
        member = archive.gettarinfo(path, path.relative_to(folder).as_posix())
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        member.mode = 0o755 if path.is_dir() else 0o644
        if path.is_file():
            with path.open("rb") as data:
                archive.addfile(member, data)
        else:
            archive.addfile(member)


def main() -> int:
    """Build the archive, a file that does not exist."""
    if len(sys.argv) != 2 or Path(sys.argv[1]).exists():
        print(
            "usage: build_in_place.py FILE, which must not exist: golden files are never built again", file=sys.stderr
        )
        return 2
    from tests.dataset.foreign import every

    made = dict(MADE)
    made |= {"files-mpdataset" if name == "files" else name: every.SETS[name].make for name in (*SETS, *MORE)}
    made |= {new: every.OTHERS[name][number].make for name, (number, new) in OTHERS.items() if name != "npy"}
    made |= {"npz": every.SETS["npy"].make, "npy": every.OTHERS["npy"][0].make}
    made |= {"megatron-merged": every.SETS["megatron"].make}
    made |= {"beton-every": every.SETS["beton"].make}
    made |= {f"lmdb-{name}": every.lmdb_layout(name) for name in LMDB}
    with tempfile.TemporaryDirectory() as text:
        root = Path(text)
        for name, make in made.items():
            (root / name).mkdir()
            make(root / name)
            for lock in (root / name).rglob("lock.mdb"):
                lock.unlink()
            for path in (root / name).rglob("data.mdb"):
                data = path.read_bytes().rstrip(b"\0")
                path.write_bytes(data + bytes(-len(data) % 4096))
        with tarfile.open(sys.argv[1], "w:xz", format=tarfile.PAX_FORMAT, preset=9) as archive:
            add(archive, root, sorted(root.rglob("*")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
