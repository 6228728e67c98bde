"""Readers of S3 and Azure behind proxies that misbehave; see ``tools/drills/soak``."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import xxhash

import shardstream as ss
from drills.processes.blows import end
from drills.processes.watch import Watch
from tests.processes import MARK
from tests.storage.faults import FaultProxy
from tests.storage.places import AzurePlace, S3Place, make_buckets, s3_client
from tests.storage.servers import ACCOUNT, ACCOUNT_KEY, Server

SAMPLES, LARGEST = 4_000, 60_000
SHARD_SIZE, CACHE_SIZE = "8MB", "60MB"  # of 120 MB: some of it is always fetched again
BATCH, WORKERS = 32, 1
BAR = 0.7  # of the speed without faults
PATIENCE_S = 240
# One request in so many: 1 % in all.
FAULTS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("latency", 250, {"seconds": 2.0}),
    ("reset in body", 500, {"after": 10_000}),
    ("close in body", 500, {"after": 10_000}),
    ("status", 667, {"status": 503}),
    ("stall in body", 2_000, {"after": 10_000}),
)

Rates: TypeAlias = dict[bool, list[float]]


def write(place: S3Place | AzurePlace) -> None:
    """A data set whose samples say what their bytes are."""
    draws = np.random.default_rng(0)
    with ss.ShardWriter(place.url(), shard_size=SHARD_SIZE, storage=ss.StorageOptions(options=place.options)) as writer:
        for number in range(SAMPLES):
            raw = draws.bytes(int(draws.integers(1, LARGEST)))
            writer.write({"__key__": str(number), "raw": raw, "sum": xxhash.xxh3_64_hexdigest(raw)})


def consume(url: str, options: dict[str, Any], cache: str | None, told: str, until: float) -> None:
    """Epoch after epoch; each sample has to be what it says, and come once. Counts go to a file once a second."""
    kept = ss.Cache(cache, size=CACHE_SIZE) if cache else None
    dataset = ss.ShardDataset(
        url, shuffle=True, tail="exact", batch_size=BATCH, cache=kept, storage_options=options, ranks=(0, 1)
    )
    loader = ss.Loader(dataset, num_workers=WORKERS, persistent_workers=True)
    samples = epochs = 0
    said = 0.0
    while time.time() < until:
        seen: Counter[str] = Counter()
        for batch in loader:
            for key, raw, digest in zip(batch["__key__"], batch["raw"], batch["sum"], strict=True):
                seen[key] += 1
                if xxhash.xxh3_64_hexdigest(np.asarray(raw).tobytes()) != digest:
                    raise ValueError(f"sample {key} is not what was written")
            samples += len(batch["__key__"])
            if time.time() - said > 1:
                said = time.time()
                Path(f"{told}.new").write_text(json.dumps({"samples": samples, "epochs": epochs}))
                os.replace(f"{told}.new", told)
        if len(seen) != SAMPLES or max(seen.values()) > 1:
            raise ValueError(f"{len(seen):,} of {SAMPLES:,} samples came, {max(seen.values())} times at most")
        epochs += 1


@contextmanager
def stores(folder: Path) -> Iterator[list[tuple[S3Place | AzurePlace, FaultProxy]]]:
    """The data set in an S3 server and in an Azure server, each behind a proxy, through which places now lead."""
    with ExitStack() as stack:
        found: list[tuple[S3Place | AzurePlace, FaultProxy]] = []
        for kind in ("weed", "azurite"):
            server = Server(kind, folder / kind)
            server.start()
            stack.callback(server.stop)
            proxy = FaultProxy(server.url.removeprefix("http://"))
            stack.callback(proxy.stop)
            place: S3Place | AzurePlace
            if kind == "weed":
                client = s3_client(server.url)
                make_buckets(client)
                place = S3Place(server.url, client)
                write(place)
                place.options["endpoint"] = proxy.url
            else:
                from azure.storage.blob import BlobServiceClient

                credential = {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY}
                service = BlobServiceClient(f"{server.url}/{ACCOUNT}", credential=credential)
                service.create_container("tests")
                place = AzurePlace(server.url, service)
                write(place)
                place.options["endpoint"] = f"{proxy.url}/{ACCOUNT}"
            found.append((place, proxy))
        yield found


@dataclass(frozen=True)
class Reader:
    """A process that consumes.

    Attributes:
        process: The process.
        told: The file that it keeps its counts in.
        log: What it prints.
    """

    process: subprocess.Popen[bytes]
    told: Path
    log: Path

    @classmethod
    def start(cls, place: S3Place | AzurePlace, cache: Path | None, told: Path, until: float, mark: str) -> Reader:
        """Begin to consume."""
        arguments = place.url(), place.options, cache and str(cache), str(told), until
        code = f"from drills.soak import consume; consume(*{arguments!r})"
        log = told.with_suffix(".txt")
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-c", code], env=os.environ | {MARK: mark}, stdout=out, stderr=out
            )
        return cls(process, told, log)

    def samples(self) -> int:
        """That it has had."""
        return int(json.loads(self.told.read_text())["samples"]) if self.told.exists() else 0

    def ended(self) -> str | None:
        """What is wrong with how it ends, which is waited for."""
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            end([self.process.pid])
            return f"{self.told.stem} hangs"
        return f"{self.told.stem} ended with {code}\n{self.log.read_text(errors='replace')[-2000:]}" if code else None


def phases(readers: Sequence[Reader], proxies: Sequence[FaultProxy], seconds: float, until: float) -> Rates:
    """Samples a second, without faults and with them, in turn."""
    rates: Rates = {False: [], True: []}
    faulty = False
    while time.time() < until - seconds:
        for proxy in proxies:
            proxy.clear()
            for what, every, how in FAULTS if faulty else ():
                proxy.add(what, every=every, method="GET", **how)
        before, begun = sum(one.samples() for one in readers), time.monotonic()
        time.sleep(seconds)
        rates[faulty].append((sum(one.samples() for one in readers) - before) / (time.monotonic() - begun))
        faulty = not faulty
    for proxy in proxies:
        proxy.clear()
    return rates


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--phase", type=float, default=60.0, help="seconds with faults, and as many without, in turn")
    given = parser.parse_args()
    folder: Path = given.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    mark = uuid.uuid4().hex
    with stores(folder) as found, Watch(mark, 5.0) as watch:
        proxies = [proxy for _, proxy in found]
        until = time.time() + 60 * given.minutes
        readers = [
            Reader.start(place, cache, folder / f"reader-{number}.json", until, mark)
            for number, (place, cache) in enumerate(
                [(place, cache) for place, _ in found for cache in (None, folder / f"cache-{place.name}")]
            )
        ]
        time.sleep(given.phase / 2)  # until all of them have begun
        rates = phases(readers, proxies, given.phase, until)
        hits = sum((Counter({what: proxy.hits(what) for what, _, _ in FAULTS}) for proxy in proxies), Counter[str]())
        requests = sum(proxy.requests for proxy in proxies)
        problems = [told for told in (one.ended() for one in readers) if told]
    problems += watch.problems(folder / "held.jsonl")
    plain, faulty = (float(np.median(rates[kind])) for kind in (False, True))
    if faulty < BAR * plain:
        problems.append(f"with faults {faulty / plain:.2f} of the speed without, and the bar is {BAR}")
    spoilt = ", ".join(f"{count:,} {what}" for what, count in sorted(hits.items()))
    print(f"{sum(one.samples() for one in readers):,} samples; {requests:,} requests, of these {spoilt}")
    print(f"samples/s, medians: {plain:,.0f} without faults, {faulty:,.0f} with: {faulty / plain:.2f}")
    print(f"{len(problems)} problems", *problems, sep="\n  ")
    return bool(problems)


if __name__ == "__main__":
    raise SystemExit(main())
