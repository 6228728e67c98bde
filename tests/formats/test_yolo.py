"""YOLO's data sets: a file of labels a picture, told by ``data.yaml`` or by folders."""

import random
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import FormatError, UsageError
from shardstream.formats.detection import yolo
from shardstream.formats.detection.yolo import Yolo
from shardstream.formats.detection.yolo_labels import BadLabels, KeyPoints, read_labels
from shardstream.formats.detection.yolo_set import label_stems
from shardstream.formats.scans.rows import sentences
from shardstream.formats.scans.yaml_files import read_yaml
from shardstream.testing import MemoryStore
from tests.formats.scanning import in_memory, listing_of, recognised, samples, scanned

NAMES = "names:\n  0: cat\n  1: 'a dog'\n"
LABELS = {"0": b"0 0.5 0.5 0.2 0.4\n1 0.25 0.5 0.5 1\n", "1": b"", "3": b"1 0.5 0.5 0.1 0.1"}  # 2 has none


def label_file(path: str) -> str:
    return f"{next(label_stems(path))}.txt"


def objects(images: str = "images/train", text: str = f"train: images/train\n{NAMES}") -> dict[str, bytes]:
    found = {f"{images}/{row}.jpg": b"\xff\xd8\xff" for row in range(4)}
    found |= {label_file(f"{images}/{name}.jpg"): data for name, data in LABELS.items()}
    return found | ({"data.yaml": text.encode()} if text else {})


def read(files: dict[str, bytes], **options: str) -> list[tuple[str, dict[str, Any]]]:
    return samples(Yolo(), MemoryStore(files), options)


def test_labels_stand_beside_their_pictures(tmp_path, monkeypatch) -> None:
    for path, data in objects().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    for place in (tmp_path, in_memory(tmp_path)):
        found = samples(Yolo(), place)
        assert [key for key, _ in found] == ["0", "1", "2", "3"]
        assert [one["labels"].tolist() for _, one in found] == [[0, 1], [], [], [1]]
        assert np.allclose(found[0][1]["boxes"], [[0.5, 0.5, 0.2, 0.4], [0.25, 0.5, 0.5, 1]])
        assert (found[1][1]["boxes"].shape, found[1][1]["boxes"].dtype) == ((0, 4), np.float32)
        assert found[3][1]["jpg"] == "images/train/3.jpg"
        assert set(found[0][1]) == {"jpg", "boxes", "labels"}
        corners = samples(Yolo(), place, {"boxes": "xyxy"})[0][1]["boxes"]
        assert np.allclose(corners, [[0.4, 0.3, 0.6, 0.7], [0, 0, 0.5, 1]])
    told = recognised(Yolo(), listing_of(tmp_path))
    assert told.classes == ("cat", "a dog")
    assert told.notes == ("Without a file of labels, and so without objects: 1 picture.",)
    monkeypatch.setattr(yolo, "PIECE", 3)
    assert len(recognised(Yolo(), listing_of(tmp_path)).objects) == 2
    assert [key for key, _ in samples(Yolo(), tmp_path)] == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("images", "text"),
    [
        ("images/train", ""),
        ("images", ""),
        ("train/images", f"train: ../train/images\n{NAMES}"),  # as Roboflow writes it
        ("coco8/images/train", f"path: coco8\ntrain: images/train/\n{NAMES}"),
        ("images/train", f"path: ../datasets/coco8 # elsewhere\ntrain: images/train\n{NAMES}"),
        ("images/train", f"path: /elsewhere/coco8\ntrain:\n  - images/train\n{NAMES}"),
        ("images/train", f"train: [images/train]\nval:\ntest: ~\n{NAMES}"),
        ("images/train", f"train: images/train\nval: ../elsewhere\n{NAMES}"),
        ("pictures", f"train: pictures\n{NAMES}"),
    ],
)
def test_where_pictures_are(images, text) -> None:
    assert [one["labels"].tolist() for _, one in read(objects(images, text))] == [[0, 1], [], [], [1]]


