"""docs/migrate.md shows what ``shardstream migrate`` prints, and how our data sets feed other libraries."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import shardstream as ss
from shardstream.formats.migrate.after import after
from shardstream.formats.migrate.before import before
from shardstream.formats.migrate.facts import Facts
from shardstream.options import SourceOptions
from shardstream.shards.fields import FieldType
from tests.formats.catalog.making import jpeg

DOCUMENT = Path(__file__).parents[3] / "docs" / "migrate.md"
SECTION = re.compile(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

PLAIN = Facts(
    url="imagenet",
    folder="imagenet",
    local=True,
    source="files",
    reading=SourceOptions(),
    names=("n01440764/n01440764_18.JPEG",),
    fields={"jpg": FieldType.parse("jpg"), "cls": FieldType.parse("int64")},
    damaged=False,
    picture="jpg",
    label="cls",
    chosen=("jpg", "cls"),
    columns={},
    encodings={},
    first_key="0",
    first_file="n01440764/n01440764_18.JPEG",
    first_line="",
    beside=frozenset(),
    classes=1000,
    named=True,
    crop=224,
    batch_size=256,
    workers=8,
)
NAMED = replace(
    PLAIN,
    fields={"image": FieldType.parse("jpg"), "label": FieldType.parse("int64")},
    picture="image",
    label="label",
    chosen=("image", "label"),
    named=False,
)
BOXES = {"jpg": "jpg", "boxes": "array", "labels": "values:int64"}
FACTS = {
    "WebDataset": replace(
        PLAIN,
        url="imagenet/train-{0000..1023}.tar",
        source="webdataset",
        names=tuple(f"train-{number:04d}.tar" for number in range(1024)),
        named=False,
    ),
    "MosaicML Streaming": replace(
        NAMED,
        url="s3://bucket/imagenet-mds",
        folder="s3://bucket/imagenet-mds",
        local=False,
        source="mds",
        names=("shard.00000.mds",),
        encodings={"image": "jpeg", "label": "int"},
    ),
    "LitData": replace(NAMED, url="imagenet-lit", folder="imagenet-lit", source="litdata", names=("chunk-0-0.bin",)),
    "FFCV": replace(NAMED, url="train.beton", folder=".", source="beton", names=("train.beton",)),
    "Hugging Face's datasets": replace(
        NAMED,
        url="food101/data",
        folder="food101/data",
        source="parquet",
        names=tuple(f"train-{number:05d}-of-00008.parquet" for number in range(8)),
        fields={"image": FieldType.parse("jpg"), "cls": FieldType.parse("int64")},
        label="cls",
        chosen=("image", "cls"),
        columns={"cls": "label"},
        classes=101,
        named=True,
    ),
    "MPDataset": replace(PLAIN, source="files", names=("data.csv",), beside=frozenset(("cls.csv",))),
    "ImageFolder": PLAIN,
    "CocoDetection": replace(
        PLAIN,
        url="coco/annotations/instances_train2017.json",
        folder="coco",
        source="coco",
        names=("annotations/instances_train2017.json",),
        fields={name: FieldType.parse(kind) for name, kind in BOXES.items()},
        label=None,
        chosen=tuple(BOXES),
        first_file="train2017/000000391895.jpg",
        classes=80,
    ),
    "TFRecord": replace(
        PLAIN,
        url="imagenet-tfrecord",
        folder="imagenet-tfrecord",
        source="tfrecord",
        names=tuple(f"train-{number:05d}-of-01024" for number in range(1024)),
        columns={"jpg": "image/encoded", "cls": "image/class/label"},
        named=False,
    ),
}


@pytest.mark.parametrize("heading", FACTS)
def test_the_document_shows_what_is_printed(heading: str) -> None:
    sections = dict(SECTION.findall(DOCUMENT.read_text()))
    theirs = before(FACTS[heading])
    assert theirs is not None
    assert compile(theirs.code, "before.py", "exec")
    assert BLOCK.findall(sections[heading])[:2] == [theirs.code, after(FACTS[heading])]


def test_a_data_set_feeds_a_pipeline_of_webdataset(tmp_path: Path) -> None:
    wds = pytest.importorskip("webdataset")
    ds = _small(tmp_path)
    for workers in (0, 2):
        pipeline = wds.DataPipeline(ds.to_tuple("__key__", "cls"), wds.shuffle(5), wds.batched(4))
        loader = wds.WebLoader(pipeline, batch_size=None, num_workers=workers)
        orders = [[key for keys, _ in loader for key in keys] for _ in range(2)]
        assert [sorted(one) for one in orders] == [[f"{row:02d}" for row in range(24)]] * 2
        assert orders[0] != orders[1]


def test_a_data_set_feeds_an_iterable_data_set_of_hugging_face(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    datasets = pytest.importorskip("datasets")
    from torch.utils.data import DataLoader

    ds = _small(tmp_path)

    def samples(workers: list[int]) -> object:
        yield from ds

    for workers in (0, 2):
        found = datasets.IterableDataset.from_generator(samples, gen_kwargs={"workers": [*range(max(workers, 1))]})
        loader = DataLoader(found.remove_columns("jpg"), batch_size=4, num_workers=workers)
        orders = [[key for batch in loader for key in batch["__key__"]] for _ in range(2)]
        assert [sorted(one) for one in orders] == [[f"{row:02d}" for row in range(24)]] * 2
        assert orders[0] != orders[1]
    assert next(iter(found))["jpg"] in {jpeg(row) for row in range(24)}


def _small(folder: Path) -> ss.ShardDataset:
    with ss.ShardWriter(folder / "ours", shard_size="4kB") as writer:
        for row in range(24):
            writer.write({"__key__": f"{row:02d}", "jpg": jpeg(row), "cls": row % 3})
    return ss.ShardDataset(folder / "ours", fields={"jpg": "bytes", "cls": None}, shuffle=True)
