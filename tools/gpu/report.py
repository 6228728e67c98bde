"""The report: a JSON file that grows by a part at a time, and the same as a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read(path: Path) -> list[dict[str, Any]]:
    """Results that a report has by now."""
    if not path.exists():
        return []
    found: list[dict[str, Any]] = json.loads(path.read_text())["results"]
    return found


def append(path: Path, result: dict[str, Any]) -> None:
    """Add a part's result, and write the tables anew beside it (``.md``)."""
    results = [*read(path), result]
    path.write_text(json.dumps({"results": results}, indent=1) + "\n")
    path.with_suffix(".md").write_text(tables(results))


def tables(results: list[dict[str, Any]]) -> str:
    """Of each part the last result: its rows, and what it said besides."""
    last = {result["part"]: result for result in results}
    return "\n".join(_section(result) for result in last.values())


def _section(result: dict[str, Any]) -> str:
    lines = [f"## {result['title']}\n", f"{result['machine']}; {result['status']}, {result['seconds']:.0f} s.\n"]
    rows = result["rows"]
    if rows:
        aims = any(row["aim"] for row in rows)
        lines += ["| what | found | aim |", "|---|---|---|"] if aims else ["| what | found |", "|---|---|"]
        for row in rows:
            found = f"**{row['found']}**" if row["failed"] else row["found"]
            cells = [row["what"], found, *([row["aim"]] if aims else [])]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    if result["said"]:
        lines.append(f"```text\n{result['said'].strip()}\n```\n")
    return "\n".join(lines)
