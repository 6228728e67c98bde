"""The numbers in docs/order.svg are those of the order arithmetic."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np

from shardstream.order import EpochOrder, OrderParameters

FIGURE = Path(__file__).resolve().parents[2] / "docs" / "order.svg"
SVG = "{http://www.w3.org/2000/svg}"


def rows() -> list[list[int]]:
    """The numbered cells of the figure, row by row from the top, each from left to right."""
    cells: dict[float, list[tuple[float, int]]] = {}
    for text in ElementTree.parse(FIGURE).iter(f"{SVG}text"):
        if text.get("class") == "n":
            cells.setdefault(float(text.attrib["y"]), []).append((float(text.attrib["x"]), int(text.text or "")))
    return [[number for _, number in sorted(cells[y])] for y in sorted(cells)]


def test_the_figure_shows_what_the_arithmetic_gives() -> None:
    stored, line, windows, sequence = rows()
    counts = np.array([10, 14, 8, 16])
    first = np.cumsum(counts) - counts
    parameters = OrderParameters(lanes=4, chunk=2, window=4, virtual=1, sublanes=2, ranks=2)
    order = EpochOrder(counts, seed=48, epoch=0, parameters=parameters)
    shard, row = order.locate(np.arange(48))
    assert stored == list(range(48))
    assert line == [*range(34, 48), *range(24, 32), *range(10), *range(10, 24), *range(32, 34)]
    assert sequence == (first[shard] + row).tolist()
    lane, offset = order.lanes_of(np.arange(48))
    span = np.array([1, 2, 0, 3])[lane]  # as the figure names them: lanes 2, 0, 1, 3 from left to right
    shown = np.empty(48, int)
    shown[span * 12 + offset] = first[shard] + row
    assert windows == shown.tolist()
    assert [sorted(windows[i : i + 12]) for i in range(0, 48, 12)] == [
        sorted(line[i : i + 12]) for i in range(0, 48, 12)
    ]
