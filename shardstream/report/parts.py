"""Pieces of markup. What comes from data goes through `text`, or is a number."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files

from shardstream.diagnose.shown import Thumbnail
from shardstream.text import html_text, printable

_SIDE = 160.0  # of the square that sizes are drawn in


@cache
def asset(name: str) -> str:
    """The text of a file of this room."""
    return files("shardstream.report").joinpath(name).read_text("utf-8")


def policy(style: str, script: str) -> str:
    """The policy of a page: nothing but this style, this script, and pictures and sounds that are in the page."""
    return (
        f"default-src 'none'; img-src data:; media-src data:; style-src '{_hash(style)}'; "
        f"script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )


def _hash(source: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}"


def text(value: str) -> str:
    """A text of several lines: no character of it is markup, in attributes neither."""
    return html.escape(printable(value))


def name(value: object, most: int = 400) -> str:
    """A key, a path or the name of a class, in one line."""
    return html_text(value, most)


def image(picture: Thumbnail, label: str) -> str:
    """A picture that is in the page; ``label`` is its alternative text, not escaped yet."""
    source = f"data:image/jpeg;base64,{base64.b64encode(picture.jpeg).decode()}"
    return (
        f'<img src="{source}" width="{picture.width}" height="{picture.height}" alt="{name(label, 80)}" loading="lazy">'
    )


def rectangles(boxes: Iterable[Sequence[float]], height: int, width: int) -> str:
    """Boxes (left, top, right, bottom), shares of a picture of this height and width, to lie over it."""
    drawn = "".join(
        f'<rect x="{left * width:.2f}" y="{top * height:.2f}" width="{(right - left) * width:.2f}" '
        f'height="{(bottom - top) * height:.2f}"/>'
        for left, top, right, bottom in boxes
    )
    return f'<svg viewBox="0 0 {width} {height}" aria-hidden="true">{drawn}</svg>' if drawn else ""


def bars(rows: Sequence[tuple[str, int]]) -> str:
    """A histogram: names, and how many there are of each."""
    most = max((count for _, count in rows), default=0) or 1
    lines = "".join(
        f'<span title="{name(label)}">{name(label, 60)}</span><svg viewBox="0 0 100 10" preserveAspectRatio="none" '
        f'aria-hidden="true"><rect class="fill" width="{100 * count / most:.2f}" height="10"/></svg>'
        f"<span>{count:,}</span>"
        for label, count in rows
    )
    return f'<div class="bars">{lines}</div>'


def chart(values: Sequence[float], label: str) -> str:
    """Numbers from 0 on as bars side by side; ``label`` says what they are."""
    most = max(values, default=0.0) or 1.0
    across = 100 / max(len(values), 1)
    drawn = "".join(
        f'<rect class="fill" x="{i * across:.3f}" y="{60 - 58 * value / most:.2f}" width="{across * 0.9:.3f}" '
        f'height="{58 * value / most:.2f}"/>'
        for i, value in enumerate(values)
    )
    return (
        f'<svg class="chart" viewBox="0 0 100 60" preserveAspectRatio="none" role="img" aria-label="{name(label)}">'
        f"{drawn}</svg>"
    )


def scatter(sizes: Sequence[tuple[int, int]]) -> str:
    """(height, width) of pictures as points: width across, height upwards."""
    most = max((max(size) for size in sizes), default=1)
    points = "".join(
        f'<circle class="fill" cx="{4 + 152 * width / most:.1f}" cy="{_SIDE - 4 - 152 * height / most:.1f}" r="2.5" '
        'fill-opacity="0.5"/>'
        for height, width in sizes
    )
    label = "width across, height upwards, in pixels"
    return (
        f'<svg class="scatter" viewBox="0 0 {_SIDE:.0f} {_SIDE:.0f}" role="img" aria-label="{label}">'
        f"<title>{label}, up to {most:,}</title>{points}</svg>"
    )
