"""Training under torchrun, on data behind a web server and through a cache, whose processes are struck."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from drills.processes.blows import Blow, Tally, killed, starved, stopped, strike
from tests.distributed.chain import Chain
from tests.distributed.launching import Job
from tests.processes import MARK
from tests.storage.servers import Server
from tests.stream.making import numbered, write_dataset

SIZES = (900, 1, 0, 1_500, 602, 1_000)
SHAPES = ((4, 8, 2), (2, 16, 1), (3, 5, 2), (1, 24, 2))  # ranks, batch size, workers
CHAIN = 10  # rounds of one chain of runs, which begins with an empty cache
MEMORY = Path("/dev/shm")  # noqa: S108 - looked at only
_ERROR = re.compile(r"(?:shardstream\.errors\.)?(\w+(?:Error|Exception|Interrupt)): ")


def train(folder: Path, rounds: int, blows: Sequence[Blow], draws: random.Random, tally: Tally) -> None:
    """So many rounds, in chains of runs that go on from one another's checkpoints."""
    server = Server("web", folder / "server")
    data = write_dataset(folder / "server/data/ids", numbered(SIZES, raw=lambda n: bytes(n % 3_000)))
    server.start()
    before = {path.name for path in MEMORY.iterdir()}
    try:
        for number in range(0, rounds, CHAIN):
            work = folder / f"chain-{number}"
            work.mkdir()
            try:
                _chain(data, f"{server.url}/ids", work, range(number, min(rounds, number + CHAIN)), blows, draws, tally)
            except AssertionError:
                tally.problems.append(f"the chain of round {number}: {traceback.format_exc(limit=-2)}")
    finally:
        server.stop()
    left = {path.name for path in MEMORY.iterdir() if not path.name.startswith(("torch_", "sem.", "pym-"))} - before
    tally.problems += [f"{MEMORY / name} is left over" for name in sorted(left)]


def _chain(
    data: Path, url: str, work: Path, numbers: range, blows: Sequence[Blow], draws: random.Random, tally: Tally
) -> None:
    cache = work / "cache"
    with Chain(
        data,
        work,
        samples=sum(SIZES),
        epochs=len(numbers),
        first=SHAPES[0][:2],
        url=url,
        options={"cache": str(cache)},
    ) as chain:
        for number in numbers:
            ranks, batch_size, workers = SHAPES[0] if number == numbers[0] else draws.choice(SHAPES)
            job = chain.start(ranks=ranks, batch_size=batch_size, workers=workers, pause=0.01)
            lines = draws.randrange(1, 30)
            job.wait_for(lambda job=job, lines=lines: len(job.lines(0)) >= lines)
            filler = _filler(url, cache, job) if draws.random() < 0.5 else None
            time.sleep(draws.uniform(0, 0.5 if filler else 0.03))
            _round(job, filler, f"round {number}", blows, draws, tally)
            if filler is not None:
                filler.wait(job.patience)
            chain.check(job, batch_size=batch_size)
        ranks, batch_size, workers = SHAPES[0]
        job = chain.start(ranks=ranks, batch_size=batch_size, workers=workers, pause=0)
        job.wait()
        chain.check(job, batch_size=batch_size, complete=True)
        chain.wait_for_orphans()
    verify = subprocess.run(
        [sys.executable, "-m", "shardstream.cli", "cache", "verify", str(cache)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if verify.returncode:
        tally.problems.append(f"the cache of round {numbers[0]} is not sound\n{verify.stdout}{verify.stderr}")


def _filler(url: str, cache: Path, job: Job) -> subprocess.Popen[bytes]:
    """Somebody else who fills the same cache; a process of the run."""
    return subprocess.Popen(
        [sys.executable, "-m", "shardstream.cli", "cache", "warm", url, str(cache), "-q"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {MARK: job.mark},
    )


def _round(
    job: Job,
    filler: subprocess.Popen[bytes] | None,
    name: str,
    blows: Sequence[Blow],
    draws: random.Random,
    tally: Tally,
) -> None:
    """Strike the machine, or a process; a run that goes on after that is ended as a machine is."""
    ranks = job.rank_pids()
    others = [pid for pid in job.pids() if pid not in ranks and pid != job.process.pid]
    workers = [pid for pid in others if filler is None or pid != filler.pid]
    roles = {"torchrun": [job.process.pid], "a rank": ranks, "a worker": workers}
    if filler is not None:
        roles["whoever fills the cache"] = [filler.pid]
    who = draws.choice(["the machine", "torchrun and the ranks", *(role for role, pids in roles.items() if pids)])
    if who == "the machine":
        tally.rounds["the machine killed"] += 1
        tally.ends["killed"] += 1
        job.kill()
        return
    if who == "torchrun and the ranks":  # workers find out by themselves, while the next run already begins
        tally.rounds[f"{who} killed"] += 1
        tally.ends["killed"] += 1
        job.kill([*ranks, job.process.pid])
        return
    blow, pid = draws.choice(blows), draws.choice(roles[who])
    there = strike(pid, blow, draws)
    tally.rounds[f"{who} {blow.__name__}" if there else "too late"] += 1
    if who == "torchrun" and blow is killed:  # nobody tells the ranks, which would train on beside the next run
        tally.ends["killed"] += 1
        job.kill()
        return
    goes_on = who == "whoever fills the cache" or blow in (stopped, starved)
    if goes_on and _gets_further(job):
        tally.ends["it went on"] += 1
        job.kill()
        return
    try:
        job.process.wait(job.patience)
    except subprocess.TimeoutExpired:
        tally.problems.append(f"{name}: {who} {blow.__name__}, and the run hangs\n{job.output[-1500:]}")
        job.kill()
        return
    kinds = [found for found in _ERROR.findall(job.output) if found != "ChildFailedError"]
    told = "WorkerError" if "WorkerError" in kinds else next(iter(kinds), "no error")  # which torch's own comes before
    tally.ends[f"{who} {blow.__name__}: {told}"] += 1
    if not job.process.returncode:
        tally.problems.append(f"{name}: {who} {blow.__name__}, and the run ended as if nothing were\n{job.output}")
    if who == "a worker" and told != "WorkerError":
        tally.problems.append(f"{name}: {who} {blow.__name__}: {told}\n{job.output[-1500:]}")


def _gets_further(job: Job) -> bool:
    """Whether it consumes ten batches more before it ends."""
    wanted = len(job.lines(0)) + 10
    deadline = time.monotonic() + job.patience
    while job.process.poll() is None and time.monotonic() < deadline:
        if len(job.lines(0)) >= wanted:
            return True
        time.sleep(0.02)
    return False
