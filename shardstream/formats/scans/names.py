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
