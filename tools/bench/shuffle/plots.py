"""The plots of ``docs/shuffle.md``: SVG that reads on light and dark pages, the same bytes from the same figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Line

from bench.drawing import INK, STYLE, save
from bench.shuffle.settings import Setting
from bench.shuffle.study import FINE, FULL, LARGE, OURS, PY1BR, PY1E, SIZES, WDS, Reached
from shardstream.pack.plan.permute import Permutation

# Told apart by their marks, too.
_LOOKS = {
    FULL: ("#768390", "", "full shuffle"),
    OURS: ("#3b82f6", "o", "shardstream"),
    WDS: ("#d9772b", "s", "WebDataset"),
    PY1E: ("#2a9d6f", "^", "Streaming py1e"),
    PY1BR: ("#b05cc6", "v", "Streaming py1br"),
    FINE: ("#3b82f6", "D", "shardstream, chunk 1"),
}
_POINTS = 300
_BINS = 40


def draw(reached: Sequence[Reached], folder: Path) -> list[Path]:
    """Write all plots.

    Args:
        reached: What was measured; those without a kind are left out.
        folder: Where the files go.

    Returns:
        The files.
    """
    chosen = [one for one in reached if one.shuffler.kind and one.shuffler.setting.samples == LARGE]
    with mpl.rc_context(STYLE):
        return [_sizes(chosen, folder / "shuffle-sizes.svg"), _places(chosen, folder / "shuffle-places.svg")]


def _sizes(reached: Sequence[Reached], path: Path) -> Path:
    """Class entropy and co-batch ratio against the size of a sample."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9.2, 3.7), layout="constrained")
    full = {one.shuffler.setting: one for one in reached if one.shuffler.kind == FULL}
    for kind, (colour, mark, label) in _LOOKS.items():
        mine = {one.shuffler.setting.sample_bytes: one for one in reached if one.shuffler.kind == kind}
        look: dict[str, Any] = {"color": colour, "marker": mark, "label": label, "linewidth": 1.6, "markersize": 6}
        if kind == FULL:
            look |= {"linestyle": (0, (4, 3)), "linewidth": 1.2}
        if kind == FINE:
            look |= {"linestyle": ":", "markersize": 4.5, "markerfacecolor": "none"}
        at = [SIZES.index(size) for size in mine]
        left.plot(at, [100 * one.sorted_bits / full[one.shuffler.setting].sorted_bits for one in mine.values()], **look)
        right.plot(at, [one.co_batch for one in mine.values()], **look)
    for axes in (left, right):
        axes.set_xticks(range(len(SIZES)), ["55 KB", "110 KB", "1 MB", "4 MB"])
        axes.set_xlabel("size of a sample")
        axes.grid(axis="y", color=INK, alpha=0.25, linewidth=0.6)
    left.set_ylim(0, 105)
    left.set_title("Class entropy of a batch, data sorted by class,\n% of a full shuffle", loc="left")
    right.set_yscale("log")
    right.set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    right.minorticks_off()
    right.set_title("Co-batch ratio: how often samples of one batch\nmeet again, full shuffle = 1", loc="left")
    legend = left.get_legend_handles_labels()
    figure.legend(*legend, loc="outside lower center", ncols=3, columnspacing=3)
    return save(figure, path)


def _places(reached: Sequence[Reached], path: Path) -> Path:
    """Where samples of 55 KB lie on disk against when they come, and the distribution of the difference."""
    setting = Setting(LARGE, SIZES[0])
    chosen = {one.shuffler.kind: one for one in reached if one.shuffler.setting == setting}
    kinds = [kind for kind in _LOOKS if kind in chosen and kind != FINE]
    figure, rows = pyplot.subplots(
        2, len(kinds), figsize=(9.2, 4.0), layout="constrained", sharex="row", sharey="row", squeeze=False
    )
    edges = np.linspace(0, 1, _BINS + 1)
    for kind, above, below in zip(kinds, rows[0], rows[1], strict=True):
        colour, _, label = _LOOKS[kind]
        one = chosen[kind]
        come = Permutation(setting.samples, seed=0)(np.arange(_POINTS))  # even steps would keep time with the lanes
        above.add_patch(_dots(come / setting.samples, one.first[come] / setting.samples, colour))
        above.set(xlim=(0, 1), ylim=(0, 1), xticks=[0, 1], yticks=[0, 1], aspect="equal")
        above.set_title(label, loc="left")
        density, _ = np.histogram(one.shares, edges, density=True)
        below.stairs(density, edges, color=colour, fill=True, alpha=0.55, linewidth=0)
        below.plot([0, 1], [2, 0], color=INK, linestyle=(0, (4, 3)), linewidth=1.2)
        below.set(xlim=(0, 1), xticks=[0, 0.5, 1], ylim=(0, 2.6), yticks=[0, 1, 2])
    rows[0][0].set_ylabel("place on disk")
    rows[1][0].set_ylabel("density")
    rows[0][len(kinds) // 2].set_xlabel("place in the epoch")
    rows[1][len(kinds) // 2].set_xlabel("|place in the epoch – place on disk|, as a share of the data set")
    return save(figure, path)


def _dots(x: Any, y: Any, colour: str) -> PathPatch:
    """Points as one path: a tenth of the bytes that a mark each takes."""
    corners = np.repeat(np.column_stack([x, y]), 2, axis=0)
    corners[1::2, 0] += 1e-3  # not every viewer draws the round ends of a line without length
    dots = Line(corners, [Line.MOVETO, Line.LINETO] * len(x))
    return PathPatch(dots, facecolor="none", edgecolor=colour, linewidth=2.2, capstyle="round")
