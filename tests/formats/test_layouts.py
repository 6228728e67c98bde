"""Tables beside directories of files, as Hugging Face, Kaggle and corpora of speech have them: packed and in place."""

from __future__ import annotations

import json
import wave
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

import shardstream as ss
from shardstream.cli.app import app
from shardstream.errors import DuplicateKeyError, UnsupportedError, UsageError
from shardstream.formats.files.format import SingleFiles
from shardstream.formats.files.layouts import layout_of_list, needs_all_names
from shardstream.names.splits import SplitsError
from shardstream.pack.sources import look
from shardstream.storage import open_store
from shardstream.testing import MemoryStore, SourceConformance
from tests.formats.damaging import ConformanceWithFullDamage
from tests.pack.foreign import tar_bytes
from tests.pack.making import jpeg

Samples = Mapping[str, Mapping[str, Any]]
ROWS = 4


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


def put(path: Path, data: bytes | str) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path.read_bytes()


def sound(path: Path, number: int) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(80 + 2 * number))
    return path.read_bytes()


def lines(path: Path, *rows: str) -> None:
    put(path, "".join(f"{row}\n" for row in rows))


def imagefolder(root: Path) -> Samples:
    rows = [f'{i:04}.jpg,"This is, {i}",{i / 2},{i if i else ""}' for i in range(ROWS)]
    lines(root / "metadata.csv", "file_name,additional_feature,score,year", *rows)
    return {
        f"{i:04}": {
            "jpg": put(root / f"{i:04}.jpg", jpeg(i)),
            "additional_feature": f"This is, {i}",
            "score": i / 2,
            "year": i or None,
        }
        for i in range(ROWS)
    }


def imagefolder_of_pairs(root: Path) -> Samples:
    """Two files a row, values that are nested, and names of classes."""
    found = {}
    rows = []
    for i in range(ROWS):
        objects = {"bbox": [[i, 2, 3, 4]], "categories": [i]}
        names = {"file_name": f"img/{i}.jpg", "mask_file_name": f"masks/{i}.jpg"}
        rows.append(json.dumps({**names, "objects": objects, "label": "yn"[i % 2]}))
        image, mask = put(root / f"img/{i}.jpg", jpeg(i)), put(root / f"masks/{i}.jpg", jpeg(i + 9))
        found[str(i)] = {"jpg": image, "mask": mask, "objects": objects, "cls": 1 - i % 2}
    lines(root / "metadata.jsonl", *rows)
    return found


def imagefolder_of_parquet(root: Path) -> Samples:
    names = [f"{i}.jpg" for i in range(ROWS)]
    table = {"file_name": names, "text": ["one", "", "three", "four"], "n": [1, None, 3, 4]}
    root.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(table), root / "metadata.parquet")
    values = zip(names, table["text"], table["n"], strict=True)
    return {
        name[:-4]: {"jpg": put(root / name, jpeg(i)), "text": text, "n": number}
        for i, (name, text, number) in enumerate(values)
    }


def imagefolder_of_directories(root: Path) -> Samples:
    found = {}
    for part in ("a", "b"):
        lines(root / part / "metadata.csv", "file_name,label", *(f"{i}.jpg,{part}{i}" for i in range(2)))
        for i in range(2):
            found[f"{part}/{i}"] = {"jpg": put(root / part / f"{i}.jpg", jpeg(i)), "label": f"{part}{i}"}
    return found


def audiofolder(root: Path) -> Samples:
    lines(root / "metadata.csv", "file_name,transcription", *(f"data/{i}.wav,znowu {i}" for i in range(ROWS)))
    return {str(i): {"wav": sound(root / f"data/{i}.wav", i), "transcription": f"znowu {i}"} for i in range(ROWS)}


def kaggle(root: Path) -> Samples:
    """The dog breeds: names of files without suffix, some numbers missing."""
    ids = [f"{i:x}00bec1c97" for i in range(ROWS)]
    rows = [f"{one},{['cat', 'dog'][i % 2]},{i if i != 1 else ''},00{i}" for i, one in enumerate(ids)]
    lines(root / "labels.csv", "id,breed,age,chip", *rows)
    lines(root / "sample_submission.csv", "id,breed", *ids)
    return {
        one: {
            "jpg": put(root / "train" / f"{one}.jpg", jpeg(i)),
            "breed": ["cat", "dog"][i % 2],
            "age": i if i != 1 else None,
            "chip": f"00{i}",  # no number: it would lose digits
        }
        for i, one in enumerate(ids)
    }


