from __future__ import annotations

import pickle

import numpy as np
import pytest
from PIL import Image as Pillow

from shardstream.decode import CenterCrop, Crop, Cut, Image, Mask, RandomResizedCrop, Resize, compile_fields
from shardstream.errors import DecodeError, FieldError, UsageError
from shardstream.images.backends import decode
from shardstream.images.geometry import aligned_scale, covering_scale
from shardstream.images.jpeg.transcode import make_addressable
from shardstream.shards.fields import FieldType, to_bytes
from shardstream.stream.batching.samples import begun_early

from .making import made, resized

JPG, PNG = FieldType.parse("jpg"), FieldType.parse("png")


def test_image_is_the_whole_decoded_file(photo, save, sample):
    data = save(photo(50, 70), "JPEG")
    pixels = made({"jpg": Image()}, {"jpg": data}, sample())["jpg"]
    assert np.array_equal(pixels, decode(data))
    flipped = [made({"jpg": Image(flip=True)}, {"jpg": data}, sample(n))["jpg"] for n in range(40)]
    kinds = [np.array_equal(each, pixels) for each in flipped]
    assert all(same or np.array_equal(each, pixels[:, ::-1]) for same, each in zip(kinds, flipped, strict=True))
    assert 8 < sum(kinds) < 32


def test_images_do_not_share_memory(photo, save, sample):
    files = [save(photo(50, 70, seed), "JPEG") for seed in (1, 2)]
    for spec in (Image(), Image(flip=1.0), Resize(20), CenterCrop(30), RandomResizedCrop(24)):
        plan = compile_fields({"jpg": spec}, {"jpg": JPG})
        first = plan.outputs[0].value(JPG, memoryview(files[0]), sample(1))
        kept = first.copy()
        second = plan.outputs[0].value(JPG, memoryview(files[1]), sample(2))
        assert np.array_equal(first, kept)
        assert not np.shares_memory(first, second)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_resize_and_center_crop_follow_torchvision(photo, save, sample, kind):
    name = {"JPEG": "jpg", "PNG": "png"}[kind]
    data = save(photo(), kind)
    full = decode(data)
    fields = {
        "short": Resize(256, source=name),
        "exact": Resize((300, 301), source=name),
        "pair": CenterCrop(224, resize=256, source=name),
        "crop": CenterCrop((100, 201), source=name),
        "padded": CenterCrop(400, source=name),
    }
    got = made(fields, {name: data}, sample())
    assert np.array_equal(got["short"], resized(full, (256, 341)))
    assert np.array_equal(got["exact"], resized(full, (300, 301)))
    # round(117 / 2) = 58, half to even. Only what the window shows is resized, within 1/128 of a pixel of its place.
    distance = np.abs(got["pair"].astype(int) - got["short"][16:240, 58:282])
    assert distance.max() <= 2
    assert distance.mean() < 0.1
    assert np.array_equal(got["crop"], full[138:238, 150:351])  # round(137.5) = 138, round(149.5) = 150
    assert np.array_equal(got["padded"], np.pad(full[:, 50:450], ((12, 13), (0, 0), (0, 0))))


