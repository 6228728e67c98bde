"""``ExternalInfo``: what the manifest of a dataset in another library's format says beside what all manifests say."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExternalInfo:
    """A dataset in another library's format.

    Attributes:
        title: What people call the format.
        objects: How many objects hold the samples.
        loose: Whether values are files of their own, and may be others tomorrow.
        checked: Whether values have checksums, which were made when they were indexed.
        notes: What was left out or decided, a sentence each.
    """

    title: str
    objects: int
    loose: bool
    checked: bool
    notes: tuple[str, ...]
