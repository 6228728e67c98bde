"""Boxes, points and matrices that follow an image."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.decode import (
    Boxes,
    CenterCrop,
    Image,
    PerBox,
    Placement,
    Points,
    RandomResizedCrop,
    Resize,
    SourceSize,
)
from shardstream.decode.boxes import corners
from shardstream.errors import DecodeError, UsageError
from shardstream.shards.fields import FieldType, to_bytes

from .making import made

ARRAY, JSON = FieldType.parse("array"), FieldType.parse("json")
IMAGE = FieldType.parse("array:uint8:60,80,3")


def annotated(fields, context, **values):
    """All outputs of a picture of 60 x 80 pixels with these values beside it, arrays or JSON."""
    types, stored = {"image": IMAGE}, {"image": np.zeros((60, 80, 3), np.uint8)}
    for name, value in values.items():
        types[name] = ARRAY if isinstance(value, np.ndarray) else JSON
        stored[name] = bytes(to_bytes(types[name], value))
    return made(fields, stored, context, types)


def painted(box):
    """A picture with a filled box of whole pixels."""
    pixels = np.zeros((60, 80, 3), np.uint8)
    left, top, right, bottom = box
    pixels[top:bottom, left:right] = 255
    return pixels


@given(
    st.integers(0, 10**6),
    st.tuples(st.integers(0, 70), st.integers(0, 50), st.integers(1, 30), st.integers(1, 30)),
    st.sampled_from(
        [
            RandomResizedCrop((60, 80), flip=True, source="image"),
            RandomResizedCrop((31, 200), scale=(0.3, 1), flip=True, source="image"),
            CenterCrop((50, 50), source="image", flip=True),
            CenterCrop(90, resize=100, source="image", flip=True),
            CenterCrop(100, source="image", flip=True),
            Resize((120, 40), source="image", flip=True),
            Image(source="image"),
        ]
    ),
)
def test_the_box_is_where_the_object_is(sample, position, placed, decoder):
    """Of a painted rectangle what is bright lies in the box, up to the spread of the resize, and fills it."""
    left, top, width, height = placed
    box = left, top, min(80, left + width), min(60, top + height)
    types = {"image": IMAGE, "boxes": ARRAY}
    values = {"image": painted(box), "boxes": bytes(to_bytes(ARRAY, np.array([box], np.float64)))}
    fields = {"shown": decoder, "boxes": Boxes(like="shown", min_side=0)}
    got = made(fields, values, sample(position), types)
    bright = got["shown"][..., 0] > 127
    if not len(got["boxes"]):
        assert not bright.any()
        return
    rows, columns = np.arange(bright.shape[0]) + 0.5, np.arange(bright.shape[1]) + 0.5
    x1, y1, x2, y2 = got["boxes"][0]
    assert 0 <= x1 < x2 <= bright.shape[1]
    assert 0 <= y1 < y2 <= bright.shape[0]
    within = ((rows > y1) & (rows < y2))[:, None] & ((columns > x1) & (columns < x2))
    # The resize spreads an edge over one pixel of the larger of the two pictures.
    spread = np.array([max(1, abs(n)) for n in np.diag(np.array(placement(sample(position), decoder))[:, :2])])
    grown = ((rows > y1 - spread[1]) & (rows < y2 + spread[1]))[:, None] & (
        (columns > x1 - spread[0]) & (columns < x2 + spread[0])
    )
    shrunk = ((rows > y1 + spread[1]) & (rows < y2 - spread[1]))[:, None] & (
        (columns > x1 + spread[0]) & (columns < x2 - spread[0])
    )
    assert not (bright & ~grown).any()
    assert bright[shrunk].all()
    assert within.any() or min(x2 - x1, y2 - y1) <= 1


def test_a_sliver_that_rounds_to_nothing_vanishes(sample):
    types = {"image": IMAGE, "boxes": ARRAY}
    stored = np.array([[80 - 1e-6, 0, 80, 60], [10, 10, 20, 20]], np.float64)
    values = {"image": painted((0, 0, 80, 60)), "boxes": bytes(to_bytes(ARRAY, stored))}
    fields = {"shown": Image(source="image"), "boxes": Boxes(like="shown", min_side=0)}
    assert made(fields, values, sample(0), types)["boxes"].tolist() == [[10, 10, 20, 20]]


def placement(context, decoder):
    return annotated({"shown": decoder, "m": Placement(like="shown")}, context)["m"]


def test_formats_mean_the_same_box():
    source, expected = (60, 80), [[10, 20, 30, 26]]
    for value, box_format in (
        ([[10, 20, 30, 26]], "xyxy"),
        ([10, 20, 20, 6], "xywh"),
        (np.array([[20, 23, 20, 6]], np.int32), "cxcywh"),
    ):
        assert corners(value, box_format, relative=False, source=source).tolist() == expected
        shares = np.asarray(value).reshape(-1, 4) / (80, 60, 80, 60)
        assert np.allclose(corners(shares, box_format, relative=True, source=source), expected)
    for nothing in ([], np.zeros(0), np.zeros((0, 4)), np.zeros((0, 0))):
        assert corners(nothing, "xyxy", relative=False, source=source).shape == (0, 4)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[0, 0, 5, 5], [10, 20, 5, 30]], r"box 1 is \[10.0, 20.0, 5.0, 30.0\]: no box of format 'xyxy'"),
        (np.array([[0, 0, np.nan, 5]]), "no box of format"),
        ([[1, 2, 3]], r"shape \(N, 4\), got \[1, 3\]"),
        ([1, 2, 3, 4, 5, 6, 7, 8], r"shape \(N, 4\), got \[8\]"),
        ([[1, 2], [3]], "boxes are not an array of numbers"),
        ({"a": 1}, "not an array of numbers"),
    ],
)
def test_what_is_no_box(sample, value, message):
    with pytest.raises(DecodeError, match=message) as caught:
        annotated({"image": Image(), "boxes": Boxes(like="image")}, sample(3), boxes=value)
    assert caught.value.place["key"] == "key3"
    assert caught.value.place["field"] == "boxes"
    assert caught.value.hint


def test_boxes_that_vanish_take_their_labels_along(sample):
    boxes = np.array(
        [
            [0, 0, 80, 60],  # all of it: cut to the window
            [0, 0, 15, 60],  # outside
            [10, 20, 20.5, 40],  # half a pixel of it is left
            [5, 20, 25, 40],  # a quarter is left
            [30, 30, 30, 50],  # empty
            [-50, 20, 26, 40],  # it is the part inside the image that counts: 6 of 26
        ]
    )
    fields = {
        "image": CenterCrop((40, 40)),  # the pixels from (20, 10) to (60, 50)
        "boxes": Boxes(like="image"),
        "labels": PerBox(like="boxes"),
        "areas": PerBox(like="boxes", dtype="float32"),
        "colours": PerBox(like="boxes"),
        "quarter": Boxes(source="boxes", like="image", min_visible=0.25),
        "least": Boxes(source="boxes", like="image", min_side=0),
        "of_least": PerBox(source="labels", like="least"),
        "of_quarter": PerBox(source="labels", like="quarter"),
    }
    labels = np.arange(6, dtype=np.uint8)
    got = annotated(
        fields, sample(), boxes=boxes, labels=labels, areas=[0.5, 1, 2, 3, 4, 5], colours=[[i, 0] for i in range(6)]
    )
    assert got["boxes"].dtype == np.float32
    assert got["boxes"].tolist() == [[0, 0, 40, 40], [0, 10, 5, 30], [0, 10, 6, 30]]
    assert got["labels"].tolist() == [0, 3, 5]
    assert got["labels"].dtype == np.uint8
    assert got["areas"].tolist() == [0.5, 3, 5]
    assert got["areas"].dtype == np.float32
    assert got["colours"].tolist() == [[0, 0], [3, 0], [5, 0]]
    assert got["least"].tolist() == [[0, 0, 40, 40], [0, 10, 0.5, 30], [0, 10, 5, 30], [0, 10, 6, 30]]
    assert got["of_least"].tolist() == [0, 2, 3, 5]
    assert got["of_quarter"].tolist() == [0, 3]


def test_an_image_without_boxes(sample):
    fields = {"image": Image(), "boxes": Boxes(like="image"), "labels": PerBox(like="boxes"), "p": Points(like="boxes")}
    for boxes, labels, points in ([], [], []), (np.zeros((0, 4)), np.zeros(0, np.int64), np.zeros((0, 2))):
        got = annotated(fields, sample(), boxes=boxes, labels=labels, p=points)
        assert got["boxes"].shape == (0, 4)
        assert got["labels"].shape == (0,)
        assert got["labels"].dtype == np.int64
        assert got["p"].shape == (0, 2)


def test_as_many_labels_as_boxes(sample):
    fields = {"image": Image(), "boxes": Boxes(like="image"), "labels": PerBox(like="boxes")}
    with pytest.raises(DecodeError, match="3 entries of 1 boxes in 'boxes'") as caught:
        annotated(fields, sample(), boxes=[[0, 0, 9, 9]], labels=[1, 2, 3])
    assert caught.value.place["field"] == "labels"
    for labels in (["cat"], [0.5]):
        with pytest.raises(DecodeError, match="holds no whole numbers"):
            annotated(fields, sample(), boxes=[[0, 0, 9, 9]], labels=labels)


@pytest.mark.parametrize(
    ("labels", "dtype", "fits"),
    [
        ([2**63 + 1], None, False),
        ([2**63 + 1], "uint64", True),
        ([1, 2**63 + 1], "uint64", False),  # a double on its way
        ([300], "uint8", False),
        ([255], "uint8", True),
        ([-1], "uint64", False),
        ([0.5], "int64", False),
        ([3.0], "int64", True),
        (np.array([np.nan]), "int64", False),
        (["cat"], "int64", False),
        (["cat"], "float32", False),
        (np.array([70000]), "int16", False),
        (np.array([2.0**53 - 1]), "int64", True),
        (np.array([2.0**53]), "int64", False),
        (np.array([0.5]), "float32", True),
    ],
)
def test_entries_that_their_dtype_cannot_hold_are_refused(sample, labels, dtype, fits):
    fields = {"image": Image(), "boxes": Boxes(like="image"), "labels": PerBox(like="boxes", dtype=dtype)}
    boxes = [[0, 0, 9, 9]] * len(labels)
    if fits:
        assert annotated(fields, sample(), boxes=boxes, labels=labels)["labels"].tolist() == list(labels)
        return
    with pytest.raises(DecodeError, match=r"does not fit|holds no whole numbers"):
        annotated(fields, sample(), boxes=boxes, labels=labels)


def test_one_json_object_holds_it_all(sample):
    fields = {
        "image": Resize((30, 40)),
        "boxes": [lambda meta: meta["boxes"], Boxes(source="coco", like="image", format="xywh")],
        "labels": [lambda meta: meta["labels"], PerBox(source="coco", like="boxes")],
    }
    coco = {"boxes": [[10, 20, 10, 4], [0, 0, 1, 1]], "labels": [7, 9]}
    got = annotated(fields, sample(), coco=json.loads(json.dumps(coco)))
    assert got["boxes"].tolist() == [[5, 10, 10, 12]]
    assert got["labels"].tolist() == [7]


def test_points(sample):
    joints = np.array([[[0, 0, 2], [80, 60, 1]], [[40, 30, 0], [20, 15, 2]]], np.float32)
    boxes = [[0, 0, 0, 0], [10, 10, 50, 40]]
    fields = {
        "image": Resize((120, 40), flip=1.0),
        "boxes": Boxes(like="image"),
        "all": Points(source="joints", like="image"),
        "left": Points(source="joints", like="boxes"),
        "centre": Points(like="image", relative=True),
    }
    got = annotated(fields, sample(), joints=joints, boxes=boxes, centre=[0.5, 0.25])
    moved = [[[40, 0, 2], [0, 120, 1]], [[20, 60, 0], [30, 30, 2]]]
    assert got["all"].tolist() == moved
    assert got["all"].dtype == np.float32
    assert got["left"].tolist() == moved[1:]
    assert got["centre"].tolist() == [20, 30]
    with pytest.raises(DecodeError, match="points must be of shape"):
        annotated({"image": Image(), "p": Points(like="image")}, sample(), p=[[1, 2, 3, 4]])


def test_placement_is_what_was_done(sample):
    for position in range(8):
        context = sample(position)
        fields = {
            "image": RandomResizedCrop((30, 50), flip=True),
            "where": Placement(like="image"),
            "size": SourceSize(like="image"),
            "points": Points(like="image"),
        }
        points = np.random.default_rng(position).uniform(0, 60, (9, 2))
        got = annotated(fields, context, points=points)
        plan = context.geometry["image"]
        assert got["where"].dtype == np.float32
        assert got["size"].tolist() == [60, 80]
        assert got["size"].dtype == np.int64
        assert np.allclose(np.c_[points, np.ones(9)] @ got["where"].T, got["points"], atol=1e-3)
        assert (got["where"][0, 0] < 0) == plan.flip
        middle = [plan.box.left + plan.box.width / 2, plan.box.top + plan.box.height / 2, 1]
        assert np.allclose(got["where"] @ middle, (25, 15), atol=1e-4)


def test_arguments_are_checked_at_once():
    for make in (
        lambda: Boxes(like="jpg", format="yxyx"),
        lambda: Boxes(like="jpg", min_side=-1),
        lambda: Boxes(like="jpg", min_visible=2),
        lambda: Placement(like="jpg", source="jpg"),
    ):
        with pytest.raises(UsageError) as caught:
            make()
        assert caught.value.hint
