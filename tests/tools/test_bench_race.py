"""What the verdicts of the race rest on: who is held against whom, by which ratio."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def bench(name: str) -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOOLS))
        return importlib.import_module(f"bench.{name}")


harness = bench("harness")
lines = bench("race.lines")
bars = bench("race.bars")
page = bench("race.page")

OURS, THEIRS = lines.ADDRESSABLE, "FFCV, the same files"


def measured(name, peer, *speeds, private=0, problem=""):
    contender = harness.Contender(name, "module:function", ours=peer == lines.OURS)
    row = harness.Row(contender, problem=problem)
    row.rounds = [{"images/s": speed} for speed in speeds]
    row.private = [private for _ in speeds]
    row.memory = [2 * private for _ in speeds]
    return bars.Measured(lines.Line(peer, contender, "accurate · antialiased"), row)


@pytest.fixture
def race():
    return [
        measured(OURS, lines.OURS, 200, 300, 400, private=30_000_000),
        measured(THEIRS, lines.FFCV, 100, 100, 100, private=100_000_000),
        measured("FFCV, files encoded anew", lines.FFCV, 100, 200, 200, private=50_000_000),
        measured("DALI, CPU, fastest", lines.DALI, problem="nvidia.dali is not installed"),
    ]


def test_a_bar_is_held_against_every_line_of_its_peers_round_by_round(race):
    found = list(bars.held_against(bars.Bar(OURS, 2.0, (lines.FFCV,)), race))
    assert found == [(OURS, THEIRS, 3.0), (OURS, "FFCV, files encoded anew", 2.0)]


def test_without_peers_it_is_held_against_the_fastest(race):
    assert list(bars.held_against(bars.Bar(lines.OURS, 1.5), race)) == [(OURS, "FFCV, files encoded anew", 2.0)]


def test_what_was_not_measured_is_no_verdict(race):
    assert list(bars.held_against(bars.Bar(OURS, 2.5, (lines.DALI,)), race)) == [(OURS, "DALI, CPU, fastest", None)]
    found = list(bars.held_against(bars.Bar(lines.KEPT, 1.3, (lines.FFCV,)), race))
    assert [ratio for _, _, ratio in found] == [None, None]


def test_the_section_has_each_line_and_each_verdict(race):
    work = bars.Work("crop", "RandomResizedCrop", "images/s", [one.line for one in race], bars.CROP)
    text = page.section([(work, race)], {"spdl": "cannot be installed (no network)"}, "origin\n")
    assert f"| **{OURS}** | accurate · antialiased | 300 |  | 30 | 60 |" in text
    assert f"| {THEIRS} | accurate · antialiased | 100 | 3.00 × (2.00–4.00) | 100 | 200 |" in text
    assert "| DALI, CPU, fastest | accurate · antialiased | nvidia.dali is not installed |" in text
    assert f"| RandomResizedCrop | {OURS} | {THEIRS} | ≥ 2 × | 3.00 | reached |" in text
    assert f"| RandomResizedCrop | {OURS} | DALI, CPU, fastest | ≥ 2.5 × |  | not measured |" in text
    assert f"| Private memory | {OURS} | FFCV, files encoded anew | < 0.5 × | 0.60 | **missed** |" in text
    assert "- Left out: spdl cannot be installed (no network)." in text
    assert text.endswith("origin\n")
