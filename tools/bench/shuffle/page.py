"""The section of ``docs/shuffle.md``: tables, what was aimed at, and where others are better."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.report import MISSED, Outcome, markdown, versions
from bench.shuffle import equal
from bench.shuffle.settings import BATCH, CLASSES, WORKERS, Setting
from bench.shuffle.study import (
    EPOCHS,
    FULL,
    LARGE,
    OURS,
    PY1BR,
    PY1E,
    SIZES,
    SUCCESSIVE,
    WDS,
    Reached,
    measure,
    shufflers,
)

ENTROPY_BAR = 0.99  # of a full shuffle's, on data that was shuffled when it was written
CO_BATCH_BAR = 2.0  # on LARGE samples of SIZES[0]
HEADS = (
    "order",
    "among",
    "batch entropy, sorted data",
    f"of {SUCCESSIVE} batches",
    "batch entropy, write-shuffled",
    "co-batch ratio",
    "Kendall's tau",
    "displacement off by",
)
TAKING_PART = ("shardstream", "numpy", "webdataset", "mosaicml-streaming")


def run(document: Path) -> Outcome:
    """Measure everything, and give the section with its plots."""
    from bench.shuffle import plots  # needs matplotlib, which no other benchmark does

    reached: list[Reached] = []
    missing: dict[str, None] = {}
    for shuffler in shufflers():
        one = measure(shuffler)
        if one is None:
            missing[str(shuffler.needs)] = None
            continue
        print(f"  {_title(shuffler.setting)}: {shuffler.name}: co-batch ratio {one.co_batch:.2f}", flush=True)
        reached.append(one)
    notes = [*bars(reached), *better(reached), *(f"Left out: {package} is not installed." for package in missing)]
    tables = "".join(f"**{_title(setting)}**\n\n{table(rows)}\n" for setting, rows in _by_setting(reached))
    equal_table, equal_notes, equal_content = equal.section()
    tables += f"**{equal.SHARDS} shards of {equal.ROWS:,} samples each**\n\n{equal_table}\n"
    notes += equal_notes
    taking_part = ", ".join(f"{name} {number}" for name, number in versions(TAKING_PART).items())
    listed = "".join(f"- {note}\n" for note in notes)
    text = (
        f"{tables}{listed}\n"
        f"`tools/bench/run shuffle`: {EPOCHS} epochs, {CLASSES:,} classes, batches of {BATCH}, {WORKERS} workers. "
        f"{taking_part}; the machine has no part in it.\n"
    )
    missed = any(MISSED in note for note in notes)
    content = {"orders": [_content(one) for one in reached], "equal_shards": equal_content}
    return Outcome("shuffle", document, text, missed, content, partial(plots.draw, reached))


def table(rows: Sequence[Reached]) -> str:
    """One data set's orders; entropies as shares of those of the full shuffle, which comes first."""
    full = rows[0]
    lines: list[Sequence[str]] = [HEADS]
    for one in rows:
        cells = (
            one.shuffler.name,
            f"{one.shuffler.held:,}",
            f"{one.sorted_bits / full.sorted_bits:.1%}",
            f"{one.successive_bits / full.successive_bits:.1%}",
            f"{one.shuffled_bits / full.shuffled_bits:.1%}",
            f"{one.co_batch:.2f}" if one.co_batch < 10 else f"{one.co_batch:.0f}",
            f"{one.tau:.3f}",
            f"{one.distance:.3f}",
        )
        lines.append(cells)
    return markdown(lines)


def bars(reached: Sequence[Reached]) -> Iterator[str]:
    """What was aimed at, and whether the defaults reach it."""
    groups = {setting: _kinds(rows) for setting, rows in _by_setting(reached)}
    least = min(kinds[OURS].shuffled_bits / kinds[FULL].shuffled_bits for kinds in groups.values())
    yield (
        f"Bar: {ENTROPY_BAR:.0%} of a full shuffle's batch entropy on write-shuffled data; {OURS}, the least of all "
        f"data sets, {least:.1%}, {_verdict(least >= ENTROPY_BAR)}."
    )
    setting = Setting(LARGE, SIZES[0])
    ratio = groups[setting][OURS].co_batch
    yield (
        f"Bar: a co-batch ratio of {CO_BATCH_BAR:g} on {_title(setting)}; {OURS} {ratio:.2f}, "
        f"{_verdict(ratio <= CO_BATCH_BAR)}."
    )


def better(reached: Sequence[Reached]) -> Iterator[str]:
    """Where a peer that shuffles among equally many samples is better than ours."""
    for setting, rows in _by_setting(reached):
        kinds = _kinds(rows)
        ours, full = kinds[OURS], kinds[FULL]
        peers = [kinds[kind] for kind in (WDS, PY1E, PY1BR) if kind in kinds]
        ahead = [
            f"{peer.shuffler.name} in batch entropy on sorted data "
            f"({peer.sorted_bits / full.sorted_bits:.0%} to {ours.sorted_bits / full.sorted_bits:.0%})"
            for peer in peers
            if peer.sorted_bits > ours.sorted_bits
        ]
        ahead += [
            f"{peer.shuffler.name} in co-batch ratio ({peer.co_batch:.1f} to {ours.co_batch:.1f})"
            for peer in peers
            if peer.co_batch < ours.co_batch
        ]
        if ahead:
            yield f"Not better, {_title(setting)}: than {', '.join(ahead)}."


def _verdict(reached: bool) -> str:
    return "reached" if reached else MISSED


def _by_setting(reached: Sequence[Reached]) -> Iterator[tuple[Setting, list[Reached]]]:
    for setting, rows in groupby(reached, key=lambda one: one.shuffler.setting):
        yield setting, list(rows)


def _kinds(rows: Sequence[Reached]) -> dict[str, Reached]:
    return {one.shuffler.kind: one for one in rows if one.shuffler.kind}


def _title(setting: Setting) -> str:
    size = setting.sample_bytes / 1000
    return f"{setting.samples:,} samples of {f'{size / 1000:g} MB' if size >= 1000 else f'{size:g} KB'}"


def _content(one: Reached) -> dict[str, Any]:
    setting = one.shuffler.setting
    return {
        "order": one.shuffler.name,
        **asdict(setting),
        "among": one.shuffler.held,
        "sorted_bits": one.sorted_bits,
        "shuffled_bits": one.shuffled_bits,
        "successive_bits": one.successive_bits,
        "co_batch": one.co_batch,
        "tau": one.tau,
        "distance": one.distance,
    }
