"""A language model trained straight through, and killed and gone on with by other ranks; see ``tools/drills/ranks``."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tests.recipes.driving import Recipe, of_all_ranks

STRAIGHT = 2  # ranks
TURNS = ((2, 150), (3, 180), (1, 0))  # ranks, and the steps of an epoch after which they are killed; 0: never
EARLY, CLOSE, FAR = 150, 1e-4, 5e-3  # until which step losses differ by how much at most, and behind it

Losses = dict[int, float]
"""By step."""


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draw", type=Path, metavar="FILE.svg", help="a picture of the losses; needs matplotlib")
    given = parser.parse_args()
    shutil.rmtree(given.folder, ignore_errors=True)
    given.folder.mkdir(parents=True)
    if given.draw is not None and find_spec("matplotlib") is None:
        parser.error("--draw needs matplotlib")

    def train(turn: str, run: str, ranks: int, kill_at: int) -> tuple[list[tuple[int, list[str]]], Losses]:
        recipe = Recipe("train_gpt", workers=(1, 1), ranks=(ranks, ranks), killed=kill_at)
        said = recipe.run(given.folder / turn, [str(given.folder / run)], 0, kill=kill_at > 0)
        found = {int(step): float(loss) for step, loss in re.findall(r"step (\d+)  loss (\d+\.\d+)", said)}
        print(f"{turn}: {ranks} ranks, steps {min(found)} to {max(found)}", flush=True)
        return of_all_ranks(given.folder / turn), found

    expected, straight = train("straight", "one", STRAIGHT, 0)
    seen: list[tuple[int, list[str]]] = []
    parts: list[tuple[int, Losses]] = []
    for number, (ranks, kill_at) in enumerate(TURNS):
        saved = max(parts[-1][1]) if parts else 0
        steps, found = train(f"turn-{number}", "two", ranks, kill_at)
        seen = seen[:saved] + steps
        parts.append((ranks, found))
    return judged(expected, straight, seen, parts, given.draw)


def judged(
    expected: Sequence[tuple[int, list[str]]],
    straight: Losses,
    seen: Sequence[tuple[int, list[str]]],
    parts: Sequence[tuple[int, Losses]],
    draw: Path | None,
) -> int:
    """Compare batches and losses; exit status."""
    resumed = {step: loss for _, part in parts for step, loss in part.items()}
    apart = {step: abs(loss - straight[step]) for step, loss in resumed.items()}
    early, late = (max(gap for step, gap in apart.items() if (step <= EARLY) is first) for first in (True, False))
    same = list(seen) == list(expected)
    print(f"batches of {len(expected):,} steps: {'the same' if same else 'NOT THE SAME'}")
    print(f"losses differ by at most {early:.5f} until step {EARLY}, {late:.5f} behind it")
    if draw is not None:
        picture(straight, parts, apart, draw)
    wrong = not same or resumed.keys() != straight.keys() or early > CLOSE or late > FAR
    print("not as it should be" if wrong else "all as it should be")
    return int(wrong)


def picture(straight: Losses, parts: Sequence[tuple[int, Losses]], apart: Losses, to: Path) -> None:
    """Losses of both, and how far they are apart."""
    import matplotlib as mpl
    from bench.drawing import STYLE, save
    from matplotlib import pyplot

    with mpl.rc_context(STYLE):
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 3.6), layout="constrained")
        left.plot(
            *zip(*straight.items(), strict=True), color="#9ca3af", linewidth=4, label=f"{STRAIGHT} ranks, straight"
        )
        for colour, (ranks, part) in zip(("#3b82f6", "#d9772b", "#2a9d6f"), parts, strict=True):
            left.plot(*zip(*part.items(), strict=True), color=colour, label=f"{ranks} rank{'s' if ranks > 1 else ''}")
        left.set(title="loss", xlabel="step")
        left.legend()
        right.semilogy(list(apart), [max(gap, 1e-6) for gap in apart.values()], color="#3b82f6")
        right.axhline(CLOSE, color="#9ca3af", linewidth=0.8)
        right.set(title="how far losses are apart", xlabel="step")
        save(figure, to)


if __name__ == "__main__":
    raise SystemExit(main())
