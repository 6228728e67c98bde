"""Files of YAML that describe data sets: texts, lists and maps, and nothing that stands for something else."""

from __future__ import annotations

from typing import Any

from shardstream.errors import FormatError, UnsupportedError
from shardstream.extras import require

LARGEST = 1 << 20
"""Bytes of a file of YAML; larger ones are refused."""
_DEEPEST = 16  # lists and maps within one another


def read_yaml(data: bytes, url: str) -> dict[str, Any]:
    """The map that a file of YAML is: lists and maps of texts, as they are written, so that a class may be called "no".

    Aliases and tags are refused: a few lines of them stand for gigabytes, or for things that are not data. A value that
    is left out, or ``null``, is an empty text.

    Args:
        data: The bytes of the file.
        url: What messages call it.

    Raises:
        FormatError: It is not a map.
        UnsupportedError: It is larger or deeper than such files are, or not written in plain values.
        MissingExtraError: PyYAML is not installed.
    """
    yaml = require("yaml", extra="yaml", purpose=f"to read {url}")
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    if len(data) > LARGEST:
        raise UnsupportedError(f"{len(data)} bytes are too many for YAML", url=url, hint=f"at most {LARGEST}")
    try:
        depth = 0
        for event in yaml.parse(data, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            plain = not isinstance(event, yaml.AliasEvent) and getattr(event, "tag", None) is None
            if not plain or depth > _DEEPEST:
                what = "lists and maps lie too deep" if plain else "aliases and tags are not read"
                raise UnsupportedError(what, url=url, line=event.start_mark.line + 1, hint="write plain values")
        found = yaml.load(data, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = {} if mark is None else {"line": mark.line + 1}
        what = getattr(error, "problem", None) or str(error)
        hint = "write it as its library does, or leave it out"
        raise FormatError(f"it is not YAML: {what}", url=url, hint=hint, **place) from error
    if not isinstance(found, dict):
        raise FormatError("it is not a map of names", url=url, hint="write names and values, such as `train: a.txt`")
    return {name: "" if value in ("null", "~") else value for name, value in found.items()}
