"""Which files are images, audio or video, by their suffixes."""

from __future__ import annotations

import os

from shardstream.images.formats import BY_SUFFIX

_AUDIO_AND_VIDEO = frozenset(("wav", "mp3", "flac", "ogg", "opus", "m4a", "mp4", "mkv", "webm", "avi", "mov"))


def suffix_of(path: str) -> str:
    """The suffix of a name, in lower case and without its dot; empty where it has none."""
    return os.path.splitext(path)[1][1:].lower()


def is_picture(suffix: str) -> bool:
    """Whether files of a suffix are pictures."""
    return suffix in BY_SUFFIX


def is_media(suffix: str) -> bool:
    """Whether files of a suffix are images, audio or video."""
    return is_picture(suffix) or suffix in _AUDIO_AND_VIDEO
