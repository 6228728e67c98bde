"""The picture of ``memory``."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot

from bench.drawing import INK, STYLE, save
from bench.stream.memory import BUDGETS, MORE_MB, Curves

_COLOURS = ("#3b82f6", "#d9772b", "#2a9d6f", "#b05cc6")
_POINTS = 250  # of a curve: stretches are drawn by the most in them


def draw(curves: Curves, folder: Path) -> Path:
    """Write it.

    Args:
        curves: By case, by worker: seconds and MB.
        folder: Where the file goes.
    """
    with mpl.rc_context(STYLE):
        figure, rows = pyplot.subplots(1, len(curves), figsize=(12, 3.4), layout="constrained", squeeze=False)
        for axes, (case, workers) in zip(rows[0], curves.items(), strict=True):
            for colour, (number, curve) in zip(_COLOURS, workers.items(), strict=False):
                step = max(1, len(curve) // _POINTS)
                parts = [curve[i : i + step] for i in range(0, len(curve), step)]
                times = [part[0][0] for part in parts]
                held = [max(value for _, value in part) for part in parts]
                axes.plot(times, held, color=colour, linewidth=1.4, label=f"worker {number}")
            budget = BUDGETS[case]
            for level, label in ((budget, "budget"), (budget + MORE_MB, f"budget + {MORE_MB} MB")):
                axes.axhline(level, color=INK, linestyle=(0, (4, 3)), linewidth=1)
                axes.annotate(label, (0, level), (3, 3), textcoords="offset points", fontsize=8)
            axes.set_title(case, loc="left")
            axes.set_xlabel("seconds")
            axes.set_ylim(0, 1.15 * (budget + MORE_MB))
            axes.set_xlim(left=0)
        rows[0][0].set_ylabel("private memory, MB")
        rows[0][0].legend(loc="lower right")
        return save(figure, folder / "stream-memory.svg")
