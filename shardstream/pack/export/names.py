"""File names of keys and fields, and whether a file system can tell them apart."""

from __future__ import annotations

import os
import re
import secrets
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import xxhash

from shardstream.errors import UsageError
from shardstream.names.strays import find_stray
from shardstream.shards.fields import FieldType, ValuesType, type_of_extension

_EXTENSIONS = {"bytes": "bin", "str": "txt", "array": "npy", "tensor": "safetensors"}  # where the type's name is none
_CONTROL = re.compile(r"[%\x00-\x1f\x7f]")


def extensions(fields: Mapping[str, FieldType]) -> dict[str, str]:
    """For each field that becomes a file, the extension of its files: the field's name, and the type's if that lacks.

    Raises:
        UsageError: Two fields would have one.

        >>> extensions({"jpg": FieldType.parse("jpg"), "emb": FieldType.parse("array:float32:3")})
        {'jpg': 'jpg', 'emb': 'emb.npy'}
    """
    found: dict[str, str] = {}
    for name, kind in fields.items():
        if kind.kind == "scalar":
            continue
        plain = "array" if kind.kind == "fixed" or isinstance(kind, ValuesType) else kind.name
        known = type_of_extension(name.rsplit(".", 1)[-1]).name == plain
        found[name] = name if known else f"{name}.{_EXTENSIONS.get(plain, plain)}"
    taken: dict[str, str] = {}
    for name, extension in found.items():
        other = taken.setdefault(extension.lower(), name)
        if other != name:
            raise UsageError(
                f"files of the fields {other!r} and {name!r} would both end with .{extension}",
                field=name,
                hint="pack them under other names",
            )
    return found


def file_stem(key: str, *, escape_dots: bool) -> str:
    """The key as a path below the output, whatever is in it: what no path may hold stands as ``%XX``.

    Args:
        key: The key.
        escape_dots: Whether dots have to be escaped too, since fields have some: ``a`` + ``b.jpg`` is no other file
            than ``a.b`` + ``jpg``.

        >>> file_stem("../n01/a.b", escape_dots=False), file_stem("_temporary/.a", escape_dots=False)
        ('%2E%2E/n01/a.b', '%5Ftemporary/%2Ea')
    """
    parts = [_CONTROL.sub(lambda found: f"%{ord(found[0]):02X}", part) for part in key.split("/")]
    # Names that are not data are left out by who packs the folder again. The last part gets an extension.
    for number, part in enumerate(parts):
        if part in (".", "..") or find_stray(part if number + 1 < len(parts) else f"{part}.x") is not None:
            parts[number] = "%2E%2E" if part == ".." else f"%{ord(part[0]):02X}{part[1:]}"
    if escape_dots:
        parts[-1] = parts[-1].replace(".", "%2E")
    return "/".join(parts)


def folded(name: str) -> str:
    """What a name is to a file system that tells neither upper from lower case nor ways to write an accent apart.

    >>> folded("A/B.JPG")
    'a/b.jpg'
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def folds_names(folder: Path) -> bool:
    """Whether the file system of a folder takes names that differ in case or accents alone for one, as macOS does.

    The folder is made if there is none. Where nothing can be written, it does not.
    """
    probe = folder / f".shardstream-{secrets.token_hex(8)}-\u00e9"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
    except OSError:
        return False
    try:
        return any(os.path.lexists(folder / other) for other in (probe.name.upper(), probe.name[:-1] + "e\u0301"))
    finally:
        probe.unlink()


def one_name(names: Callable[[], Iterable[str]]) -> list[str]:
    """Those of distinct names that are one to such a file system, if there are any: one set of them.

    Args:
        names: Gives them, each time that it is called. Eight bytes of each are kept.
    """

    def hashed(name: str) -> int:
        return xxhash.xxh3_64_intdigest(folded(name).encode("utf-8", "surrogatepass"))

    hashes = np.fromiter(map(hashed, names()), np.uint64)
    hashes.sort()
    twice = hashes[1:][hashes[1:] == hashes[:-1]]
    return [name for name in names() if hashed(name) == int(twice[0])] if len(twice) else []
