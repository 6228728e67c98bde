"""How plots look: SVG that reads on light and dark pages, the same bytes from the same figures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from matplotlib import pyplot

INK = "#768390"  # of middle brightness, so that one file serves both backgrounds
STYLE = {
    "svg.hashsalt": "shardstream",
    "svg.fonttype": "none",
    "path.simplify": False,
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 9.5,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
}


def save(figure: Any, path: Path) -> Path:
    """Write a figure and give the file."""
    figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    text = re.sub(r"(?<= )(-?\d+\.\d\d)\d+", r"\1", path.read_text())  # a hundredth of a point is enough
    path.write_text("".join(f"{line.rstrip()}\n" for line in text.splitlines()))
    return path