@pytest.mark.parametrize("line", ["./images/train/{}.jpg", "images/train/{}.jpg", "{root}/images/train/{}.jpg"])
def test_lists_of_pictures(line) -> None:
    store = MemoryStore(objects(text=f"train: train.txt\n{NAMES}"))
    lines = [line.format(row, root=store.url) for row in (3, 0)]
    store.plant("train.txt", "\n".join([*lines, ""]).encode())
    assert [one["labels"].tolist() for _, one in samples(Yolo(), store)] == [[1], [0, 1]]
    store.plant("train.txt", b"images/train/0.jpg\n../../etc/passwd\n")
    with pytest.raises(FormatError, match="is not there, or not below"):
        samples(Yolo(), store)


def test_a_file_that_is_named_stands_for_its_folder() -> None:
    store = MemoryStore(objects())
    listing = listing_of(store, "data.yaml")
    listing.named = True
    assert len(recognised(Yolo(), listing).objects[0].about["files"]) == 4


def test_splits_are_never_mixed() -> None:
    files = objects(text=f"train: images/train\nval: images/val\n{NAMES}")
    files |= {"images/val/x.jpg": b"", "labels/val/x.txt": b"1 0 0 1 1"}
    for some in (files, {name: data for name, data in files.items() if name != "data.yaml"}):
        with pytest.raises(UsageError, match="several splits here: train, val"):
            read(some)
        assert [key for key, _ in read(some, split="val")] == ["x"]
        with pytest.raises(UsageError, match="there is no such split"):
            read(some, split="dev")


def test_outlines_and_key_points() -> None:
    files = objects() | {"labels/train/1.txt": b"0 0.1 0.2 0.3 0.4 0.5 0.0\n1 0.5 0.5 1 1"}
    found = read(files)
    assert found[1][1]["polygons"] == [[0.1, 0.2, 0.3, 0.4, 0.5, 0.0], None]
    assert np.allclose(found[1][1]["boxes"], [[0.3, 0.2, 0.4, 0.4], [0.5, 0.5, 1, 1]])
    assert found[2][1]["polygons"] == []
    points = objects(text=f"train: images/train\nkpt_shape: [2, 3]\n{NAMES}")
    points |= {label_file(f"images/train/{row}.jpg"): b"0 .5 .5 1 1 .1 .2 2 .3 .4 0" for row in range(4)}
    assert read(points)[0][1]["keypoints"] == [[0.1, 0.2, 2.0, 0.3, 0.4, 0.0]]


@pytest.mark.parametrize(
    ("line", "match"),
    [
        (b"0 0.5 0.5 0.2", "5 columns|4 columns"),
        (b"0 0.5 0.5 0.2 0.2 0.9", "6 columns"),
        (b"2 0.5 0.5 0.2 0.2", "begins with 2, which is not one of the 2 classes"),
        (b"-1 0.5 0.5 0.2 0.2", "begins with -1"),
        (b"0.5 0.5 0.5 0.2 0.2", "begins with 0.5"),
        (b"0 0.5 nan 0.2 0.2", "NaN"),
        (b"0 0.5 1e300 0.2 0.2", "too large"),
        (b"cat 0.5 0.5 0.2 0.2", "not a number"),
        (b"\xff\x00", "not a number"),
    ],
)
def test_labels_that_are_refused(line, match) -> None:
    with pytest.raises(BadLabels, match=match):
        read_labels(LABELS["0"] + line, classes=2, points=KeyPoints())
    store = MemoryStore(objects() | {"labels/train/1.txt": line, "labels/train/3.txt": line})
    one = recognised(Yolo(), listing_of(store)).objects[0]
    (rows,) = Yolo().scan(Yolo().open(store, one), one.about)
    assert rows.keys == ["0", "2"]
    assert [one.samples for one in rows.broken] == [1, 1]
    assert "labels/train/1.txt: line 1" in rows.broken[0].what


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (f"train: ../elsewhere\n{NAMES}", "nothing of that lies below"),
        (f"train: /etc\n{NAMES}", "nothing of that lies below"),
        (f"train:\n{NAMES}", "it names no pictures"),
        (f"train: labels\n{NAMES}", "nothing of that"),
        (f"train: {{a: b}}\n{NAMES}", "not a path, or a list"),
        ("train: images/train\nnames: [&a x, *a]\n", "aliases and tags"),
        ("train: images/train\nnames: {x: y}\n", "not numbers of classes"),
        ("train: images/train\nnames: {99999999: y}\n", "not numbers of classes"),
        (f"train: images/train\nkpt_shape: [a, 3]\n{NAMES}", "not two numbers"),
    ],
)
def test_descriptions_that_are_refused(text, match) -> None:
    with pytest.raises(FormatError, match=match):
        read(objects(text=text))


