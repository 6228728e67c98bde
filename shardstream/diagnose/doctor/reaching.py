"""A store: whose credentials, whether and how fast it answers, and whether its clock agrees with ours."""

from __future__ import annotations

import dataclasses
import email.utils
import http.client
import re
import statistics
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

from shardstream.diagnose.doctor.finding import Finding
from shardstream.errors import NotFoundError, ShardStreamError, UsageError
from shardstream.names.braces import without_braces
from shardstream.shards.heads import MANIFEST_NAME
from shardstream.sizes import size
from shardstream.storage import Location, RetryPolicy, Store, open_object, open_store
from shardstream.storage.cache.capacity import file_system
from shardstream.storage.clients.servers import StoreServer, server_of

_PATIENCE = RetryPolicy(deadline=8.0, contact=8.0, stall=5.0)
_RANGE = 64 << 10  # bytes of a ranged read
_TIMES = 5  # ranged reads
_SLOW_S = 0.1  # a store of the same region answers in a third of that
_SKEW_WARN_S, _SKEW_FAIL_S = 60.0, 900.0  # the clouds refuse what was signed by a clock 15 minutes off
_PATTERN = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Timing:
    """How fast an object answers.

    Attributes:
        name: The object.
        size: Seconds until its size was known (HEAD).
        read: Seconds of a ranged read, the median of some.
        length: Bytes of such a read.
    """

    name: str
    size: float
    read: float
    length: int


def store_findings(location: Location) -> Iterator[Finding]:
    """Ask a store for little: the size of one object, some ranges of it, the time."""
    location = _without_patterns(location)
    if not location.local:
        try:
            server = server_of(location)
        except ShardStreamError as error:
            yield refused("credentials", error)
            return
        yield credentials(server)
        skew = None if server is None else clock_skew(server.url)
        if skew is not None:
            yield clock(skew)
    try:
        found = timing(location)
    except ShardStreamError as error:
        yield refused("store", error)
    else:
        kind = (file_system(location.url) or "unknown file system") if location.local else ""
        yield latency(found, kind)


# --------------------------------------------------------------------------------------------------------------- facts


def _without_patterns(location: Location) -> Location:
    """A place that is there once: the first that braces name, the folder of what a pattern names."""
    if location.store is not None:
        return location
    first = without_braces(location.url)[0]
    pattern = _PATTERN.search(first)
    return dataclasses.replace(location, url=first[: pattern.start()].rpartition("/")[0] if pattern else first)


def timing(location: Location) -> Timing:
    """Ask for one object of a data set: its manifest, the object that a URL names, or the first of a folder.

    Raises:
        ShardStreamError: The store does not answer, refuses, or holds nothing there.
    """
    store, name, length, seconds = _object(location)
    length = min(length, _RANGE)
    times = []
    for _ in range(_TIMES):
        begun = time.perf_counter()
        store.get(name, 0, length)
        times.append(time.perf_counter() - begun)
    return Timing(name, seconds, statistics.median(times), length)


def _object(location: Location) -> tuple[Store, str, int, float]:
    """A store, an object in it, its size, and the seconds that this question took."""
    store = open_store(location).with_policy(_PATIENCE)
    begun = time.perf_counter()
    try:
        length = store.size(MANIFEST_NAME)
    except NotFoundError:
        pass
    else:
        return store, MANIFEST_NAME, length, time.perf_counter() - begun
    try:
        parent, name = open_object(location)
        parent = parent.with_policy(_PATIENCE)
        begun = time.perf_counter()
        length = parent.size(name)
    except (NotFoundError, UsageError):  # a folder, or a whole bucket
        begun = time.perf_counter()
        for one in store.list():
            return store, one.path, one.size, time.perf_counter() - begun
    else:
        return parent, name, length, time.perf_counter() - begun
    raise NotFoundError("there is nothing at this URL", hint="shardstream pack SOURCE URL", url=location.url)


def clock_skew(server: str) -> float | None:
    """Seconds that this machine's clock is ahead of a server's; ``None`` where the server does not say the time."""
    request = urllib.request.Request(server, method="HEAD")  # noqa: S310 - only web servers come here
    begun = time.time()
    try:
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE.stall) as answer:  # noqa: S310
                said = answer.headers.get("Date")
        except urllib.error.HTTPError as error:  # it says the time all the same
            said = error.headers.get("Date")
            error.close()
        there = email.utils.parsedate_to_datetime(said or "").timestamp()
    except (OSError, http.client.HTTPException, ValueError):
        return None
    return (begun + time.time()) / 2 - there


# -------------------------------------------------------------------------------------------------------------- checks


def refused(check: str, error: ShardStreamError) -> Finding:
    """What stands in the way, as the error says it."""
    where = f" [{error.place['url']}]" if "url" in error.place else ""
    return Finding(check, "fail", f"{error.what}{where}", error.hint or "look at the URL, and at the network")


def credentials(server: StoreServer | None) -> Finding:
    """Who gives the credentials."""
    if server is None:
        return Finding("credentials", "ok", "whatever the package of this store finds")
    return Finding("credentials", "ok", f"{server.credentials}; for {server.url}")


def clock(skew: float) -> Finding:
    """Whether this machine's clock agrees with the store's: signed requests fail where it does not.

    Args:
        skew: Seconds that ours is ahead.
    """
    fact = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the store's"
    fix = "sudo chronyc makestep   # or: sudo timedatectl set-ntp true"
    if abs(skew) >= _SKEW_FAIL_S:
        return Finding("clock", "fail", f"{fact}: signed requests are refused", fix)
    if abs(skew) >= _SKEW_WARN_S:
        return Finding("clock", "warn", fact, fix)
    return Finding("clock", "ok", f"agrees with the store's within {max(1, round(abs(skew)))} s")


def latency(found: Timing, kind: str = "") -> Finding:
    """Whether a store answers fast.

    Args:
        found: How fast it did.
        kind: The file system of a local folder.
    """
    read = "1 byte" if found.length == 1 else size(found.length)
    fact = f"{found.name}: size after {_ms(found.size)}, {read} in {_ms(found.read)}"
    if kind:
        fact += f" ({kind})"
    if found.read >= _SLOW_S:
        fix = 'ss.ShardDataset(URL, cache="/DISK/cache"), or a machine in the region of the bucket'
        return Finding("store", "warn", f"{fact}: far away", fix)
    return Finding("store", "ok", fact)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"
