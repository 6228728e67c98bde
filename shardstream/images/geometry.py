"""The geometry of one image on its way into a batch, as a value: crop, resize, window, flip, and the turn of EXIF.

A `Geometry` is drawn or computed from the header alone, before a pixel exists, and can be replayed on another picture
of the same scene (``like=``). The arithmetic is torchvision's (``transforms/transforms.py`` and
``transforms/_functional_tensor.py`` of 0.2x): the same rounding, the same ten attempts, the same fallback. The random
numbers are keyed words of ours instead of torch's generator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from shardstream.rng import below, unit

Size: TypeAlias = tuple[int, int]
Affine: TypeAlias = tuple[tuple[float, float, float], tuple[float, float, float]]

_ATTEMPTS = 10
# Word 0: flip; 1, 2: place of the crop; then area and ratio of each attempt.
CROP_WORDS = 3 + 2 * _ATTEMPTS
FLIP_WORDS = 1
_SCALES = (8, 4, 2)
_ASIDE = 1 / 128  # of a source pixel, by which an excerpt may lie beside the whole
_SEARCHED = 48  # pixels of the result before a window among which an edge is looked for


class Box(NamedTuple):
    """A rectangle in pixels. ``top`` and ``left`` are negative only in a window that reaches outside (padding)."""

    top: int
    left: int
    height: int
    width: int

    @property
    def size(self) -> Size:
        """(height, width)."""
        return self.height, self.width

    def slices(self) -> tuple[slice, slice]:
        """The rectangle as an index into an (H, W, ...) array."""
        return slice(self.top, self.top + self.height), slice(self.left, self.left + self.width)


class Geometry(NamedTuple):
    """Which pixels of a source become which pixels of an output.

    Attributes:
        source: (height, width) of the whole image.
        box: What is cut from it.
        size: (height, width) that the box is resized to.
        window: What is cut from the resized box, as zeros where it reaches outside; ``None`` for all of it.
        flip: Whether left and right are exchanged at last.
    """

    source: Size
    box: Box
    size: Size
    window: Box | None = None
    flip: bool = False

    @property
    def output(self) -> Size:
        """(height, width) of the result."""
        return self.size if self.window is None else self.window.size

    @property
    def is_identity(self) -> bool:
        """Whether the result is the source itself."""
        return not self.flip and self.window is None and self.size == self.source and self.box.size == self.source

    @property
    def matrix(self) -> Affine:
        """The affine map from (x, y) in the source to (x, y) in the output.

        Coordinates count from the outer edge of the first pixel: pixel i covers [i, i + 1), its centre is i + 1/2.
        """
        across, down = self.size[1] / self.box.width, self.size[0] / self.box.height
        right, below = -self.box.left * across, -self.box.top * down
        if self.window is not None:
            right, below = right - self.window.left, below - self.window.top
        if self.flip:
            across, right = -across, self.output[1] - right
        return (across, 0.0, right), (0.0, down, below)


class Turn(NamedTuple):
    """One of the eight ways in which EXIF lets a picture be stored; all false: upright.

    Attributes:
        transposed: Rows and columns are exchanged, before anything else.
        upside_down: The rows come in reverse order.
        mirrored: The columns do.
    """

    transposed: bool = False
    upside_down: bool = False
    mirrored: bool = False

    @property
    def inverse(self) -> Turn:
        """What undoes it."""
        return Turn(True, self.mirrored, self.upside_down) if self.transposed else self

    def size(self, size: Size) -> Size:
        """(height, width) of a picture of this size when it is turned."""
        return size[::-1] if self.transposed else size

    def box(self, box: Box, frame: Size) -> Box:
        """Where a box of a picture of size ``frame`` lies when the picture is turned."""
        top, left, height, width = box
        if self.transposed:
            top, left, height, width = left, top, width, height
        frame = self.size(frame)
        if self.upside_down:
            top = frame[0] - top - height
        if self.mirrored:
            left = frame[1] - left - width
        return Box(top, left, height, width)


UPRIGHT = Turn()
# By EXIF orientation (CIPA DC-008, 4.6.4): what turns the stored picture upright.
TURNS = (
    *(UPRIGHT, UPRIGHT, Turn(mirrored=True), Turn(upside_down=True, mirrored=True), Turn(upside_down=True)),
    *(Turn(True), Turn(True, mirrored=True), Turn(True, True, True), Turn(True, upside_down=True)),
)


def as_stored(geometry: Geometry, turn: Turn) -> tuple[Geometry, Turn]:
    """A geometry of the upright picture as one of the picture as it is stored.

    Args:
        geometry: In upright coordinates.
        turn: What turns the stored picture upright.

    Returns:
        The geometry in stored coordinates, and how its result must be turned to be that of ``geometry``. A mere flip
        is left to the geometry.

        >>> as_stored(Geometry((500, 375), Box(10, 20, 300, 270), (224, 200)), TURNS[6])[0].box
        Box(top=85, left=10, height=270, width=300)
    """
    if not any(turn):
        return geometry, turn
    back = turn.inverse
    window = None if geometry.window is None else back.box(geometry.window, geometry.size)
    rest = turn._replace(mirrored=turn.mirrored != geometry.flip)
    only_flip = not (rest.transposed or rest.upside_down)
    stored = Geometry(
        back.size(geometry.source),
        back.box(geometry.box, geometry.source),
        back.size(geometry.size),
        window,
        flip=only_flip and rest.mirrored,
    )
    return stored, UPRIGHT if only_flip else rest


def whole(source: Size) -> Box:
    """The box that is all of an image."""
    return Box(0, 0, source[0], source[1])


def random_resized_box(
    source: Size, words: Sequence[int], *, scale: tuple[float, float], ratio: tuple[float, float]
) -> Box:
    """The rectangle of a random resized crop: ``torchvision.transforms.RandomResizedCrop.get_params``.

    Area uniform in ``scale``, ratio (width / height) log-uniform in ``ratio``; ten attempts to fit, then the largest
    central crop whose ratio lies within bounds.

    Args:
        source: (height, width) of the image.
        words: At least `CROP_WORDS` random words of 64 bits; word 0 is left to the flip.
        scale: Bounds of the crop's share of the area.
        ratio: Bounds of width / height.
    """
    height, width = source
    area = height * width
    log_low, log_high = math.log(ratio[0]), math.log(ratio[1])
    for attempt in range(3, CROP_WORDS, 2):
        target = area * (scale[0] + (scale[1] - scale[0]) * unit(words[attempt]))
        aspect = math.exp(log_low + (log_high - log_low) * unit(words[attempt + 1]))
        w = round(math.sqrt(target * aspect))
        h = round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            return Box(below(words[1], height - h + 1), below(words[2], width - w + 1), h, w)
    return _fallback_box(source, ratio)


def _fallback_box(source: Size, ratio: tuple[float, float]) -> Box:
    height, width = source
    own = width / height
    h, w = height, width
    # torchvision's rounding can give 0 for images a few pixels wide and extreme ratios; one pixel is the least.
    if own < min(ratio):
        h = max(1, round(w / min(ratio)))
    elif own > max(ratio):
        w = max(1, round(h * max(ratio)))
    return Box((height - h) // 2, (width - w) // 2, h, w)


def resized_size(source: Size, size: int | Size) -> Size:
    """The size that torchvision's ``Resize`` gives: both sides, or the short side with the ratio kept.

    The long side is rounded down (``int(size * long / short)``), and is at least one pixel.
    """
    if isinstance(size, tuple):
        return size
    height, width = source
    if width <= height:
        return max(1, int(size * height / width)), size
    return size, max(1, int(size * width / height))


def pair(size: int | Size) -> Size:
    """(height, width) of what may be one number for both."""
    return (size, size) if isinstance(size, int) else size


def center_window(source: Size, size: Size) -> Box:
    """The window of torchvision's ``CenterCrop``: half to even where it is smaller, zero padding where it is larger."""
    top, left = (_center(have, want) for have, want in zip(source, size, strict=True))
    return Box(top, left, size[0], size[1])


