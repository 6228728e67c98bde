"""The table: rows are recipes, columns are libraries."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from bench.augment.contenders import BATCHES
from bench.augment.recipes import RECIPES, SIZE, WHOLE
from bench.harness import Contender, measure_alone
from bench.report import MISSED, PACKAGES, Outcome, circumstances, markdown, provenance, versions

ROUNDS = 3
BAR = 2.0
LINES = {
    "torchvision": "torchvision v2, image by image",
    "torchvision whole": "torchvision v2, one draw a batch",
    "kornia": "kornia",
    "shardstream": "**shardstream**",
}


def run(document: Path, rounds: int) -> Outcome:
    """Measure on the CPU, and on a GPU where there is one."""
    import torch

    where = circumstances()
    where["versions"] = {"python": where["versions"]["python"], **versions((*PACKAGES, "kornia"))}
    sections, content, busy, missed = [], {}, 0.0, False
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        contenders = [
            Contender(
                kind,
                "bench.augment.contenders:rates",
                {"kind": kind, "device": device},
                needs=None if kind == "shardstream" else kind.split()[0],
            )
            for kind in LINES
        ]
        figures, busy = measure_alone([one for one in contenders if not one.absent], rounds)
        table, below = _table(figures)
        missed |= below and device == "cpu"
        name = "one thread of the CPU" if device == "cpu" else torch.cuda.get_device_name()
        sections.append(
            f"On {name}, batches of {BATCHES[device][0]}{', by processor time' if device == 'cpu' else ''}:\n\n{table}"
        )
        content[device] = figures
    if "kornia" in content["cpu"]:
        sections.append(f"- Bar: {BAR:g} × kornia in the last two on the CPU, {MISSED if missed else 'reached'}.\n")
    origin = provenance(where, f"tools/bench/run augment --rounds {rounds}", busy, f"{rounds} rounds")
    text = "\n".join([TEXT, *sections, origin])
    return Outcome("augment", document, text, missed, {**where, "rounds": content})


def _table(figures: dict[str, list[dict[str, float]]]) -> tuple[str, bool]:
    """The table of a device, and whether a recipe is below the bar."""
    kinds = [kind for kind in LINES if kind in figures]
    others = [kind for kind in kinds if kind != "shardstream"]
    rows = [["images/s", *(LINES[kind] for kind in kinds), *(f"ratio to {_short(kind)}" for kind in others)]]
    below, slower = False, []
    for recipe in RECIPES:
        cells = [f"{median(one[recipe] for one in figures[kind]):,.0f}" for kind in kinds]
        for kind in others:
            pairs = zip(figures["shardstream"], figures[kind], strict=True)
            ratios = sorted(mine[recipe] / theirs[recipe] for mine, theirs in pairs)
            cells.append(f"{median(ratios):.1f} ({ratios[0]:.1f}–{ratios[-1]:.1f})")
            below |= kind == "kornia" and recipe in WHOLE and median(ratios) < BAR
            if median(ratios) < 1:
                slower.append(f"{LINES[kind]} in {recipe} ({median(ratios):.1f} ×)")
        rows.append([recipe, *cells])
    note = f"\n- Not faster: shardstream than {', than '.join(slower)}.\n" if slower else ""
    return markdown(rows) + note, below


def _short(kind: str) -> str:
    return {"torchvision": "image by image", "torchvision whole": "one draw"}.get(kind, kind)


TEXT = f"""\
# Augmentation of batches

uint8 batches of {SIZE} × {SIZE} pixels, channels last, to normalised float32; each recipe ends with the normalisation.
*Image by image* is what workers do: torchvision v2 on each uint8 image, then `torch.stack`. *One draw a batch* is
torchvision v2 on the batch: every image gets the same flip, factors and rectangle, so it is another augmentation.
Kornia and shardstream draw for every sample; kornia from float32 made of the batch first. Torchvision and kornia give
the images channels first in memory, shardstream channels last. Kornia draws mixup and cutmix for the batch, λ for each
sample.
"""
