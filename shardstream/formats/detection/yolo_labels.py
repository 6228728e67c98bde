"""Files of labels as YOLO has them: a line an object, of numbers that are parts of the picture's width and height."""

from __future__ import annotations

import math
from typing import NamedTuple

MOST_POINTS = 100_000
_MOST_CLASS = 1 << 31
_CLOSE = 1e-6  # by which rounding may take a coordinate out of the image


class BadLabels(Exception):
    """A file of labels that cannot be read; the message says why, and in which line."""


class Objects(NamedTuple):
    """The objects of a picture.

    Attributes:
        labels: Numbers of their classes.
        boxes: Four numbers each, one after another: x and y of the centre, width, height.
        polygons: The outline of each as x, y, x, y, ...; ``None`` for one that has a box only.
        points: The key points of each; ``None`` where there are none.
        cut: How many objects reached out of the image: they are cut at its edges, or left out if nothing remains.
        strays: How many objects have key points outside of the image, which stay as they are.
    """

    labels: list[int]
    boxes: list[float]
    polygons: list[list[float] | None]
    points: list[list[float] | None]
    cut: int = 0
    strays: int = 0


class KeyPoints(NamedTuple):
    """The key points that follow each box.

    Attributes:
        numbers: How many numbers they have; 0: there are none, and a longer line is an outline.
        each: How many numbers one has: x, y, and perhaps whether it is visible.
    """

    numbers: int = 0
    each: int = 2


def read_labels(data: bytes, *, classes: int | None, points: KeyPoints) -> Objects:
    """What a file of labels says.

    Args:
        data: The file.
        classes: How many classes there are; ``None`` if nobody knows.
        points: The key points of each object.

    Raises:
        BadLabels: A line is not one of these.
    """
    found, cut, strays = Objects([], [], [], []), 0, 0
    for number, line in enumerate(data.splitlines(), 1):
        cells = line.split()
        if not cells:
            continue
        try:
            values = [float(cell) for cell in cells]
        except ValueError:
            raise BadLabels(f"line {number} holds what is not a number") from None
        cut += _add(found, values, classes, points, number)
        strays += not _is_inside([one for at, one in enumerate(values[5:]) if points.numbers and at % points.each < 2])
    return found._replace(cut=cut, strays=strays)


def _is_inside(numbers: list[float]) -> bool:
    return all(-_CLOSE <= one <= 1 + _CLOSE for one in numbers)


def _add(found: Objects, values: list[float], classes: int | None, points: KeyPoints, number: int) -> bool:
    """Take a line into account; whether its object had to be cut, or left out."""
    if not all(map(math.isfinite, values)) or max(map(abs, values)) > 1e30:
        raise BadLabels(f"line {number} holds NaN, infinity or a number that is too large")
    label, *rest = values
    if not label.is_integer() or not 0 <= label < _MOST_CLASS or (classes is not None and label >= classes):
        known = "a class" if classes is None else f"one of the {classes} classes"
        raise BadLabels(f"line {number} begins with {label:g}, which is not {known}")
    outline, key_points = None, None
    if len(rest) == 4 + points.numbers:
        box, key_points = rest[:4], rest[4:] or None
        cut = not _is_inside(box)
        corners = [box[0] - box[2] / 2, box[1] - box[3] / 2, box[0] + box[2] / 2, box[1] + box[3] / 2]
        box = _box(_clipped(corners)) if cut else box
    elif not points.numbers and len(rest) >= 6 and len(rest) % 2 == 0 and len(rest) <= 2 * MOST_POINTS:
        cut = not _is_inside(rest)
        outline = _clipped(rest) if cut else rest
        box = _box([min(outline[::2]), min(outline[1::2]), max(outline[::2]), max(outline[1::2])])
    else:
        numbers = 4 + points.numbers
        wanted = f"a class and {numbers} numbers" if points.numbers else "a class and a box of 4 numbers, or an outline"
        raise BadLabels(f"line {number} has {len(values)} columns, and not {wanted}")
    if cut and min(box[2:]) <= 0:
        return True
    found.labels.append(int(label))
    found.boxes.extend(box)
    found.polygons.append(outline)
    found.points.append(key_points)
    return cut


def _clipped(numbers: list[float]) -> list[float]:
    return [min(max(one, 0.0), 1.0) for one in numbers]


def _box(corners: list[float]) -> list[float]:
    left, top, right, bottom = corners
    return [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
