from __future__ import annotations

import pickle

import numpy as np
import pytest

from shardstream.decode import (
    Boxes,
    CenterCrop,
    Crop,
    DecodePlan,
    Image,
    Mask,
    PerBox,
    Placement,
    Points,
    RandomResizedCrop,
    Resize,
    Text,
    compile_fields,
)
from shardstream.errors import DecodeError, FieldError, TransformError, UsageError
from shardstream.shards.fields import FieldType, to_bytes

STORED = {
    name: FieldType.parse(kind)
    for name, kind in {
        "jpg": "jpg",
        "seg.png": "png",
        "cls": "int64",
        "weight": "float32",
        "box": "array:float32:4",
        "txt": "str",
        "meta": "json",
        "emb": "array",
        "blob": "bytes",
    }.items()
}


def plus_one(value):
    return value + 1


def compiled(fields) -> DecodePlan:
    return compile_fields(fields, STORED)


def one(spec, name="out", **values):
    (output,) = compile_fields({name: spec}, STORED).outputs
    return output


def test_default_is_every_field_by_its_type(photo, save, sample):
    plan = compiled(None)
    assert plan.names == plan.sources == tuple(STORED)
    by_name = {output.name: output for output in plan.outputs}
    assert [name for name, output in by_name.items() if output.plain] == ["cls", "weight", "box"]
    assert [name for name, output in by_name.items() if output.is_image] == ["jpg", "seg.png"]
    assert [name for name, output in by_name.items() if output.as_bytes] == ["blob"]
    assert by_name["cls"].slot == ((), np.dtype("int64"))
    assert by_name["box"].slot == ((4,), np.dtype("float32"))
    assert by_name["cls"].value(STORED["cls"], np.int64(5), sample()) == 5
    assert by_name["txt"].value(STORED["txt"], memoryview("ä".encode()), sample()) == "ä"
    assert by_name["meta"].value(STORED["meta"], memoryview(b'{"a": [1]}'), sample()) == {"a": [1]}
    assert by_name["blob"].value(STORED["blob"], memoryview(b"xy"), sample()) == b"xy"
    emb = memoryview(to_bytes(STORED["emb"], np.arange(3)))
    assert by_name["emb"].value(STORED["emb"], emb, sample()).tolist() == [0, 1, 2]
    data = save(photo(20, 30), "PNG")
    assert by_name["seg.png"].value(STORED["seg.png"], memoryview(data), sample()).shape == (20, 30, 3)


def test_list_of_names_and_what_is_read():
    plan = compiled(["cls"])
    assert plan.sources == ("cls",)
    assert plan.outputs[0].plain
    plan = compiled(
        {"a": Image(source="jpg"), "b": Image(source="jpg"), "cls": None, "seg": Mask(source="seg.png", like="a")}
    )
    assert plan.sources == ("jpg", "cls", "seg.png")


def test_bytes(photo, save, sample):
    data = save(photo(20, 30), "JPEG")
    output = one("bytes", "jpg")
    assert output.as_bytes
    assert not output.is_image
    assert output.slot is None
    assert output.value(STORED["jpg"], memoryview(data), sample()) == data
    assert one("bytes", "meta").value(STORED["meta"], memoryview(b"[1]"), sample()) == b"[1]"
    lengths = one(["bytes", len], "jpg")
    assert lengths.value(STORED["jpg"], memoryview(data), sample()) == len(data)
    with pytest.raises(FieldError, match="no bytes of its own"):
        compiled({"cls": "bytes"})


def test_callables_get_the_value(photo, save, sample):
    assert one(plus_one, "cls").value(STORED["cls"], np.int64(4), sample()) == 5
    assert not one(plus_one, "cls").plain
    data = save(photo(20, 30), "PNG")
    output = one(lambda image: image.shape, "seg.png")
    assert output.value(STORED["seg.png"], memoryview(data), sample()) == (20, 30, 3)
    assert one(str.upper, "txt").value(STORED["txt"], memoryview(b"abc"), sample()) == "ABC"


def test_lists_are_applied_in_turn(photo, save, sample):
    data = save(photo(20, 30), "PNG")
    types = STORED["seg.png"]
    chain = one([Resize((8, 8), source="seg.png"), plus_one, lambda image: image.mean()])
    assert chain.slot is None
    expected = one(Resize((8, 8), source="seg.png")).value(types, memoryview(data), sample())
    assert chain.value(types, memoryview(data), sample()) == (expected + 1).mean()
    undone = one(["bytes", lambda value: value[::-1], CenterCrop(4, source="seg.png")])
    out = np.zeros((4, 4, 3), np.uint8)
    assert undone.slot is not None
    assert undone.value(types, memoryview(data[::-1]), sample(), out) is out
    assert np.array_equal(out, photo(20, 30)[8:12, 13:17])
    twice = one([Resize((16, 16), source="seg.png"), CenterCrop(4)])
    out = np.zeros((4, 4, 3), np.uint8)
    whole = one(Resize((16, 16), source="seg.png")).value(types, memoryview(data), sample())
    assert np.array_equal(twice.value(types, memoryview(data), sample(), out), whole[6:10, 6:10])


