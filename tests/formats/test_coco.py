"""COCO's files: boxes, labels, masks and captions stand beside their pictures; what contradicts itself is refused."""

import json
import random
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from shardstream.errors import FormatError, UsageError
from shardstream.formats.contract import SourceObject
from shardstream.formats.detection import json_stream
from shardstream.formats.detection.coco import Coco
from shardstream.formats.detection.json_stream import JsonStream
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.testing import MemoryStore
from tests.formats.damaging import cut, flipped
from tests.formats.scanning import in_memory, listing_of, recognised, samples, scanned

PATH = "annotations/instances_val2017.json"
POLYGON = [[1.5, 2.0, 3.25, 4, 1, 1]]
RLE = {"counts": "abc\\u00e9", "size": [4, 5]}


def images(count: int = 4) -> list[dict[str, Any]]:
    return [{"id": 10 * (count - row), "file_name": f"{row:03d}.jpg", "width": 8} for row in range(count)]


def annotation(number: int, image: int, **more: Any) -> dict[str, Any]:
    found = {"id": number, "image_id": image, "category_id": 7, "bbox": [1, 2, 3.5, 4], "area": 9.5, "iscrowd": 0}
    return found | {"segmentation": POLYGON} | more


ANNOTATIONS = [
    annotation(1, 10, category_id=3),
    annotation(2, 40),
    annotation(3, 10, iscrowd=1, segmentation=RLE, bbox=[0, 0, 1, 1]),
]
CATEGORIES = [{"id": 7, "name": "dog"}, {"id": 3, "name": "cät"}]


def coco(**changed: Any) -> dict[str, Any]:
    found = {"info": {"year": 2017}, "images": images(), "annotations": ANNOTATIONS, "categories": CATEGORIES}
    return {name: value for name, value in (found | changed).items() if value is not None}


def objects(data: Any, folder: str = "val2017/", path: str = PATH) -> dict[str, bytes]:
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return {path: text} | {f"{folder}{row:03d}.jpg": b"\xff\xd8\xff" for row in range(4)}


def read(data: Any, **options: str) -> list[tuple[str, dict[str, Any]]]:
    return samples(Coco(), MemoryStore(objects(data)), options)


def refused(data: Any, match: str) -> None:
    with pytest.raises(FormatError, match=match):
        read(data)


def test_annotations_stand_beside_their_pictures(tmp_path) -> None:
    near = tmp_path / "data"
    for path, data in objects(coco()).items():
        (near / path).parent.mkdir(parents=True, exist_ok=True)
        (near / path).write_bytes(data)
    for place in (near, in_memory(near)):
        found = samples(Coco(), place)
        assert [key for key, _ in found] == ["000", "001", "002", "003"]
        assert [one["image_id"] for _, one in found] == [40, 30, 20, 10]
        assert [len(one["labels"]) for _, one in found] == [1, 0, 0, 2]
        none, last = found[1][1], found[3][1]
        assert (none["boxes"].shape, none["boxes"].dtype, none["masks"]) == ((0, 4), np.float32, [])
        assert last["jpg"] == "val2017/003.jpg"
        assert last["boxes"].tolist() == [[1, 2, 4.5, 6], [0, 0, 1, 1]]
        assert last["labels"].tolist() == [0, 0 + 1]
        assert last["iscrowd"].tolist() == [0, 1]
        assert last["areas"].tolist() == [9.5, 9.5]
        assert last["masks"] == [POLYGON, RLE]


def test_categories_are_numbered_by_their_ids() -> None:
    store = MemoryStore(objects(coco()))
    one = recognised(Coco(), listing_of(store)).objects[0]
    (rows,) = Coco().scan(Coco().open(store, one), one.about)
    assert rows.classes == ("cät", "dog")
    assert rows.damage is None


def test_order_and_white_space_do_not_matter(monkeypatch) -> None:
    monkeypatch.setattr(json_stream, "_WINDOW", 64)
    expected = read(coco())
    for text in (
        json.dumps(dict(reversed(coco().items())), indent=3),
        "\ufeff" + json.dumps(coco(), ensure_ascii=False, separators=(",", ":")),
        json.dumps({"x": [[{"y": [1, "]"]}], 1], "z": -1.5e3} | coco() | {"end": "\\"}, separators=(" , ", " :\n")),
    ):
        found = read(text.encode())
        assert [(key, repr(one)) for key, one in found] == [(key, repr(one)) for key, one in expected]


