"""``upright=True``: what comes out is what would come out of the picture that Pillow turns upright."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image as Pillow
from PIL import ImageOps

from shardstream.decode import (
    Boxes,
    CenterCrop,
    Crop,
    Image,
    Mask,
    Placement,
    RandomResizedCrop,
    Resize,
    SourceSize,
)
from shardstream.errors import DecodeError
from shardstream.images.geometry import covering_scale
from shardstream.images.jpeg.transcode import make_addressable
from shardstream.images.resize import render
from shardstream.shards.fields import FieldType

from .making import made, resized

BOX = {"box": FieldType.parse("array:float32:4")}
orientations = pytest.mark.parametrize("orientation", range(1, 9))


@pytest.fixture
def shot(save):
    """``shot(pixels, kind, orientation)``: a file as a camera held like that writes it."""

    def write(pixels, kind, orientation, **options):
        exif = Pillow.Exif()
        exif[0x0112] = orientation
        return save(pixels, kind, exif=exif, **options)

    return write


def by_pillow(data):
    with Pillow.open(io.BytesIO(data)) as image:
        return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


@orientations
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_the_whole_image_is_pillows_exif_transpose(photo, shot, sample, kind, orientation):
    name = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp"}[kind]
    data = shot(photo(50, 70), kind, orientation)
    upright = by_pillow(data)
    got = made({name: Image(upright=True), "flat": Image(source=name)}, {name: data}, sample())
    assert np.array_equal(got[name], upright)
    assert got["flat"].shape == (50, 70, 3)
    flipped = made({name: Image(upright=True, flip=1.0)}, {name: data}, sample())[name]
    assert np.array_equal(flipped, upright[:, ::-1])


@orientations
def test_crops_are_those_of_the_upright_image(photo, shot, sample, orientation):
    """What is only cut is exact; what is resized is within a grey level, since turning and rounding do not commute."""
    data = shot(photo(90, 131), "JPEG", orientation)
    upright = by_pillow(data)
    exact = {
        "window": CenterCrop((61, 40), source="jpg", flip=True, upright=True),
        "padded": CenterCrop(140, source="jpg", flip=True, upright=True),
        "box": Crop((33, 20), box="box", source="jpg", flip=True, upright=True),
    }
    near = {
        "short": Resize(77, source="jpg", upright=True),
        "pair": CenterCrop((71, 50), resize=80, source="jpg", flip=True, upright=True),
        "random": RandomResizedCrop((65, 73), source="jpg", flip=True, upright=True),
    }
    values = {"jpg": data, "box": np.array([7, 5, 27, 38], np.float32)}
    for position in range(12):
        context = sample(position)
        got = made(exact | near, values, context, BOX)
        for name in exact | near:
            plan = context.geometry[name]
            assert plan.source == upright.shape[:2]
            assert got[name].shape[:2] == plan.output
            distance = np.abs(got[name].astype(int) - render(upright, plan)).max()
            assert distance <= (0 if name in exact else 1), name


@pytest.mark.one_in(4)
@orientations
def test_the_push_down_works_on_stored_pixels(photo, shot, sample, orientation):
    data = shot(photo(603, 901), "JPEG", orientation, quality=95)
    upright = by_pillow(data)
    labels = (np.indices(upright.shape[:2]).sum(0) // 16 % 250).astype(np.uint8)
    fields = {
        "jpg": RandomResizedCrop((60, 80), flip=True, upright=True),
        "small": RandomResizedCrop(20, source="jpg", like="jpg"),
        "seg": Mask(like="jpg"),
    }
    scales = set()
    for position in range(12):
        context = sample(position)
        values = {"jpg": data, "seg": labels}
        got = made(fields, values, context, {"seg": FieldType.parse("array:uint8:1,1")})
        plan = context.geometry["jpg"]
        scales.add(covering_scale(plan.box.size, plan.size))
        expected = resized(upright[plan.box.slices()], (20, 20))
        small = got["small"].astype(int) - (expected[:, ::-1] if plan.flip else expected)
        assert np.abs(small).mean() < 1
        expected = resized(upright[plan.box.slices()], plan.size)
        assert np.abs(got["jpg"].astype(int) - (expected[:, ::-1] if plan.flip else expected)).mean() < 1
        assert context.geometry["small"] == plan._replace(size=(20, 20))
        rows, columns = (
            np.floor((np.arange(n) + 0.5) * side / n).astype(int)
            for n, side in zip(plan.size, plan.box.size, strict=True)
        )
        shown = labels[plan.box.slices()][rows][:, columns]
        assert np.array_equal(got["seg"], shown[:, ::-1] if plan.flip else shown)
    assert scales >= {2, 4}


@pytest.mark.one_in(4)
@orientations
def test_addressable_files_give_the_same_pixels(photo, shot, sample, orientation):
    plain = shot(photo(300, 421), "JPEG", orientation)
    addressable = make_addressable(plain)
    assert addressable.kind == "addressable"
    fields = {
        "random": RandomResizedCrop((60, 80), scale=(0.05, 0.5), source="jpg", flip=True, upright=True),
        "middle": CenterCrop(90, source="jpg", flip=True, upright=True),
    }
    for position in range(8):
        one, two = (made(fields, {"jpg": data}, sample(position)) for data in (plain, addressable.data))
        assert all(np.array_equal(one[name], two[name]) for name in fields)


def test_annotations_are_of_the_upright_image(photo, shot, sample):
    pixels = photo(60, 80)
    pixels[10:20, 50:70] = 255  # 20 wide and 10 high as stored; upright (a quarter clockwise) 10 wide and 20 high
    values = {
        "png": shot(pixels, "PNG", 6),
        "boxes": np.array([[40, 50, 50, 70]], np.float32),
        "box": np.array([40, 50, 50, 70], np.float32),
    }
    fields = {
        "png": Image(upright=True),
        "boxes": Boxes(like="png"),
        "crop": Crop((20, 10), box="box", source="png", upright=True),
        "size": SourceSize(like="png"),
        "where": Placement(like="png"),
    }
    got = made(fields, values, sample(), BOX | {"boxes": FieldType.parse("array:float32:1,4")})
    assert got["size"].tolist() == [80, 60]
    assert (got["png"][50:70, 40:50] == 255).all()
    assert (got["crop"] == 255).all()
    assert got["boxes"].tolist() == [[40, 50, 50, 70]]
    assert got["where"].tolist() == [[1, 0, 0], [0, 1, 0]]


@orientations
def test_what_is_like_an_upright_image_is_turned_as_its_own_file_says(photo, shot, save, sample, orientation):
    data = shot(photo(60, 80), "PNG", orientation)
    upright = by_pillow(data)
    values = {"png": data, "plain": save(upright, "PNG"), "seg": np.ascontiguousarray(upright[..., 0])}
    fields = {
        "png": CenterCrop((41, 30), upright=True, flip=True),
        "same": Image(source="png", like="png"),
        "again": Image(source="png", like="same"),
        "plain": Image(like="png"),
        "seg": Mask(like="png"),
    }
    types = {"plain": FieldType.parse("png"), "seg": FieldType.parse("array:uint8:1,1")}
    got = made(fields, values, sample(orientation), types)
    for name in ("same", "again", "plain"):
        assert np.array_equal(got[name], got["png"]), name
    assert np.array_equal(got["seg"], got["png"][..., 0])


def test_a_mask_of_the_pixels_as_stored_is_refused(photo, shot, sample):
    values = {"jpg": shot(photo(60, 80), "JPEG", 6), "seg": np.zeros((60, 80), np.uint8)}
    fields = {"jpg": Resize((8, 8), upright=True), "seg": Mask(like="jpg")}
    types = {"seg": FieldType.parse("array:uint8:60,80")}
    with pytest.raises(DecodeError, match=r"80 x 60 pixels cannot be cropped like 'jpg' of 60 x 80") as caught:
        made(fields, values, sample(), types)
    assert "upright" in str(caught.value.hint)
    values["seg"] = np.zeros((80, 60), np.uint8)
    assert made(fields, values, sample(), types)["seg"].shape == (8, 8)
