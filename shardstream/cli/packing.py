"""What the verbs that write data sets share: progress, the report, a transform by its name."""

from __future__ import annotations

import operator
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import typer

from shardstream.cli.report import Exit, duration, plural, print_json, print_row, size, stderr, stdout
from shardstream.dataset.image_field import virtual_image
from shardstream.errors import UsageError
from shardstream.faults import FAULT_KINDS
from shardstream.pack.dry_run import DryRun
from shardstream.pack.output.report import PackReport
from shardstream.progress import OnProgress, ProgressEvent
from shardstream.text import in_one_line

_JSON_EVERY_S = 10.0
_SHOWN_REASONS = 10


def _format_kinds(kinds: Mapping[str, int]) -> str:
    kept = [f"{count:,} {kind}" for kind, count in kinds.items() if kind != "addressable"]
    found = [] if kinds.keys() <= set(FAULT_KINDS) else [f"{kinds.get('addressable', 0):,} addressable"]
    return "; ".join(found + ([f"kept as they are: {', '.join(kept)}"] if kept else []))


def load_function(name: str, flag: str = "--transform") -> Callable[[Any], Any]:
    """The function that a flag names as MODULE:NAME; UsageError."""
    module, colon, function = name.partition(":")
    if not colon:
        raise UsageError(f"{flag} wants MODULE:NAME", hint=f"{flag} my_module:shrink, for my_module.py here")
    sys.path.insert(0, os.getcwd())  # workers get the path too
    try:
        found: Any = operator.attrgetter(function)(import_module(module))
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{flag}: {error}", hint="modules are looked for here and where Python finds them") from error
    return found  # type: ignore[no-any-return] # what it is, PackOptions checks


@contextmanager
def kept_when_interrupted() -> Iterator[None]:
    """Say that an interrupted run can go on."""
    try:
        yield
    except KeyboardInterrupt:
        stderr().print("finished shards are kept: the same command goes on from there")
        raise


def json_lines() -> OnProgress:
    """A function that prints events as lines of JSON for schedulers, now and then."""
    started = printed = time.monotonic()

    def tell(now: ProgressEvent) -> None:
        nonlocal printed
        if time.monotonic() - printed < _JSON_EVERY_S:
            return
        printed = time.monotonic()
        seconds = printed - started
        tally = now.tally
        done = tally.done - now.kept
        print_json(
            {
                "event": "progress",
                "stage": now.phase,
                "seconds": round(seconds, 3),
                "total": now.total,
                "kept": now.kept,
                "samples": tally.samples,
                "rejects": tally.rejects,
                "dropped": tally.dropped,
                "samples_per_second": round(done / seconds, 1),
                "megabytes_per_second": round(tally.bytes / seconds / 1e6, 1),
                "seconds_left": round((now.total - now.done) * seconds / done, 1) if done else None,
                "bottleneck": tally.bottleneck and tally.bottleneck[0],
            }
        )
        sys.stdout.flush()

    return tell


def _as_json(report: PackReport) -> dict[str, Any]:
    manifest = report.manifest
    return {
        "event": "done",
        "url": manifest.url,
        "already_complete": report.complete,
        "samples": manifest.samples,
        "shards": manifest.shards,
        "bytes": manifest.bytes,
        "fields": {name: str(kind) for name, kind in manifest.fields.items()},
        "classes": None if manifest.classes is None else len(manifest.classes),
        "bins": manifest.bins and manifest.bins.entry,
        "kinds": {name: dict(kinds) for name, kinds in manifest.kinds.items()},
        "rejects": report.rejects,
        "lost_files": report.lost_files,
        "uncounted_files": report.uncounted_files,
        "rejects_url": report.rejects_url,
        "reject_kinds": dict(report.fault_kinds),
        "reject_reasons": dict(report.reasons),
        "damaged": report.damaged,
        "stored_faults": report.stored_faults,
        "dropped": report.tally.dropped,
        "duplicates": report.duplicates,
        "kept_shards": report.kept,
        "read_bytes": report.tally.bytes,
        "notes": list(report.notes),
        "plan": manifest.plan,
        "fingerprint": manifest.fingerprint,
        "seconds": round(report.seconds, 3),
    }


def _spread(sizes: Mapping[int, int]) -> str:
    """The sizes of the samples between which most lie: a tenth of them are smaller, a tenth are larger."""
    total, low, high, seen = sum(sizes.values()), None, 0, 0
    for exponent, count in sorted(sizes.items()):
        seen += count
        if low is None and seen > total / 10:
            low = exponent
        if high == 0 and seen >= total * 9 / 10:
            high = exponent + 1
    return f"most are of {size(1 << (low or 0))} to {size(1 << high)}"


