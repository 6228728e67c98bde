"""A contact sheet: samples as small pictures with captions, in one piece of HTML, for notebooks.

Keys, class names and texts are whatever was packed: none of them becomes markup. A page has at most some 100 KB.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.image_field import image_fields
from shardstream.dataset.opened import OpenedDataset
from shardstream.errors import DataError, MissingExtraError
from shardstream.images import backends
from shardstream.images.header import probe
from shardstream.images.thumbnail import thumbnail, thumbnail_size
from shardstream.shards.fields import FieldType
from shardstream.shards.manifest import Manifest
from shardstream.text import cut, html_table, html_text, in_one_line, text_table

_SIDE = 112  # pixels of a picture's longer side
_BYTES = 72_000  # of all pictures of a page; as text they take a third more
FIELDS = 4  # of a caption, beside the key
_WORDS = 40  # characters of a line of a caption
_KEY_END = 24  # of these, the last ones of a key


class Cell(NamedTuple):
    """A sample of a contact sheet.

    Attributes:
        key: Its key.
        lines: What is to stand below, by field.
        pixels: uint8 (H, W, 3), or in place of a picture why there is none; ``None`` where the sample has none.
    """

    key: str
    lines: dict[str, str]
    pixels: NDArray[np.uint8] | str | None = None


def stored_cells(dataset: OpenedDataset, most: int, *, verify: bool) -> list[Cell]:
    """The first samples as they are stored, each with the first of its images; only what is shown is read.

    Raises:
        DataError, StorageError: They cannot be read.
    """
    fields = dataset.manifest.fields
    images = image_fields(fields)
    told = [name for name, kind in fields.items() if kind.kind == "scalar" or kind.name == "str"][:FIELDS]
    rows = DatasetRows(dataset, [*told, *images], verify=verify)
    batch = rows.read_ids(range(min(most, dataset.manifest.samples)), present=True)
    cells = []
    for i, key in enumerate(batch.keys):
        values = batch.values(i)
        lines = {name: _words(name, fields[name], values[name], dataset.manifest) for name in told if name in values}
        image = next((values[name] for name in images if name in values), None)
        cells.append(Cell(key, lines, None if image is None else _pixels(image)))
    return cells


def _pixels(data: memoryview) -> NDArray[np.uint8] | str:
    try:
        info = probe(data)
        return backends.decode(data, min_size=thumbnail_size((info.height, info.width), _SIDE))
    except DataError as error:
        return f"does not decode: {error.what}"
    except MissingExtraError as error:
        return str(error)


def _words(name: str, kind: FieldType, value: Any, manifest: Manifest) -> str:
    if kind.kind != "scalar":
        return bytes(value[: 4 * _WORDS]).decode(errors="replace")
    return label_words(name, value.item(), manifest.classes)


def label_words(name: str, number: float, classes: Sequence[str] | None) -> str:
    """A number as text, with the name of its class where the field is ``cls``.

    >>> label_words("cls", 1, ["cat", "dog"])
    '1 (dog)'
    """
    if name == "cls" and classes is not None and isinstance(number, int) and 0 <= number < len(classes):
        return f"{number} ({classes[number]})"
    return str(number)


def contact_sheet(title: str, cells: Sequence[Cell]) -> str:
    """The page: pictures where there are some, else a table, and why there are none."""
    head = f"<p>{html_text(title)}</p>"
    if not any(isinstance(cell.pixels, np.ndarray) for cell in cells):
        why = next((f"<p>{html_text(cell.pixels)}</p>" for cell in cells if cell.pixels is not None), "")
        return f"<div>{head}{html_table(_rows(cells))}{why}</div>"
    figures = "".join(_figure(cell, _BYTES // len(cells)) for cell in cells)
    return f'<div>{head}<div style="display:flex;flex-wrap:wrap;gap:8px">{figures}</div></div>'


def text_sheet(title: str, cells: Sequence[Cell]) -> str:
    """The same without pictures, for a terminal."""
    rows = [[in_one_line(text) for text in row] for row in _rows(cells)]
    return f"{title}\n{text_table(rows)}"


def _rows(cells: Sequence[Cell]) -> list[list[str]]:
    names = list(dict.fromkeys(name for cell in cells for name in cell.lines))
    rows = [[_key(cell), *(cut(cell.lines.get(name, ""), _WORDS) for name in names)] for cell in cells]
    return [["key", *names], *rows]


def _key(cell: Cell) -> str:
    """The key, of which the end says which file of its folder it is."""
    return cut(cell.key, _WORDS, end=_KEY_END)


def _figure(cell: Cell, most: int) -> str:
    lines = [html_text(_key(cell))]
    lines += [f"{html_text(name, _WORDS)} {html_text(words, _WORDS)}" for name, words in cell.lines.items()]
    if isinstance(cell.pixels, np.ndarray):
        file, (height, width) = thumbnail(cell.pixels, _SIDE, most=most)
        source = f"data:image/jpeg;base64,{base64.b64encode(file).decode()}"
        shown = f'<img src="{source}" width="{width}" height="{height}" alt="{lines[0]}">'
    else:
        shown = f"<i>{html_text(cell.pixels or 'no picture', 3 * _WORDS)}</i>"
    caption = "<br>".join(lines)
    style = f"width:{_SIDE}px;margin:0;font-size:11px;overflow-wrap:anywhere"
    return f'<figure style="{style}">{shown}<figcaption>{caption}</figcaption></figure>'
