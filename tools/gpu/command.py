"""The command: each part in a process of its own, with a limit, into one report."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpu import report
from gpu.parts import TITLES

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 540  # seconds of a part: machines are lent for calls of ten minutes


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tools/gpu_checks", description="What only a GPU can show.")
    parser.add_argument("--with", type=Path, dest="folder", metavar="DIR", help="what --prepare made")
    parser.add_argument("--only", metavar="PART,…", help=f"some of {', '.join(TITLES)}")
    parser.add_argument("--report", type=Path, default=Path("gpu-checks.json"), metavar="FILE")
    parser.add_argument("--limit", type=int, default=LIMIT, metavar="SECONDS", help=f"of a part (default {LIMIT})")
    parser.add_argument("--quick", action="store_true", help="a few seconds for each part: to see whether it runs")
    args = parser.parse_args()
    args.parts = args.only.split(",") if args.only else list(TITLES)
    if unknown := [part for part in args.parts if part not in TITLES]:
        parser.error(f"there is no part {unknown[0]}; there are {', '.join(TITLES)}")
    if args.folder is not None and not (args.folder / "shards" / "dataset.json").exists():
        parser.error(f"{args.folder} has no shards; make it with tools/gpu_checks --prepare {args.folder}")
    if args.limit < 1:
        parser.error(f"--limit must be a positive number of seconds, got {args.limit}")
    args.report.parent.mkdir(parents=True, exist_ok=True)
    return args


def main() -> int:
    """Run the parts; 1 when one of them failed."""
    args = arguments()
    failed = []
    with tempfile.TemporaryDirectory(prefix="gpu-checks-") as scratch:
        environment = _environment(args.folder, Path(scratch))
        shards = args.folder / "shards" if args.folder else _pictures(Path(scratch), environment)
        for part in args.parts:
            result = _run(part, args, shards, Path(scratch), environment)
            report.append(args.report, result)
            print(report.tables([result]), flush=True)
            if result["status"] not in ("passed", "left out"):
                failed.append(part)
    print(f"{args.report} and {args.report.with_suffix('.md')} say what was found")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


def _environment(folder: Path | None, scratch: Path) -> dict[str, str]:
    """Of the parts: this checkout, and the wheels that were brought, beside what the Python has."""
    places = [str(ROOT), str(ROOT / "tools")]
    if folder is not None and any((folder / "wheels").glob("*.whl")):
        site = scratch / "site"
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-index",
            "--no-deps",
        ]
        wheels = map(str, sorted((folder / "wheels").glob("*.whl")))
        done = subprocess.run([*pip, "--no-compile", "--target", str(site), *wheels], check=False)
        if done.returncode:
            raise SystemExit(f"error: the wheels in {folder} cannot be installed for {platform.python_version()}")
        places.append(str(site))
    here = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": os.pathsep.join([*places, *([here] if here else [])]), "PYTHONUNBUFFERED": "1"}


def _pictures(scratch: Path, environment: dict[str, str]) -> Path:
    """Made-up photographs, where none were brought."""
    raw, folder = scratch / "raw", scratch / "pictures"
    program = (
        "import sys; from pathlib import Path; import shardstream as ss; from bench.step import pictures;"
        " ss.repack(pictures(Path(sys.argv[1]), 300), sys.argv[2], jpeg='addressable')"
    )
    subprocess.run([sys.executable, "-c", program, str(raw), str(folder)], check=True, env=environment, cwd=scratch)
    return folder


def _run(
    part: str, args: argparse.Namespace, shards: Path, scratch: Path, environment: dict[str, str]
) -> dict[str, Any]:
    """A part in its process: what it found, also when it ended before its time."""
    found = scratch / f"{part}.jsonl"
    place = scratch / part
    place.mkdir()
    setting = {"root": str(ROOT), "shards": str(shards.absolute()), "scratch": str(place), "quick": args.quick}
    child = [sys.executable, "-m", "gpu.child", part, json.dumps(setting), str(found)]
    begun = time.monotonic()
    print(f"── {TITLES[part]}", flush=True)
    with (place / "said").open("w+") as said:
        code = _ended(child, args.limit, env=environment, cwd=scratch, stdout=said, stderr=said)
        said.seek(0)
        text = said.read()
    lines = [json.loads(line) for line in found.read_text().splitlines()] if found.exists() else []
    rows = [line for line in lines if "what" in line]
    ended = next((line["ended"] for line in lines if "ended" in line), f"ended with exit status {code}")
    status = f"stopped after {args.limit} s" if code is None else ended
    if status == "passed" and any(row["failed"] for row in rows):
        status = "failed"
    shutil.rmtree(place, ignore_errors=True)
    return {
        "part": part,
        "title": TITLES[part],
        "status": status,
        "seconds": time.monotonic() - begun,
        "machine": next((line["machine"] for line in lines if "machine" in line), platform.node()),
        "rows": rows,
        "said": text[-6000:],
    }


def _ended(command: list[str], limit: float, **where: Any) -> int | None:
    """The exit status of a process; ``None`` where it was ended at its limit, with all that it had started."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **where)
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