def print_dry_run(found: DryRun, source: str, dest: str) -> None:
    """What a run would do, for people."""
    out = stdout()
    for note in found.notes:
        stderr().print(f"note: {note}")
    if found.samples is None:
        known = "not counted before all is read: it can only be read in order"
        rows = [("source", f"{source}: {known}")]
    else:
        rows = [("source", f"{source}: {plural(found.samples, 'sample')}")]
    rows.append(("fields", ", ".join(f"{name} ({kind})" for name, kind in found.fields.items()) or "none"))
    if found.classes is not None:
        more = ", ..." if len(found.classes) > _SHOWN_REASONS else ""
        names = ", ".join(map(in_one_line, found.classes[:_SHOWN_REASONS]))
        rows.append(("classes", f"{len(found.classes):,}: {names}{more}"))
    elif found.labels is not None:
        rows.append(("labels", f"{found.labels[0]:,} to {found.labels[1]:,}, in the samples looked at"))
    if found.shards is not None and found.bytes is not None:
        each = size(found.bytes / found.shards)
        rows.append(("shards", f"{found.shards:,}, of about {each}; {size(found.bytes)} in all"))
    share = "" if found.samples is None or not found.rejected else f", so about {_part(found):,} of all"
    rows.append(("rejects", f"{found.rejected:,} of {plural(found.probed, 'sample')} looked at{share}"))
    rows += [("", f"line {one.line}, {in_one_line(one.path)}: {one.reason}") for one in found.rejects]
    if found.seconds is not None:
        by = plural(found.workers, "process", "processes")
        rows.append(("time", f"about {duration(found.seconds)} by {by}; most of it is {found.stage}"))
    rows.append(("dest", f"{dest}: {_state(found)}"))
    for name, text in rows:
        print_row(name, text, 12)
    out.print("nothing was written; next: the same command without --dry-run")


def _part(found: DryRun) -> int:
    return round((found.samples or 0) * found.rejected / found.probed)


def _state(found: DryRun) -> str:
    if found.complete:
        return "holds this data set already, so that nothing is left to do"
    if found.holds is not None:
        held = plural(found.holds, "sample")
        return f"holds a data set of {held}: --overwrite replaces it, --append adds to it"
    return "no data set is there yet"


def print_report(report: PackReport, dest: str, *, as_json: bool) -> None:
    """Print what was done, for people or as one line of JSON; exit code 1 if files were lost."""
    if as_json:
        print_json(_as_json(report))
    else:
        _print_report(report, dest)
    if report.lost_files:
        raise typer.Exit(Exit.PROBLEMS)


def _print_report(report: PackReport, dest: str) -> None:
    manifest, out = report.manifest, stdout()
    for note in report.notes:
        stderr().print(f"note: {note}")
    unit = "document" if report.binned else "sample"
    stored = "sample" if manifest.bins is None else "bin"
    what = f"{plural(manifest.samples, stored)} in {plural(manifest.shards, 'shard')}, {size(manifest.bytes)}"
    if report.complete:
        out.print(f"{dest}: already complete, nothing was written: {what}")
    else:
        speed = f"{report.tally.samples / report.seconds:,.0f} {unit}s/s, {size(manifest.bytes / report.seconds)}/s"
        out.print(f"{dest}: {what} in {duration(report.seconds)} ({speed})")
    if manifest.told_bins is not None:
        out.print(f"bins of {in_one_line(manifest.told_bins)}")
    for name, kinds in manifest.kinds.items():
        out.print(f"{name}: {_format_kinds(kinds)}")
    if len(images := virtual_image(manifest.fields)) > 1:
        out.print(f"images: {', '.join(images)}, a field each; the field image is the first of these that a sample has")
    if report.kept:
        out.print(f"{plural(report.kept, 'shard')} of an earlier run kept")
    if report.sizes:
        out.print(f"{unit}s: {_spread(report.sizes)}")
    if report.duplicates:
        out.print(f"{plural(report.duplicates, 'exact copy', 'exact copies')} left out, see duplicates.jsonl there")
    if report.tally.dropped:
        out.print(f"{plural(report.tally.dropped, unit)} left out by the transform")
    if report.first_reject:
        one = report.first_reject
        out.print(f"{report.told_rejects(unit)} could not be read, see {report.rejects_url}: {report.told_kinds}")
        out.print(f"  such as line {one.line}, {in_one_line(one.path)}: {one.reason}")
        if len(report.reasons) > 1:
            for reason, count in list(report.reasons.items())[:_SHOWN_REASONS]:
                out.print(f"  {count:>9,}  {reason}")
    if report.lost_files:
        out.print(f"{report.told_files}: exit code {int(Exit.PROBLEMS)}")
    out.print(f"next: shardstream info {dest}")
