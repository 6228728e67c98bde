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
quick = bench("race.quick")
data = bench("data")
machine = bench("machine")
report = bench("report")

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


def test_a_processor_has_a_table_with_bars_of_its_own():
    rows = {}
    for pair in quick.PAIRS:
        for name, speed in ((pair.ours, 180), (pair.theirs, 100)):
            row = harness.Row(harness.Contender(name, "module:function"))
            row.rounds = [{"images/s": speed}, {"images/s": speed * 2}]
            rows[pair.work, name] = row
    rows["tokens", lines.FFCV].problem = "ffcv is not installed"
    text = quick.section(rows, "Intel Xeon", ["AVX-512", "AVX2"], {"ffcv": "cannot be installed"}, "origin\n")
    assert text.startswith("## Intel Xeon\n\nAVX-512, AVX2.\n")
    assert f"| 270 images/s | {THEIRS} | 150 images/s | 1.80 × (1.80–1.80) | ≥ 1.75 × | reached |" in text
    assert "| ffcv is not installed |  | ≥ 0.8 × | not measured |" in text
    assert "- Left out: ffcv cannot be installed.\n" in text
    assert f"| {THEIRS} | 150 images/s | 1.80 × (1.80–1.80) | ≥ 2.5 × | **missed** |" in quick.section(
        rows, "AMD EPYC", [], {}, ""
    )


def test_lines_of_the_table_are_lines_of_the_race(tmp_path, monkeypatch):
    def made(_, *names):
        return {name: tmp_path / name for name in (*names, "addressable", "kept")}

    monkeypatch.setattr(quick.prepared, "photographs", made)
    monkeypatch.setattr(quick.prepared, "small", lambda kind, _, *names: dict.fromkeys((*names, "ours"), tmp_path))
    works = quick._works(data.Corpus(tmp_path, 256))
    assert {work: {line.contender.name for line in those} for work, those in works.items()} == {
        pair.work: {name for other in quick.PAIRS if other.work == pair.work for name in (other.ours, other.theirs)}
        for pair in quick.PAIRS
    }
    assert all(those[0].contender.ours for those in works.values())
    assert all(line.contender.options["store"].startswith(str(tmp_path)) for those in works.values() for line in those)


def test_a_run_says_how_fast_memory_was_copied_and_whether_others_disturbed_it(monkeypatch):
    where = report.circumstances()
    assert "GB/s" not in report.provenance(where, "command", 0.0, "data")
    calm = report.provenance({**where, "memory": ({1: 8.0, 2: 10.0}, {1: 8.1, 2: 9.9})}, "command", 0.0, "data")
    assert "8.0 GB/s before and 8.1 GB/s after by 1 process and 10.0 GB/s before and 9.9 GB/s after by 2 pr" in calm
    assert "disturbed" not in calm
    busy = report.provenance({**where, "memory": ({1: 8.0, 2: 10.0}, {1: 8.0, 2: 7.0})}, "command", 0.0, "data")
    assert "**others disturbed this run**" in busy
    monkeypatch.syspath_prepend(str(TOOLS))  # for the process that copies
    assert 0.1 < machine._copied_by(1) < 1000


def test_a_section_that_a_page_lacks_comes_behind_the_others(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# By processor\n")
    for name, text in (("one", "1\n"), ("two", "2\n"), ("one", "3\n")):
        report.replace_section(page, name, text)
    assert [line for line in page.read_text().splitlines() if line.isdigit()] == ["3", "2"]
