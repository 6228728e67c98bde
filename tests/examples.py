"""How many examples hypothesis draws where the number of the profile is too few, or too many."""

from __future__ import annotations

from hypothesis import settings

thorough = settings(max_examples=max(50, settings().max_examples))
"""At least 50 of them. What comes in mid-epoch, and what is cut out of a picture, goes wrong in rare cases only.
Ten, which CI draws elsewhere, have let mutants live."""


def at_most(number: int) -> settings:
    """As many as the profile says, but no more than so many: where each of them takes long."""
    return settings(max_examples=min(number, settings().max_examples))
