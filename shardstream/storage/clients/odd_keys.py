"""Listings of S3 with keys that obstore refuses, after which it gives nothing more of the page.

It takes every key for a path, which has no empty part, no ``.`` or ``..``, and no control character. Such keys are left
out here. obstore signs the request, because its credentials may be those of a machine's role.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple
from urllib.parse import unquote, urlencode
from xml.etree import ElementTree

from shardstream.errors import StorageError
from shardstream.sizes import plural
from shardstream.storage.base.store import ObjectMeta, version_number
from shardstream.storage.transfer.client import Fault
from shardstream.text import in_one_line

_PAGE = 1000  # S3's most
_LARGEST = 16 << 20  # bytes of an answer: a page has 1,000 keys of at most 1,024 bytes, each perhaps escaped
_WAIT_S = 60.0
_SHOWN = 3
_logger = logging.getLogger(__name__)
HINT = "delete or rename that object, or read through fsspec, by the URL fsspec+s3://..."


def is_odd(path: str) -> bool:
    r"""Whether obstore cannot name an object.

    >>> [is_odd(path) for path in ("a/b.tar", "a//b", "a/./b", "../a", "a/b\x01")]
    [False, True, True, True, True]
    """
    if any(ord(character) < 32 or character == "\x7f" for character in path):
        return True
    return any(part in ("", ".", "..") for part in path.split("/"))


class _Page(NamedTuple):
    keys: list[tuple[str, int, str]]
    more: bool


async def list_signed(
    sign: Callable[[str], Awaitable[str]], root: str, prefix: str, after: str
) -> AsyncIterator[list[ObjectMeta]]:
    """The objects of a bucket below a root, those with odd keys left out, with one warning that names some.

    Args:
        sign: Gives the signed URL for a query of the bucket.
        root: What all keys begin with: empty, or ending with ``/``.
        prefix: What paths below the root begin with.
        after: Only those that come behind this one.

    Raises:
        Fault: The store didn't answer, or asks to wait.
        StorageError: It refuses, or what it answers is no listing.
    """
    odd: list[str] = []
    last, more = f"{root}{after}" if after else "", True
    while more:
        query = {"encoding-type": "url", "list-type": "2", "max-keys": str(_PAGE), "prefix": root + prefix}
        url = await sign(urlencode(query | ({"start-after": last} if last else {})))
        keys, more = await asyncio.to_thread(_ask, url)
        page = []
        for key, size, etag in keys:
            path = key.removeprefix(root)
            if path.endswith("/") and not size:
                continue  # stands for a directory
            if is_odd(path):
                odd.append(key)
            else:
                page.append(ObjectMeta(path, size, version_number(etag)))
        more &= bool(keys)
        last = keys[-1][0] if keys else last
        yield page
    if odd:
        shown = ", ".join(repr(in_one_line(key)) for key in odd[:_SHOWN]) + (", ..." if len(odd) > _SHOWN else "")
        objects = plural(len(odd), "object")
        _logger.warning(
            "left out of a listing: %s with an empty part, '.', '..', or a control character: %s", objects, shown
        )


def _ask(url: str) -> _Page:
    try:
        with urllib.request.urlopen(url, timeout=_WAIT_S) as answer:  # noqa: S310 - a URL of the store itself
            data = answer.read(_LARGEST + 1)
    except urllib.error.HTTPError as error:
        if error.code in (429, 500, 502, 503, 504):
            raise Fault("server error", f"the store answered with status {error.code}") from None
        raise StorageError(f"the store answered with status {error.code}", hint=HINT) from None
    except (OSError, http.client.HTTPException):
        raise Fault("connection", "the connection broke") from None
    try:
        if len(data) > _LARGEST or b"<!" in data:  # so no entities, which could grow without end
            raise ValueError
        return _parse(ElementTree.fromstring(data))  # noqa: S314 - see above
    except (ElementTree.ParseError, ValueError):
        raise StorageError("what the store sent is no listing", hint=HINT) from None


def _parse(root: Any) -> _Page:
    def text(entry: Any, name: str) -> str:
        return entry.findtext(f"{{*}}{name}") or ""

    encoded = text(root, "EncodingType") == "url"
    keys = []
    for entry in root.iterfind("{*}Contents"):
        key = text(entry, "Key")
        keys.append((unquote(key.replace("+", " ")) if encoded else key, int(text(entry, "Size")), text(entry, "ETag")))
    return _Page(keys, text(root, "IsTruncated") == "true")