def common_voice(root: Path) -> Samples:
    header = "client_id\tpath\tsentence\tup_votes\tage"
    rows = [f'c{i}\tcommon_voice_en_{i}.mp3\tSay "hi" {i}\t{i}\t' for i in range(ROWS)]
    lines(root / "validated.tsv", header, *rows)
    return {
        f"common_voice_en_{i}": {
            "mp3": put(root / f"clips/common_voice_en_{i}.mp3", f"ID3 {i}"),
            "client_id": f"c{i}",
            "sentence": f'Say "hi" {i}',
            "up_votes": i,
            "age": "",
        }
        for i in range(ROWS)
    }


def ljspeech(root: Path) -> Samples:
    """Quotes mean nothing, and may be open."""
    lines(root / "metadata.csv", *(f'LJ001-000{i}|Dr. "{i}|Doctor, "{i}' for i in range(ROWS)))
    return {
        f"LJ001-000{i}": {
            "wav": sound(root / f"wavs/LJ001-000{i}.wav", i),
            "text": f'Dr. "{i}',
            "normalized_text": f'Doctor, "{i}',
        }
        for i in range(ROWS)
    }


def librispeech(root: Path) -> Samples:
    found = {}
    put(root / "SPEAKERS.TXT", "; some words\n")
    for chapter in ("84/121123", "84/121550"):
        stem = chapter.replace("/", "-")
        lines(root / chapter / f"{stem}.trans.txt", *(f"{stem}-000{i} GO ON {i}" for i in range(2)))
        for i in range(2):
            flac = put(root / chapter / f"{stem}-000{i}.flac", f"fLaC {chapter} {i}")
            found[f"{chapter}/{stem}-000{i}"] = {"flac": flac, "text": f"GO ON {i}"}
    return found


def img2dataset(root: Path) -> Samples:
    """CC3M and LAION: tars, each with a table of all that was tried, and counts."""
    found = {}
    for shard in ("00000", "00001"):
        rows = [
            {"key": f"{shard}{i:04}", "caption": f"caption {i}", "status": "success" if i else "failed_to_download"}
            for i in range(3)
        ]
        members = {}
        for i, row in enumerate(rows[1:]):
            members |= {
                f"{row['key']}.jpg": jpeg(i),
                f"{row['key']}.txt": row["caption"].encode(),
                f"{row['key']}.json": json.dumps(row, indent=4).encode(),
            }
            found[row["key"]] = {"jpg": jpeg(i), "txt": row["caption"], "json": row}
        put(root / f"{shard}.tar", tar_bytes(members))
        parquet.write_table(pyarrow.Table.from_pylist(rows), root / f"{shard}.parquet")
        put(root / f"{shard}_stats.json", json.dumps({"count": 3, "successes": 2, "status_dict": {"success": 2}}))
    return found


LAYOUTS: dict[str, tuple[Callable[[Path], Samples], str]] = {  # and the list, where it may be named
    "imagefolder": (imagefolder, "metadata.csv"),
    "imagefolder, pairs": (imagefolder_of_pairs, "metadata.jsonl"),
    "imagefolder, Parquet": (imagefolder_of_parquet, ""),
    "imagefolder, directories": (imagefolder_of_directories, ""),
    "audiofolder": (audiofolder, "metadata.csv"),
    "Kaggle": (kaggle, "labels.csv"),
    "Common Voice": (common_voice, "validated.tsv"),
    "LJSpeech": (ljspeech, "metadata.csv"),
    "LibriSpeech": (librispeech, ""),
    "img2dataset": (img2dataset, ""),
}


def read(place: Any) -> Samples:
    kinds = ss.ShardDataset(place).manifest.fields
    raw = {name: "bytes" if kind.is_image else None for name, kind in kinds.items()}
    found = {one.pop("__key__"): one for one in map(dict, ss.Reader(place, fields=raw))}
    return {key: {n: v for n, v in one.items() if not n.startswith("__")} for key, one in found.items()}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_directory_and_its_list_have_the_same_samples_packed_and_in_place(layout: str, tmp_path: Path) -> None:
    make, name = LAYOUTS[layout]
    expected = make(tmp_path / "data")
    places = [tmp_path / "data", *([tmp_path / "data" / name] if name else [])]
    for number, place in enumerate(places):
        assert read(place) == expected
        ss.pack(place, tmp_path / str(number), images=ss.ImageOptions(jpeg="keep"), workers=0)
        assert not (tmp_path / str(number) / "rejects.jsonl").exists()
        assert read(tmp_path / str(number)) == expected


