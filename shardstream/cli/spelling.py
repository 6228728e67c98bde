"""Options in the texts of errors: written in Python by those who raise them, shown as flags to those who type flags."""

from __future__ import annotations

import ast
import builtins
import re
import shlex
import warnings
from typing import NamedTuple

import typer

from shardstream.options import Option, options_of
from shardstream.pack.options import OF_PACK

_KINDS = {kind.__name__: kind for kind in OF_PACK.values()}
_CALL = re.compile(rf"(?:\b\w+=)?(?:\bss\.)?\b({'|'.join(_KINDS)})\(")
_ARGUMENT = re.compile(r"(?<![\w.'\"{\-?&])(\w+)=(?!=)")
_PLAIN = re.compile(r"\.\.\.|(?:True|False|None|-?\d[\d_]*(?:\.\d+)?|[A-Z]{2,})\b")
_NO_VALUE = re.compile(r"$|[\s,;:.)]")
_NAME = re.compile(r"^(\w+)(?= (?:must|hold|name|is empty)\b)|`(\w+)`")
_OF_FLAG = re.compile(r"(?:--[\w-]+|\boption) $")  # what stands before the value of a flag
_FLAG_BEFORE = re.compile(r"--[\w-]+(?: [^\s()]+)? \($")
_FLAG_BEHIND = re.compile(r" \((--[^()]*)\)")
_IN_CALL = re.compile(r"[\w.]\([^()]*$")
_NOT_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)


class _Flag(NamedTuple):
    """A flag of the command.

    Attributes:
        on: It as it is typed.
        off: What turns it off.
        metavar: What stands for its value; empty for none.
        many: Whether it may be repeated.
    """

    on: str
    off: str
    metavar: str
    many: bool


class Spelling:
    """How the flags of a command are written.

    Args:
        context: Of the command that runs.
    """

    def __init__(self, context: typer.Context) -> None:
        self._flags = {
            str(one.name): _Flag(
                one.opts[0],
                next(iter(one.secondary_opts), f"no {one.opts[0]}"),
                f" {one.metavar}" if one.metavar else "",
                bool(getattr(one, "multiple", False)),
            )
            for one in context.command.params
            if one.opts[0].startswith("--")
        }

    def in_flags(self, text: str) -> str:
        """A text with flags in the place of options that are written in Python."""
        done, at = "", 0
        while found := min(
            filter(None, (_CALL.search(text, at), _ARGUMENT.search(text, at))),
            key=lambda one: one.start(),
            default=None,
        ):
            end, flags = self._call(text, found) if found.re is _CALL else self._argument(text, found)
            done += text[at : found.start()]
            if end == found.start():  # nothing of Python
                done, at = done + found[0], found.end()
                continue
            behind = _FLAG_BEHIND.match(text, end)
            if behind:  # both are written already
                done, at = done + behind[1], behind.end()
            elif flags and _FLAG_BEFORE.search(done) and text[end : end + 1] == ")":
                done, at = done[:-2], end + 1
            else:
                done, at = done + (flags or text[found.start() : end]), end
        return _NAME.sub(self._named, done + text[at:])

    def _named(self, found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return self._flags[name].on if name in self._flags else found[0]

    def _call(self, text: str, found: re.Match[str]) -> tuple[int, str]:
        """Where a dataclass of options ends in a text, and its flags, if the command has them."""
        end, call = _parse(text, found.end() - 1, ")", before="_")
        if not isinstance(call, ast.Call):
            return found.start(), ""
        options = options_of(_KINDS[found[1]])
        values = dict(zip(options, call.args, strict=False)) | {str(one.arg): one.value for one in call.keywords}
        flags = [self._written(options[name], value) for name, value in values.items() if name in options]
        return end, " ".join(flags) if flags and all(flags) else ""

    def _argument(self, text: str, found: re.Match[str]) -> tuple[int, str]:
        """The same of one argument, unless it is one of another call."""
        if _IN_CALL.search(text[: found.start()]):
            return found.start(), ""
        flag, at = self._flags.get(found[1]), found.end()
        closing = {"'": "'", '"': '"', "[": "]", "{": "}"}.get(text[at : at + 1])
        plain = _PLAIN.match(text, at)
        if closing:
            end, parsed = _parse(text, at, closing)
            if parsed is None:
                return found.start(), ""
            value = parsed
        elif plain and not (plain[0].isupper() and _OF_FLAG.search(text[: found.start()])):
            end, value = plain.end(), ast.parse(plain[0], mode="eval").body
        else:
            known = flag or _FLAG_BEHIND.match(text, at)
            return (at, flag.on if flag else "") if known and _NO_VALUE.match(text, at) else (found.start(), "")
        return end, _with_value(flag, value) if flag else ""

    def _written(self, option: Option, value: ast.expr) -> str:
        flag = self._flags.get(option.was)
        return _with_value(flag, value) if flag else ""


def _parse(text: str, at: int, closing: str, *, before: str = "") -> tuple[int, ast.expr | None]:
    """The shortest Python expression from there on that ends so, and where; ``None`` if there is none."""
    end = text.find(closing, at + 1) + 1
    while end:
        try:
            with warnings.catch_warnings(action="ignore"):  # of odd escapes
                return end, ast.parse(before + text[at:end], mode="eval").body
        except _NOT_PYTHON:
            end = text.find(closing, end) + 1
    return at, None


def _with_value(flag: _Flag, value: ast.expr) -> str:
    match value:
        case ast.Constant(value=bool() | None as constant):
            return flag.on if constant else flag.off
        case ast.List(elts=elements) | ast.Tuple(elts=elements) if flag.many:
            return " ".join(_with_value(flag, one) for one in elements)
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return " ".join(f"{flag.on} {_text(key)}={_text(one)}" for key, one in pairs if key is not None)
        case ast.BoolOp(values=values):
            return f"{flag.on} {' or '.join(map(_text, values))}"
        case ast.List() | ast.Constant(value=builtins.Ellipsis):
            return f"{flag.on}{flag.metavar}"
    return f"{flag.on} {_text(value)}"


def _text(value: ast.expr) -> str:
    match value:
        case ast.Constant(value=str() as text):
            return shlex.quote(text) if text else "''"
        case ast.Constant(value=bool() as truth):
            return "true" if truth else "false"
    return ast.unparse(value)
