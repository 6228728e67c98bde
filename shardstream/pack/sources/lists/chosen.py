"""``fields=`` of lists: columns and types that a user chose, and names of files that are made of what a cell holds."""

from __future__ import annotations

import re
from collections.abc import Mapping

FILE = "file"
_TEMPLATE = re.compile(rf"(.+?:{FILE}):(.*\{{\}}.*)", re.DOTALL)


def split_template(text: str) -> tuple[str, str | None]:
    """``COLUMN:file`` and how the name of the file is made, of what a user wrote; ``None`` where the cell is the name.

    >>> split_template("id_code:file:train_images/{}.jpg"), split_template("path:file")
    (('id_code:file', 'train_images/{}.jpg'), ('path:file', None))
    """
    found = _TEMPLATE.fullmatch(text)
    return (text, None) if found is None else (found[1], found[2])


def filled(template: str | None, text: str) -> str:
    """The name of a file, of what a cell holds."""
    return text if template is None else template.replace("{}", text)


def chooses_files(chosen: Mapping[str, str]) -> bool:
    """Whether a user says that a column names files."""
    return any(split_template(text)[0].endswith(f":{FILE}") for text in chosen.values())
