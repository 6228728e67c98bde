"""Which objects of a folder are read: what `datasets` saves and keeps, and other folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shardstream as ss
from shardstream.errors import FormatError, ShardStreamError, UsageError
from shardstream.formats.arrow.format import Arrow
from shardstream.formats.registry import recognize
from tests.formats.arrow_tables import of_photograph, photographs, write
from tests.formats.scanning import listing_of, recognised, samples


def saved(folder: Path, files: int = 2, **state: Any) -> Path:
    """What `save_to_disk` writes, 5 rows a file."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"data-{number:05d}-of-{files:05d}.arrow" for number in range(files)]
    for number, name in enumerate(names):
        write(folder / name, photographs(range(5 * number, 5 * number + 5)), rows=3, stream=True)
    state = {"_data_files": [{"filename": name} for name in names], "_split": None} | state
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text(json.dumps({"features": {}}))
    return folder


def values(folder: Path, **options: str) -> list[Any]:
    return [values for _, values in samples(Arrow(), folder, options)]


def message(folder: Path, **options: str) -> str:
    with pytest.raises(ShardStreamError) as caught:
        recognize(listing_of(folder), None, options)
    return str(caught.value)


def test_what_was_saved(tmp_path: Path) -> None:
    folder = saved(tmp_path / "a", 3)
    shutil.copy(folder / "data-00000-of-00003.arrow", folder / "cache-0123456789abcdef.arrow")
    found = recognised(Arrow(), listing_of(folder))
    assert [one.path for one in found.objects] == [f"data-0000{number}-of-00003.arrow" for number in range(3)]
    assert "cache-0123456789abcdef.arrow" in found.notes[0]
    assert values(folder) == [of_photograph(row) for row in range(15)]


def test_rows_that_are_chosen_by_indices(tmp_path: Path) -> None:
    chosen = [13, 2, 2, 14, 0, 7, 6]
    folder = saved(tmp_path / "a", 3, _indices_data_files=[{"filename": "indices.arrow"}])
    indices = pa.table({"indices": pa.array(chosen, pa.uint64())})
    write(folder / "indices.arrow", indices, rows=3, stream=True)
    # Files are read one after another, each in the order of the indices.
    expected = [of_photograph(row) for row in (2, 2, 0, 7, 6, 13, 14)]
    assert values(folder) == expected
    assert "order of the indices" in recognised(Arrow(), listing_of(folder)).notes[0]
    other = saved(tmp_path / "b", 1)
    write(other / "cache-1.arrow", pa.table({"indices": pa.array([4, 1, 3], pa.uint64())}), stream=True)
    assert values(other, indices="cache-1.arrow") == [of_photograph(row) for row in (4, 1, 3)]
    assert len(values(other)) == 5
    assert "no file of indices 'x.arrow'" in message(other, indices="x.arrow")
    assert "no file of indices" in message(other, indices="../b/cache-1.arrow")
    write(other / "cache-1.arrow", pa.table({"indices": [4, 1, 3]}), stream=True)
    with pytest.raises(FormatError, match="no plain column 'indices'"):
        values(other, indices="cache-1.arrow")


def test_several_splits(tmp_path: Path) -> None:
    for split in ("train", "other"):
        saved(tmp_path / split)
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "other"]}))
    told = message(tmp_path)
    assert f"{tmp_path}/other or {tmp_path}/train" in told
    assert "several splits" in told
    (tmp_path / "dataset_dict.json").unlink()
    assert "no data set of datasets here, but in folders: 2" in message(tmp_path)