def test_captions_and_keypoints() -> None:
    captions = [{"id": n, "image_id": 10, "caption": f"ein Häuschen {n}"} for n in range(2)]
    for ascii_only in (True, False):
        text = json.dumps(coco(annotations=captions, categories=None), ensure_ascii=ascii_only).encode()
        found = read(text)
        assert found[3][1]["captions"] == ["ein Häuschen 0", "ein Häuschen 1"]
        assert found[0][1]["captions"] == []
        assert "boxes" not in found[0][1]
    points = [annotation(1, 10, keypoints=[1, 2, 2], num_keypoints=1), annotation(2, 10)]
    assert read(coco(annotations=points))[3][1]["keypoints"] == [[1, 2, 2], None]
    assert set(read(coco(annotations=[]))[0][1]) == {"jpg", "image_id"}


@pytest.mark.parametrize("folder", ["val2017/", "images/val2017/", "images/", "", "annotations/", "elsewhere/"])
def test_where_the_pictures_are(folder) -> None:
    store = MemoryStore(objects(coco(), folder))
    options = {"images": "elsewhere"} if folder == "elsewhere/" else {}
    assert samples(Coco(), store, options)[0][1]["jpg"] == f"{folder}000.jpg"
    if options:
        with pytest.raises(FormatError, match=r"none of 'val2017/', 'images/val2017/'"):
            samples(Coco(), store)


def test_what_is_recognised() -> None:
    several = objects(coco()) | {"annotations/captions_val2017.json": json.dumps(coco()).encode()}
    with pytest.raises(UsageError, match="several files of annotations"):
        Coco().recognize(listing_of(MemoryStore(several)), {})
    chosen = {"annotations": "annotations/captions_val2017.json"}
    assert recognised(Coco(), listing_of(MemoryStore(several)), chosen).objects[0].path == chosen["annotations"]
    with pytest.raises(UsageError, match="no such file"):
        Coco().recognize(listing_of(MemoryStore(several)), {"annotations": "none.json"})
    for other in (b"[]", b"{}", b'{"images": ["a.jpg"]}', b'{"shards": []}', b""):
        assert Coco().recognize(listing_of(MemoryStore(objects(other))), {}) is None
    beside = objects(coco(), "train/", "train/_annotations.coco.json")
    assert samples(Coco(), MemoryStore(beside))[0][1]["jpg"] == "train/000.jpg"
    without = recognised(Coco(), listing_of(MemoryStore(objects(coco()))), {})
    assert without.objects[0].about == {"images": "val2017", "texts": ["segmentation", "caption", "keypoints"]}


def panoptic(image: int, *segments: dict[str, Any]) -> dict[str, Any]:
    return {"segments_info": list(segments), "file_name": f"{image}.png", "image_id": image}


SEGMENT = {"id": 3226956, "category_id": 7, "bbox": [1, 2, 3, 4], "area": 9, "iscrowd": 0}


def test_panoptic_segments_are_objects() -> None:
    again = {"id": 5, "category_id": 3, "bbox": [0, 0, 8, 8], "area": 20, "iscrowd": 1}
    data = coco(annotations=[panoptic(10, SEGMENT, again), panoptic(40), panoptic(20, again)])
    found = dict(read(data))
    assert found["003"]["boxes"].tolist() == [[1, 2, 4, 6], [0, 0, 8, 8]]
    assert found["003"]["segment_ids"].tolist() == [3226956, 5]
    assert [found[key]["labels"].tolist() for key in sorted(found)] == [[], [], [0], [1, 0]]
    assert found["002"]["iscrowd"].tolist() == [1]
    ((_, rows),) = scanned(Coco(), MemoryStore(objects(data)))
    assert "PNG files with their pixels are not" in rows.remarks[0].text
    mixed = [panoptic(10, SEGMENT), panoptic(20, SEGMENT), annotation(1, 40)]
    assert [key for key, _ in read(coco(annotations=mixed))] == ["001", "002", "003"]
    first = json.dumps({"annotations": [panoptic(10, SEGMENT)], "images": images()}).encode()
    assert read(first)[3][1]["segment_ids"].tolist() == [3226956]


