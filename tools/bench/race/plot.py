"""The picture of the race."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot

from bench.drawing import INK, STYLE, save
from bench.race.lines import OURS
from bench.race.page import CHART, Results

_COLOURS = {True: "#3b82f6", False: "#9aa7b3"}
_INCHES = 0.24  # of a bar


def draw(results: Results, folder: Path) -> Path:
    """Write it: a panel for each work with peers, the fastest at the top.

    Args:
        results: What each line of each work reached.
        folder: Where the file goes.
    """
    panels = [
        (work, sorted((one for one in measured if one.speeds), key=lambda one: one.speed))
        for work, measured in results
        if work.bars
    ]
    with mpl.rc_context(STYLE):
        heights = [len(bars) + 2 for _, bars in panels]
        size = (9, _INCHES * sum(heights))
        figure, rows = pyplot.subplots(
            len(panels), 1, figsize=size, layout="constrained", squeeze=False, height_ratios=heights
        )
        for (axes,), (work, bars) in zip(rows, panels, strict=True):
            colours = [_COLOURS[one.line.peer == OURS] for one in bars]
            drawn = axes.barh([one.name.replace("`", "") for one in bars], [one.speed for one in bars], color=colours)
            axes.bar_label(drawn, [f"{one.speed:,.0f}" for one in bars], padding=3, color=INK, fontsize=8)
            axes.set_title(f"{work.title}, {work.unit}", loc="left")
            axes.tick_params(axis="y", length=0)
            axes.xaxis.set_visible(False)
            axes.spines["bottom"].set_visible(False)
            axes.margins(x=0.1, y=0.02)
        return save(figure, folder / CHART)
