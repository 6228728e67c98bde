"""Names of fields: which are allowed, and what becomes of others."""

from __future__ import annotations

import re
from functools import lru_cache

from shardstream.errors import FieldError

_FIELD_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_ODD = re.compile(r"[^A-Za-z0-9_.-]+")


def check_field_name(name: str) -> None:
    """Refuse names that cannot be a member extension or a keyword.

    Raises:
        FieldError: Empty, other characters than letters, digits, ``_ - .``, or leading double underscore.
    """
    if not _FIELD_NAME.fullmatch(name) or name.startswith("__"):
        raise FieldError(
            f"{name!r} cannot be a field name",
            field=name,
            hint="use letters, digits, '_', '-' and inner dots; names that begin with '__' are reserved",
        )


@lru_cache(maxsize=1024)  # names repeat from sample to sample
def usable_field(text: str) -> str:
    """A field name made of any text: ``/`` becomes ``.``, other characters that no name has become ``_``.

    >>> usable_field("image/object/bbox xmin")
    'image.object.bbox_xmin'
    """
    name = _ODD.sub("_", text.replace("/", ".")).strip(".")
    name = re.sub(r"\.\.+", ".", name)
    return re.sub(r"^__[_.]*", "", name) or "_"