def test_callables_of_two_outputs_draw_independently(sample):
    def draw(value, rng):
        return rng.integers(1 << 60)

    plan = compiled({"cls": draw, "weight": draw})
    values = [output.value(STORED[output.name], np.int64(0), sample(9)) for output in plan.outputs]
    assert values[0] != values[1]
    assert values == [output.value(STORED[output.name], np.int64(0), sample(9)) for output in plan.outputs]


def test_a_callable_that_raises_names_the_sample(sample):
    with pytest.raises(TransformError, match=r"fields\['cls'\] .* raised ZeroDivisionError") as caught:
        one(lambda value: value // 0 if isinstance(value, int) else 1 // 0, "cls").value(
            STORED["cls"], np.int64(4), sample(8)
        )
    assert caught.value.place["key"] == "key8"
    assert caught.value.place["sample"] == 8
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (["jpeg"], r"no field 'jpeg' is stored.*did you mean 'jpg'"),
        ({"image": Image(source="jpq;pgn")}, r"no field 'jpq' or 'pgn' is stored \(asked for by output 'image'\)"),
        ("jpg", r"fields='jpg' is a string"),
        ({"jpg": "byte"}, "'byte' is not a field spec"),
        ({"jpg": 3}, "3 is not a field spec"),
        ({"jpg": []}, "empty list"),
        ({"jpg": [Image(), "bytes"]}, "'bytes' is not a field spec"),
        ({"jpg": RandomResizedCrop}, "RandomResizedCrop without arguments"),
        ({"__key__": None}, "cannot name an output"),
        ({"cls": Image()}, "Image cannot decode field 'cls' of type int64"),
        ({"txt": Mask()}, "Mask cannot decode"),
        ({"jpg": Text(len)}, "Text cannot decode"),
        ({"jpg": Image(like="img")}, "no such output"),
        ({"m": Mask(source="seg.png", like="jgp"), "jpg": Image()}, "did you mean 'jpg'"),
        ({"m": Mask(source="seg.png", like="cls"), "cls": None}, "cannot be like 'cls'"),
        ({"m": Mask(source="seg.png", like="txt"), "txt": Text()}, "cannot be like 'txt'"),
        ({"s": RandomResizedCrop(8, source="jpg", like="jpg"), "jpg": Resize(9)}, "cannot be like 'jpg'"),
        ({"m": [Image(source="seg.png"), Mask(like="jpg")], "jpg": Image()}, "first decoder of a list"),
        ({"jpg": [Resize(16), CenterCrop(8)], "m": Mask(source="seg.png", like="jpg")}, "cropped or resized 2 times"),
        ({"box": PerBox(like="jpg"), "jpg": Image()}, "like= names an output of Boxes"),
        ({"box": Points(like="cls"), "cls": None}, "an image output, or one of Boxes"),
        ({"txt": Boxes(like="jpg"), "jpg": Image()}, "Boxes cannot decode field 'txt' of type str"),
        ({"where": Placement(like="jgp"), "jpg": Image()}, "did you mean 'jpg'"),
        ({"where": Placement(like="cls"), "cls": None}, "like= names an image output"),
        ({"jpg": Crop(8, box="bax")}, "no field 'bax' is stored .read beside output 'jpg'.*did you mean 'box'"),
        ({"jpg": Image(like="jpg")}, "circle"),
    ],
)
def test_what_cannot_be(fields, message):
    with pytest.raises(FieldError, match="(?s)" + message) as caught:
        compiled(fields)
    assert caught.value.hint


def test_optional_outputs(sample):
    absent = one(Image(source="webp", optional=True))
    assert absent.sources == ()
    assert absent.missing(sample()) is None
    assert compiled({"out": Image(source="webp", optional=True)}).sources == ()
    with pytest.raises(DecodeError, match="the sample has no 'jpg'") as caught:
        one(Image(), "jpg").missing(sample(3))
    assert caught.value.place["key"] == "key3"
    assert one(None, "jpg").missing(sample()) is None
    assert one(plus_one, "cls").missing(sample()) is None
    crop = one(RandomResizedCrop(4, optional=True), "jpg")
    out = np.full((4, 4, 3), 9, np.uint8)
    assert crop.missing(sample(), out) is out
    assert not out.any()
    plan = compiled(
        {"jpg": CenterCrop(4, optional=True), "m": Mask(source="seg.png", like="jpg", fill=255, optional=True)}
    )
    labels = np.zeros((4, 4), np.uint8)
    assert (plan.outputs[1].missing(sample(), labels) == 255).all()


