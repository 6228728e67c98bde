"""What names of objects tell: splits, which are never mixed, files that only accompany data, and common folders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from shardstream.errors import UsageError

_TRAIN = {"train", "training"}
_HELD_OUT = {"val", "valid", "validation", "dev", "test", "testing"}
_BESIDE = re.compile(r"(^|/)[^/.]+$|\.(txt|md|html|pdf|json|csv|tsv|ya?ml|md5|sha1|sha256)$", re.IGNORECASE)

_DETECTION = re.compile(
    r"(^|/)annotations/[^/]+\.json$|\.coco\.json$|^[^/]+\.json$|^[^/]+\.ya?ml$|(^|/)labels/([^/]+/)?[^/]+\.txt$",
    re.IGNORECASE,
)


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


def accompanies(path: str) -> bool:
    """Whether an object may lie beside containers without being data: text, lists and checksums.

    >>> accompanies("README.md"), accompanies("LICENSE"), accompanies("1.jpg")
    (True, True, False)
    """
    return _BESIDE.search(path) is not None


def tells_detection(path: str) -> bool:
    """Whether a file may say what is to be seen on the pictures that lie beside it, as COCO and YOLO have them.

    >>> tells_detection("annotations/instances_val2017.json"), tells_detection("data.yaml"), tells_detection("1/2.json")
    (True, True, False)
    """
    return _DETECTION.search(path) is not None


def folder_of_data(path: str) -> str:
    """The folder that a file of a data set lies in, or the one above: COCO's annotations have a folder of their own.

    >>> folder_of_data("coco/annotations/instances_val2017.json"), folder_of_data("tars/0.tar")
    ('coco', 'tars')
    """
    folder, _, name = path.rpartition("/")
    above, slash, last = folder.rpartition("/")
    return above if slash and last == "annotations" and name.endswith(".json") else folder


def common_folder(first: str, last: str) -> str:
    """What all normal paths between ``first`` and ``last`` in sorting order begin with, up to a ``/``.

    >>> common_folder("a/b/1.jpg", "a/c/2.jpg")
    'a/'
    """
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[: first.rfind("/", 0, same) + 1]
