"""The virtual field ``image``: which stored fields it stands for, and what is said if an image is elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from shardstream.decode import Boxes, Image, Mask, RandomResizedCrop, Resize, compile_fields
from shardstream.errors import DecodeError, FieldError
from shardstream.shards.fields import FieldType

from .making import made, resized


def fields(**kinds: str) -> dict[str, FieldType]:
    return {name.replace("_", "."): FieldType.parse(kind) for name, kind in kinds.items()}


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (fields(jpg="jpg", cls="int64"), ("jpg",)),
        (fields(webp="webp", gif="image", png="png", jpg="jpg", tif="image"), ("jpg", "png", "webp", "gif", "tif")),
        (fields(JPG="jpg", bmp="bytes", txt="str", blob="bytes"), ("JPG", "bmp")),
        (fields(mask_png="png", png="png", jpg="jpg"), ("jpg", "png")),
        (fields(image="str", jpg="jpg"), ("image",)),
        (fields(img="image", cls="int64"), ("img",)),
        (fields(a_jpg="jpg", blob="bytes"), ("a.jpg",)),
    ],
)
def test_it_stands_for_the_image_fields_in_a_fixed_order(stored, expected):
    for order in (stored, dict(reversed(stored.items()))):
        assert compile_fields(["image"], order).outputs[0].sources == expected


def test_a_second_name_can_follow_it():
    stored = fields(png="png", raw="array")
    (output,) = compile_fields({"x": Resize((8, 8), source="image;raw")}, stored).outputs
    assert output.sources == ("png", "raw")


def test_it_is_none_of_several_fields_that_nothing_tells_apart():
    with pytest.raises(FieldError, match=r"'image' could be any of 'left.jpg', 'right.jpg'") as caught:
        compile_fields({"image": Image()}, fields(left_jpg="jpg", right_jpg="jpg"))
    assert 'source="left.jpg;right.jpg"' in caught.value.hint
    with pytest.raises(FieldError, match="no field 'image' is stored"):
        compile_fields({"image": Image()}, fields(cls="int64", raw="array"))


@pytest.mark.parametrize("name", ["jpg", "png", "gif"])
@pytest.mark.parametrize("spec", [None, "pil", np.asarray, Resize((20, 30))])
def test_every_spec_gets_pixels_of_whichever_there_is(photo, save, sample, name, spec):
    pixels = photo(20, 30)
    data = save(pixels, {"jpg": "JPEG", "png": "PNG", "gif": "GIF"}[name])
    types = fields(jpg="jpg", png="png", gif="bytes")
    output = compile_fields({"image": spec}, types).outputs[0]
    value = output.value(types[name], memoryview(data), sample())
    assert np.asarray(value).shape == (20, 30, 3)
    if name == "png":
        assert np.array_equal(np.asarray(value), pixels)
    assert compile_fields({"image": "bytes"}, types).outputs[0].as_bytes


def test_what_is_like_it_follows_its_crop(photo, save, sample):
    values = {"png": save(photo(60, 80), "PNG"), "seg": save(photo(60, 80)[..., 0], "PNG")}
    specs = {"image": RandomResizedCrop(24), "seg": Mask(like="image")}
    context = sample(5)
    got = made(specs, values, context, {"seg": FieldType.parse("bytes")})
    assert np.array_equal(got["image"], resized(photo(60, 80)[context.geometry["image"].box.slices()], (24, 24)))
    assert context.geometry["seg"].box == context.geometry["image"].box
    plan = compile_fields({"image": Image(), "boxes": Boxes(like="image")}, fields(jpg="jpg", boxes="array"))
    assert plan.sources == ("jpg", "boxes")


def test_a_missing_field_names_it_as_the_way_out(sample):
    told = "images are in 'png', 'gif': name the output \"image\", or give source=\"image\""
    with pytest.raises(FieldError, match="no field 'jpg' is stored") as caught:
        compile_fields({"jpg": Image()}, fields(png="png", gif="image", seg_png="png"))
    assert told in caught.value.hint
    (output,) = compile_fields({"jpg": Image()}, fields(jpg="jpg", png="png", gif="image", seg_png="png")).outputs
    with pytest.raises(DecodeError, match="the sample has no 'jpg'") as missing:
        output.missing(sample())
    assert told in missing.value.hint
    assert "optional=True" in missing.value.hint
    for stored in (fields(jpg="jpg", seg_png="png"), fields(jpg="jpg", cls="int64")):
        with pytest.raises(DecodeError) as alone:
            compile_fields({"jpg": Image()}, stored).outputs[0].missing(sample())
        assert alone.value.hint == "give the decoder optional=True if that is fine"
