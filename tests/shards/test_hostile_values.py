"""Stored values that somebody made up: a value or a decode error, and nothing of it is run or believed."""

from __future__ import annotations

import json

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import DecodeError
from shardstream.shards.fields import PAYLOAD_TYPES, FieldType, from_bytes

NPY_HEAD = b"\x93NUMPY\x01\x00"


def npy(text: str, body: bytes = b"") -> bytes:
    return NPY_HEAD + len(text).to_bytes(2, "little") + text.encode() + body


def safetensors(text: str | bytes, body: bytes = b"") -> bytes:
    text = text.encode() if isinstance(text, str) else text
    return len(text).to_bytes(8, "little") + text + body


HOSTILE = {
    "npy object": ("array", npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", bytes(8))),
    "npy struct": ("array", npy("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (1,)}", bytes(4))),
    "npy commas": ("array", npy("{'descr': 'i4,i4', 'fortran_order': False, 'shape': (1,)}", bytes(8))),
    "npy void": ("array", npy("{'descr': '|V8', 'fortran_order': False, 'shape': (1,)}", bytes(8))),
    "npy empty text": ("array", npy("{'descr': '<U0', 'fortran_order': False, 'shape': (1,)}")),
    "npy huge element": ("array", npy("{'descr': '<U999999999', 'fortran_order': False, 'shape': (0,)}")),
    "npy huge shape": ("array", npy("{'descr': '<i4', 'fortran_order': False, 'shape': (0, 4611686018427387904)}")),
    "npy wide shape": ("array", npy(f"{{'descr': '<i4', 'fortran_order': False, 'shape': {(0,) * 80}}}")),
    "npy negative": ("array", npy("{'descr': '|u1', 'fortran_order': False, 'shape': (-1, -1)}", b"1")),
    "npy bool shape": ("array", npy("{'descr': '|u1', 'fortran_order': False, 'shape': (True,)}", b"1")),
    "npy list shape": ("array", npy("{'descr': '|u1', 'fortran_order': False, 'shape': [1]}", b"1")),
    "npy no order": ("array", npy("{'descr': '|u1', 'shape': (1,)}", b"1")),
    "npy code": ("array", npy("__import__('os').getpid()", b"1")),
    "npy nested": ("array", npy("(" * 4000)),
    "npy long number": ("array", npy("9" * 4000)),
    "npy long header": ("array", b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 100),
    "npy version": ("array", b"\x93NUMPY\x09\x00" + b" " * 100),
    "npy false bool": ("array", npy("{'descr': '|b1', 'fortran_order': False, 'shape': (1,)}", b"\x02")),
    "npy time unit": ("array", npy("{'descr': '<M8[zz]', 'fortran_order': False, 'shape': (1,)}", bytes(8))),
    "tensor long header": ("tensor", b"\xff" * 16),
    "tensor two": ("tensor", safetensors('{"a": {}, "b": {}}')),
    "tensor none": ("tensor", safetensors("{}")),
    "tensor list": ("tensor", safetensors("[]")),
    "tensor nested": ("tensor", safetensors("[" * 60_000)),
    "tensor dtype": ("tensor", safetensors('{"v":{"dtype":["U8"],"shape":[],"data_offsets":[0,1]}}', b"1")),
    "tensor shape": ("tensor", safetensors('{"v":{"dtype":"U8","shape":[-1,-1],"data_offsets":[0,1]}}', b"1")),
    "tensor float shape": ("tensor", safetensors('{"v":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}', b"1")),
    "tensor huge": ("tensor", safetensors('{"v":{"dtype":"U8","shape":[0,4611686018427387904],"data_offsets":[0,0]}}')),
    "tensor wide": ("tensor", safetensors('{"v":{"dtype":"U8","shape":%s,"data_offsets":[0,0]}}' % ([0] * 100))),
    "tensor offsets": ("tensor", safetensors('{"v":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', b"12")),
    "tensor no offsets": ("tensor", safetensors('{"v":{"dtype":"U8","shape":[1],"data_offsets":null}}', b"1")),
    "tensor no utf8": ("tensor", safetensors(b"\xff{}")),
    "json nested": ("json", b"[" * 200_000),
    "json utf-16": ("json", '{"a": 1}'.encode("utf-16")),
    "json long number": ("json", b"9" * 10_000),
    "json empty": ("json", b""),
    "msgpack nested": ("msgpack", b"\x91" * 200_000),
    "msgpack 4 GiB list": ("msgpack", b"\xdd\xff\xff\xff\xff"),
    "msgpack lists of lists": ("msgpack", b"\xdd\x00\x00\xff\xff" * 900 + bytes(70_000)),
    "msgpack extension": ("msgpack", msgpack.packb(msgpack.ExtType(5, b"abc"))),
    "msgpack map keys": ("msgpack", b"\x81\x90\x01"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_are_a_decode_error(name) -> None:
    kind, data = HOSTILE[name]
    with pytest.raises(DecodeError, match=f"not valid {kind}|never unpickled|not read"):
        from_bytes(FieldType.parse(kind), memoryview(data))


@given(kind=st.sampled_from(PAYLOAD_TYPES), data=st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_decode_error(kind, data) -> None:
    decode_or_refuse(kind, data)


@given(
    descr=st.sampled_from(["<i4", "|b1", ">f8", "<U3", "<M8[ns]", "<m8", "|S4", "|V2", "<c16", "<f16", "|O", "zz"])
    | st.text(),
    shape=st.lists(st.integers(-2, 5) | st.just(1 << 63), max_size=4),
    fortran=st.booleans() | st.none(),
    body=st.binary(max_size=64),
)
def test_any_npy_header_is_an_array_or_a_decode_error(descr, shape, fortran, body) -> None:
    decode_or_refuse("array", npy(repr({"descr": descr, "fortran_order": fortran, "shape": tuple(shape)}), body))


@given(
    dtype=st.sampled_from(["U8", "BOOL", "BF16", "F64", "I16", "F8_E4M3", "x"]) | st.integers(),
    shape=st.lists(st.integers(-2, 5) | st.just(1 << 63), max_size=4),
    offsets=st.lists(st.integers(-2, 20) | st.floats(), max_size=3),
    body=st.binary(max_size=32),
)
def test_any_safetensors_header_is_a_tensor_or_a_decode_error(dtype, shape, offsets, body) -> None:
    head = json.dumps({"v": {"dtype": dtype, "shape": shape, "data_offsets": offsets}})
    decode_or_refuse("tensor", safetensors(head, body))


def decode_or_refuse(kind: str, data: bytes) -> None:
    try:
        value = from_bytes(FieldType.parse(kind), memoryview(data))
    except DecodeError as error:
        assert error.hint  # noqa: PT017 - or no error at all
        return
    if kind == "array":
        assert not value.dtype.hasobject
        assert value.nbytes <= len(data)
    elif kind == "tensor":
        assert value.numel() * value.element_size() <= len(data)
