"""The data in each contender's own format. Each function runs in the environment of the peer whose format it writes."""

from __future__ import annotations

import random
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench import data
from bench.data import SHARDS
from bench.harness import Contender, run_fresh
from bench.race.corpora import SHAPES, Kind, small

REENCODED = 90  # FFCV's default quality


def bring(
    out: Path, function: str, python: str | None = None, *, module: str = "bench.race.stores", **options: Any
) -> None:
    """Make a store if it is not there, in a process of its own.

    Args:
        out: Where it goes: made aside and renamed, so that it is whole when it is there.
        function: Makes it.
        python: Interpreter of the environment to do it in.
        module: Where the function is.
        options: Of the function.

    Raises:
        ContenderError: It failed.
    """
    if out.exists():
        return
    print(f"making {out.parent.name}/{out.name}", flush=True)
    aside = out.with_name(f"making-{out.name}")
    if aside.is_dir():
        shutil.rmtree(aside)
    aside.unlink(missing_ok=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    run_fresh(Contender(out.name, f"{module}:{function}", {"out": str(aside), **options}, python=python))
    aside.rename(out)


def photographs(folder: str) -> list[tuple[Path, int]]:
    """Path and label of each photograph, in the shuffled order in which every store has them."""
    entries = list(data.read_list(Path(folder)))
    return random.Random(0).sample(entries, len(entries))


def webdataset_photographs(out: str, folder: str) -> None:
    """Tar files of ``jpg`` and ``cls``, equally long."""
    entries = photographs(folder)
    data.write_webdataset(entries, Path(folder), Path(out), maxcount=-(-len(entries) // SHARDS))


def webdataset_small(out: str, kind: Kind, count: int) -> None:
    """Tar files of the samples' bytes."""
    import webdataset

    Path(out).mkdir()
    with webdataset.ShardWriter(f"{out}/%05d.tar", verbose=0, maxcount=count // SHARDS) as writer:
        for number in range(count):
            writer.write({"__key__": f"{number:08d}", "bin": small(kind, number).tobytes()})


def streaming_photographs(out: str, folder: str) -> None:
    """MDS shards of ``jpg`` and ``cls``."""
    write_streaming(out, {"jpg": "bytes", "cls": "int"}, map(_photograph, photographs(folder)))


def streaming_small(out: str, kind: Kind, count: int) -> None:
    """MDS shards of arrays of a fixed shape."""
    shape, dtype = SHAPES[kind]
    column = f"ndarray:{dtype.name}:{','.join(map(str, shape))}"
    write_streaming(out, {"x": column}, ({"x": small(kind, number)} for number in range(count)))


def write_streaming(out: str, columns: dict[str, str], samples: Any) -> None:
    """MDS shards of some columns."""
    from bench.peers import bare_streaming

    bare_streaming()
    from streaming.base.format.mds.writer import MDSWriter

    with MDSWriter(out=out, columns=columns, size_limit=32 << 20) as writer:
        for sample in samples:
            writer.write(sample)


def litdata_photographs(out: str, folder: str) -> None:
    """Chunks of ``jpg`` and ``cls``, equally long."""
    entries = photographs(folder)
    write_litdata(out, _photograph, entries, chunk_size=-(-len(entries) // SHARDS))


def litdata_small(out: str, kind: Kind, count: int) -> None:
    """Chunks of tensors: of tokens in the form that LitData has for them."""
    arguments: dict[str, Any] = {"chunk_size": count // SHARDS}
    if kind == "tokens":
        from litdata import TokensLoader

        block = SHAPES[kind][0][0]
        arguments = {"chunk_size": count // SHARDS * block, "item_loader": TokensLoader(block_size=block)}
    write_litdata(out, partial(_tensor, kind), list(range(count)), **arguments)


def write_litdata(out: str, sample: Any, inputs: list[Any], **arguments: Any) -> None:
    """Chunks of what ``sample`` makes of the inputs."""
    import litdata

    litdata.optimize(
        fn=sample, inputs=inputs, output_dir=out, num_workers=1, reorder_files=False, verbose=False, **arguments
    )


def lance_photographs(out: str, folder: str) -> None:
    """A Lance data set of ``jpg`` and ``cls``."""
    import lance
    import pyarrow  # type: ignore[import-untyped]

    schema = pyarrow.schema([("jpg", pyarrow.binary()), ("cls", pyarrow.int64())])
    entries = photographs(folder)
    batches = (
        pyarrow.RecordBatch.from_pylist(list(map(_photograph, entries[first : first + data.BATCH])), schema=schema)
        for first in range(0, len(entries), data.BATCH)
    )
    lance.write_dataset(batches, out, schema=schema)


def _photograph(entry: tuple[Path, int]) -> dict[str, Any]:
    return {"jpg": entry[0].read_bytes(), "cls": entry[1]}


def _tensor(kind: Kind, number: int) -> Any:
    import torch

    return torch.from_numpy(small(kind, number))


def ffcv_photographs(out: str, folder: str, quality: int | None) -> None:
    """A beton: with the same JPEG files as everybody has, or with those that FFCV makes of them."""
    from ffcv.fields import IntField, RGBImageField
    from ffcv.fields.rgb_image import IMAGE_MODES
    from PIL import Image

    def keep(destination: Any, path: Path, malloc: Any) -> None:
        """What the field itself does, with a file that is a JPEG already."""
        with Image.open(path) as opened:
            destination["width"], destination["height"] = opened.size
        octets = np.fromfile(path, np.uint8)
        destination["mode"] = IMAGE_MODES["jpg"]
        destination["data_ptr"], storage = malloc(octets.nbytes)
        storage[:] = octets

    field = RGBImageField(write_mode="jpg", jpeg_quality=quality or REENCODED)
    if quality is None:
        field.encode = keep
    entries = photographs(folder)
    _write_ffcv(out, {"image": field, "label": IntField()}, _Photographs(entries, decoded=quality is not None))


class _Photographs:
    """What FFCV's writer takes: a sequence of tuples."""

    def __init__(self, entries: list[tuple[Path, int]], *, decoded: bool) -> None:
        self.entries, self.decoded = entries, decoded

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        from PIL import Image

        path, label = self.entries[number]
        if not self.decoded:
            return path, label
        with Image.open(path) as opened:
            return opened.convert("RGB"), label


def ffcv_small(out: str, kind: Kind, count: int) -> None:
    """A beton of arrays."""
    from ffcv.fields import NDArrayField

    shape, dtype = SHAPES[kind]
    _write_ffcv(out, {"x": NDArrayField(dtype, shape)}, _Small(kind, count))


class _Small:
    def __init__(self, kind: Kind, count: int) -> None:
        self.kind, self.count = kind, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> tuple[Any]:
        return (small(self.kind, number),)


def _write_ffcv(out: str, fields: dict[str, Any], samples: Any) -> None:
    from ffcv.writer import DatasetWriter

    DatasetWriter(out, fields, num_workers=1).from_indexed_dataset(samples)


def grain_photographs(out: str, folder: str) -> None:
    """An ArrayRecord file: the label in 8 bytes, then the JPEG file."""
    records = (label.to_bytes(8, "little") + path.read_bytes() for path, label in photographs(folder))
    _write_arrayrecord(out, records)


def grain_small(out: str, kind: Kind, count: int) -> None:
    """An ArrayRecord file of the samples' bytes."""
    _write_arrayrecord(out, (small(kind, number).tobytes() for number in range(count)))


def _write_arrayrecord(out: str, records: Any) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(out, "group_size:1")  # random access to single records, as Grain's pages advise
    for record in records:
        writer.write(record)
    writer.close()