def test_what_is_not_of_yolo() -> None:
    for files in (
        {"a/1.jpg": b"", "b/2.jpg": b""},
        {"images/1.jpg": b"", "notes.txt": b""},
        {"images/1.jpg": b"", "config.yaml": b"lr: 0.1\ntrain: true\n"},
        {"images/1.jpg": b"", "config.yaml": b"\xff\xfe"},
    ):
        assert Yolo().recognize(listing_of(MemoryStore(files)), {}) is None
    two = objects() | {"other.yaml": f"val: images/train\n{NAMES}".encode()}
    with pytest.raises(UsageError, match=r"several files that describe.*data\.yaml, other\.yaml"):
        read(two)


def test_classes_of_a_file_beside() -> None:
    files = objects(text="") | {"classes.txt": b"a\nb\n\n"}
    assert recognised(Yolo(), listing_of(MemoryStore(files))).classes == ("a", "b")
    gaps = recognised(Yolo(), listing_of(MemoryStore(objects(text="train: images/train\nnames: {1: b, 3: d}\n"))))
    assert gaps.classes == ("class 0", "b", "class 2", "d")


_TEXT = st.text("abcé -_/.:#'\"[]{}0123456789", min_size=1, max_size=12)
_VALUE = st.one_of(_TEXT, st.lists(_TEXT), st.dictionaries(_TEXT, _TEXT))


@given(st.dictionaries(st.sampled_from("abcd"), _VALUE, min_size=1))
def test_yaml_is_read_as_it_was_written(value) -> None:
    for style in (None, True, False):
        text = yaml.safe_dump(value, default_flow_style=style, allow_unicode=True)
        assert yaml_of(text) == {name: "" if one in ("null", "~") else one for name, one in value.items()}


def yaml_of(text):
    return read_yaml(text.encode(), "x.yaml")


def test_yaml_that_stands_for_something_else_is_refused() -> None:
    assert yaml_of("a: no\nb: 010\nc:\nd: null\n") == {"a": "no", "b": "010", "c": "", "d": ""}
    for text, match in (
        ("a: &x [1]\nb: *x\n", "(?s)aliases and tags.*line 2"),
        ("a: !!python/object/apply:os.system [ls]\n", "aliases and tags"),
        ("a: " + "[" * 20 + "]" * 20, "too deep"),
        ("- a\n", "not a map"),
        ("", "not a map"),
        ("a: [1\n", "not YAML"),
        ("a: '\x01'", "not YAML"),
        ("# " + "x" * (1 << 20), "too many"),
    ):
        with pytest.raises(FormatError, match=match):
            yaml_of(text)


def test_any_text_is_read_or_left(monkeypatch) -> None:
    draw = random.Random(3)
    good = f"path: a # b\ntrain: [x, 'y']\nval:\n  - c\n{NAMES}kpt_shape: [1, 2]\n"
    for _ in range(500):
        text = list(good)
        for _ in range(draw.randint(1, 6)):
            text[draw.randrange(len(text))] = draw.choice("[]{}'\":#- \n&*|a0\\")
        with suppress(FormatError, UsageError, AssertionError):
            read(objects(text="".join(text)))


def scanned_rows(files: dict[str, bytes]) -> tuple[dict[str, list[list[float]]], list[str]]:
    """Boxes of each image as a file of labels has them, and what a user is told."""
    rows = [rows for _, rows in scanned(Yolo(), MemoryStore(files))]
    boxes = {key: np.round(one["boxes"].astype(float), 4).tolist() for key, one in samples(Yolo(), MemoryStore(files))}
    return boxes, list(sentences(one for some in rows for one in some.remarks))


