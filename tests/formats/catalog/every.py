"""A small data set of each format that is known, with what is in it: golden files of the libraries, or written here."""

from __future__ import annotations

import base64
import gzip
import io
import json
import pickle
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from shardstream.shards.field_names import usable_field
from tests.formats import told
from tests.formats.catalog.making import jpeg, webdataset

GOLDEN = Path(__file__).parents[2] / "golden" / "foreign"
Sample = Mapping[str, Any]


@dataclass(frozen=True)
class ForeignSet:
    """A data set of a format.

    Attributes:
        make: Writes it into a folder; gives its samples in order, where somebody else said what they are: values, or
            what ``told`` compares with. A sample may have more fields.
        options: Of reading it.
        number: A field that is a number, for ``where=``.
    """

    make: Callable[[Path], Sequence[Sample]]
    options: Mapping[str, str] = field(default_factory=dict)
    number: str | None = None


def golden(name: str) -> Callable[[Path], Sequence[Sample]]:
    """A folder of golden files, with ``expected.json`` beside them."""

    def make(folder: Path) -> Sequence[Sample]:
        shutil.copytree(GOLDEN / name, folder, dirs_exist_ok=True)
        (folder / "expected.json").unlink()
        return [{usable_field(key): value for key, value in one.items()} for one in told.expected(GOLDEN / name)]

    return make


def same(found: Any, expected: Any) -> bool:
    """Whether a value is the one that was written, or that ``told`` describes."""
    found = found.item() if isinstance(found, np.generic) else found
    if isinstance(expected, np.ndarray):
        return bool(
            (found.dtype, found.shape) == (expected.dtype, expected.shape) and found.tobytes() == expected.tobytes()
        )
    told.check(found, expected)
    return True


def _webdataset(folder: Path) -> Sequence[Sample]:
    webdataset(folder, tars=3, samples=6)
    return [
        {"jpg": jpeg(row), "cls": (row + tar) % 10, "json": {"json": {"tar": tar, "row": row}}}
        for tar in range(3)
        for row in range(6)
    ]


