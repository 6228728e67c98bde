"""What names of objects tell: files that only accompany data, and the directories of datasets."""

from __future__ import annotations

import re

_BESIDE = re.compile(r"(^|/)[^/.]+$|\.(txt|md|html|pdf|json|csv|tsv|ya?ml|md5|sha1|sha256)$", re.IGNORECASE)

_DETECTION = re.compile(
    r"(^|/)annotations/[^/]+\.json$|\.coco\.json$|^[^/]+\.json$|^[^/]+\.ya?ml$|(^|/)labels/([^/]+/)?[^/]+\.txt$",
    re.IGNORECASE,
)


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