@pytest.mark.parametrize(
    ("image", "label"),
    [
        ("train/images/0.jpg", "train/labels/0.txt"),
        ("train/images/0.jpg", "train/labels/0.TXT"),
        ("train/images/0.jpg", "train/images/0.txt"),
        ("train/images/0.jpg", "train/images/0.Txt"),
        ("images/train/images/0.jpg", "images/train/labels/0.txt"),
        ("images/train/images/0.jpg", "labels/train/images/0.txt"),
        ("images/images/0.jpg", "images/labels/0.txt"),
        ("pictures/0.jpg", "pictures/0.txt"),
    ],
)
def test_labels_are_found_in_every_place(image, label) -> None:
    line = b"0 0.5 0.5 0.25 0.25"
    for text in (f"train: {image.split('/')[0]}\n{NAMES}", f"train: list.txt\n{NAMES}"):
        files = {image: b"\xff\xd8\xff", label: line, "data.yaml": text.encode(), "list.txt": image.encode()}
        assert scanned_rows(files) == ({"0": [[0.5, 0.5, 0.25, 0.25]]}, [])
    if image.startswith("images/"):
        assert scanned_rows({image: b"\xff\xd8\xff", label: line})[0] == {"0": [[0.5, 0.5, 0.25, 0.25]]}


def test_images_beside_captions_are_not_of_yolo() -> None:
    assert Yolo().recognize(listing_of(MemoryStore({"images/0.jpg": b"", "images/0.txt": b"a dog"})), {}) is None


def test_labels_that_are_not_used_are_told() -> None:
    files = objects(text=f"train: images/train\nvalidation: images/val\n{NAMES}")
    files |= {
        "images/val/9.jpg": b"",
        "labels/val/9.txt": b"0 0 0 1 1",
        "labels/classes.txt": b"a\nb",
        "README.txt": b"",
    }
    one = recognised(Yolo(), listing_of(MemoryStore(files)), {"split": "train"}).objects[0]
    assert one.about["remarks"] == []
    files = {path: data for path, data in files.items() if "val" not in path} | {"data.yaml": objects()["data.yaml"]}
    moved = {path.replace("labels/train", "Labels"): data for path, data in files.items()}
    boxes, told = scanned_rows(moved)
    assert set(map(len, boxes.values())) == {0}
    assert len(told) == 2
    assert "No label file belongs to any of 4 images" in told[0]
    assert told[1] == "Without an image: 3 label files, such as Labels/0.txt."


def test_objects_that_reach_out_of_their_image_are_cut_and_told() -> None:
    boxes, told = scanned_rows(
        objects()
        | {
            "labels/train/0.txt": b"0 0.5 0.5 1 1.2\n0 1.05 0.5 0.3 0.2\n0 -0.2 0.5 0.1 0.1\n1 0.9 0.9 0.4 0.4",
            "labels/train/1.txt": b"0 100 50 20 30\n1 320 240 64 64",
            "labels/train/2.txt": b"0 0.5 0.5 1.0000001 1",
            "labels/train/3.txt": b"0 -0.5 0 0.5 0 0.5 0.5",
        }
    )
    assert boxes == {
        "0": [[0.5, 0.5, 1, 1], [0.95, 0.5, 0.1, 0.2], [0.9, 0.9, 0.4, 0.4]],
        "2": [[0.5, 0.5, 1, 1]],
        "3": [[0.25, 0.25, 0.5, 0.5]],
    }
    assert len(told) == 1
    assert "6 objects in 3 label files, such as labels/train/0.txt" in told[0]


def test_key_points_outside_are_told() -> None:
    files = objects(text=f"train: images/train\nkpt_shape: [2, 3]\n{NAMES}")
    files |= {label_file(f"images/train/{row}.jpg"): b"0 .5 .5 1 1 .1 .2 2 .3 %d.4 0" % row for row in range(4)}
    boxes, told = scanned_rows(files)
    assert set(map(len, boxes.values())) == {1}
    assert len(told) == 1
    assert "3 objects in 3 label files, such as labels/train/1.txt" in told[0]