def test_like_a_missing_image(photo, save, sample):
    plan = compiled({"jpg": Image(optional=True), "m": Mask(source="seg.png", like="jpg")})
    with pytest.raises(DecodeError, match="this sample has no 'jpg'"):
        plan.outputs[1].value(STORED["seg.png"], memoryview(save(photo(9, 9)[..., 0], "PNG")), sample())


def test_text(sample):
    def tokenize(text):
        return [ord(letter) for letter in text]

    kind = STORED["txt"]
    raw = memoryview("héy".encode())
    assert one(Text(), "txt").value(kind, raw, sample()) == "héy"
    assert one(Text(source="blob")).value(STORED["blob"], raw, sample()) == "héy"
    ragged = one(Text(tokenize), "txt")
    assert ragged.slot is None
    ids = ragged.value(kind, raw, sample())
    assert ids.dtype == np.int64
    assert ids.tolist() == [104, 233, 121]
    padded = one(Text(tokenize, pad_to=5, pad_value=-1, optional=True), "txt")
    assert padded.slot == ((5,), np.dtype(np.int64))
    out = np.full(5, 77)
    assert padded.value(kind, raw, sample(), out) is out
    assert out.tolist() == [104, 233, 121, -1, -1]
    assert padded.value(kind, memoryview(b"abcdefgh"), sample()).tolist() == [97, 98, 99, 100, 101]
    assert padded.missing(sample(), out) is out
    assert out.tolist() == padded.missing(sample()).tolist() == [-1] * 5
    assert one(Text(tokenize, pad_to=2), "txt").value(kind, memoryview(b""), sample()).tolist() == [0, 0]
    assert one(Text(tokenize, source="blob")).value(STORED["blob"], memoryview(b"a"), sample()).tolist() == [97]


def test_what_tokenizers_return(sample):
    import torch

    raw = memoryview(b"abc")
    for result in (
        (1, 2, 3),
        np.array([1, 2, 3], np.int32),
        torch.tensor([[1, 2, 3]]),
        {"input_ids": [1, 2, 3], "attention_mask": [1, 1, 1]},
        {"input_ids": torch.tensor([[1, 2, 3]])},
    ):
        assert one(Text(lambda _, r=result: r), "txt").value(STORED["txt"], raw, sample()).tolist() == [1, 2, 3]
    for result in ([[1], [2]], [1.5], "abc", 3):
        with pytest.raises(UsageError, match="returned a"):
            one(Text(lambda _, r=result: r), "txt").value(STORED["txt"], raw, sample())
    with pytest.raises(DecodeError, match="text in another encoding"):
        one(Text(source="blob")).value(STORED["blob"], memoryview(b"\xff\xfe"), sample())
    with pytest.raises(TransformError, match="tokenize"):
        one(Text(lambda text: text.nothing), "txt").value(STORED["txt"], raw, sample())
    for wrong in ({"pad_to": 5}, {"tokenize": 3}, {"tokenize": len, "pad_to": 0}):
        with pytest.raises(UsageError):
            Text(**wrong)


def test_plans_pickle(photo, save, sample):
    plan = compiled({"jpg": [RandomResizedCrop(16, flip=True), plus_one], "txt": Text(len), "cls": None})
    copy = pickle.loads(pickle.dumps(plan))
    data = memoryview(save(photo(40, 50), "JPEG"))
    assert np.array_equal(
        copy.outputs[0].value(STORED["jpg"], data, sample(4)), plan.outputs[0].value(STORED["jpg"], data, sample(4))
    )


def test_what_is_read_beside_and_what_is_derived():
    plan = compiled(
        {
            "where": Placement(like="jpg"),
            "jpg": Crop(8, box="emb", pick=plus_one),
            "face": Crop(8, box="box", source="jpg"),
            "cls": plus_one,
        }
    )
    assert plan.sources == ("jpg", "cls", "emb", "box")
    assert plan.beside == ("emb", "box")
    outputs = {output.name: output for output in plan.outputs}
    assert outputs["where"].sources == ("jpg",)
    assert outputs["where"].slot == ((2, 3), np.dtype(np.float32))
    assert [len(outputs[name].calls) for name in ("jpg", "face", "cls", "where")] == [1, 0, 1, 0]


def test_a_callable_before_what_is_like_another(photo, save, sample):
    """Colours become labels, and follow; a change of colours in front of a crop does not stop others."""
    plan = compiled(
        {
            "jpg": [plus_one, RandomResizedCrop(8)],
            "m": [lambda colours: colours[..., 0] // 128, Mask(source="seg.png", like="jpg")],
        }
    )
    assert [output.name for output in plan.outputs] == ["jpg", "m"]
    context, colours = sample(), photo(20, 30)
    plan.outputs[0].value(STORED["jpg"], memoryview(save(photo(20, 30), "JPEG")), context)
    mask = plan.outputs[1].value(STORED["seg.png"], memoryview(save(colours, "PNG")), context)
    assert mask.shape == (8, 8)
    assert set(mask.ravel()) == {0, 1}
