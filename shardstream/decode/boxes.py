"""Boxes and points, moved along with an image.

Coordinates are (x, y) in pixels and count from the outer edge of the first pixel: pixel i covers [i, i + 1), and a
picture of width W reaches from 0 to W. That is what COCO's and torchvision's boxes mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray

from shardstream.decode.context import SampleContext
from shardstream.decode.dtypes import check_fit
from shardstream.decode.specs import Decoder, Out
from shardstream.errors import DecodeError, FieldError, UsageError
from shardstream.images.geometry import Geometry, Size
from shardstream.shards.fields import VALUES

BoxFormat: TypeAlias = Literal["xyxy", "xywh", "cxcywh"]


def check_format(box_format: str) -> None:
    """Refuse what is not a `BoxFormat`.

    Raises:
        UsageError: It is none.
    """
    if box_format not in get_args(BoxFormat):
        formats = ", ".join(map(repr, get_args(BoxFormat)))
        raise UsageError(f"format must be that of boxes, got {box_format!r}", hint=f"use one of {formats}")


def corners(value: Any, box_format: BoxFormat, *, relative: bool, source: Size) -> NDArray[np.float64]:
    """Stored boxes as (left, top, right, bottom) in pixels: float64 (N, 4). One box of shape (4,) is a row.

    Args:
        value: Numbers (N, 4) or (4,), as an array, tensor or lists; none at all in any shape.
        box_format: What they are.
        relative: They are shares of the image's width and height.
        source: (height, width) of the image.

    Raises:
        DecodeError: They are not boxes of this format.
    """
    boxes = _numbers(value, "boxes")
    if boxes.shape == (4,) or not boxes.size:
        boxes = boxes.reshape(-1, 4)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise DecodeError(
            f"boxes must be of shape (N, 4), got {list(boxes.shape)}", hint="store a row of 4 numbers for each box"
        )
    start, end = boxes[:, :2], boxes[:, 2:]
    if box_format == "xywh":
        end = start + end
    elif box_format == "cxcywh":
        start, end = start - end / 2, start + end / 2
    edges = np.concatenate([start, end], axis=1)
    good = (edges[:, 2:] >= edges[:, :2]).all(1)  # not of NaN
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise DecodeError(
            f"box {row} is {boxes[row].tolist()}: no box of format {box_format!r}",
            hint="format= says how boxes are stored: 'xyxy' (VOC), 'xywh' (COCO) or 'cxcywh' (YOLO)",
        )
    if relative:
        edges *= (source[1], source[0], source[1], source[0])
    return edges


def moved(points: NDArray[np.float64], geometry: Geometry) -> NDArray[np.float64]:
    """Points (..., 2) of the source as points of the output."""
    (across, _, right), (_, down, below) = geometry.matrix
    return points * (across, down) + (right, below)


def _numbers(value: Any, what: str) -> NDArray[np.float64]:
    try:
        return np.asarray(value, np.float64)
    except (TypeError, ValueError) as error:
        raise DecodeError(f"{what} are not an array of numbers: {error}", hint="store numbers in rows") from error


@dataclass(frozen=True)
class _Following(Decoder):
    """Rows of numbers that follow an image."""

    like: str

    accepts: ClassVar[frozenset[str]] = frozenset({"array", "fixed", "tensor", "json", "msgpack"})

    @property
    def is_ragged(self) -> bool:
        return True


@dataclass(frozen=True)
class Boxes(_Following):
    """Boxes in pixels of the output image: float32 (n, 4), ``(left, top, right, bottom)``; `Ragged` in a batch.

    They are cut off at the edge of the output, and those of which too little is left vanish. `PerBox` keeps labels in
    step. Right is not left of left, so a detector of torchvision takes them as they are.

    Args:
        like: The image output that they follow.
        format: How they are stored: ``"xyxy"`` (Pascal VOC; its files count from 1), ``"xywh"`` (COCO) or
            ``"cxcywh"`` (YOLO), by torchvision's names.
        relative: They are stored as shares of the image's width and height (YOLO), not in pixels.
        min_side: A box of which less than this many output pixels is left, in width or height, vanishes. Empty boxes
            always do. Default: one pixel, as of torchvision's ``SanitizeBoundingBoxes``.
        min_visible: A box of whose area less than this share is left vanishes. Default 0: what is left of an object
            counts as the object, however little.
        source: See `Decoder`; arrays (N, 4), a tensor, or lists in JSON. Without boxes: an empty array.
        optional: See `Decoder`.

    Raises:
        DecodeError: What is stored are not boxes of this format.

        >>> fields = {"jpg": RandomResizedCrop(512), "boxes": Boxes(like="jpg"), "labels": PerBox(like="boxes")}
    """

    format: BoxFormat = "xyxy"
    relative: bool = False
    min_side: float = 1.0
    min_visible: float = 0.0

    def __post_init__(self) -> None:
        check_format(self.format)
        if not self.min_side >= 0:
            raise UsageError(f"min_side must be at least 0, got {self.min_side!r}", hint="give pixels of the output")
        if not 0 <= self.min_visible <= 1:
            raise UsageError(
                f"min_visible must be in [0, 1], got {self.min_visible!r}", hint="give a share of the box's area"
            )

    def apply(self, value: Any, context: SampleContext, *, name: str, stream: int, out: Out = None) -> Any:
        context.geometry[name] = plan = context.replayed(self.like)
        height, width = plan.source
        edges = corners(value, self.format, relative=self.relative, source=plan.source)
        whole = _cut(edges.reshape(-1, 2, 2), (height, width))
        # Sorted, since a flip exchanges left and right.
        placed = np.sort(moved(whole, plan), axis=1)
        left = _cut(placed, plan.output)
        sides = left[:, 1] - left[:, 0]
        visible = sides.prod(1) >= self.min_visible * (placed[:, 1] - placed[:, 0]).prod(1)
        rounded = left.astype(np.float32)  # which may leave nothing of a sliver
        there = (rounded[:, 1] > rounded[:, 0]).all(1)
        context.kept[name] = kept = there & (sides >= self.min_side).all(1) & visible
        return rounded[kept].reshape(-1, 4)


def _cut(boxes: NDArray[np.float64], size: Size) -> NDArray[np.float64]:
    """Boxes (N, 2, 2) cut off at the edges of a picture."""
    return boxes.clip(0, (size[1], size[0]))


@dataclass(frozen=True)
class PerBox(_Following):
    """The entries of a stored array that belong to the boxes that are left: labels, areas, ids; `Ragged` in a batch.

    Args:
        like: The `Boxes` output to keep in step with.
        dtype: Of the output. ``None``: the stored one, and int64 for lists.
        source: See `Decoder`; an array, a row of values or a tensor of as many entries as there are stored boxes, or a
            list in JSON.
        optional: See `Decoder`.

    Returns:
        (n, ...) of ``dtype``.

    Raises:
        DecodeError: There are more or fewer entries than boxes, or they are not numbers that this dtype can hold.

        >>> fields = {"jpg": Image(), "boxes": Boxes(like="jpg"), "labels": PerBox(like="boxes")}
    """

    dtype: DTypeLike | None = None

    accepts: ClassVar[frozenset[str]] = _Following.accepts | {VALUES}
    replays: ClassVar[str] = "an output of Boxes"

    def can_replay(self, base: Decoder) -> bool:
        return isinstance(base, Boxes)

    def apply(self, value: Any, context: SampleContext, *, name: str, stream: int, out: Out = None) -> Any:
        kept = _kept(context, self.like, len(value))
        entries = np.asarray(value)
        dtype = self.dtype
        if isinstance(value, list) and dtype is None:  # what a list holds differs from sample to sample: 1, then 0.5
            dtype = np.int64
            if entries.size and entries.dtype.kind not in "biu":
                raise DecodeError(
                    f"a list with {value[0]!r} holds no whole numbers",
                    hint='give PerBox(dtype="float32"), or turn names into numbers with a callable in front of it',
                )
        if dtype is None:
            return entries[kept]
        try:
            check_fit(entries, np.dtype(dtype))
        except FieldError as error:
            raise DecodeError(error.what, hint="give PerBox another dtype") from None
        return entries[kept].astype(dtype)


def _kept(context: SampleContext, like: str, entries: int) -> NDArray[np.bool_]:
    kept = context.kept.get(like)
    if kept is None:
        raise DecodeError(f"like={like!r}, but this sample has no {like!r}", hint="leave out such samples")
    if entries != len(kept):
        raise DecodeError(
            f"{entries} entries of {len(kept)} boxes in {like!r}", hint="store one entry a box, in their order"
        )
    return kept


@dataclass(frozen=True)
class Points(_Following):
    """Points in pixels of the output image: float32 of the stored shape (..., 2) or (..., 3); `Ragged` in a batch.

    What comes third in (x, y, v), as COCO's visibility of key points, stays as it is. No point is removed or moved to
    the edge: those outside of the image are the ones outside 0...W and 0...H. A flip does not exchange left and right
    *joints*; where `Placement` has a negative first element the picture was flipped.

    Args:
        like: The image output that they follow; or a `Boxes` output: then there is one entry for each box, those of
            the boxes that are left come out, and they follow the image of the boxes.
        relative: They are stored as shares of the image's width and height, not in pixels.
        source: See `Decoder`; an array, a tensor, or lists in JSON.
        optional: See `Decoder`.

    Raises:
        DecodeError: What is stored are not points.

        >>> fields = {"jpg": Image(), "boxes": Boxes(like="jpg"), "keypoints": Points(like="boxes")}
    """

    relative: bool = False

    replays: ClassVar[str] = "an image output, or one of Boxes"

    def can_replay(self, base: Decoder) -> bool:
        return base.is_image or isinstance(base, Boxes)

    def apply(self, value: Any, context: SampleContext, *, name: str, stream: int, out: Out = None) -> Any:
        plan = context.replayed(self.like)
        points = _numbers(value, "points")
        if points.shape == (0,):
            points = points.reshape(0, 2)
        if not points.ndim or points.shape[-1] not in (2, 3):
            raise DecodeError(f"points must be of shape (..., 2) or (..., 3), got {list(points.shape)}")
        if self.like in context.kept:
            points = points[_kept(context, self.like, len(points))]
        placed = points.astype(np.float32)
        at = points[..., :2] * ((plan.source[1], plan.source[0]) if self.relative else 1)
        placed[..., :2] = moved(at, plan)
        return placed
