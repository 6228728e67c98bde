"""Keys as tar member names.

WebDataset splits a member's name at the first dot of its last component, Hugging Face's builder at the first dot of
all, and WebDataset skips names that begin with ``__NAME__``. So in member names dots, leading underscores, control
characters and ``%`` itself stand as ``%XX``. The index holds keys as they are.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from shardstream.errors import UsageError

_ESCAPED = re.compile(r"[%.\x00-\x1f\x7f]|^_")


def check_key(key: object) -> str:
    """The key, if it can be one.

    Raises:
        UsageError: Not a str, empty, not encodable as UTF-8, or with a leading, trailing or double ``/``.
    """
    if not isinstance(key, str) or not key:
        raise UsageError(f"a sample's key must be a non-empty str, not {key!r}", hint='give each sample a "__key__"')
    if key.startswith("/") or key.endswith("/") or "//" in key:
        raise UsageError("a key cannot begin or end with '/', nor hold '//'", key=key)
    try:
        key.encode()
    except UnicodeEncodeError:
        raise UsageError(f"a key must be encodable as UTF-8, not {key!r}") from None
    return key


def escape_key(key: str) -> str:
    """The key as the part of a member's name before its extension.

    >>> escape_key("n01/ILSVRC.0001")
    'n01/ILSVRC%2E0001'
    """
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", key)


def unescape_key(name: str) -> str:
    """The key of an escaped name: the inverse of `escape_key`."""
    return unquote(name)
