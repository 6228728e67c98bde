"""A large JSON object, an element of its lists at a time: nothing holds more of it than one element.

Bytes are taken for Latin-1 while it is read, so that a place in the text is a place in the object; text that is not
ASCII is read again as the UTF-8 that it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

from shardstream.errors import FormatError
from shardstream.formats.scans.object_bytes import ObjectBytes

_WINDOW = 1 << 20
_LONGEST = 64 << 20  # of an element
_blanks = re.compile(r"[ \t\r\n]*").match
_LONG_NUMBER = 4096
_NUMBER = frozenset("0123456789.eE+-")
_BOM = b"\xef\xbb\xbf"


class _Unfinished(ValueError):
    """A number that may go on in what was not read yet."""


class _NotANumber(Exception):
    """JSON has no NaN, and no infinity."""


def _refuse(text: str) -> NoReturn:
    raise _NotANumber(text)


def _number_part(text: str, at: int) -> int:
    """How many letters follow that belong to a number; quick where none does."""
    if at < len(text) and text[at] not in _NUMBER:
        return 0
    end = at
    while end < min(len(text), at + _LONG_NUMBER) and text[end] in _NUMBER:
        end += 1
    return end - at


_decode = json.JSONDecoder(parse_constant=_refuse).raw_decode


class Element(NamedTuple):
    """An element of a list.

    Attributes:
        offset: Where it begins in the object.
        value: What it is.
        places: Where the members that were asked for lie in the object: from, to.
    """

    offset: int
    value: Any
    places: dict[str, tuple[int, int]]


class JsonStream:
    """The members of the object that a file is.

    Args:
        data: The file.

    Raises:
        FormatError: On reading: it is not JSON, or is cut off; says where.
    """

    def __init__(self, data: ObjectBytes) -> None:
        self._data = data
        self._base = 0  # of the text in the object
        self._text = ""
        self._at = 0
        self._fill(1)
        if self._text.startswith(_BOM.decode("latin-1")):
            self._at = len(_BOM)

    @property
    def offset(self) -> int:
        """How far it was read."""
        return self._base + self._at

    def members(self) -> Iterator[str]:
        """The names of the members; who does not take one's elements has it skipped."""
        self._expect("{")
        if self._next() == "}":
            return
        while True:
            name = self._value(_text_of)
            self._expect(":")
            start = self.offset
            yield name
            if self.offset == start:
                self._skip()
            if self._next() == "}":
                return
            self._expect(",")

    def elements(self, places: frozenset[str] = frozenset()) -> Iterator[Element]:
        """The elements of the list that the member is.

        Args:
            places: Names of members of the elements whose places are wanted.
        """
        self._expect("[")
        if self._next() == "]":
            self._at += 1
            return
        while True:
            offset = self._base + self._at
            yield self._element(offset, places)
            if self._next() == "]":
                self._at += 1
                return
            self._expect(",")

    def _element(self, offset: int, places: frozenset[str]) -> Element:
        if not places or self._text[self._at] != "{":
            return Element(offset, self._value(_read), {})
        value, found = self._value(lambda text, at: _members(text, at, places))
        base = self._base
        return Element(offset, value, {name: (base + begin, base + end) for name, (begin, end) in found.items()})

    def _skip(self) -> None:
        if self._next() == "[":
            for _ in self.elements():
                pass
        else:
            self._value(_read)

    def _next(self) -> str:
        """The next character that is not blank."""
        while True:
            found = _blanks(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._fill(1):
                raise self.damaged("the JSON ends too early", self._base + self._at)

    def _expect(self, letter: str) -> None:
        if self._next() != letter:
            raise self.damaged(f"this is not JSON: {letter!r} is missing", self._base + self._at)
        self._at += 1
        self._next()

    def _value(self, read: Any) -> Any:
        """What a function makes of the text here, which has to be whole."""
        self._next()
        while True:
            try:
                value, end = read(self._text, self._at)
                if end + _number_part(self._text, end) == len(self._text):
                    raise _Unfinished
            except (ValueError, IndexError) as error:
                here = self._base + self._at
                if len(self._text) - self._at > _LONGEST:
                    raise self.damaged(f"an element of more than {_LONGEST >> 20} MiB, or not JSON", here) from error
                if not self._fill(max(len(self._text) - self._at, 1)):
                    if isinstance(error, _Unfinished):
                        self._at = end
                        return value
                    raise self.damaged("this is not JSON, or it is cut off", here) from error
                continue
            except (RecursionError, _NotANumber) as error:
                what = "NaN or infinity" if isinstance(error, _NotANumber) else "too many lists in one another"
                raise self.damaged(f"the JSON has {what}", self._base + self._at) from error
            self._at = end
            return value

    def _fill(self, least: int) -> bool:
        """Have at least so many bytes more, if there are any; what was read goes."""
        begin = self._base + len(self._text)
        length = min(max(least, _WINDOW), self._data.size - begin)
        if length <= 0:
            return False
        self._text = self._text[self._at :] + str(self._data.get(begin, length), "latin-1")
        self._base, self._at = self._base + self._at, 0
        return True

    def damaged(self, what: str, offset: int) -> FormatError:
        """The error for what is wrong at a byte."""
        return self._data.damaged(what, offset)


def _read(text: str, at: int) -> tuple[Any, int]:
    value, end = _decode(text, at)
    part = text[at:end]
    if not part.isascii():
        value = json.loads(part.encode("latin-1"))  # UnicodeDecodeError is a ValueError
    return value, end


def _text_of(text: str, at: int) -> tuple[str, int]:
    value, end = _read(text, at)
    if type(value) is not str:
        raise ValueError("the name of a member is not text")
    return value, end


def _members(
    text: str, at: int, places: frozenset[str]
) -> tuple[tuple[dict[str, Any], dict[str, tuple[int, int]]], int]:
    """An object at a place, where its members lie, and where it ends. Text stays Latin-1."""
    value: dict[str, Any] = {}
    found: dict[str, tuple[int, int]] = {}
    at = _past(text, at + 1)
    if text[at] == "}":
        return (value, found), at + 1
    while True:
        name, at = _decode(text, at)
        if type(name) is not str:
            raise ValueError("the name of a member is not text")
        at = _past(text, at)
        if text[at] != ":":
            raise ValueError("':' is missing")
        at = _past(text, at + 1)
        value[name], end = _decode(text, at)
        if name in places:
            found[name] = at, end
        at = _past(text, end)
        if text[at] == "}":
            return (value, found), at + 1
        if text[at] != ",":
            raise ValueError("',' is missing")
        at = _past(text, at + 1)


def _past(text: str, at: int) -> int:
    """The next place that is not blank."""
    if text[at] > " ":
        return at
    found = _blanks(text, at)
    return at if found is None else found.end()
