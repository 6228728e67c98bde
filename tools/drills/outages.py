"""Training while its store is away for a time, or changes; see ``tools/drills/outages``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

import shardstream as ss
from drills.named import asked, problems_of
from drills.processes.blows import end
from tests.storage.faults import FaultProxy
from tests.storage.places import S3Place, make_buckets, s3_client
from tests.storage.servers import KEY, SECRET, Server

SAMPLES, LARGEST, SHARD_SIZE = 600, 100_000, "2MB"
BATCH, PAUSE_S, EPOCHS = 16, 0.03, 8  # an epoch takes some two seconds, and holds 15 times what is read ahead
PREFETCH = "2MB"
OUTAGE_S = 20.0
SHORT_S = 5.0
"""Patience of runs that are to give up."""
LONGEST_S = 150.0
NAME = "store.shardstream.test"
HOSTS = Path("/etc/hosts")

Problems = Iterator[str]


def provide() -> dict[str, Any]:
    """Credentials that are good for ten minutes; each call leaves a line."""
    with open(os.environ["PROVIDED"], "a") as told:
        told.write("asked\n")
    expires = datetime.now(UTC) + timedelta(minutes=10)
    return {"access_key_id": KEY, "secret_access_key": SECRET, "expires_at": expires}


def write(place: S3Place, seed: int) -> None:
    """A data set whose samples say what their bytes are, and which data set they are of."""
    draws = np.random.default_rng(seed)
    with ss.ShardWriter(place.url(), shard_size=SHARD_SIZE, storage=ss.StorageOptions(options=place.options)) as writer:
        for number in range(SAMPLES):
            raw = draws.bytes(int(draws.integers(1, LARGEST)))
            digest = f"{seed} {xxhash.xxh3_64_hexdigest(raw)}"
            writer.write({"__key__": str(number), "raw": raw, "sum": digest})


def consume(url: str, options: dict[str, Any], cache: str | None, told: str, own: str) -> None:
    """Train for some epochs, from the state that is there; each sample is what it says, and comes once an epoch.

    Args:
        url: The data set.
        options: Of its store.
        cache: Folder of a cache, if any.
        told: File that says after each batch how many samples came, and keeps the state.
        own: What samples of this data set begin with.
    """
    if options.get("credential_provider"):
        options["credential_provider"] = provide
    dataset = ss.ShardDataset(
        url,
        shuffle=True,
        tail="exact",
        batch_size=BATCH,
        reads=ss.ReadOptions(prefetch=PREFETCH),
        cache=cache,
        storage_options=options,
        ranks=(0, 1),
    )
    loader = ss.Loader(dataset, num_workers=1)
    kept: dict[str, Any] = {"samples": 0, "seen": [], "state": None}
    if Path(told).exists():
        kept = json.loads(Path(told).read_text())
        loader.load_state_dict(kept["state"])
    while kept["samples"] < EPOCHS * SAMPLES:
        for batch in loader:
            time.sleep(PAUSE_S)
            for key, raw, digest in zip(batch["__key__"], batch["raw"], batch["sum"], strict=True):
                if digest != f"{own} {xxhash.xxh3_64_hexdigest(np.asarray(raw).tobytes())}":
                    raise ValueError(f"sample {key} is not what was written")
                kept["seen"].append(int(key))
            kept["samples"] += len(batch["__key__"])
            if len(kept["seen"]) == SAMPLES:
                if max(Counter(kept["seen"]).values()) > 1:
                    raise ValueError("samples came twice")
                kept["seen"] = []
            kept["state"] = loader.state_dict()
            Path(f"{told}.new").write_text(json.dumps(kept))
            os.replace(f"{told}.new", told)


class Run:
    """A process that consumes.

    Args:
        place: Its data set.
        folder: Where it keeps its counts and its state; another run there goes on from it.
        options: Of the store, besides those of the place.
        cache: Folder of a cache.
        own: What samples begin with.
    """

    def __init__(
        self, place: S3Place, folder: Path, *, cache: Path | None = None, own: int = 0, **options: Any
    ) -> None:
        folder.mkdir(exist_ok=True)
        self._told = folder / "told.json"
        self.log, self.provided = folder / "output.txt", folder / "provided.txt"
        arguments = place.url(), {**place.options, **options}, cache and str(cache), str(self._told), str(own)
        code = f"from drills.outages import consume; consume(*{arguments!r})"
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code], env=os.environ | {"PROVIDED": str(self.provided)}, stdout=out, stderr=out
            )

    @property
    def samples(self) -> int:
        """That it has had."""
        return int(json.loads(self._told.read_text())["samples"]) if self._told.exists() else 0

    def gets_to(self, samples: int) -> None:
        """Wait until it has had so many."""
        deadline = time.monotonic() + LONGEST_S
        while self.samples < samples:
            if self.process.poll() is not None or time.monotonic() > deadline:
                end([self.process.pid])
                raise RuntimeError(f"it does not get to sample {samples:,}\n{self.log.read_text()[-2000:]}")
            time.sleep(0.02)

    def ended(self) -> tuple[int | None, str]:
        """Its exit code, and the line that says why; without a code where it hangs."""
        try:
            code: int | None = self.process.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            end([self.process.pid])
            code = None
        lines = self.log.read_text(errors="replace").splitlines()
        return code, next((line for line in reversed(lines) if "Error: " in line), "")

    def goes_on(self, name: str) -> Problems:
        """What is wrong, where it should come to its end."""
        code, why = self.ended()
        if code != 0 or self.samples != EPOCHS * SAMPLES:
            yield f"{name}: it ended with {code} after {self.samples:,} samples: {why}"

    def gives_up(self, name: str, kind: str, *words: str) -> Problems:
        """What is wrong, where it should end in an error of ours that says these words."""
        code, why = self.ended()
        if not code or not why.startswith(f"shardstream.errors.{kind}: ") or any(word not in why for word in words):
            yield f"{name}: it ended with {code}, and was to end in a {kind} that says {words}: {why}"


class Outages:
    """What is tried.

    Args:
        folder: Empty.
        place: A data set behind the proxy.
        proxy: The proxy.
    """

    def __init__(self, folder: Path, place: S3Place, proxy: FaultProxy) -> None:
        self.folder, self.place, self.proxy = folder, place, proxy
        self.direct = {**place.options, "endpoint": f"http://{proxy.upstream}"}

    def _passes(self, name: str, begin: Callable[[], object], finish: Callable[[], object], **options: Any) -> Problems:
        """An outage that ends, in the middle of an epoch; then one that outlasts patience, and a run after it."""
        run = Run(self.place, self.folder / name, **options)
        run.gets_to(SAMPLES // 2)
        before = self.proxy.requests
        begin()
        time.sleep(OUTAGE_S)
        asked, at = self.proxy.requests - before, run.samples
        finish()
        print(f"  {name}: {asked:,} requests in {OUTAGE_S:.0f} s without an answer, at sample {at:,}", flush=True)
        if at > 2 * SAMPLES:
            yield f"{name}: {at:,} samples came, so it was none"
        if asked > 100 * OUTAGE_S:
            yield f"{name}: {asked:,} requests while the store was away"
        yield from run.goes_on(name)
        run = Run(self.place, self.folder / f"{name}-long", patience=SHORT_S, **options)
        run.gets_to(SAMPLES // 2)
        begin()
        started = time.monotonic()
        yield from run.gives_up(f"{name}, long", "StorageError", "gave up")
        took = time.monotonic() - started
        finish()
        print(f"  {name}: gave up after {took:.0f} s, of which it may try for {SHORT_S:.0f}", flush=True)
        yield from Run(self.place, self.folder / f"{name}-long", **options).goes_on(f"{name}, after it")

    def storm(self) -> Problems:
        """Every request is answered by 503."""
        yield from self._passes("storm", lambda: self.proxy.add("status", status=503), self.proxy.clear)

    def down(self) -> Problems:
        """The store is not there."""
        yield from self._passes("down", self.proxy.down, self.proxy.up)

    def silence(self) -> Problems:
        """Nothing is answered; connections stay open."""
        options = {"read_timeout": 2, "connect_timeout": 2}
        yield from self._passes("silence", lambda: self.proxy.add("stall"), self.proxy.clear, **options)

    def no_name(self) -> Problems:
        """The name of the store is not known any more."""
        hosts = self.folder / "hosts"
        hosts.write_text(HOSTS.read_text() + f"127.0.0.1 {NAME}\n")
        subprocess.run(["mount", "--bind", str(hosts), str(HOSTS)], check=True)  # for this process and its children
        known = hosts.read_text()
        options = {"endpoint": self.place.options["endpoint"].replace("127.0.0.1", NAME)}

        def forget() -> None:
            hosts.write_text("")
            self.proxy.down()  # connections that are open need no name
            self.proxy.up()

        yield from self._passes("no name", forget, lambda: hosts.write_text(known), **options)

    def expired(self) -> Problems:
        """Credentials expire: once, then for ever."""
        body = "<Error><Code>ExpiredToken</Code></Error>"
        run = Run(self.place, self.folder / "expired", credential_provider=True)
        run.gets_to(SAMPLES // 2)
        before = len(run.provided.read_text().splitlines())
        self.proxy.add("status", status=403, body=body, times=1)
        yield from run.goes_on("expired once")
        print(
            f"  expired: asked for {before} times, and {len(run.provided.read_text().splitlines())} at the end",
            flush=True,
        )
        run = Run(self.place, self.folder / "expired-long", credential_provider=True)
        run.gets_to(SAMPLES // 2)
        self.proxy.add("status", status=403, body=body)
        yield from run.gives_up("expired for ever", "AccessError", "expired")
        self.proxy.clear()
        yield from Run(self.place, self.folder / "expired-long", credential_provider=True).goes_on("with new ones")

    def rewritten(self) -> Problems:
        """Another data set is written in the place of this one; every sample would say of which it is."""
        place = S3Place(self.place.endpoint, self.place.client)
        place.options = dict(self.direct)
        write(place, 1)
        run = Run(place, self.folder / "rewritten", own=1)
        run.gets_to(SAMPLES // 2)
        other = S3Place(self.place.endpoint, self.place.client)
        other.options = dict(self.direct)
        write(other, 2)
        for name in self._objects(place):
            place.client.delete_object(Bucket=place.bucket, Key=f"{place.name}/{name}")
        for name in self._objects(other):
            body = other.client.get_object(Bucket=other.bucket, Key=f"{other.name}/{name}")["Body"].read()
            place.client.put_object(Bucket=place.bucket, Key=f"{place.name}/{name}", Body=body)
        code, why = run.ended()
        print(f"  rewritten: {why}", flush=True)
        if not code or not why.startswith("shardstream.errors."):
            yield f"rewritten: it ended with {code} after {run.samples:,} samples: {why}"

    def deleted(self) -> Problems:
        """Shards are deleted: one error says which; a cache that has them does without."""
        place = S3Place(self.place.endpoint, self.place.client)
        place.options = dict(self.direct)
        write(place, 0)
        run = Run(place, self.folder / "deleted")
        cached = Run(place, self.folder / "cached", cache=self.folder / "cache")
        run.gets_to(SAMPLES // 2)
        cached.gets_to(2 * SAMPLES)
        shards = [name for name in self._objects(place) if name.startswith("shard-")]
        for name in shards:
            place.client.delete_object(Bucket=place.bucket, Key=f"{place.name}/{name}")
        yield from run.gives_up("deleted", "NotFoundError", "shard-")
        yield from cached.goes_on("deleted, with a cache")

    def _objects(self, place: S3Place) -> list[str]:
        listed = place.client.list_objects_v2(Bucket=place.bucket, Prefix=f"{place.name}/")["Contents"]
        return [one["Key"].removeprefix(f"{place.name}/") for one in listed]


OUTAGES = ("storm", "down", "silence", "no_name", "expired", "rewritten", "deleted")


def main() -> int:
    """Exit status."""
    folder, names = asked(OUTAGES)
    with ExitStack() as stack:
        server = Server("weed", folder / "weed")
        server.start()
        stack.callback(server.stop)
        proxy = stack.enter_context(FaultProxy(server.url.removeprefix("http://")))
        client = s3_client(server.url)
        make_buckets(client)
        place = S3Place(server.url, client)
        write(place, 0)
        place.options["endpoint"] = proxy.url
        count = problems_of(Outages(folder, place, proxy), names)
    if not count:
        shutil.rmtree(folder)
    return bool(count)


if __name__ == "__main__":
    raise SystemExit(main())
