"""Field types, and values as bytes and back."""

from __future__ import annotations

import json
import math

import msgpack
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from shardstream.errors import FieldError
from shardstream.shards.field_names import check_field_name
from shardstream.shards.fields import (
    PAYLOAD_TYPES,
    SCALAR_TYPES,
    FieldType,
    from_bytes,
    infer_type,
    to_bytes,
    to_fixed,
    type_of_extension,
)
from shardstream.shards.scalars import to_scalar

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | FLOATS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def back(kind: str, value: object):
    parsed = FieldType.parse(kind)
    return from_bytes(parsed, memoryview(bytes(to_bytes(parsed, value))))


# ------------------------------------------------------------------------------------------------------------- types


@pytest.mark.parametrize(
    "name", [*PAYLOAD_TYPES, *SCALAR_TYPES, "array:float32:3,224,224", "array:bool:0", "array:int8:7"]
)
def test_names_are_canonical(name) -> None:
    kind = FieldType.parse(name)
    assert kind.name == str(kind) == name
    assert FieldType.parse(kind.name) is kind
    assert kind.kind == ("scalar" if name in SCALAR_TYPES else "fixed" if ":" in name else "payload")
    assert kind.is_image == (name in ("jpg", "png", "webp"))


@pytest.mark.parametrize(
    ("given", "name"),
    [("int", "int64"), ("float", "float64"), ("jpeg", "jpg"), ("array:uint8:03,004", "array:uint8:3,4")],
)
def test_aliases(given, name) -> None:
    assert FieldType.parse(given) == FieldType.parse(name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pickle",
        "Int64",
        "int128",
        "array:",
        "array:uint8",
        "array:uint8:",
        "array:uint8:1,",
        "array:uint8:-1",
        "array:object:3",
        "array:uint8:٣",
        "array:uint8:3\n",
        "array:float64:99999,99999",
        "array:uint8:" + "1," * 40 + "1",
        "array:uint8:" + "9" * 5000,
        "array:str:3",
        "float128",
        5,
        None,
        ["jpg"],
    ],
)
def test_what_is_no_type(text) -> None:
    with pytest.raises(FieldError) as caught:
        FieldType.parse(text)
    assert caught.value.hint


def test_widths() -> None:
    assert FieldType.parse("array:float32:2,3").width == 24
    assert FieldType.parse("array:float32:2,0").width == 0
    assert FieldType.parse("int16").width == 2
    with pytest.raises(TypeError):
        FieldType.parse("jpg").width  # noqa: B018 - raises


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("jpg", b"", "jpg"),
        ("a.PNG", b"", "png"),
        ("jpeg", b"", "jpg"),
        ("bin", b"", "bytes"),
        ("txt", b"", "str"),
        ("x", "text", "str"),
        ("x", True, "bool"),
        ("x", 3, "int64"),
        ("x", 3.0, "float64"),
        ("x", {}, "json"),
        ("x", [1], "json"),
        ("x", np.float16(1), "float16"),
        ("x", np.array(3, ">i4"), "int32"),
        ("x", np.bool_(1), "bool"),
        ("x", np.ones(3), "array"),
        ("x", torch.ones(3), "tensor"),
        ("a.npy", bytearray(), "array"),
    ],
)
def test_types_are_inferred(name, value, kind) -> None:
    assert infer_type(name, value).name == kind


@pytest.mark.parametrize("value", [None, object(), 1j, np.datetime64("2020"), np.complex64(1)])
def test_what_no_type_holds(value) -> None:
    with pytest.raises(FieldError) as caught:
        infer_type("x", value)
    assert caught.value.place["field"] == "x"


def test_extensions() -> None:
    assert [type_of_extension(e).name for e in ("JPEG", "npy", "Json", "xyz")] == ["jpg", "array", "json", "bytes"]


@pytest.mark.parametrize("name", ["jpg", "seg.png", "a-b_c.1", "A"])
def test_field_names(name) -> None:
    check_field_name(name)


@pytest.mark.parametrize("name", ["", ".jpg", "jpg.", "a..b", "a/b", "a b", "é", "__key__", "a\n", "__"])
def test_what_is_no_field_name(name) -> None:
    with pytest.raises(FieldError):
        check_field_name(name)


# ----------------------------------------------------------------------------------------------------------- scalars


