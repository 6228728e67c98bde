"""Files that are in the place of data: Git LFS pointers, and the web pages that failed downloads leave."""

from __future__ import annotations

from shardstream.errors import PlaceholderError

PLACEHOLDER_START = 512
"""Bytes of the beginning of a file by which `find_placeholder` tells."""
_LARGEST_POINTER = 1024  # bytes, by its specification
_POINTER = b"version https://git-lfs.github.com/spec/v"
_PAGES = (b"<!doctype html", b"<html", b"<head", b"<body")
_STORE_ERROR = b"<error><code>"


def is_pointer(data: bytes | memoryview) -> bool:
    """Whether a whole value is a Git LFS pointer. Values that may hold web pages are asked this alone."""
    return len(data) <= _LARGEST_POINTER and data[: len(_POINTER)] == _POINTER


def pointer_error(**place: str | int | None) -> PlaceholderError:
    """The error for a Git LFS pointer in the place of data."""
    hint = "run `git lfs pull` in the repository, or download the file itself, not its raw text"
    return PlaceholderError("a Git LFS pointer is here, not the data", hint=hint, **place)


def find_placeholder(start: bytes | bytearray | memoryview, **place: str | int | None) -> PlaceholderError | None:
    """The error for a placeholder in the place of data; ``None`` if the bytes are none.

    Args:
        start: The first bytes of a file, `PLACEHOLDER_START` or more; fewer if the file is shorter.
        place: See `ShardStreamError`.
    """
    text = bytes(start[:PLACEHOLDER_START])
    if text.startswith(_POINTER):
        return pointer_error(**place)
    text = text.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith(b"<?xml"):
        text = text.partition(b"?>")[2].lstrip()
    if text.startswith(_PAGES):
        what = "a web page (HTML) is here, not the data"
        hint = "download the file again: its URL gave a page, such as a login, an error, or a preview"
        return PlaceholderError(what, hint=hint, **place)
    if text.startswith(_STORE_ERROR):
        what = "the error message of an object store (XML) is here, not the data"
        return PlaceholderError(what, hint="download the file again: check its URL and the credentials", **place)
    return None
