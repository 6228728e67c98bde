r"""Text from elsewhere (keys, paths, class names, what a store says) made fit for a terminal, a log, JSON and HTML.

A terminal obeys what it is sent: a key may set its title, fill its clipboard or write from right to left, so that one
line reads as another. So every character that does more than stand there is written as an escape: C0 (but newline and
tab), DEL, C1, the controls of bidirectional text, line separators, and surrogates, which no terminal is sent at all.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from typing import Any, Never

_HEAD, _TAIL = 287, 110  # what stays of a word that is too long
_LONGEST = _HEAD + 3 + _TAIL  # longer than paths mostly are, and no name pushes all else off the screen
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"  # the same in JSON, too
)
_BYTE = re.compile("[\udc80-\udcff]")  # a byte of a file name that is not UTF-8, as Python decodes it
# Before the first slash; a user without a password is a secret for web servers alone, a container's name for Azure.
_PASSWORD = re.compile(r"""(\bhttps?://)[^\s/?#'"]*@|(?<=://)[^\s/?#'"]*:[^\s/?#'"]*@""", re.IGNORECASE)
# Wherever it begins in a text that holds a URL: paths of URLs may have spaces and quotes. Prose has a space behind "?".
_QUERY = re.compile(r"""\?[^\s'"<>]*[^\s'"<>,.;:)\]]""")
_WORD = re.compile(rf"\S{{{_LONGEST + 1},}}")


def printable(text: str) -> str:
    r"""Text for people: nothing in it that a terminal would obey, and no word of more than 400 characters.

    >>> printable("k\x1b]52;c;cm0=\x07 \u202egpj.exe caf\udce9")
    'k\\x1b]52;c;cm0=\\x07 \\u202egpj.exe caf%E9'
    >>> len(printable("/" * 5000))
    400
    """
    if text.isascii() and text.isprintable() and len(text) <= _LONGEST:
        return text
    return _WORD.sub(lambda found: _shortened(found[0]), _UNSAFE.sub(_escaped, valid_unicode(text)))


def in_one_line(value: object) -> str:
    r"""The same for a name, which ends no line and takes no more room than one word.

    >>> in_one_line("k\nerror: none")
    'k\\nerror: none'
    """
    return _shortened(printable(str(value)).replace("\n", "\\n").replace("\t", "\\t"))


def without_credentials(text: str) -> str:
    r"""Text whose URLs have lost what may let somebody in: a user with a password, and the query, which may sign them.

    >>> without_credentials("'https://user:password@host/a.jpg?sv=1&sig=abc': no such file")
    "'https://host/a.jpg': no such file"
    >>> without_credentials("abfss://container@account.dfs.core.windows.net/a"), without_credentials("what is a?b")
    ('abfss://container@account.dfs.core.windows.net/a', 'what is a?b')
    """
    return _QUERY.sub("", without_password(text)) if "://" in text else text


def safe_line(value: object) -> str:
    """`in_one_line` of a value from elsewhere, `without_credentials`, of which a cut could leave a half.

    >>> safe_line("https://user:password@host/a.jpg?sig=abc")
    'https://host/a.jpg'
    """
    return in_one_line(without_credentials(str(value)))


def without_password(text: str) -> str:
    """The same without users alone.

    >>> without_password("ftp://user:password@host/what?.jpg")
    'ftp://host/what?.jpg'
    """
    return _PASSWORD.sub(r"\1", text) if "://" in text else text


def valid_unicode(name: str) -> str:
    r"""A file name as valid Unicode: bytes of it that are not UTF-8 stand as ``%XX``.

    >>> valid_unicode("caf\udce9.jpg")
    'caf%E9.jpg'
    """
    return _BYTE.sub(lambda found: f"%{ord(found[0]) - 0xDC00:02X}", name)


def json_text(value: Any, *, indent: int | None = None) -> str:
    r"""JSON that a terminal may be shown. The values are those that were given: a reader of JSON undoes the escapes.

    Raises:
        TypeError, ValueError, RecursionError: It cannot be JSON.

    >>> json_text({"é": "\x9b31m\u202e"})
    '{"é": "\\u009b31m\\u202e"}'
    """
    written = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", written)


_write_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def strict_json(value: Any) -> str:
    """The compact JSON of a value, as the standard has it: Python's writer takes NaN, and keys that become equal.

    Raises:
        TypeError, RecursionError: JSON cannot hold it.
        ValueError: It holds NaN or infinity, or two keys of an object are equal as text.
    """
    text = _write_json(value)  # which refuses circles, so that the loop below ends
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            if not all(type(key) is str for key in one):
                _check_keys(one)
            left += [member for member in one.values() if isinstance(member, dict | list | tuple)]
        elif isinstance(one, list | tuple):
            left += [member for member in one if isinstance(member, dict | list | tuple)]
    return text


def _check_keys(value: dict[Any, Any]) -> None:
    names = dict[str, Any]()
    for key in value:
        (name,) = json.loads(_write_json({key: None}))
        if name in names:
            raise ValueError(f"its keys {names[name]!r} and {key!r} are both {name!r} in JSON; rename one of them")
        names[name] = key


def _refuse_word(word: str) -> Never:
    raise ValueError(f"it holds {word}, which JSON does not have; write null, or a column of numbers")


read_strict_json = json.JSONDecoder(parse_constant=_refuse_word).decode
"""The value of a JSON text; ValueError for what is none, RecursionError for one too deep."""


def html_text(value: object, most: int = _LONGEST) -> str:
    """The same for a page of HTML: no character of it is markup, in attributes neither. At most so many are shown.

    >>> html_text("<b onclick='x'>", 6)
    '&lt;b on…'
    """
    return html.escape(cut(in_one_line(value), most))


def cut(text: str, most: int, *, end: int = 0) -> str:
    """A text of at most so many characters; where some are missing, a ``…`` says so, in front of the last ``end``.

    >>> cut("a black cat", 8), cut("train/cats/0001", 9, end=4)
    ('a black…', 'trai…0001')
    """
    return text if len(text) <= most else f"{text[: most - end - 1]}…{text[len(text) - end :]}"


def text_table(rows: Sequence[Sequence[str]]) -> str:
    r"""Rows as lines of aligned columns, two blanks in front.

    >>> text_table([("field", "type"), ("cls", "int64")])
    '  field  type\n  cls    int64'
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("".join(f"  {text:{width}}" for text, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def html_table(rows: Sequence[Sequence[str]]) -> str:
    """The same as a table of HTML, the first row being its head."""
    head, *others = rows
    cells = ["".join(f'<td style="text-align:left">{html_text(text)}</td>' for text in row) for row in others]
    names = "".join(f'<th style="text-align:left">{html_text(text)}</th>' for text in head)
    return f"<table><thead><tr>{names}</tr></thead><tbody><tr>{'</tr><tr>'.join(cells)}</tr></tbody></table>"


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_HEAD]}...{text[-_TAIL:]}"
