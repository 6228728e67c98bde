"""What each worker is at, in words: for whoever waits too long for a batch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from shardstream.cgroups import is_frozen, own_groups
from shardstream.dataset.shared import WorkerState
from shardstream.sizes import plural
from shardstream.text import in_one_line

_LISTED = 32  # workers; those that are at work come first

_DOING = {
    "read": "reads",
    "decode": "decodes",
    "transform": "is in a transform",
    "assemble": "assembles a batch",
}


def workers_at(working: Sequence[tuple[WorkerState, dict[str, Any]]]) -> str:
    """A line for each worker: its stage, shard, sample and key, and the request that it waits for.

    Args:
        working: What each worker is at, with its place.

    Returns:
        Lines that each begin with a line break, or nothing where no worker has begun.
    """
    held = {state.process: _held(state.process) for state, _ in working}
    busy_first = sorted(working, key=lambda one: one[0].stage == "idle" and not held[one[0].process])
    lines = [f"\n  {_line(state, place, held[state.process])}" for state, place in busy_first[:_LISTED]]
    if len(working) > _LISTED:
        lines.append(f"\n  and {plural(len(working) - _LISTED, 'worker')} more")
    return "".join(lines)


def _held(process: int) -> str:
    """Why the system does not let a process run; empty if it does, or nothing says so."""
    with suppress(OSError, ValueError, IndexError):
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "T":
            return f"is stopped (SIGSTOP, SIGTSTP): `kill -CONT {process}` lets it go on"
        if state == "t":
            return "is stopped by a debugger"
        group = next(filter(is_frozen, own_groups("freezer", process=process)), None)
        if group is not None:
            return f"is frozen by its control group {group}"
    return ""


def _line(state: WorkerState, place: dict[str, Any], held: str) -> str:
    who = f"worker {state.worker} (process {state.process})"
    if held:
        return f"{who} {held}"
    if state.stage == "idle":
        return f"{who} has nothing to do, for {state.seconds:.0f} s: its batches are made, or nobody asked for any"
    text = f"{who} {_DOING[state.stage]}"
    if place:
        text += " at" if state.stage in ("transform", "assemble") else ""
        if state.row >= 0:
            text += f" sample {state.row}" + (f" (key {in_one_line(state.key)})" if state.key else "") + " of"
        text += f" {in_one_line(place['shard'])} in {in_one_line(place['url'])}"
    text += f", for {state.seconds:.0f} s"
    if state.url:
        more = f", and {state.requests - 1} more" if state.requests > 1 else ""
        text += (
            f"; it waits for {in_one_line(state.url)} (attempt {max(state.attempts, 1)}, "
            f"for {state.request_seconds:.0f} s{more})"
        )
    return text