def test_the_cache_of_datasets(tmp_path: Path) -> None:
    write(tmp_path / "pets-train-00000-of-00002.arrow", photographs(range(5)), stream=True)
    write(tmp_path / "pets-train-00001-of-00002.arrow", photographs(range(5, 9)), stream=True)
    write(tmp_path / "cache-8d0f.arrow", pa.table({"indices": pa.array([1], pa.uint64())}), stream=True)
    (tmp_path / "pets_builder.lock").touch()
    (tmp_path / "dataset_info.json").write_text(json.dumps({"splits": {"train": {}, "odd": {}}}))
    assert values(tmp_path) == [of_photograph(row) for row in range(9)]
    write(tmp_path / "pets-odd.arrow", photographs(range(3)), stream=True)
    told = message(tmp_path)
    assert "several splits here: odd, train" in told
    assert f"{tmp_path}/pets-train*.arrow" in told
    for path in tmp_path.glob("pets-*.arrow"):
        path.unlink()
    assert f"{tmp_path}/cache-8d0f.arrow" in message(tmp_path)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("[1]", "lists no data files"),
        ("{}", "lists no data files"),
        ('{"_data_files": 3}', "not a list"),
        ('{"_data_files": []}', "no data files are listed"),
        ('{"_data_files": [3]}', "not a JSON object"),
        ('{"_data_files": [{"filename": "../x.arrow"}]}', "not a path below the folder"),
        ('{"_data_files": [{"filename": "/x.arrow"}]}', "not a path below the folder"),
        ('{"_data_files": [{"filename": "x.arrow"}]}', "not here"),
        ('{"_data_files": [{"filename": "data-00000-of-00002.arrow", "take": 3}]}', "only a part"),
        (json.dumps({"_data_files": [{"filename": "data-00000-of-00002.arrow"}] * 2}), "twice"),
    ],
)
def test_a_state_that_cannot_be_followed(tmp_path: Path, state: str, expected: str) -> None:
    saved(tmp_path)
    (tmp_path / "state.json").write_text(state)
    told = message(tmp_path)
    assert expected in told
    assert str(tmp_path) in told


def test_what_is_of_others(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"epoch": 3}')
    assert Arrow().recognize(listing_of(tmp_path), {}) is None
    write(tmp_path / "a.arrow", photographs(range(3)))
    (tmp_path / "state.json").unlink()
    (tmp_path / "README.md").touch()
    assert len(values(tmp_path)) == 3
    (tmp_path / "b.tar").write_bytes(b"x")
    assert Arrow().recognize(listing_of(tmp_path), {}) is None


def test_a_file_that_is_named(tmp_path: Path) -> None:
    write(tmp_path / "cache-1.arrow", photographs(range(3)))
    shutil.copy(tmp_path / "cache-1.arrow", tmp_path / "table")
    (tmp_path / "other").write_bytes(b"\xff\xff\xff\xff")
    for name in ("cache-1.arrow", "table"):
        assert len(ss.Reader(tmp_path / name)) == 3
    with pytest.raises(ShardStreamError):
        ss.Reader(tmp_path / "other")
    (tmp_path / "x.arrow").write_bytes(b"")
    with pytest.raises(FormatError, match="not an Arrow file"):
        ss.Reader(tmp_path / "x.arrow")


@pytest.mark.full
def test_what_datasets_itself_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    features = datasets.Features(
        {
            "image": datasets.Image(decode=False),
            "label": datasets.ClassLabel(names=["ape", "cat", "wolf"]),
            "vector": datasets.Sequence(datasets.Value("float32"), length=3),
            "boxes": datasets.Array2D((None, 4), "float32"),
            "tags": datasets.Sequence(datasets.Value("string")),
            "objects": {
                "box": [datasets.Sequence(datasets.Value("int64"), length=4)],
                "name": [datasets.Value("string")],
            },
        }
    )
    rows = [
        {
            "image": {"bytes": of_photograph(row)["image"], "path": f"{row % 3}.jpg"},
            "label": row % 3,
            "vector": [row, 1, 2],
            "boxes": np.full((1 + row % 3, 4), row),
            "tags": [f"t{row}"] * (row % 3),
            "objects": {"box": [[row] * 4] * (row % 2), "name": ["x"] * (row % 2)},
        }
        for row in range(50)
    ]
    whole = datasets.Dataset.from_list(rows, features=features)
    whole.save_to_disk(tmp_path / "saved", num_shards=3)
    whole.filter(lambda row: row["label"] == 1).save_to_disk(tmp_path / "filtered")
    datasets.DatasetDict(train=whole, test=whole).save_to_disk(tmp_path / "splits")
    for name in ("saved", "filtered"):
        reader = ss.Reader(tmp_path / name, fields={"image": "bytes", "cls": None} | dict.fromkeys(MORE))
        expected = datasets.load_from_disk(tmp_path / name)
        assert ss.ShardDataset(tmp_path / name).manifest.classes == ("ape", "cat", "wolf")
        assert len(reader) == len(expected) > 0
        for found, row in zip(reader, expected, strict=True):
            assert (bytes(found["image"]), found["cls"]) == (row["image"]["bytes"], row["label"])
            assert [found["vector"].tolist(), found["boxes"].tolist()] == [row["vector"], row["boxes"]]
            assert (found["tags"], found["objects.name"]) == (row["tags"], row["objects"]["name"])
            assert found["objects.box"].tolist() == row["objects"]["box"]
    with pytest.raises(UsageError, match="several splits"):
        ss.Reader(tmp_path / "splits")


MORE = ("vector", "boxes", "tags", "objects.box", "objects.name")
