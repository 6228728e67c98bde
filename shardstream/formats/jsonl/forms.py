"""The stored JSON of a value as the bytes of our types. Each function raises ValueError where it is no such value."""

from __future__ import annotations

from collections.abc import Mapping
from json import decoder

import numpy as np

from shardstream.formats.contract import Form
from shardstream.formats.jsonl.values import LONGEST, floats, integers
from shardstream.formats.scans.protobuf import Places

_BLANKS = b" \t\r\n"
_COMMA, _SPACE, _QUOTE = b', "'


def text_form(stored: memoryview, _: str) -> memoryview | bytes:
    """UTF-8 of a JSON string, which stands with its quotes: a view, unless it has escapes."""
    if len(stored) < 2 or stored[0] != _QUOTE or stored[-1] != _QUOTE:
        raise ValueError("it is not text")
    if b"\\" not in bytes(stored):
        return stored[1:-1]
    return unescaped(stored).encode()


def unescaped(quoted: bytes | memoryview) -> str:
    """The text of a JSON string, with its quotes; ValueError where it is none."""
    text = str(quoted, "utf-8")
    found: str
    found, end = decoder.scanstring(text, 1, False)  # type: ignore[attr-defined]  # what `JSONDecoder` calls
    if end != len(text):
        raise ValueError("it is not text")
    return found


def numbers_form(stored: memoryview, dtype: str) -> bytes:
    """The numbers of a JSON list, little-endian, one after another; of dtype int64 or float64."""
    if len(stored) < 2 or stored[0] != ord("[") or stored[-1] != ord("]"):
        raise ValueError("it is not a list of numbers")
    raw = np.frombuffer(stored, np.uint8)
    commas = np.flatnonzero(raw == _COMMA)
    begin, end = _stripped(stored, np.append(0, commas) + 1, np.append(commas, len(raw) - 1))
    if len(begin) == 1 and begin[0] == end[0]:
        return b""
    if int((end - begin).max()) > LONGEST:
        raise ValueError(f"a number has more than {LONGEST} letters")
    if dtype == "float64":
        return floats(raw, begin, end).astype("<f8").tobytes()
    values, beyond = integers(raw, begin, end)
    if beyond.any():
        raise ValueError("a number needs more than 64 bits; the option json=COLUMN takes it as it is")
    return values.astype("<i8").tobytes()


def _stripped(stored: memoryview, begin: Places, end: Places) -> tuple[Places, Places]:
    """The same places without the blanks at both ends."""
    raw = np.frombuffer(stored, np.uint8)
    blank = np.zeros(256, np.bool_)
    blank[list(_BLANKS)] = True
    while (more := (begin < end) & blank[raw[begin]]).any():
        begin = begin + more
    while (more := (begin < end) & blank[raw[end - 1]]).any():
        end = end - more
    return begin, end


def empty_form(stored: memoryview, kind: str) -> bytes:
    """An empty list, of the type that other objects give the column; JSON if there is none."""
    if bytes(stored).translate(None, _BLANKS) != b"[]":
        raise ValueError("it is not an empty list")
    return b"" if kind else b"[]"


FORMS: Mapping[str, Form] = {"text": text_form, "numbers": numbers_form, "empty": empty_form}