@pytest.mark.parametrize("addressable", [False, True])
@pytest.mark.parametrize("size", [24, 40, 70])
def test_exact_pixels_are_those_of_a_full_decode(photo, save, sample, size, addressable):
    data = save(photo(301, 403), "JPEG")
    data = make_addressable(data).data if addressable else data
    full = decode(data)
    fields = {
        "short": Resize(size, source="jpg", exact=True),
        "pair": CenterCrop(size, resize=size + 13, source="jpg", exact=True),
        "box": RandomResizedCrop(size, scale=(0.5, 1), flip=True, source="jpg", exact=True),
        "reduced": Resize(size, source="jpg"),
    }
    context = sample(3)
    got = made(fields, {"jpg": data}, context)
    whole = resized(full, (size + 13, (size + 13) * 403 // 301))
    top, left = round(13 / 2), round((whole.shape[1] - size) / 2)
    geometry = context.geometry["box"]
    box = resized(full[geometry.box.slices()], (size, size))
    assert np.array_equal(got["short"], resized(full, (size, size * 403 // 301)))
    assert np.array_equal(got["pair"], whole[top : top + size, left : left + size])
    assert np.array_equal(got["box"], box[:, ::-1] if geometry.flip else box)
    assert not np.array_equal(got["reduced"], got["short"])  # what is not exact is decoded at a reduced scale


def test_exact_upright_pictures_are_turned_after_all(photo, save, sample):
    exif = Pillow.Exif()
    exif[0x0112] = 6
    data = save(photo(301, 403), "JPEG", exif=exif)
    fields = {"jpg": CenterCrop(40, resize=50, upright=True, exact=True)}
    got = made(fields, {"jpg": data}, sample())["jpg"]
    upright = np.rot90(decode(data), -1)
    whole = resized(np.ascontiguousarray(upright), (50 * 403 // 301, 50))
    top = round((whole.shape[0] - 40) / 2)
    # Resized as it is stored, then turned: the operator's two passes round in the other order.
    assert np.abs(got.astype(int) - whole[top : top + 40, 5:45]).max() <= 1


def test_exact_and_fast_exclude_each_other():
    with pytest.raises(UsageError, match="exclude each other"):
        Resize(40, exact=True, fast=True)


def test_random_resized_crop_is_the_drawn_box_antialiased(photo, save, sample):
    data = save(photo(), "JPEG")
    full = decode(data)
    flips = 0
    for position in range(60):
        context = sample(position)
        got = made({"jpg": RandomResizedCrop((120, 161), flip=True)}, {"jpg": data}, context)["jpg"]
        geometry = context.geometry["jpg"]
        expected = resized(full[geometry.box.slices()], (120, 161))
        expected = expected[:, ::-1] if geometry.flip else expected
        flips += geometry.flip
        if geometry.box.height < 240 or geometry.box.width < 322:
            assert np.array_equal(got, expected)
        else:
            assert np.abs(got.astype(int) - expected).mean() < 1
    assert 15 < flips < 45


@pytest.mark.full
@pytest.mark.parametrize("subsampling", [0, 2])
@pytest.mark.parametrize("quality", [75, 95])
def test_push_down_stays_close_to_the_full_decode(photo, save, sample, subsampling, quality):
    """The stated distance: one grey level on average, ten for all but a hundredth of the pixels."""
    data = save(photo(903, 1201), "JPEG", quality=quality, subsampling=subsampling)
    full = decode(data)
    seen = set()
    for position in range(40):
        context = sample(position)
        got = made({"jpg": RandomResizedCrop(96)}, {"jpg": data}, context)["jpg"]
        box = context.geometry["jpg"].box
        difference = got.astype(int) - resized(full[box.slices()], (96, 96))
        assert np.abs(difference).mean() < 1
        assert np.percentile(np.abs(difference), 99) <= 10
        assert abs(difference.mean()) < 0.3
        seen.add(covering_scale(box.size, (96, 96)))
    assert seen == {2, 4, 8}
    whole = made({"jpg": Resize((90, 120))}, {"jpg": data}, sample())["jpg"]
    assert np.abs(whole.astype(int) - resized(full, (90, 120))).mean() < 1


def test_two_outputs_draw_independently_and_reproducibly(photo, save, sample):
    data = save(photo(), "JPEG")
    fields = {"jpg": RandomResizedCrop(64, flip=True), "view2": RandomResizedCrop(64, source="jpg", flip=True)}
    first = [made(fields, {"jpg": data}, sample(n)) for n in range(8)]
    again = [made(fields, {"jpg": data}, sample(n)) for n in reversed(range(8))][::-1]
    for one, two in zip(first, again, strict=True):
        assert all(np.array_equal(one[name], two[name]) for name in one)
        assert not np.array_equal(one["jpg"], one["view2"])
    alone = made({"view2": fields["view2"]}, {"jpg": data}, sample(3))
    assert np.array_equal(alone["view2"], first[3]["view2"]), "another output must not change this one"
    for other in (sample(3, seed=1), sample(3, epoch=1), sample(4)):
        assert not np.array_equal(made(fields, {"jpg": data}, other)["jpg"], first[3]["jpg"])


def test_mask_follows_the_image(photo, save, sample):
    labels = np.random.default_rng(0).integers(0, 255, (375, 500), np.uint8)
    labels = np.kron(labels[::25, ::25], np.ones((25, 25), np.uint8))
    values = {"jpg": save(photo(), "JPEG"), "png": save(labels, "PNG")}
    fields = {"mask": Mask(source="png", like="jpg"), "jpg": RandomResizedCrop(97, flip=True)}
    assert compile_fields(fields, {"jpg": JPG, "png": PNG}).names == ("mask", "jpg")
    flips = set()
    for position in range(20):
        context = sample(position)
        mask = made(fields, values, context)["mask"]
        box, flip = context.geometry["jpg"].box, context.geometry["jpg"].flip
        centres = (2 * np.arange(97) + 1) / (2 * 97)
        rows = np.floor(box.top + centres * box.height + 1e-9).astype(int)
        columns = np.floor(box.left + centres * box.width + 1e-9).astype(int)
        expected = labels[rows][:, columns[::-1] if flip else columns]
        assert mask.dtype == np.uint8
        assert np.array_equal(mask, expected)
        flips.add(flip)
    assert flips == {True, False}


def test_masks_alone_and_of_other_types(save, sample, photo):
    labels = np.arange(600, dtype=np.uint16).reshape(20, 30)
    png = save(Pillow.fromarray(labels), "PNG")
    assert np.array_equal(made({"png": Mask(dtype="int64")}, {"png": png}, sample())["png"], labels)
    with pytest.raises(DecodeError, match="does not fit uint8"):
        made({"png": Mask()}, {"png": png}, sample())
    kind = FieldType.parse("array:int32:20,30")
    context = sample()
    got = made(
        {"jpg": Resize((10, 10)), "seg": Mask(like="jpg", dtype="int16")},
        {"jpg": save(photo(20, 30), "JPEG"), "seg": labels.astype(np.int32)},
        context,
        {"jpg": JPG, "seg": kind},
    )["seg"]
    assert got.dtype == np.int16
    assert got.tolist() == labels[1::2, 1::3].tolist()


def test_mask_of_a_padded_crop_has_its_fill(save, sample, photo):
    values = {"jpg": save(photo(20, 30), "JPEG"), "png": save(np.full((20, 30), 7, np.uint8), "PNG")}
    fields = {"jpg": CenterCrop(24), "png": Mask(like="jpg", fill=255)}
    mask = made(fields, values, sample())["png"]
    assert (mask[:2] == 255).all()
    assert (mask[22:] == 255).all()
    assert (mask[2:22] == 7).all()
    output = compile_fields(fields, {"jpg": JPG, "png": PNG}).outputs[1]
    assert output.required


def test_image_and_crop_like_another(photo, save, sample):
    values = {"jpg": save(photo(), "JPEG"), "png": save(photo(seed=1), "PNG")}
    fields = {
        "jpg": RandomResizedCrop(80, flip=True),
        "png": Image(like="jpg"),
        "small": RandomResizedCrop(20, source="jpg", like="jpg"),
    }
    context = sample(5)
    got = made(fields, values, context)
    geometry = context.geometry["jpg"]
    expected = resized(photo(seed=1)[geometry.box.slices()], (80, 80))
    assert np.array_equal(got["png"], expected[:, ::-1] if geometry.flip else expected)
    assert context.geometry["small"] == geometry._replace(size=(20, 20))
    assert np.abs(got["small"].astype(int) - resized(got["jpg"], (20, 20))).mean() < 4


@pytest.mark.full
def test_what_is_replayed_is_not_moved(photo, save, sample):
    """Of a large JPEG, both sizes of a pair show the same rectangle, though the small one could be decoded smaller."""
    values = {"jpg": save(photo(903, 1201), "JPEG"), "png": save(photo(903, 1201)[..., 0], "PNG")}
    fields = {
        "large": RandomResizedCrop(160, source="jpg", flip=True),
        "small": RandomResizedCrop(40, source="jpg", like="large"),
        "mask": Mask(source="png", like="large"),
    }
    full, scales = decode(values["jpg"]), []
    for position in range(12):
        context = sample(position)
        got = made(fields, values, context)
        box, flip = context.geometry["large"].box, context.geometry["large"].flip
        assert context.geometry["small"].box == context.geometry["mask"].box == box
        expected = resized(full[box.slices()], (40, 40))
        expected = expected[:, ::-1] if flip else expected
        assert np.abs(got["small"].astype(int) - expected).mean() < 1
        scales.append((covering_scale(box.size, (40, 40)), aligned_scale(box, (903, 1201), 8)))
    assert any(small > aligned for small, aligned in scales)


def test_sizes_that_differ_cannot_be_alike(photo, save, sample):
    values = {"jpg": save(photo(40, 60), "JPEG"), "png": save(photo(40, 61)[..., 0], "PNG")}
    with pytest.raises(DecodeError, match=r"61 x 40 pixels cannot be cropped like 'jpg' of 60 x 40") as caught:
        made({"jpg": RandomResizedCrop(8), "png": Mask(like="jpg")}, values, sample(7))
    assert caught.value.place == {"shard": "00000.tar", "sample": 7, "key": "key7", "field": "png"}


def test_either_of_two_sources(photo, save, sample):
    plan = compile_fields({"image": Resize((8, 8), source="jpg;png")}, {"png": PNG, "jpg": JPG})
    assert plan.outputs[0].sources == ("jpg", "png")
    data = save(photo(30, 40), "PNG")
    assert np.array_equal(plan.outputs[0].value(PNG, memoryview(data), sample()), resized(photo(30, 40), (8, 8)))


def test_stored_arrays_are_images_too(photo, save, sample):
    pixels = photo(60, 80)
    pixels.flags.writeable = False
    fields = {"raw": RandomResizedCrop(24, flip=True)}
    for name in ("array:uint8:60,80,3", "array"):
        context = sample(3)
        kind = FieldType.parse(name)
        value = memoryview(to_bytes(kind, pixels)) if name == "array" else pixels
        got = made(fields, {"raw": value}, context, {"raw": kind})["raw"]
        geometry = context.geometry["raw"]
        expected = resized(pixels[geometry.box.slices()], (24, 24))
        assert np.array_equal(got, expected[:, ::-1] if geometry.flip else expected)
    grey = np.ascontiguousarray(pixels[..., 0])
    got = made({"raw": Image()}, {"raw": grey}, sample(), {"raw": FieldType.parse("array:uint8:60,80")})["raw"]
    assert np.array_equal(got, np.repeat(grey[..., None], 3, 2))
    with pytest.raises(DecodeError, match="float32"):
        made(
            {"raw": Image()},
            {"raw": pixels / np.float32(2)},
            sample(),
            {"raw": FieldType.parse("array:float32:60,80,3")},
        )


def test_errors_say_where(sample):
    with pytest.raises(DecodeError, match="neither JPEG, PNG nor WebP") as caught:
        made({"jpg": RandomResizedCrop(8)}, {"jpg": b"not an image"}, sample(42))
    assert caught.value.place == {"shard": "00000.tar", "sample": 42, "key": "key42", "field": "jpg", "offset": 0}
    assert pickle.loads(pickle.dumps(caught.value)).place == caught.value.place


def test_tolerant(photo, save, sample):
    data = save(photo(60, 80), "JPEG")
    data = data[: len(data) // 2]
    with pytest.raises(DecodeError) as caught:
        made({"jpg": Image()}, {"jpg": data}, sample())
    assert "tolerant" in str(caught.value)
    assert caught.value.__cause__ is not None
    assert made({"jpg": Resize((9, 9), tolerant=True)}, {"jpg": data}, sample())["jpg"].shape == (9, 9, 3)


@pytest.mark.parametrize(
    ("kind", "arguments", "options"),
    [
        (RandomResizedCrop, (0,), {}),
        (RandomResizedCrop, ((224, 224, 3),), {}),
        (RandomResizedCrop, (224.0,), {}),
        (RandomResizedCrop, (224,), {"scale": (1.0, 0.08)}),
        (RandomResizedCrop, (224,), {"scale": (0.08, 1.5)}),
        (RandomResizedCrop, (224,), {"ratio": (0, 1)}),
        (RandomResizedCrop, (224,), {"flip": 1.5}),
        (RandomResizedCrop, (224,), {"like": "jpg", "flip": True}),
        (Image, (), {"like": "jpg", "flip": True}),
        (Image, (), {"like": "jpg", "upright": True}),
        (RandomResizedCrop, (224,), {"like": "jpg", "upright": True}),
        (CenterCrop, (224,), {"resize": -1}),
        (Resize, (True,), {}),
        (Mask, (), {"dtype": "float32"}),
        (Mask, (), {"fill": 300}),
    ],
)
def test_arguments_are_checked_at_once(kind, arguments, options):
    with pytest.raises(UsageError) as caught:
        kind(*arguments, **options)
    assert caught.value.hint


def test_slots(sample):
    stored = {"jpg": JPG, "png": PNG}
    plan = compile_fields(
        {
            "a": RandomResizedCrop((30, 40), source="jpg"),
            "b": CenterCrop(24, source="jpg"),
            "c": Resize((5, 6), source="jpg"),
            "d": Resize(5, source="jpg"),
            "e": Mask(source="png", like="a"),
            "f": Mask(source="png", like="d", dtype="int64"),
            "g": Image(source="png", like="b"),
            "h": Image(source="jpg"),
        },
        stored,
    )
    slots = {output.name: output.slot and output.slot.shape for output in plan.outputs}
    assert slots == {
        "a": (30, 40, 3),
        "b": (24, 24, 3),
        "c": (5, 6, 3),
        "d": None,
        "e": (30, 40),
        "f": None,
        "g": (24, 24, 3),
        "h": None,
    }
    assert [output.name for output in plan.outputs if output.is_image] == ["a", "b", "c", "d", "g", "h"]


def test_like_in_any_order_of_a_chain(photo, save, sample):
    values = {"jpg": save(photo(40, 60), "JPEG"), "png": save(photo(40, 60)[..., 0], "PNG")}
    fields = {
        "m": Mask(source="png", like="b"),
        "b": Image(source="jpg", like="a"),
        "a": RandomResizedCrop(16, source="jpg"),
    }
    got = made(fields, values, sample())
    assert np.array_equal(got["a"], got["b"])
    assert got["m"].shape == (16, 16)
    with pytest.raises(FieldError, match="circle: a -> b -> a"):
        compile_fields({"a": Image(source="jpg", like="b"), "b": Image(source="jpg", like="a")}, {"jpg": JPG})


@pytest.mark.parametrize("addressable", [False, True])
def test_fast_pixels_are_near_the_accurate_ones_and_the_same_of_both_kinds_of_file(photo, save, sample, addressable):
    from shardstream.images.jpeg.transcode import make_addressable

    data = save(photo(), "JPEG")
    stored = make_addressable(data).data if addressable else data
    fields = {
        "accurate": RandomResizedCrop(64, scale=(0.2, 0.5), source="jpg"),
        "fast": RandomResizedCrop(64, scale=(0.2, 0.5), source="jpg", fast=True),
        "whole": Image(source="jpg", fast=True),
    }
    got = made({name: fields[name] for name in ("fast", "whole")}, {"jpg": stored}, sample())
    plain = made({name: fields[name] for name in ("fast", "whole")}, {"jpg": data}, sample())
    assert np.array_equal(got["fast"], plain["fast"])
    assert not np.array_equal(got["whole"], decode(data))
    assert np.abs(got["whole"].astype(int) - decode(data)).mean() < 3
    other = made({"fast": fields["accurate"]}, {"jpg": data}, sample())["fast"]  # the same name draws the same crop
    assert 0 < np.abs(got["fast"].astype(int) - other).mean() < 12


@pytest.mark.parametrize("addressable", [False, True])
def test_what_was_begun_early_becomes_the_same(photo, save, sample, addressable):
    file = save(photo(240, 320), "JPEG")
    file = make_addressable(file).data if addressable else file
    fields = {
        "jpg": RandomResizedCrop(64, flip=True),
        "again": Image(source="jpg", like="jpg"),
        "turned": RandomResizedCrop(48, source="jpg", upright=True, scale=(0.1, 0.3)),
        "cut": RandomResizedCrop(48, source="jpg", resize="device"),
        "whole": Image(source="jpg"),
        "pair": CenterCrop(96, resize=128, source="jpg", exact=True),
    }
    outputs = compile_fields(fields, {"jpg": JPG}).outputs
    for number in range(8):
        late, early = sample(number), sample(number)
        for output, step in begun_early(outputs):
            step.begin(memoryview(file), early, name=output.name, stream=output.stream)
        assert set(early.placed) == set(fields)
        for output in outputs:
            one, other = (output.value(JPG, memoryview(file), context) for context in (late, early))
            one, other = (value.pixels if isinstance(value, Cut) else value for value in (one, other))
            assert np.array_equal(one, other)
        assert not early.placed
        assert early.geometry == late.geometry
        assert early.upright == late.upright


def test_where_a_callable_has_a_part_nothing_is_begun_early():
    fields = {"jpg": Crop(8, box="box", pick=lambda boxes: boxes[0]), "made": ["bytes", bytes]}
    types = {"jpg": JPG, "box": FieldType.parse("json"), "made": JPG}
    assert not begun_early(compile_fields(fields, types).outputs)
