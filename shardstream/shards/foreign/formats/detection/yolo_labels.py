"""Files of labels as YOLO has them: a line an object, of numbers that are parts of the picture's width and height."""

from __future__ import annotations

import math
from typing import NamedTuple

MOST_POINTS = 100_000
_MOST_CLASS = 1 << 31


class BadLabels(Exception):
    """A file of labels that cannot be read; the message says why, and in which line."""


class Objects(NamedTuple):
    """The objects of a picture.

    Attributes:
        labels: Numbers of their classes.
        boxes: Four numbers each, one after another: x and y of the centre, width, height.
        polygons: The outline of each as x, y, x, y, ...; ``None`` for one that has a box only.
        points: The key points of each; ``None`` where there are none.
    """

    labels: list[int]
    boxes: list[float]
    polygons: list[list[float] | None]
    points: list[list[float] | None]


def read_labels(data: bytes, *, classes: int | None, points: int) -> Objects:
    """What a file of labels says.

    Args:
        data: The file.
        classes: How many classes there are; ``None`` if nobody knows.
        points: How many numbers of key points follow each box; 0: none, and a longer line is an outline.

    Raises:
        BadLabels: A line is not one of these.
    """
    found = Objects([], [], [], [])
    for number, line in enumerate(data.splitlines(), 1):
        cells = line.split()
        if not cells:
            continue
        try:
            values = [float(cell) for cell in cells]
        except ValueError:
            raise BadLabels(f"line {number} holds what is not a number") from None
        _add(found, values, classes, points, number)
    return found


def _add(found: Objects, values: list[float], classes: int | None, points: int, number: int) -> None:
    if not all(map(math.isfinite, values)) or max(map(abs, values)) > 1e30:
        raise BadLabels(f"line {number} holds NaN, infinity or a number that is too large")
    label, *rest = values
    if not label.is_integer() or not 0 <= label < _MOST_CLASS or (classes is not None and label >= classes):
        known = "a class" if classes is None else f"one of the {classes} classes"
        raise BadLabels(f"line {number} begins with {label:g}, which is not {known}")
    if len(rest) == 4 + points:
        box, outline, key_points = rest[:4], None, rest[4:] or None
    elif not points and len(rest) >= 6 and len(rest) % 2 == 0 and len(rest) <= 2 * MOST_POINTS:
        left, right, top, bottom = min(rest[::2]), max(rest[::2]), min(rest[1::2]), max(rest[1::2])
        box = [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
        outline, key_points = rest, None
    else:
        wanted = f"a class and {4 + points} numbers" if points else "a class and a box of 4 numbers, or an outline"
        raise BadLabels(f"line {number} has {len(values)} columns, and not {wanted}")
    found.labels.append(int(label))
    found.boxes.extend(box)
    found.polygons.append(outline)
    found.points.append(key_points)
