"""How many examples hypothesis draws where ten, which CI draws elsewhere, have let mutants live."""

from __future__ import annotations

from hypothesis import settings

thorough = settings(max_examples=max(50, settings().max_examples))
"""At least 50 of them. What comes in mid-epoch, and what is cut out of a picture, goes wrong in rare cases only."""
