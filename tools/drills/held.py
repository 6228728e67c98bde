"""The picture of what the processes of drills held: ``python -m drills.held FILE.svg .bench/haul/*.jsonl``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from bench.drawing import STYLE, save
from matplotlib import pyplot

from drills.processes.watch import Held, settled, usual

_COLOURS = ("#3b82f6", "#d9772b", "#2a9d6f", "#b05cc6")
_KINDS = (("private", "private memory, MB", 1e-6), ("threads", "threads", 1.0), ("descriptors", "descriptors", 1.0))


def read(path: Path) -> list[Held]:
    """What was seen of as many processes as there mostly were."""
    return usual([Held(**json.loads(line)) for line in path.read_text().splitlines()])


def draw(paths: Sequence[Path], to: Path) -> Path:
    """Write it: a column a kind of thing held, a line a file, with the straight line that drills judge."""
    with mpl.rc_context(STYLE):
        figure, (row,) = pyplot.subplots(1, len(_KINDS), figsize=(12, 3.2), layout="constrained", squeeze=False)
        for colour, path in zip(_COLOURS, paths, strict=False):
            held = read(path)
            minutes = np.array([one.seconds for one in held]) / 60
            kept = slice(len(held) - len(settled(held)), None)
            for axes, (name, title, unit) in zip(row, _KINDS, strict=True):
                values = np.array([getattr(one, name) for one in held]) * unit
                slope, start = np.polyfit(minutes[kept], values[kept], 1)
                ends = minutes[kept][[0, -1]]
                change = slope * (ends[1] - ends[0]) / (start + slope * ends[0])
                axes.plot(minutes, values, color=colour, linewidth=0.8, alpha=0.6)
                axes.plot(ends, start + slope * ends, color=colour, linewidth=1.6, label=f"{path.stem}: {change:+.1%}")
                axes.set_title(title, loc="left")
                axes.set_xlabel("minutes")
        for axes in row:
            axes.set_ylim(0, 1.35 * axes.get_ylim()[1])
            axes.set_xlim(left=0)
            axes.legend(loc="upper right", fontsize=8)
        return save(figure, to)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("to", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    given = parser.parse_args()
    draw(given.files, given.to)