def _center(have: int, want: int) -> int:
    return round((have - want) / 2) if have >= want else -((want - have) // 2)


def covering_scale(have: Size, want: Size) -> int:
    """The largest of 1, 2, 4, 8 by which ``have`` may be divided and still be at least ``want`` in both directions."""
    for scale in _SCALES:
        if have[0] >= scale * want[0] and have[1] >= scale * want[1]:
            return scale
    return 1


def scaled_size(source: Size, scale: int) -> Size:
    """The size libjpeg decodes to at DCT scale 1/``scale``: rounded up."""
    return -(-source[0] // scale), -(-source[1] // scale)


def scaled_box(box: Box, scale: int) -> Box:
    """The box on an image decoded at 1/``scale``: each edge at the nearest pixel, halves up."""
    if scale == 1:
        return box
    top, bottom, left, right = (
        (2 * edge + scale) // (2 * scale) for edge in (box.top, box.top + box.height, box.left, box.left + box.width)
    )
    return Box(top, left, max(1, bottom - top), max(1, right - left))


def on_grid(box: Box, source: Size, scale: int) -> Box:
    """The part of the source that `scaled_box` really shows: ``box`` with its edges moved to multiples of ``scale``.

    An edge moves by at most ``scale / 2`` pixels of the source. Where the box covers the output at this scale, that is
    at most half a pixel of the output, and the moved box covers it too. Keeping the moved box as the geometry leaves
    label maps exactly aligned, and the picture within a grey level on average of a full decode of the same box.
    """
    small = scaled_box(box, scale)
    top, left = small.top * scale, small.left * scale
    height, width = min(source[0] - top, small.height * scale), min(source[1] - left, small.width * scale)
    return Box(top, left, height, width)


class Excerpt(NamedTuple):
    """What a window shows of a picture that is resized: no more than ``seen`` needs to be decoded.

    Attributes:
        seen: The pixels that the window looks at, of the image decoded at some scale.
        box: What is resized. Beyond ``seen`` its pixels may be anything: they show outside of the window only.
        size: (height, width) that ``box`` is resized to.
        window: What is cut from the result; ``None`` for all of it.
        zoom: Pixels of the result for each of ``box``, (down, across); ``None``: as the sizes say.
    """

    seen: Box
    box: Box
    size: Size
    window: Box | None = None
    zoom: tuple[float, float] | None = None


@lru_cache(maxsize=256)  # asked by the decoder and by the resize, and of most images the same
def excerpt(geometry: Geometry, scale: int = 1, *, exact: bool = False) -> Excerpt:
    """The part of a geometry that its window shows; all of it where it has none.

    A resize cannot be begun anywhere: pixels of the result lie between those of the source in another way everywhere.
    So it begins a little before the window, where a pixel edge of the result meets one of the source to 1/128 of a
    source pixel. Of photographs, results differ from those of the whole by two grey levels at most, 0.01 on average.

    Args:
        geometry: What is to be done.
        scale: The image is decoded at 1/``scale``.
        exact: Resize the whole and cut the window from that: not a grey level of difference, for the price of all.
    """
    box, size, window = scaled_box(geometry.box, scale), geometry.size, geometry.window
    if window is None or exact:
        return Excerpt(box, box, size, window)
    first, start, stop, before = zip(
        _shown(box.height, size[0], window.top, window.height),
        _shown(box.width, size[1], window.left, window.width),
        strict=True,
    )
    ends = (min(n, start + count) for n, start, count in zip(size, window[:2], window[2:], strict=True))
    height, width = (max(1, end - begin) for end, begin in zip(ends, before, strict=True))
    return Excerpt(
        Box(box.top + first[0], box.left + first[1], stop[0] - first[0], stop[1] - first[1]),
        Box(box.top + start[0], box.left + start[1], stop[0] - start[0], stop[1] - start[1]),
        (height, width),
        window._replace(top=window.top - before[0], left=window.left - before[1]),
        (size[0] / box.height, size[1] / box.width),
    )


def _shown(have: int, size: int, start: int, count: int) -> tuple[int, int, int, int]:
    """Of ``have`` pixels resized to ``size``: which are looked at for ``count`` from ``start`` on.

    Returns:
        The first that is, the one where the resize begins, the one after the last, and the pixel of the result that
        begins where the resize does.
    """
    start, stop = max(0, start), min(size, start + count)
    if have == size:
        return start, start, max(stop, start + 1), start
    ratio = have / size
    reach = max(1.0, ratio)  # of the filter to each side of a pixel's centre
    last = min(have, math.ceil((stop - 0.5) * ratio + reach))
    first = max(0, math.floor((start + 0.5) * ratio - reach))
    latest = math.floor(start + 0.5 - reach / ratio)
    for before in range(latest, max(0, latest - _SEARCHED), -1):
        edge = before * ratio
        if abs(edge - round(edge)) <= _ASIDE:
            return max(first, round(edge)), round(edge), last, before
    return first, 0, last, 0


def aligned_scale(box: Box, source: Size, scale: int) -> int:
    """The largest scale up to ``scale`` that shows exactly this box, without moving it."""
    while scale > 1 and on_grid(box, source, scale) != box:
        scale //= 2
    return scale