@pytest.mark.parametrize("layout", ["imagefolder, pairs", "Kaggle", "LibriSpeech"])
def test_a_store_has_the_same_samples(layout: str, tmp_path: Path) -> None:
    expected = LAYOUTS[layout][0](tmp_path / "data")
    files = {path.relative_to(tmp_path / "data").as_posix(): path for path in (tmp_path / "data").rglob("*.*")}
    store = MemoryStore({name: path.read_bytes() for name, path in files.items() if path.is_file()})
    assert read(store) == expected


def test_the_command_says_what_was_recognized(tmp_path: Path) -> None:
    ljspeech(tmp_path / "data")
    found = CliRunner().invoke(app, ["pack", str(tmp_path / "data"), str(tmp_path / "out"), "--workers", "0"])
    assert found.exit_code == 0, found.output
    said = " ".join(found.output.split())
    assert "Read as rows of metadata.csv: wav=0:file:wavs/{}.wav, text=1, normalized_text=2." in said


def test_batches_of_a_directory(tmp_path: Path) -> None:
    kaggle(tmp_path)
    dataset = ss.ShardDataset(tmp_path, fields={"jpg": ss.decode.RandomResizedCrop(4), "breed": None}, batch_size=2)
    batches = list(ss.Loader(dataset, num_workers=0))
    assert [batch["jpg"].shape for batch in batches] == [(2, 3, 4, 4)] * 2
    assert [one for batch in batches for one in batch["breed"]] == ["cat", "dog"] * 2


def test_files_that_are_missing_or_no_images_are_rejected_alone(tmp_path: Path) -> None:
    expected = imagefolder(tmp_path / "data")
    (tmp_path / "data/0001.jpg").unlink()
    put(tmp_path / "data/0002.jpg", b"nothing")
    ss.pack(tmp_path / "data", tmp_path / "out", images=ss.ImageOptions(jpeg="keep"), workers=0)
    assert read(tmp_path / "out") == {key: expected[key] for key in ("0000", "0003")}
    rejects = [json.loads(line) for line in (tmp_path / "out/rejects.jsonl").read_text().splitlines()]
    assert [(one["path"], one["kind"]) for one in rejects] == [("0001.jpg", "missing"), ("0002.jpg", "damaged")]


def test_a_broken_line_is_rejected_alone(tmp_path: Path) -> None:
    expected = audiofolder(tmp_path / "data")
    table = tmp_path / "data/metadata.csv"
    put(table, table.read_text() + "data/1.wav,one,too many\n")
    ss.pack(tmp_path / "data", tmp_path / "out", workers=0)
    assert read(tmp_path / "out") == expected
    (reject,) = map(json.loads, (tmp_path / "out/rejects.jsonl").read_text().splitlines())
    assert reject["line"] == 6
    assert "3 columns" in reject["reason"]


def test_keys_classes_and_fields_are_as_the_user_says(tmp_path: Path) -> None:
    data = tmp_path / "data"
    imagefolder_of_pairs(data)
    ss.pack(data, tmp_path / "classes", classes=["n", "x", "y"], key="line", workers=0)
    assert [one["cls"] for _, one in sorted(read(tmp_path / "classes").items())] == [2, 0, 2, 0]
    with pytest.raises(UsageError, match="the label 'y' is not in the list"):
        ss.pack(data, tmp_path / "other", classes=["n"], workers=0)
    rejecting = ss.SourceOptions(unknown="reject")
    assert ss.pack(data, tmp_path / "some", classes=["n"], reading=rejecting, workers=0).samples == 2
    fields = {"mask": "mask_file_name:file", "objects": "objects:json"}
    assert set(ss.pack(data, tmp_path / "fields", fields=fields, workers=0).fields) == {"mask", "objects"}
    with pytest.raises(UsageError, match="its fields are"):
        ss.pack(data, tmp_path / "key", key="nothing", workers=0)


def test_equal_keys_are_refused_or_numbered(tmp_path: Path) -> None:
    put(tmp_path / "data/1.jpg", jpeg(1))
    lines(tmp_path / "data/metadata.csv", "file_name,caption", "1.jpg,one", "1.jpg,another")
    with pytest.raises(DuplicateKeyError, match="row 1 and row 2"):
        ss.pack(tmp_path / "data", tmp_path / "out", workers=0)
    ss.pack(tmp_path / "data", tmp_path / "out", key="auto", workers=0)
    assert {key: one["caption"] for key, one in read(tmp_path / "out").items()} == {"1": "one", "1-2": "another"}


def test_lists_are_all_found_however_many_files_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "_LOOKED_AT", 4)
    expected = librispeech(tmp_path / "data")
    ss.pack(tmp_path / "data", tmp_path / "out", workers=0)
    assert read(tmp_path / "out") == expected