@pytest.mark.parametrize("name", [name for name in SCALAR_TYPES if "int" in name])
def test_integers_fit_or_are_refused(name) -> None:
    kind, info = FieldType.parse(name), np.iinfo(name)
    for value in (info.min, info.max, np.array(info.max), torch.tensor(1), np.dtype(name).type(3)):
        stored = to_scalar(kind, value)
        assert type(stored) is int
        assert stored == int(value)
    for value in (info.min - 1, info.max + 1):
        with pytest.raises(FieldError, match="does not fit"):
            to_scalar(kind, value)
    for value in (1.0, "1", True, None, np.ones(1), np.bool_(1)):
        with pytest.raises(FieldError, match="expected"):
            to_scalar(kind, value)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        (
            "float16",
            [65504.0, -65504, 1e-30, float("inf"), float("nan"), 65519.0],
            [65520.0, 1e6, -1e300, 10**400, 2049],
        ),
        ("float32", [3.4e38, 0.1, float("-inf"), float("nan"), 16777216], [3.5e38, 1e300, 10**400, 16777217]),
        ("float64", [1.7e308, 1 << 53, np.float32(0.1), float("nan")], [10**309, (1 << 53) + 1]),
    ],
)
def test_floats_round_but_never_overflow(name, good, bad) -> None:
    kind = FieldType.parse(name)
    for value in good:
        stored = to_scalar(kind, value)
        assert type(stored) is float
        column = np.array([stored], kind.dtype)
        assert math.isinf(column[0]) == math.isinf(value)
        assert math.isnan(column[0]) == math.isnan(value)
    for value in bad:
        with pytest.raises(FieldError):
            to_scalar(kind, value)
    with pytest.raises(FieldError):
        to_scalar(kind, True)


def test_bools_are_bools() -> None:
    kind = FieldType.parse("bool")
    assert to_scalar(kind, np.bool_(True)) is True
    for value in (1, 0.0, "True", None):
        with pytest.raises(FieldError):
            to_scalar(kind, value)


# ------------------------------------------------------------------------------------------------------ fixed arrays


def test_fixed_arrays_are_taken_as_they_are_or_not_at_all() -> None:
    kind = FieldType.parse("array:int32:2,3")
    value = np.arange(6, dtype=np.int32).reshape(2, 3)
    for given_ in (value, value.astype(">i4"), np.asfortranarray(value), torch.from_numpy(value), value[::1]):
        stored = to_fixed(kind, given_)
        assert stored.dtype == np.dtype("<i4")
        assert stored.flags.c_contiguous
        assert stored.tobytes() == value.tobytes()
    for wrong in (value.astype(np.int64), value[0], value.T, [[1, 2, 3], [4, 5, 6]], 3, "text"):
        with pytest.raises(FieldError, match=r"expected array:int32:2,3"):
            to_fixed(kind, wrong)


@pytest.mark.parametrize("shape", ["2147483650,0,2130706432", "0,2147483648", "65536,32768", ",".join(["1"] * 33)])
def test_shapes_that_numpy_cannot_have_are_refused(shape: str) -> None:
    with pytest.raises(FieldError, match="too large for a fixed array"):
        FieldType.parse(f"array:int8:{shape}")


# ---------------------------------------------------------------------------------------------------------- payloads


@given(TREES)
def test_json_there_and_back(value) -> None:
    assert back("json", value) == value


@given(TREES | st.dictionaries(st.integers(-5, 5), st.binary()))
def test_msgpack_there_and_back(value) -> None:
    assert back("msgpack", value) == value


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_there_and_back(value) -> None:
    assert back("str", value) == value


@given(
    hnp.arrays(
        st.one_of(
            *(hnp.boolean_dtypes(), hnp.integer_dtypes(endianness="?"), hnp.unsigned_integer_dtypes(endianness="?")),
            *(hnp.floating_dtypes(sizes=(16, 32, 64), endianness="?"), hnp.complex_number_dtypes(sizes=(64, 128))),
            *(hnp.unicode_string_dtypes(max_len=5), hnp.datetime64_dtypes(), hnp.byte_string_dtypes(max_len=5)),
        ),
        hnp.array_shapes(min_dims=0, min_side=0, max_dims=4),
    )
)
def test_arrays_there_and_back(value) -> None:
    found = back("array", value)
    assert found.dtype == value.dtype.newbyteorder("=")
    assert found.flags.writeable
    assert found.flags.c_contiguous
    assert found.shape == value.shape
    assert found.tobytes() == np.ascontiguousarray(value.astype(found.dtype)).tobytes()