def test_masks_that_are_not_chosen_are_not_kept() -> None:
    listing = listing_of(MemoryStore(objects(coco())))
    listing.chosen = {"box": "boxes"}
    assert recognised(Coco(), listing).objects[0].about["texts"] == []


def test_annotations_of_pictures_that_are_not_there_are_told() -> None:
    data = objects(coco(annotations=[*ANNOTATIONS, annotation(4, 11), annotation(5, 12)]))
    store = MemoryStore(data)
    one = recognised(Coco(), listing_of(store)).objects[0]
    (rows,) = Coco().scan(Coco().open(store, one), one.about)
    assert len(rows.keys) == 4
    assert rows.damage is not None
    assert "2 annotations are of images that the file does not list, such as image 11" in rows.damage.what
    assert data[PATH][rows.damage.place["offset"] :].startswith(b'{"id": 4')


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"images": None}, "no list of images"),
        ({"images": [*images(), images()[0]]}, "two images have the id 40"),
        ({"images": [*images(), {"id": 1}]}, "no file_name"),
        ({"images": [*images(), {"id": "1", "file_name": "a.jpg"}]}, "id is '1', not an integer"),
        ({"images": [*images(), {"id": 1 << 70, "file_name": "a.jpg"}]}, "not an integer"),
        ({"images": [*images(), {"id": 1, "file_name": "../../a.jpg"}]}, "does not lie below"),
        ({"images": [*images(), {"id": 1, "file_name": "/etc/passwd"}]}, "does not lie below"),
        ({"images": [*images(), {"id": 1, "file_name": "\ud800.jpg"}]}, "not Unicode"),
        ({"images": [*images(), {"id": 1, "file_name": "a.npy"}]}, "several kinds"),
        ({"images": [*images(), 5]}, "no file_name"),
        ({"annotations": [annotation(1, 10, bbox=[1, 2, 3, float("nan")])]}, "NaN"),
        ({"annotations": [annotation(1, 10, category_id=8)]}, "category 8, which is not in the file"),
        ({"annotations": [annotation(1, image, bbox=[]) for image in (10, 20, 30, 40)]}, "no image is without"),
        ({"annotations": {"a": 1}}, r"'\[' is missing"),
        ({"categories": [{"id": 7}]}, "category has no name"),
        ({"categories": [*CATEGORIES, *CATEGORIES]}, "two categories have the id 7"),
    ],
)
def test_what_is_refused(changed, match) -> None:
    refused(coco(**changed), match)


ODD = [
    (5, "not an object"),
    ({"image_id": "10"}, "image_id is '10', not an integer"),
    (annotation(9, 10, bbox=[1, 2, 3]), "bbox of an annotation is not 4 numbers"),
    (annotation(9, 10, bbox=[]), "bbox of an annotation is not 4 numbers"),
    (annotation(9, 10, bbox=None), "bbox of an annotation is not 4 numbers"),
    (annotation(9, 10, bbox=[1, 2, 3, "4"]), "not a number"),
    (annotation(9, 10, bbox=[1, 2, 3, 1e39]), "not a number"),
    (annotation(9, 10, area="big"), "area of an annotation holds 'big'"),
    (annotation(9, 10, iscrowd=2), "iscrowd of an annotation is 2"),
    (annotation(9, 10, category_id=8), "category 8, which is not in the file"),
    (annotation(9, 10, category_id=None), "category_id is None"),
    ({"image_id": 10}, "this one differs"),
    ({"image_id": 10, "segments_info": [5]}, "not a list of objects"),
    ({"image_id": 77, "bbox": []}, "bbox of an annotation is not 4 numbers"),
]