def tar_of(members: Mapping[str, bytes]) -> bytes:
    """A tar of these files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _tar_of_tars(folder: Path) -> Sequence[Sample]:
    for outer in range(2):
        inner = {
            f"n{2 * outer + number}.tar": tar_of(
                {f"n{2 * outer + number}_{row}.JPEG": jpeg(8 * outer + 4 * number + row) for row in range(4)}
            )
            for number in range(2)
        }
        (folder / f"images-{outer}.tar").write_bytes(tar_of(inner))
    return [{"jpg": jpeg(row), "cls": row // 4} for row in range(16)]


def _zip(folder: Path) -> Sequence[Sample]:
    for number in range(2):
        with zipfile.ZipFile(folder / f"part-{number}.zip", "w") as archive:
            for row in range(6 * number, 6 * number + 6):
                archive.writestr(f"all/{row:02d}.jpg", jpeg(row))
                archive.writestr(f"all/{row:02d}.cls", str(row % 5))
                archive.writestr(f"all/{row:02d}.txt", f"number {row}")
    return [{"jpg": jpeg(row), "cls": row % 5, "txt": f"number {row}"} for row in range(12)]


def _lmdb(folder: Path) -> Sequence[Sample]:
    import lmdb

    samples = [
        {"image": jpeg(row), "label": row % 3, "box": np.arange(4.0) * row, "about": [row, "a"], "text": f"t{row}"}
        for row in range(12)
    ]
    for number in range(2):
        with lmdb.open(str(folder / f"part-{number}"), map_size=1 << 22) as base, base.begin(write=True) as change:
            for row in range(6 * number, 6 * number + 6):
                change.put(b"%02d" % row, pickle.dumps(samples[row], 4))
    return [
        {"image": one["image"], "cls": one["label"], "box": one["box"], "about": one["about"], "text": one["text"]}
        for one in samples
    ]


def lmdb_layout(name: str) -> Callable[[Path], Sequence[Sample]]:
    """Another layout of an LMDB."""

    def make(folder: Path) -> Sequence[Sample]:
        from tests.formats.test_lmdb_hostile import layouts

        (folder / "made").mkdir()
        (folder / "data.mdb").write_bytes(layouts(folder / "made")[name])
        shutil.rmtree(folder / "made")
        return []

    return make


_RECORD = struct.pack("<I", 0xCED7230A)


def _recordio(folder: Path) -> Sequence[Sample]:
    for number in range(2):
        data, lines = b"", ""
        for row in range(6 * number, 6 * number + 6):
            payload = struct.pack("<IfQQ", 0, row % 4, row, 0) + jpeg(row)
            lines += f"{row}\t{len(data)}\n"
            data += _RECORD + struct.pack("<I", len(payload)) + payload + bytes(-len(payload) % 4)
        (folder / f"part-{number}.rec").write_bytes(data)
        (folder / f"part-{number}.idx").write_text(lines)
    return [{"jpg": jpeg(row), "cls": row % 4} for row in range(12)]


def _recordio_labels(folder: Path) -> Sequence[Sample]:
    """Records of several labels, some in parts, with a list beside them."""
    from tests.formats.test_recordio import MAGIC, packed, record

    images = [jpeg(row) + bytes(-len(jpeg(row)) % 4) + MAGIC * (row % 2) + b"rest" for row in range(6)]
    labels = [[float(one) for one in range(2 + row % 2)] for row in range(6)]
    (folder / "train.rec").write_bytes(b"".join(record(packed(labels[i], i, images[i])) for i in range(6)))
    (folder / "train.lst").write_text("".join(f"{row}\t{row}\tfolder/{row}.jpg\n" for row in range(6)))
    return [{"jpg": image, "labels": np.array(one, np.float32)} for image, one in zip(images, labels, strict=True)]


def _tfrecord(name: str) -> Callable[[Path], Sequence[Sample]]:
    def make(folder: Path) -> Sequence[Sample]:
        shutil.copytree(GOLDEN / "tfrecord" / name, folder, dirs_exist_ok=True)
        if name != "imagenet":
            return []
        rows = json.loads((GOLDEN / "tfrecord" / "expected.json").read_text())[name]
        return [
            {
                "jpg": base64.b64decode(one["image/encoded"][0]["bytes"]),
                "cls": one["image/class/label"][0] - 1,
                "image.class.text": base64.b64decode(one["image/class/text"][0]["bytes"]).decode(),
                "image.height": one["image/height"][0],
                "image.object.bbox.xmin": np.array(one["image/object/bbox/xmin"], np.float32),
            }
            for one in rows
        ]

    return make


def _beton(folder: Path) -> Sequence[Sample]:
    (folder / "every.beton").write_bytes(gzip.decompress((GOLDEN / "beton/every.beton.gz").read_bytes()))
    rows = json.loads((GOLDEN / "beton/expected.json").read_text())
    columns = {
        "label": [one[0] for one in rows["label"]],
        "score": [one[0] for one in rows["score"]],
        "raw": [bytes(one) for one in rows["raw"]],
        "about": [{"json": one} for one in rows["about"]],
        "box": [np.array(one, np.float32) for one in rows["box"]],
    }
    return [dict(zip(columns, one, strict=True)) for one in zip(*columns.values(), strict=True)]


def _small_beton(folder: Path) -> Sequence[Sample]:
    """Without the pages of 2 MB that the library writes."""
    from tests.formats.test_beton import FIELDS, SAMPLES, beton

    (folder / "small.beton").write_bytes(beton(FIELDS, SAMPLES))
    return [{"label": one[0], "image": one[1][3], "text": one[2], "score": one[5]} for one in SAMPLES]


def _megatron(folder: Path) -> Sequence[Sample]:
    for kind in ("idx", "bin"):
        shutil.copy(GOLDEN / "megatron" / f"merged.{kind}", folder)
    rows = json.loads((GOLDEN / "megatron" / "expected.json").read_text())["merged"]
    return [{"tokens": np.array(one, np.int32)} for one in rows]


def _megatron_windows(folder: Path) -> Sequence[Sample]:
    tokens = np.concatenate([one["tokens"] for one in _megatron(folder)])
    return [{"tokens": tokens[start : start + 8]} for start in range(0, len(tokens) - 7, 7)]


def _nanogpt(folder: Path) -> Sequence[Sample]:
    tokens = np.arange(500, dtype=np.uint16)
    tokens.tofile(folder / "tokens.bin")
    return [{"tokens": tokens[start : start + 31 + 1]} for start in range(0, 500 - 31, 31)]


def _memmap(folder: Path) -> Sequence[Sample]:
    array = np.memmap(folder / "vectors.dat", np.float16, "w+", shape=(50, 8))
    array[:] = np.arange(400).reshape(50, 8)
    array.flush()
    return [{"vectors": row} for row in array]


def _arrow(folder: Path) -> Sequence[Sample]:
    from tests.formats.arrow_tables import of_photograph, photographs, write

    for number, rows in enumerate((range(6), range(6, 12))):
        write(folder / f"part-{number}.arrow", photographs(rows), rows=4, stream=number == 1)
    return [of_photograph(row) for row in range(12)]


def _arrow_of_every_type(codec: str | None) -> Callable[[Path], Sequence[Sample]]:
    """What is written down anew among it; with a codec, compressed."""

    def make(folder: Path) -> Sequence[Sample]:
        from tests.formats.arrow_tables import every_type, write

        write(folder / "every.arrow", every_type(12), rows=5, codec=codec)
        return []

    return make


def _npz(folder: Path) -> Sequence[Sample]:
    draw = np.random.default_rng(0)
    x, y = draw.random((10, 3, 2), np.float32), np.arange(10) % 4
    np.savez(folder / "arrays.npz", x=x, y=y)
    return [{"x": x[row], "y": int(y[row])} for row in range(10)]


def _npy(folder: Path) -> Sequence[Sample]:
    np.save(folder / "features.npy", np.arange(60, dtype=np.int16).reshape(10, 3, 2))
    return []


def _parquet(**options: Any) -> Callable[[Path], Sequence[Sample]]:
    """Two files, of which the second has several row groups."""

    def make(folder: Path) -> Sequence[Sample]:
        import pyarrow as pa
        import pyarrow.parquet

        rows = [
            {
                "image": {"bytes": jpeg(row), "path": f"{row % 3}.jpg"},
                "label": row % 3,
                "text": f"t{row % 4}" if row % 5 else None,
                "tokens": list(range(row % 4)),
                "objects": [{"name": f"n{row}", "box": [0.5, row]}],
            }
            for row in range(14)
        ]
        table = pa.Table.from_pylist(rows)
        for number, part in enumerate((table.slice(0, 4), table.slice(4))):
            pa.parquet.write_table(part, folder / f"part-{number}.parquet", row_group_size=4, **options)
        found = [
            one | {"image": one["image"]["bytes"], "cls": one["label"], "tokens": np.array(one["tokens"], np.int64)}
            for one in rows
        ]
        for one in found:
            del one["label"]
            one["objects"] = {"json": one["objects"]}
        return [{name: value for name, value in one.items() if value is not None} for one in found]

    return make


def _hdf5(folder: Path) -> Sequence[Sample]:
    import h5py

    draw = np.random.default_rng(1)
    images, boxes = draw.integers(0, 9, (12, 8, 6, 3)).astype(np.uint8), draw.random((12, 4), np.float32)
    for number in range(2):
        rows = slice(6 * number, 6 * number + 6)
        with h5py.File(folder / f"part-{number}.h5", "w") as file:
            file.create_dataset("image", data=images[rows], chunks=(2, 8, 6, 3), compression="gzip", shuffle=True)
            file.create_dataset("object/boxes", data=boxes[rows])
            file.create_dataset("label", data=np.arange(12)[rows] % 4)
            file.create_dataset("text", data=[f"é{row}" for row in range(12)][rows], dtype=h5py.string_dtype())
    return [
        {"image": images[row], "object.boxes": boxes[row], "label": row % 4, "text": f"é{row}"} for row in range(12)
    ]


def _plain_hdf5(folder: Path) -> Sequence[Sample]:
    """Nothing of it has to be inflated."""
    import h5py

    values = np.arange(120, dtype=np.int16).reshape(10, 3, 4)
    with h5py.File(folder / "plain.hdf5", "w") as file:
        file.create_dataset("x", data=values)
        file.create_dataset("chunks", data=values, chunks=(4, 3, 4))
        picture = file.create_dataset("picture", (10,), h5py.vlen_dtype(np.uint8))
        for row in range(10):
            picture[row] = np.frombuffer(jpeg(row), np.uint8)
    return [{"x": values[row], "chunks": values[row], "picture": jpeg(row)} for row in range(10)]


def _jsonl(folder: Path) -> Sequence[Sample]:
    rows = [
        {
            "text": f'number "{row}"\n',
            "n": row,
            "score": row / 4,
            "tokens": [*range(row)],
            "about": {"row": [row, None]},
        }
        for row in range(12)
    ]
    for number in range(2):
        part = rows[6 * number : 6 * number + 6]
        (folder / f"part-{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    return [row | {"tokens": np.array(row["tokens"], np.int64), "about": {"json": row["about"]}} for row in rows]


def _jsonl_compressed(folder: Path) -> Sequence[Sample]:
    found = _jsonl(folder)
    for number, path in enumerate(sorted(folder.glob("*.jsonl"))):
        frames = [zstandard.ZstdCompressor().compress(line) for line in path.read_bytes().splitlines(keepends=True)]
        name, data = (".zst", b"".join(frames)) if number else (".gz", gzip.compress(path.read_bytes()))
        path.with_name(path.name + name).write_bytes(data)
        path.unlink()
    return found


def _json_list(folder: Path) -> Sequence[Sample]:
    rows = [{"id": f"x{row}", "text": "\u00e9" * row} for row in range(6)]
    (folder / "rows.json").write_text(json.dumps(rows, indent=1))
    return rows


def _coco(folder: Path) -> Sequence[Sample]:
    for row in range(12):
        (folder / "train2017").mkdir(exist_ok=True)
        (folder / f"train2017/{row:03d}.jpg").write_bytes(jpeg(row))
    seen = [
        {"image_id": row, "category_id": 4 + row % 2, "bbox": [row, 1, 2, 3], "area": 6, "segmentation": [[row]]}
        for row in range(10)
        for _ in range(row % 3)
    ]
    about = {
        "images": [{"id": row, "file_name": f"{row:03d}.jpg"} for row in range(12)],
        "annotations": seen,
        "categories": [{"id": 5, "name": "b"}, {"id": 4, "name": "a"}],
    }
    (folder / "annotations").mkdir()
    (folder / "annotations/instances_train2017.json").write_text(json.dumps(about))
    counts = [row % 3 if row < 10 else 0 for row in range(12)]
    return [
        {
            "jpg": jpeg(row),
            "image_id": row,
            "boxes": np.array([[row, 1, row + 2, 4]] * count, np.float32).reshape(-1, 4),
            "labels": np.full(count, row % 2, np.int64),
            "masks": {"json": [[[row]]] * count},
        }
        for row, count in enumerate(counts)
    ]


def _yolo(folder: Path) -> Sequence[Sample]:
    for kind in ("images", "labels"):
        (folder / kind / "train").mkdir(parents=True)
    for row in range(12):
        (folder / f"images/train/{row:03d}.jpg").write_bytes(jpeg(row))
        if row % 3:
            lines = [f"{one} 0.5 0.25 0.5 0.125\n" for one in range(row % 3)]
            (folder / f"labels/train/{row:03d}.txt").write_text("".join(lines))
    (folder / "data.yaml").write_text("path: ../datasets/x\ntrain: images/train\nnames: [a, b]\n")
    return [
        {
            "jpg": jpeg(row),
            "boxes": np.array([[0.5, 0.25, 0.5, 0.125]] * (row % 3), np.float32).reshape(-1, 4),
            "labels": np.arange(row % 3),
        }
        for row in range(12)
    ]


def _mpdataset(folder: Path) -> Sequence[Sample]:
    (folder / "train").mkdir()
    for row in range(12):
        (folder / f"train/{row:03d}.jpg").write_bytes(jpeg(row))
    (folder / "data.csv").write_text("".join(f"train/{row:03d}.jpg,,{row % 3}\n" for row in range(12)))
    (folder / "cls.csv").write_text("a\nb\nc\n")
    return [{"jpg": jpeg(row), "cls": row % 3} for row in range(12)]


def _class_folders(folder: Path) -> Sequence[Sample]:
    for row in range(12):
        (folder / "ab"[row % 2]).mkdir(exist_ok=True)
        (folder / f"{'ab'[row % 2]}/{row:03d}.jpg").write_bytes(jpeg(row))
    return [{"jpg": jpeg(row), "cls": row % 2} for row in [*range(0, 12, 2), *range(1, 12, 2)]]


SETS: Mapping[str, ForeignSet] = {
    "arrow": ForeignSet(_arrow, number="cls"),
    "mds": ForeignSet(golden("mds/every"), number="int8"),
    "litdata": ForeignSet(golden("litdata/every"), number="int"),
    "lmdb": ForeignSet(_lmdb, number="cls"),
    "tar-of-tars": ForeignSet(_tar_of_tars, number="cls"),
    "webdataset": ForeignSet(_webdataset, number="cls"),
    "zip": ForeignSet(_zip, number="cls"),
    "recordio": ForeignSet(_recordio, number="cls"),
    "tfrecord": ForeignSet(_tfrecord("imagenet"), number="cls"),
    "beton": ForeignSet(_beton, number="label"),
    "megatron": ForeignSet(_megatron),
    "nanogpt": ForeignSet(_nanogpt, {"length": "31", "dtype": "uint16"}),
    "npy": ForeignSet(_npz, number="y"),
    "memmap": ForeignSet(_memmap, {"dtype": "float16", "shape": "50,8"}),
    "parquet": ForeignSet(_parquet(compression="snappy", data_page_size=200), number="cls"),
    "hdf5": ForeignSet(_hdf5, number="label"),
    "jsonl": ForeignSet(_jsonl, number="n"),
    "coco": ForeignSet(_coco, number="image_id"),
    "yolo": ForeignSet(_yolo),
    "files": ForeignSet(_mpdataset, number="cls"),
}
"""One for each format, by its name."""

OTHERS: Mapping[str, Sequence[ForeignSet]] = {
    "arrow": [ForeignSet(_arrow_of_every_type(codec)) for codec in (None, "lz4")],
    "mds": [ForeignSet(golden("mds/merged"))],
    "litdata": [
        *(ForeignSet(golden(f"litdata/{name}")) for name in ("pairs", "single", "numpy", "tensors")),
        ForeignSet(golden("litdata/tokens"), {"block_size": "6"}),
    ],
    "lmdb": [ForeignSet(lmdb_layout(name)) for name in ("files", "numbered", "pickles", "msgpack", "datum")],
    "webdataset": [ForeignSet(_webdataset, {"group": "key"})],
    "recordio": [ForeignSet(_recordio_labels)],
    "tfrecord": [
        *(ForeignSet(_tfrecord(name)) for name in ("lists", "sequences", "tfds", "bytes", "package")),
        ForeignSet(_tfrecord("lists"), {"verify": "crc"}),
    ],
    "beton": [ForeignSet(_small_beton)],
    "megatron": [ForeignSet(_megatron_windows, {"length": "7"})],
    "npy": [ForeignSet(_npy)],
    "parquet": [ForeignSet(_parquet(compression="none", use_dictionary=False))],
    "hdf5": [ForeignSet(_plain_hdf5)],
    "jsonl": [ForeignSet(_jsonl_compressed), ForeignSet(_json_list)],
    "files": [ForeignSet(_class_folders)],
}
"""More of some formats, for what reads all that there is."""