def test_arrays_in_fortran_order_and_numpys_own_files() -> None:
    import io

    value = np.arange(12.0).reshape(3, 4)
    for array in (np.asfortranarray(value), value[::2, ::-1], value.astype(">f4")):
        np.testing.assert_array_equal(back("array", array), array)
        file = io.BytesIO()
        np.save(file, array)
        np.testing.assert_array_equal(back("array", file.getvalue()), array)
        stored = bytes(to_bytes(FieldType.parse("array"), array))
        np.testing.assert_array_equal(np.load(io.BytesIO(stored), allow_pickle=False), array)


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32"]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
def test_tensors_there_and_back(dtype, shape) -> None:
    value = (torch.arange(math.prod(shape)).reshape(shape) % 2).to(getattr(torch, dtype))
    found = back("tensor", value)
    assert found.dtype == value.dtype
    assert found.shape == value.shape
    assert torch.equal(found, value)


def test_tensors_of_any_kind_of_float_and_layout() -> None:
    for dtype in (torch.float64, torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64):
        value = torch.arange(4).to(torch.float32).to(dtype)
        found = back("tensor", value)
        assert found.dtype == dtype
        assert torch.equal(found.view(torch.uint8), value.view(torch.uint8))
    turned = torch.arange(6.0, requires_grad=True).reshape(2, 3).T
    assert torch.equal(back("tensor", turned), turned)
    assert torch.equal(back("tensor", torch.nn.Parameter(torch.ones(2))), torch.ones(2))
    for refused in (torch.ones(2, dtype=torch.complex64), torch.eye(2).to_sparse()):
        with pytest.raises(FieldError, match="cannot be stored"):
            to_bytes(FieldType.parse("tensor"), refused)


def test_a_tensor_of_another_name_with_metadata_is_read() -> None:
    head = json.dumps({"__metadata__": {"a": "b"}, "w": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}}).encode()
    data = len(head).to_bytes(8, "little") + head + b"\x01\x02"
    assert back("tensor", data).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("json", float("nan")),
        ("json", {1, 2}),
        ("json", chr(0xD800)),
        ("str", 3),
        ("str", chr(0xD800)),
        ("jpg", "text"),
        ("bytes", "text"),
        ("bytes", 3),
        ("msgpack", {1, 2}),
        ("msgpack", 1 << 64),
        ("msgpack", msgpack.ExtType(3, b"")),
        ("array", np.array([None])),
        ("array", np.zeros(2, "i4,i4")),
        ("array", np.zeros(2, "V3")),
        ("tensor", np.ones(2)),
        ("array", np.longdouble([1])),
        ("json", b"{"),
        ("str", b"\xff"),
        ("array", b"\x93NUMPY"),
        ("tensor", b""),
        ("msgpack", b"\xc1"),
        ("msgpack", b""),
        ("msgpack", b"\x01\x02"),
    ],
)
def test_values_that_do_not_fit_are_refused(kind, value) -> None:
    with pytest.raises(FieldError, match=r"not valid|UTF-8|extension type") as caught:
        to_bytes(FieldType.parse(kind), value)
    assert caught.value.hint


def test_values_too_deep_are_refused() -> None:
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    for kind in ("json", "msgpack"):
        with pytest.raises(FieldError):
            to_bytes(FieldType.parse(kind), deep)
    while deep:  # or freeing it recurses
        deep = deep[0]


def test_images_and_bytes_are_not_looked_at() -> None:
    for kind in ("jpg", "png", "webp", "bytes"):
        assert back(kind, b"anything") == b"anything"
        assert back(kind, memoryview(b"anything")[3:]) == b"thing"


def test_values_outlive_their_buffer() -> None:
    for kind, value in (("array", np.arange(3)), ("tensor", torch.arange(3)), ("bytes", b"abc")):
        buffer = bytearray(to_bytes(FieldType.parse(kind), value))
        found = from_bytes(FieldType.parse(kind), memoryview(buffer))
        buffer[:] = bytes(len(buffer))
        assert list(found) == list(value)
