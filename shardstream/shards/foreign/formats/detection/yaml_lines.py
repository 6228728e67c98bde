"""The part of YAML that files of data sets are written in: names with a text, a list or a map of texts each.

Nothing else of YAML is understood: what has anchors, tags or text of several lines stands for `Odd`, so that who needs
it can refuse it by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

Yaml: TypeAlias = "str | list[str] | dict[str, str] | Odd"
_MOST = 1_000_000  # entries of a list
_NAME = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s\[\]{},"'#&*!|>%@`:-][^:#]*?|-?[0-9]+)\s*:(?:\s+(.*)|$)""")
# Of lists and maps in brackets: an entry, and what stands before a colon.
_ENTRY = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s\[\]{},"'][^\[\]{},]*)\s*""")
_KEY = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s\[\]{},:"'][^\[\]{},:"']*):(?=\s)""")


class Odd(str):
    """A value that is written in a way that is not understood."""

    __slots__ = ()


def read_yaml(text: str) -> dict[str, Yaml]:
    r"""The names at the top of a file, and what stands there.

    >>> read_yaml("path: a # here\nnames:\n  0: cat\n  1: 'a dog'\ntrain: [x, y]\n")
    {'path': 'a', 'names': {'0': 'cat', '1': 'a dog'}, 'train': ['x', 'y']}
    """
    found: dict[str, Yaml] = {}
    lines = [line for line in map(_without_comment, text.splitlines()) if line.strip() and line.strip() != "---"]
    at = 0
    while at < len(lines):
        line, at = lines[at], at + 1
        entry = None if line[0].isspace() else _NAME.fullmatch(line)
        if entry is None:
            continue
        value = (entry[2] or "").strip()
        depth = _depth(value) if value[:1] in ("[", "{") else 0
        parts = [value]
        while depth > 0 and at < len(lines):
            parts.append(lines[at].strip())
            depth, at = depth + _depth(parts[-1]), at + 1
        value = " ".join(parts)
        below = at
        while below < len(lines) and (lines[below][0].isspace() or lines[below].startswith("- ")):
            below += 1
        found[_scalar(entry[1])] = _value(value, lines[at:below])
        at = below
    return found


def _without_comment(line: str) -> str:
    if "#" in line:
        for at, letter in _bare(line):
            if letter == "#" and (not at or line[at - 1].isspace()):
                return line[:at].rstrip()
    return line.rstrip()


def _depth(line: str) -> int:
    """How many lists and maps begin here that do not end here."""
    return sum((letter in "[{") - (letter in "]}") for _, letter in _bare(line))


def _bare(line: str) -> Iterator[tuple[int, str]]:
    """The letters that are not between quotes, with their places."""
    at, quote = 0, ""
    while at < len(line):
        letter = line[at]
        if quote:
            escaped = letter == "\\" if quote == '"' else line.startswith("''", at)
            quote = "" if letter == quote and not escaped else quote
            at += escaped
        elif letter in "\"'" and (not at or line[at - 1] in " \t[{,:"):
            quote = letter
        else:
            yield at, letter
        at += 1


def _value(text: str, below: Sequence[str]) -> Yaml:
    if text[:1] in ("[", "{"):
        return Odd(text) if below else _flow(text)
    if text:
        return Odd(text) if below or text[0] in "&*!|>%@`" else _scalar(text)
    return _block(below)


def _block(lines: Sequence[str]) -> Yaml:
    if not lines:
        return ""
    indent = len(lines[0]) - len(lines[0].lstrip())
    if any(len(line) - len(line.lstrip()) != indent for line in lines) or len(lines) > _MOST:
        return Odd("\n".join(lines[:3]))
    entries = [line.strip() for line in lines]
    if all(one.startswith("- ") for one in entries):
        texts = [one[2:].strip() for one in entries]
        odd = any(text[:1] in ("[", "{", "&", "*", "!", "|", ">", "-") or not text for text in texts)
        return Odd("\n".join(lines[:3])) if odd else [_scalar(text) for text in texts]
    pairs = [_NAME.fullmatch(one) for one in entries]
    out = {}
    for pair in pairs:
        text = "" if pair is None else (pair[2] or "").strip()
        if pair is None or text[:1] in ("[", "{", "&", "*", "!", "|", ">"):
            return Odd("\n".join(lines[:3]))
        out[_scalar(pair[1])] = _scalar(text)
    return out


def _flow(text: str) -> Yaml:
    """``[a, b]`` or ``{0: a, 1: b}``, of texts."""
    end = {"[": "]", "{": "}"}[text[0]]
    parts: list[str] = []
    pairs: dict[str, str] = {}
    last, at = len(text) - 1, _past(text, 1)
    while at <= last:
        if at == last and text[last] == end:
            return parts if end == "]" else pairs
        key = _KEY.match(text, at) if end == "}" else None
        found = None if end == "}" and key is None else _ENTRY.match(text, at if key is None else key.end())
        if found is None or len(parts) > _MOST:
            break
        value, at = _scalar(found[1].strip()), found.end()
        if key is not None:
            pairs[_scalar(key[1].strip())] = value
        else:
            parts.append(value)
        if text[at : at + 1] == ",":
            at = _past(text, at + 1)
        elif at != last:
            break
    return Odd(text[:80])


def _past(text: str, at: int) -> int:
    while text[at : at + 1] == " ":
        at += 1
    return at


def _scalar(text: str) -> str:
    if text[:1] == "'" and text[-1:] == "'" and len(text) > 1:
        return text[1:-1].replace("''", "'")
    if text[:1] == '"':
        try:
            return str(json.loads(text))
        except ValueError:
            return text
    return "" if text in ("~", "null") else text
