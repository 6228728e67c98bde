"""One record of a list, from its bytes to its columns."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, TypeAlias, TypeGuard

import msgpack
import numpy as np
from numpy.typing import NDArray

from shardstream.faults import FaultKind
from shardstream.pack.sources.lists.json_rows import Complaint, complaint_of
from shardstream.pack.sources.lists.quotes import COMMA, TAB
from shardstream.shards.fields import FieldType
from shardstream.text import valid_unicode, without_credentials

CellKind: TypeAlias = Literal["tab", "tsv", "csv", "commas", "blank", "bars", "words", "lst", "json", "packed"]
"""How the columns of a record are told apart: ``tab`` (also lines of one column), ``tsv`` (tabs, with quotes as csv
writes them), ``csv``, ``commas`` (of MPDataset: a path, two commas, a label), ``blank`` (a path, which may hold blanks,
then a label), ``bars`` (of LJSpeech: columns between bars, without quotes), ``words`` (of LibriSpeech: a word, then
text), ``lst`` (of MXNet: number, labels, path, with tabs), ``json`` (an object), ``packed`` (a msgpack list,
which is how other kinds of lists are copied to a temporary file)."""

Column: TypeAlias = int | str
"""A column by its number, or by its name in a JSON object."""

Cells: TypeAlias = "list[Any] | dict[str, Any]"
"""The columns of a record. Text that was not UTF-8 holds surrogates, as Python has them in file names."""

DELIMITERS: Mapping[CellKind, bytes] = {"csv": COMMA, "tsv": TAB}
"""What is between two cells, of the kinds that have quotes."""
_KINDS: dict[str, CellKind] = {".csv": "csv", ".jsonl": "json", ".ndjson": "json", ".tsv": "tab"}
_MIN, _MAX = -(1 << 63), (1 << 63) - 1
_EXACT = 1 << 53  # below which a float tells integers apart
_LONGEST_NUMBER = 64
TRUTH = {"true": True, "1": True, "false": False, "0": False}
_BLANKS = re.compile(r"[ \t\v\f]+")
_WINDOWS = re.compile(r"[a-zA-Z]:(\\|/(?!/))|\\\\")
_ARRAY = 0  # the extension type of arrays of numbers
_TEXTS = {int: "a number", float: "a number", bool: "true or false", dict: "an object", list: "a list"}


class Broken(Exception):
    """A record that cannot be a sample; the message is the reason that stands in ``rejects.jsonl``.

    Args:
        reason: Why.
        hint: What to do about it, if the whole list is like that.
        at: Byte of the record where it is malformed; ``None`` if it is well-formed and lacks something else.
        kind: What is at fault.
    """

    def __init__(
        self, reason: str, *, hint: str | None = None, at: int | None = None, kind: FaultKind = "invalid"
    ) -> None:
        super().__init__(without_credentials(reason))
        self.hint = hint
        self.at = at
        self.kind = kind


def refuse_windows(path: str) -> None:
    """Refuse an absolute path of Windows, which would be a strange relative one here; `Broken`."""
    if _WINDOWS.match(path):
        raise Broken(
            f"{shown(path)} is a path of Windows",
            hint="write paths as this machine has them, such as /data/1.jpg, or relative to the list with /",
        )


def split(kind: CellKind, raw: bytes) -> Cells:
    """The columns of a record; its line end, and blank lines after it, belong to none.

    Raises:
        Broken: It is malformed.
    """
    if kind == "packed":
        cells: list[Any] = msgpack.unpackb(raw, strict_map_key=False, ext_hook=_array_of)
        return cells
    raw = raw.rstrip(b"\r\n") if kind in DELIMITERS else raw.partition(b"\n")[0].removesuffix(b"\r")
    if kind == "json":
        return _json(raw)
    text = raw.decode("utf-8", "surrogateescape")
    if kind in ("tab", "lst"):
        return text.split("\t")
    if kind == "commas":
        return text.split(",,")[:2]
    if kind == "bars":
        return text.split("|")
    if kind == "words":
        return text.split(" ", 1)
    if kind == "blank":
        stripped = text.rstrip(" \t\v\f")
        words = list(_BLANKS.finditer(stripped))
        return [stripped[: words[-1].start()], stripped[words[-1].end() :]] if words else [stripped]
    try:
        return next(csv.reader([text], delimiter=DELIMITERS[kind].decode(), strict=True))
    except (csv.Error, StopIteration) as error:
        raise Broken(f'malformed {kind}: {error}; a " inside of quotes is written as ""') from error


def packed(cells: Sequence[Any]) -> bytes:
    """The record of kind ``packed`` that has these columns; TypeError for a value that msgpack would not give back."""
    return bytes(msgpack.packb(cells, default=_plain))


def _plain(value: object) -> object:
    """A value that msgpack has no type for: arrays of numpy as an extension, its numbers as those of Python."""
    if isinstance(value, np.ndarray):
        return msgpack.ExtType(_ARRAY, msgpack.packb((value.dtype.str, value.shape, value.tobytes())))
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a {type(value).__name__} in a record")


def _array_of(_: int, data: bytes) -> NDArray[Any]:
    dtype, shape, body = msgpack.unpackb(data)
    return np.frombuffer(body, dtype).reshape(shape).copy()  # which a transform may write to


def _json(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        complaint = complaint_of(raw + b"\n") or Complaint(f"malformed JSON: {error}", 0)
        raise Broken(complaint.what, at=complaint.at) from error
    if not isinstance(found, dict):
        raise Broken(f"{kind_of(found)}, where a JSON object is needed", at=0)
    return found


def list_kind(name: str, head: Sequence[bytes], ends_with_label: Callable[[bytes], bool]) -> CellKind:
    """How the records of a list are written: as its name says, else as most of the first ones are.

    Args:
        name: Of the list, without what it is compressed with.
        head: Its first records.
        ends_with_label: Tells whether a record ends with a label, after a blank.
    """

    def most(yes: Callable[[bytes], bool]) -> bool:
        return 2 * sum(map(yes, head)) > len(head)

    suffix = os.path.splitext(name)[1].lower()
    if suffix == ".csv" and head and all(map(_is_of_mpdataset, head)):
        return "commas"
    if suffix in _KINDS:
        return _KINDS[suffix]
    if suffix == ".lst" and most(lambda raw: raw.count(b"\t") >= 2):
        return "lst"
    if most(lambda raw: b"\t" in raw):
        return "tab"
    if most(lambda raw: raw.startswith(b"{")):
        return "json"
    return "blank" if most(ends_with_label) else "tab"


def _is_of_mpdataset(raw: bytes) -> bool:
    path, commas, label = raw.strip().partition(b",,")
    return bool(path and commas) and b'"' not in raw and label.partition(b",,")[0].strip().lstrip(b"-").isdigit()


def parse_label(value: object) -> int:
    """A label as a 64-bit integer; also one that a float holds, as MXNet and pandas write them.

    Raises:
        ValueError: It is none.
    """
    number: int | float
    if isinstance(value, str):
        if "_" in value:
            raise ValueError(value)
        number = _decimal(value) if "." in value else int(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = value
    else:
        raise ValueError(value)  # noqa: TRY004 - one fault for callers, whatever the JSON type
    if isinstance(number, float) and not (abs(number) < _EXACT and number.is_integer()):
        raise ValueError(value)
    if not _MIN <= number <= _MAX:
        raise ValueError(value)
    return int(number)


def _decimal(text: str) -> int:
    """The integer of a text with a decimal point, to the last digit; ValueError."""
    try:
        number = Decimal(text.strip()) if len(text) <= _LONGEST_NUMBER else None
    except InvalidOperation:
        number = None
    if number is None or not number.is_finite() or number.adjusted() > len(str(_MAX)) or number != int(number):
        raise ValueError(text)
    return int(number)


def parse_number(kind: FieldType, text: str) -> int | float | bool:
    """A cell of text as a number of a scalar type, before it is known whether that holds it.

    Raises:
        ValueError: It is none.
    """
    assert kind.dtype is not None
    text = text.strip()
    if kind.dtype.kind == "b":
        if text.lower() not in TRUTH:
            raise ValueError(text)
        return TRUTH[text.lower()]
    if "_" in text:
        raise ValueError(text)
    try:
        return int(text)  # of which a float may lose digits
    except ValueError:
        if kind.dtype.kind != "f":
            raise
    return float(text)


def ends_with_label(raw: bytes, is_name: Callable[[str], bool]) -> bool:
    """Whether a record ends with a label, after a blank: an integer, or a name.

    Args:
        raw: The record.
        is_name: Tells whether a text is the name of a class.
    """
    *path, label = split("blank", raw)
    if not path or is_name(label):
        return bool(path)
    try:
        parse_label(label)
    except ValueError:
        return False
    return True


def label_name(text: str) -> str:
    """The name of a class as it is kept."""
    return valid_unicode(text.strip())


def cell(cells: Cells, column: Column, name: str) -> Any:
    """The value of a column that has one.

    Raises:
        Broken: There is none.
    """
    try:
        value = cells[column]  # type: ignore[index]  # names go with objects, numbers with lists
    except (KeyError, IndexError):
        value = None
    if value is None:
        raise Broken(f"it has no {name}")
    return value


def is_image(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether a value is what Hugging Face makes of an image: its file, or the path of it, or both."""
    return isinstance(value, dict) and value.keys() == {"bytes", "path"}


def content_of(value: object) -> bytes | None:
    """The content of a file that stands in a table, if one does."""
    found = value["bytes"] if is_image(value) else value
    return found if isinstance(found, bytes) and found else None


def text_of(value: object, name: str) -> str:
    """The text of a column, whatever JSON type it has.

    Raises:
        Broken: It is a list or an object, or bytes.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise Broken(f"its {name} is {kind_of(value)}, not text")


def kind_of(value: object) -> str:
    """What a value of a list is, in words."""
    if isinstance(value, str):
        return f"the text {shown(value)}"
    return _TEXTS.get(type(value), "binary" if isinstance(value, bytes) else f"a {type(value).__name__}")


def shown(text: str) -> str:
    """A text as messages quote it: not all of a long one, and no credentials, of which a cut could leave a half."""
    text = without_credentials(text)
    return repr(valid_unicode(text if len(text) <= 60 else f"{text[:57]}..."))
