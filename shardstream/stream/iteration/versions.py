"""``VersionedContent``: the content of a stream, at the version of its data that a loaded state was saved at."""

from __future__ import annotations

import logging

from shardstream.stream.iteration.content import Content
from shardstream.stream.iteration.epoch_state import SharedEpochState
from shardstream.text import in_one_line

logger = logging.getLogger(__name__)


class VersionedContent:
    """What one copy of a stream streams. All copies that share a clock read the same versions of their data sets.

    Args:
        content: As it was opened.
        clock: Of the stream.
    """

    def __init__(self, content: Content, clock: SharedEpochState) -> None:
        self._content = content
        self._clock = clock
        self._moves = clock.moves

    @property
    def content(self) -> Content:
        """The content, at the versions that `move_to` of any copy said last."""
        if self._moves != self._clock.moves:
            self._moves = self._clock.moves
            versions = self._clock.versions
            if versions != list(self._content.versions):
                self._content = self._content.at(versions)
        return self._content

    def move_to(self, content: Content) -> None:
        """Stream this from now on; ``content`` is that of this copy, or the same at other versions."""
        if content is self._content:
            return
        logger.info(
            "the state is of version %s of %s, which is read from now on: here was version %s",
            ", ".join(map(str, content.versions)),
            in_one_line(content.url),
            ", ".join(map(str, self._content.versions)),
        )
        self._clock.move_to(content.versions)
        self._content, self._moves = content, self._clock.moves
