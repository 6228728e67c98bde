"""Names of splits, such as train and val, which are never mixed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from shardstream.errors import UsageError

_TRAIN = {"train", "training"}
_HELD_OUT = {"val", "valid", "validation", "dev", "test", "testing"}


def splits(names: Iterable[str]) -> list[str]:
    """Those of these names that are splits, in order, if they are of several; else none.

    >>> splits(["val", "train", "fonts"]), splits(["train", "fonts"])
    (['train', 'val'], [])
    """
    found = sorted(name for name in set(names) if name.lower() in _TRAIN | _HELD_OUT)
    several = len(found) > 1 and any(name.lower() in _HELD_OUT for name in found)
    return found if several else []


class SplitsError(UsageError):
    """Several splits are in one place, and nobody said which is meant.

    Attributes:
        places: Where each of them is, by its name: relative to the place, perhaps with a wildcard.
    """

    places: Mapping[str, str] = MappingProxyType({})


def several_splits(url: str, places: Mapping[str, str]) -> SplitsError:
    """The error for a place with several splits: where each is by its name, see `SplitsError`."""
    error = SplitsError(
        f"there are several splits here: {', '.join(places)}",
        url=url,
        hint=f"open one of them: {' or '.join(f'{url}/{place}' for place in places.values())}",
    )
    error.places = dict(places)
    return error


def refuse_splits(url: str, folders: Iterable[str]) -> None:
    """Refuse class folders that are splits, by their names; SplitsError."""
    if several := splits(folders):
        raise several_splits(url, {name: name for name in several})
