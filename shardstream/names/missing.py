"""What to write in place of a path that is not there, or cannot be read."""

from __future__ import annotations

import os
from itertools import islice

from shardstream.errors import did_you_mean

_LOOKED_AT = 10_000  # names of a folder


def instead_of(path: str) -> str:
    """A hint: the name that comes nearest, in the folder that is the last one on the way there.

    >>> instead_of("phots/1.jpg").replace(os.getcwd(), "...")
    "did you mean 'photos'? ... holds no 'phots'; write the path of what is to be packed"
    """
    folder, name = os.path.split(os.path.abspath(path))
    while name and not os.path.isdir(folder):
        folder, name = os.path.split(folder)
    if not name or os.path.lexists(os.path.join(folder, name)):
        return f"let this user read it: chmod u+r, and u+rx for the folders above (ls -ld {path})"
    try:
        with os.scandir(folder) as entries:
            near = did_you_mean(name, [entry.name for entry in islice(entries, _LOOKED_AT)])
    except OSError:
        near = ""
    return f"{near}{folder} holds no {name!r}; write the path of what is to be packed"