def test_the_tables_of_a_store_may_be_behind_its_first_names() -> None:
    assert needs_all_names(["clips/1.mp3", "clips/2.mp3"])
    assert not needs_all_names(["clips/1.mp3", "train.tsv"])
    assert not needs_all_names(["cat/1.jpg", "dog/2.jpg"])


def test_a_column_of_keys_may_have_empty_cells(tmp_path: Path) -> None:
    kaggle(tmp_path / "data")
    ss.pack(tmp_path / "data", tmp_path / "out", key="age", workers=0)
    assert set(read(tmp_path / "out")) == {"0", "2", "3"}
    assert "the row has no key: its 'age' is empty" in (tmp_path / "out/rejects.jsonl").read_text()


def test_lists_whose_columns_differ_are_refused(tmp_path: Path) -> None:
    for part, value in (("a", "1"), ("b", "one")):
        put(tmp_path / f"data/{part}/1.jpg", jpeg(1))
        lines(tmp_path / f"data/{part}/metadata.csv", "file_name,n", f"1.jpg,{value}")
    with pytest.raises(UnsupportedError, match="int64 in one list, and str in another"):
        ss.pack(tmp_path / "data", tmp_path / "out")
    lines(tmp_path / "data/b/metadata.csv", "file_name,m", "1.jpg,1")
    for use in (ss.Reader, lambda place: ss.pack(place, tmp_path / "out")):
        with pytest.raises(UnsupportedError, match=r"the columns of b/metadata\.csv are not those of a/metadata\.csv"):
            use(tmp_path / "data")


def kaggle_splits(root: Path) -> None:
    for split in ("train", "test"):
        lines(root / f"{split}.csv", "image_id", *(f"{split}_{i}" for i in range(2)))
        for i in range(2):
            put(root / f"{split}/{split}_{i}.jpg", jpeg(i))


def metadata_splits(root: Path) -> None:
    for split in ("train", "test"):
        imagefolder(root / split)


@pytest.mark.parametrize(("make", "end"), [(kaggle_splits, ".csv"), (metadata_splits, "")])
def test_splits_are_opened_one_by_one(make: Callable[[Path], None], end: str, tmp_path: Path) -> None:
    make(tmp_path / "data")
    with pytest.raises(SplitsError) as error:
        ss.Reader(tmp_path / "data")
    assert error.value.places == {"test": f"test{end}", "train": f"train{end}"}
    with pytest.raises(UsageError, match=r"shardstream pack .*/train") as error:
        ss.pack(tmp_path / "data", tmp_path / "out")
    assert len(read(tmp_path / "data" / f"train{end}")) in (2, ROWS)


def test_one_list_of_several_splits_is_refused(tmp_path: Path) -> None:
    for name in ("train/1.jpg", "test/2.jpg"):
        put(tmp_path / "data" / name, jpeg(1))
    lines(tmp_path / "data/metadata.csv", "file_name,text", "train/1.jpg,one", "test/2.jpg,two")
    for use in (ss.Reader, lambda place: ss.pack(place, tmp_path / "out")):
        with pytest.raises(UnsupportedError, match=r"(?s)several splits: test, train.*test/metadata\.csv"):
            use(tmp_path / "data")
    both = ss.SourceOptions(split_names=False)
    assert ss.pack(tmp_path / "data", tmp_path / "out", reading=both, workers=0).samples == 2


ORDINARY: dict[str, Sequence[str]] = {
    "paths": ("path,label", "images/1.jpg,3"),
    "no header": ("images/1.jpg,3",),
    "URLs": ("url,label", "https://example.com/1.jpg,3"),
    "absolute": ("path,label", "/images/1.jpg,3"),
    "names that lead out": ("id,label", "../1,3"),
    "a null byte": ("id,label", "\0,3"),
    "nothing of that name": ("id,label", "2,3"),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_other_lists_stay_what_they_were(name: str, tmp_path: Path) -> None:
    put(tmp_path / "images/1.jpg", jpeg(1))
    lines(tmp_path / "list.csv", *ORDINARY[name])
    assert layout_of_list(open_store(tmp_path), "list.csv") is None


class TestFormat(ConformanceWithFullDamage):
    __test__ = True
    format = SingleFiles()
    tells_cuts = False  # a value is a file of its own, of any size

    def write(self, folder: Path) -> Sequence[tuple[str, Mapping[str, Any]]]:
        return list(common_voice(folder).items())


class TestSource(SourceConformance):
    expected = ROWS

    @pytest.fixture(autouse=True)
    def _written(self, tmp_path: Path) -> None:
        kaggle(tmp_path / "data")
        self.place = str(tmp_path / "data")

    def make_source(self) -> str:
        return self.place
