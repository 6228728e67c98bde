"""What was measured, cell by cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from bench.foreign.corpora import Kind, python_of
from bench.harness import Contender, ContenderError, busy_share, run_fresh

What: TypeAlias = tuple[str, str, Kind]
"""What is measured, of which format and samples."""


@dataclass
class Cell:
    """One measurement.

    Attributes:
        rounds: Each round's figures.
        delivered: What was delivered.
        problem: Why there are no figures.
    """

    rounds: list[dict[str, float]] = field(default_factory=list)
    delivered: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""

    @property
    def absent(self) -> str:
        """Why there are no figures; empty where there are."""
        return self.problem or ("" if self.rounds else "not measured")

    def values(self, figure: str) -> list[float]:
        """A figure in each round; empty where there is a problem."""
        return [] if self.problem else [one[figure] for one in self.rounds]


@dataclass
class Measured:
    """All cells.

    Attributes:
        cells: By what they are of.
        busy: Share of the machine that others used just before each run.
    """

    cells: dict[What, Cell] = field(default_factory=dict)
    busy: list[float] = field(default_factory=list)

    def __getitem__(self, key: What) -> Cell:
        return self.cells.setdefault(key, Cell())

    def run(self, key: What, call: str, options: Mapping[str, Any]) -> None:
        """One more round of a cell, in a process of its own; none where there was a problem before."""
        cell = self[key]
        if cell.problem:
            return
        self.busy.append(busy_share())
        _, name, _ = key
        contender = Contender(" ".join(key), f"bench.foreign.{call}", options, python=python_of(name))
        try:
            result, _ = run_fresh(contender)
        except ContenderError as error:
            cell.problem = str(error)
            print(f"  {' '.join(key)}: {error}", flush=True)
            return
        cell.rounds.append(result["figures"])
        cell.delivered = result["delivered"]
        told = "  ".join(f"{value:,.2f} {title}" for title, value in result["figures"].items())
        print(f"  {' '.join(key)}: {told}", flush=True)