@pytest.mark.parametrize(("odd", "match"), ODD)
@pytest.mark.parametrize("place", [0, 3])
def test_an_odd_annotation_costs_its_image_alone(odd: Any, match: str, place: int) -> None:
    annotations: list[Any] = [annotation(number, number * 10) for number in (2, 3, 4)]
    annotations.insert(place, odd)
    store = MemoryStore(objects(coco(annotations=annotations)))
    one = recognised(Coco(), listing_of(store)).objects[0]
    (rows,) = Coco().scan(Coco().open(store, one), one.about)
    known = isinstance(odd, dict) and odd["image_id"] == 10  # the last of the images
    (loss,) = rows.broken
    assert (loss.samples, rows.damage) == (int(known), None)
    assert match in loss.what
    assert ("003.jpg" in loss.what) is known
    assert list(rows.keys) == [f"{row:03d}" for row in range(3 if known else 4)]
    values = dict(read(coco(annotations=annotations)))
    assert [values[f"{row:03d}"]["labels"].tolist() for row in range(3)] == [[1]] * 3
    assert values["000"]["masks"] == [POLYGON]


def test_an_area_that_is_null_is_that_of_the_box() -> None:
    found = dict(read(coco(annotations=[annotation(1, 10, area=None)])))
    assert found["003"]["areas"].tolist() == [14.0]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (b'"annotations": [' + b"[" * 100_000, "too many lists|not JSON"),
        (b'"annotations": [{"image_id" 10}]', "not JSON"),
        (b'"annotations": [{"image_id": 10 "x": 1}]', "not JSON"),
        (b'"annotations": [{1: 10}]', "not JSON"),
        (b'"annotations": [{"image_id": 10, "caption": "\xff"}]}', "not UTF-8"),
        (b'"annotations": [] "x": 1', "',' is missing"),
        (b'"annotations": [], "images": []}', "two lists of images"),
        (b'"annotations": [' + b"9" * 5000 + b"]}", "not JSON"),
        (b'"x": "\xff"}', "not JSON"),
        (b'"annotations": [', "too early"),
    ],
)
def test_json_that_is_none(text, match) -> None:
    refused(json.dumps({"images": images()})[:-1].encode() + b", " + text, match)


def test_damaged_files_give_rows_or_one_error(monkeypatch) -> None:
    monkeypatch.setattr(json_stream, "_WINDOW", 100)
    good = json.dumps(coco(), ensure_ascii=False).encode()
    about = {"images": "val2017", "texts": ["segmentation"]}
    for data in (*cut(good, 3), *flipped(good, 300)):
        store = MemoryStore({PATH: data})
        with suppress(FormatError):
            for rows in Coco().scan(Coco().open(store, SourceObject(PATH, len(data))), about):
                for column in rows.columns:
                    if column.held_ends is not None:
                        assert column.held is not None
                        assert len(column.held_ends) == len(rows.keys)
                        assert int(column.held_ends[-1]) == len(column.held)


def test_a_long_element_does_not_fill_the_memory(monkeypatch) -> None:
    monkeypatch.setattr(json_stream, "_WINDOW", 64)
    monkeypatch.setattr(json_stream, "_LONGEST", 1000)
    refused(coco(info="x" * 2000), "an element of more than")


def test_any_json_is_read_as_json_reads_it(monkeypatch) -> None:
    draw = random.Random(1)

    def value(depth: int) -> Any:
        kind = draw.randrange(6 if depth else 4)
        if kind == 4:
            return [value(depth - 1) for _ in range(draw.randrange(4))]
        if kind == 5:
            return {f"k{draw.randrange(9)}é": value(depth - 1) for _ in range(draw.randrange(4))}
        return [draw.random(), draw.randrange(-9, 9), draw.choice(["", "a]", '"', "ü\n"]), None][kind]

    for number in range(200):
        monkeypatch.setattr(json_stream, "_WINDOW", draw.randrange(1, 40))
        top = {f"m{i}": [value(3) for _ in range(draw.randrange(5))] for i in range(4)}
        text = json.dumps(top, ensure_ascii=number % 2 == 0, indent=draw.choice([None, 1])).encode()
        stream = JsonStream(ObjectBytes(MemoryStore({"a": text}), "a", len(text), window=16))
        found = {}
        for name in stream.members():
            if name != "m2":
                found[name] = [one.value for one in stream.elements()]
        assert found == {name: one for name, one in top.items() if name != "m2"}
