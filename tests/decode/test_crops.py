"""Crops by a box that is stored with the sample."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.decode import Crop, Image, Mask, RandomResizedCrop, SampleContext, compile_fields
from shardstream.decode.crops import _within
from shardstream.errors import DecodeError, TransformError, UsageError
from shardstream.images.backends import decode
from shardstream.images.geometry import Box
from shardstream.shards.fields import FieldType, to_bytes

from .making import made, resized

FIXED, JSON = FieldType.parse("array:float32:4"), FieldType.parse("json")


def boxed(*numbers):
    return np.array(numbers, np.float32)


def test_the_stored_box_is_what_is_shown(photo, save, sample):
    data = save(photo(90, 120), "JPEG")
    full = decode(data)
    fields = {
        "face": Crop((30, 40), box="box", source="jpg", flip=True),
        "again": Image(source="jpg", like="face"),
        "seg": Mask(like="face"),
    }
    values = {"jpg": data, "box": boxed(11, 21, 71, 51), "seg": full[..., 0]}
    seen = set()
    for position in range(12):
        context = sample(position)
        got = made(fields, values, context, {"box": FIXED, "seg": FieldType.parse("array:uint8:90,120")})
        flip = context.geometry["face"].flip
        seen.add(flip)
        expected = resized(full[21:51, 11:71], (30, 40))
        assert np.array_equal(got["face"], expected[:, ::-1] if flip else expected)
        assert np.array_equal(got["again"], got["face"])
        assert context.geometry["face"].box == Box(21, 11, 30, 60)
        assert set(got["seg"].ravel()) <= set(full[21:51, 11:71, 0].ravel())
    assert seen == {True, False}


def test_crops_are_drawn_by_position_and_not_by_the_row_in_a_shard(photo, save):
    data = save(photo(90, 120), "JPEG")

    def box(row: int, position: int) -> Box:
        context = SampleContext(f"key{position}", "00000.tar", row, position, 0, 0)
        made({"jpg": RandomResizedCrop(20)}, {"jpg": data}, context)
        return context.geometry["jpg"].box

    assert len({box(7, position) for position in range(20)}) == 20
    assert {box(row, 7) for row in range(20)} == {box(7, 7)}


def test_large_pictures_are_decoded_small(photo, save, sample):
    data = save(photo(803, 1205), "JPEG")
    context = sample()
    got = made({"jpg": Crop(64, box="box")}, {"jpg": data, "box": boxed(101, 51, 902, 703)}, context, {"box": FIXED})
    box = context.geometry["jpg"].box
    assert box == Box(48, 104, 656, 800)  # eighths
    assert np.abs(got["jpg"].astype(int) - resized(decode(data)[box.slices()], (64, 64))).mean() < 1


numbers = st.floats(-50, 150) | st.integers(-50, 150).map(float)


@given(st.tuples(numbers, numbers, numbers, numbers), st.integers(1, 90), st.integers(1, 120))
def test_what_reaches_outside_is_cut_off(edges, height, width):
    left, right = sorted(edges[:2])
    top, bottom = sorted(edges[2:])
    box = _within([left, top, right, bottom], (height, width))
    outside = min(right, width) <= max(left, 0) or min(bottom, height) <= max(top, 0)
    if box is None:
        assert outside
        return
    assert not outside
    assert 0 <= box.top < box.top + box.height <= height
    assert 0 <= box.left < box.left + box.width <= width
    for start, length, low, high, limit in (
        (box.left, box.width, left, right, width),
        (box.top, box.height, top, bottom, height),
    ):
        low, high = max(low, 0), min(high, limit)
        if length > 1 or high - low > 1:
            assert abs(start - low) <= 0.5
            assert abs(start + length - high) <= 0.5
        else:
            assert start - 0.5 <= low
            assert high <= start + length + 0.5


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ((130, 10, 150, 20), r"from \(130, 10\) to \(150, 20\) in 'box' shows nothing of an image of 120 x 90 pixels"),
        ((10, 10, 10, 20), "shows nothing"),
        ((-30, -30, 0, 0), "shows nothing"),
        ((20, 10, 10, 20), "no box of format 'xyxy'"),
    ],
)
def test_a_box_of_nothing(photo, save, sample, box, message):
    values = {"jpg": save(photo(90, 120), "JPEG"), "box": boxed(*box)}
    with pytest.raises(DecodeError, match=message) as caught:
        made({"jpg": Crop(8, box="box")}, values, sample(5), {"box": FIXED})
    assert caught.value.place == {"shard": "00000.tar", "sample": 5, "key": "key5", "field": "jpg"}


def test_a_sample_without_its_box(photo, save, sample):
    values = {"jpg": save(photo(90, 120), "JPEG"), "box": None}
    with pytest.raises(DecodeError, match="the sample has no 'box'"):
        made({"jpg": Crop(8, box="box")}, values, sample(), {"box": FIXED})


def first(boxes):
    return boxes["all"][0]


def any_of(boxes, rng):
    return boxes["all"][rng.integers(len(boxes["all"]))]


def test_one_box_of_many(photo, save, sample):
    data = save(photo(90, 120), "PNG")
    values = {"png": data, "objects": bytes(to_bytes(JSON, {"all": [[0, 0, 60, 30], [60, 30, 60, 30]]}))}
    fields = {
        "first": Crop((30, 60), box="objects", pick=first, format="xywh", source="png"),
        "any": Crop((30, 60), box="objects", pick=any_of, format="xywh", source="png"),
    }
    chosen = []
    for position in range(20):
        got = made(fields, values, sample(position), {"objects": JSON})
        again = made(fields, values, sample(position), {"objects": JSON})
        assert np.array_equal(got["any"], again["any"])
        assert np.array_equal(got["first"], photo(90, 120)[:30, :60])
        chosen.append(np.array_equal(got["any"], got["first"]))
        assert chosen[-1] or np.array_equal(got["any"], photo(90, 120)[30:60, 60:])
    assert {True, False} == set(chosen)
    stored = {"png": FieldType.parse("png"), "objects": JSON}
    plan = pickle.loads(pickle.dumps(compile_fields(fields, stored)))
    assert [call.uses_global_states for output in plan.outputs for call in output.calls] == [True, False]
    with pytest.raises(DecodeError, match="2 boxes in 'objects' to crop one"):
        made({"png": Crop(8, box="objects", pick=lambda each: each["all"])}, values, sample(), {"objects": JSON})
    with pytest.raises(TransformError, match=r"pick of fields\['png'\] .* raised KeyError"):
        made({"png": Crop(8, box="objects", pick=lambda each: each["none"])}, values, sample(), {"objects": JSON})


def test_arguments_are_checked_at_once():
    for make in (
        lambda: Crop(0, box="box"),
        lambda: Crop(8, box="box", format="yolo"),
        lambda: Crop(8, box=(1, 2, 3, 4)),
        lambda: Crop(8, box="box", flip=2),
    ):
        with pytest.raises(UsageError) as caught:
            make()
        assert caught.value.hint


def test_many_crops_of_one_sample_are_independent(photo, save, sample):
    """DINO's: each output draws for itself, and one more changes none of the others."""
    data = save(photo(), "JPEG")
    fields = {f"global_{i}": RandomResizedCrop(64, scale=(0.4, 1), flip=True, source="jpg") for i in range(2)}
    fields |= {f"local_{i}": RandomResizedCrop(24, scale=(0.05, 0.4), flip=True, source="jpg") for i in range(6)}
    areas = {"global": [], "local": []}
    centres = {name: [] for name in fields}
    for position in range(60):
        context = sample(position)
        made(fields, {"jpg": data}, context)
        boxes = {name: plan.box for name, plan in context.geometry.items()}
        assert len(set(boxes.values())) == len(fields)
        for name, box in boxes.items():
            areas[name.split("_")[0]].append(box.height * box.width / (375 * 500))
            centres[name].append(box.left + box.width / 2)
        fewer = sample(position)
        made({"local_3": fields["local_3"]}, {"jpg": data}, fewer)
        assert fewer.geometry["local_3"] == context.geometry["local_3"]
    assert min(areas["global"]) > 0.38
    assert max(areas["local"]) < 0.42
    correlation = np.corrcoef(np.array(list(centres.values())))
    assert np.abs(correlation - np.eye(len(fields))).max() < 0.5
