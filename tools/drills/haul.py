"""Training that goes on and on, and starts again; see ``tools/drills/haul``."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

import shardstream as ss
from drills.processes.watch import Watch
from shardstream.testing import make_dataset
from tests.processes import MARK

METHODS = ("fork", "forkserver", "spawn")
BATCH, WORKERS = 8, 2
AGAIN = 3  # epochs after which the loader is made anew, from a state


def consume(url: str, method: str, epochs: int, samples: int) -> None:
    """Epochs through one loader after another; each sample comes once an epoch."""
    state: str | None = None
    done = 0
    while done < epochs:
        dataset = ss.ShardDataset(url, shuffle=True, tail="exact", batch_size=BATCH, ranks=(0, 1))
        loader = ss.Loader(dataset, num_workers=WORKERS, multiprocessing_context=method)
        if state is not None:
            loader.load_state_dict(json.loads(state))
        for _ in range(min(AGAIN, epochs - done)):
            seen = sorted(one for batch in loader for one in batch["id"].tolist())
            if seen != list(range(samples)):
                raise ValueError(f"epoch {done}: {len(seen):,} samples")
            done += 1
            print(f"epoch {done}", flush=True)
        state = json.dumps(loader.state_dict())
        del loader


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--batches", type=int, default=10_000, help="of an epoch")
    parser.add_argument("--methods", default=",".join(METHODS), help="how workers start, separated by commas")
    given = parser.parse_args()
    shutil.rmtree(given.folder, ignore_errors=True)
    given.folder.mkdir(parents=True)
    url = str(given.folder / "data")
    make_dataset(url, fields={"id": "int64", "raw": "bytes"}, samples=given.batches * BATCH)
    problems = []
    for method in given.methods.split(","):
        mark, begun = uuid.uuid4().hex, time.monotonic()
        call = f"consume({url!r}, {method!r}, {given.epochs}, {given.batches * BATCH})"
        script = given.folder / f"{method}.py"
        script.write_text(f"from drills.haul import consume\n\nif __name__ == '__main__':\n    {call}\n")
        log = given.folder / f"{method}.txt"
        with log.open("wb") as out, Watch(mark, 1.0) as watch:
            status = subprocess.run(
                [sys.executable, str(script)], env=os.environ | {MARK: mark}, stdout=out, stderr=out, check=False
            )
        if status.returncode:
            problems.append(f"{method}: it ended with {status.returncode}\n{log.read_text()[-2000:]}")
        problems += [f"{method}: {one}" for one in watch.problems(given.folder / f"{method}.jsonl")]
        held = watch.usual()
        first, last = held[len(held) // 4], held[-1]
        print(
            f"{method}: {given.epochs} epochs of {given.batches:,} batches in {time.monotonic() - begun:.0f} s; "
            f"{last.processes} processes; private memory {first.private / 1e6:.0f} to {last.private / 1e6:.0f} MB, "
            f"{first.threads} to {last.threads} threads, {first.descriptors} to {last.descriptors} descriptors",
            flush=True,
        )
    print(f"{len(problems)} problems", *problems, sep="\n  ")
    return bool(problems)


if __name__ == "__main__":
    raise SystemExit(main())
