"""``RankTable``: the numbers of several ranks side by side, so that the slow one is a line."""

from __future__ import annotations

import glob
import json
import os
import platform
import stat
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from shardstream.errors import StorageError, UsageError
from shardstream.text import in_one_line, text_table

_VERSION = 1
_MUCH = 0.05
"""A rank that waits for this much more of its time than the median one is what the others wait for."""

_SILENT_S = 60.0
_MOST = 1e18
_MOST_RANKS = 1 << 20
_MOST_BYTES = 1 << 20
_NEEDED = {"rank", "batches_total", "samples_total"} | {f"{name}seconds_total" for name in ("", "start_", "wait_")}
_STAGES = ("read", "decode", "transform", "assemble")


@dataclass(frozen=True, slots=True)
class RankStats:
    """The numbers of one rank.

    Attributes:
        host: The name of its machine.
        time: When they were taken, in seconds since 1970.
        bottleneck: What its steps wait for, as `Diagnosis.bottleneck`.
        values: What `LoaderStats.as_dict` gives.
    """

    host: str
    time: float
    bottleneck: str
    values: dict[str, float]

    @classmethod
    def of(cls, values: Mapping[str, float], *, bottleneck: str) -> RankStats:
        """Those of this process, of now."""
        return cls(platform.node(), time.time(), bottleneck, dict(values))

    @property
    def rank(self) -> int:
        """Which rank."""
        return int(self.values["rank"])

    @property
    def wait_share(self) -> float:
        """Share of its time that its loop waited for data, without that of workers who begin; in [0, 1]."""
        start = self.values["start_seconds_total"]
        running = self.values["seconds_total"] - start
        return max(0.0, (self.values["wait_seconds_total"] - start) / running) if running > 0 else 0.0

    @property
    def samples_per_second(self) -> float:
        """Samples that it got a second."""
        seconds = self.values["seconds_total"]
        return self.values["samples_total"] / seconds if seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """The same as it lies in a file."""
        return {"shardstream_stats": _VERSION} | asdict(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> RankStats:
        """What is in a file that `Loader` has written; UsageError: it is something else."""
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            hint = "give files that Loader(stats_file=) has written"
            raise UsageError("this is not a file of numbers", hint=hint) from None
        return cls.from_json(value)

    @classmethod
    def from_json(cls, value: Any) -> RankStats:
        """What `to_json` gave.

        Raises:
            UsageError: It is something else.
        """
        wrong = UsageError("these are not numbers of a rank", hint="give files that Loader(stats_file=) has written")
        try:
            version = value["shardstream_stats"]
            if version != _VERSION:
                raise UsageError(
                    f"numbers of version {version!r:.20} cannot be read",
                    hint=f"this version of shardstream reads version {_VERSION}",
                )
            host, bottleneck = value["host"], value["bottleneck"]
            values = {"time": value["time"], **value["values"]}
        except (KeyError, TypeError):
            raise wrong from None
        numbers = (type(one) in (int, float) and abs(one) < _MOST for one in values.values())  # neither NaN
        if type(host) is not str or type(bottleneck) is not str or not all(numbers) or not values.keys() >= _NEEDED:
            raise wrong
        if not 0 <= values["rank"] < values.get("world_size", _MOST_RANKS) <= _MOST_RANKS:
            raise wrong
        return cls(host, values.pop("time"), bottleneck, values)


def ranks_in(files: str | os.PathLike[str]) -> list[RankStats]:
    """What lies in a file, or in all files of a pattern.

    Raises:
        UsageError: There is none, or one is something else.
    """
    name = os.fspath(files)
    found = sorted(glob.glob(name)) or [name]
    rows = []
    for path in found:
        try:
            rows.append(RankStats.from_bytes(_read(path)))
        except FileNotFoundError:
            hint = "a rank writes its Loader(stats_file=) every stats_every seconds"
            raise UsageError("there is no such file of numbers", url=path, hint=hint) from None
        except UsageError as error:
            raise error.at(url=path) from None
        except OSError as error:
            raise StorageError.of(error, url=path) from error
    return rows


def _read(path: str) -> bytes:
    """A file that another account may have written, or a FIFO in its place."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with open(descriptor, "rb") as file:
        data = file.read(_MOST_BYTES + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    if len(data) > _MOST_BYTES:
        hint = "give files that Loader(stats_file=) has written"
        raise UsageError(f"a file of numbers has at most {_MOST_BYTES} bytes", hint=hint)
    return data


@dataclass(frozen=True, slots=True)
class RankTable:
    """The numbers of several ranks; ``print`` it.

    Attributes:
        ranks: By rank, in ascending order.

    Example:
        >>> from shardstream.load import LoaderStats
        >>> fast, slow = LoaderStats(8, 100, 6400, 0.2, 10.0), LoaderStats(8, 100, 6400, 4.1, 10.0, rank=1)
        >>> print(fast.merged([slow]).slowest.rank)
        1
    """

    ranks: tuple[RankStats, ...]

    @classmethod
    def of(cls, rows: Iterable[RankStats]) -> RankTable:
        """A table of these; of a rank that comes twice, the later numbers count."""
        latest: dict[int, RankStats] = {}
        for row in rows:
            if row.rank not in latest or row.time >= latest[row.rank].time:
                latest[row.rank] = row
        return cls(tuple(latest[rank] for rank in sorted(latest)))

    @property
    def slowest(self) -> RankStats | None:
        """The rank that waits much longer for data than the others, who then wait for it; ``None``: there is none."""
        if len(self.ranks) < 2:
            return None
        worst = max(self.ranks, key=lambda row: row.wait_share)
        return worst if worst.wait_share - self._others(worst) >= _MUCH else None

    def _others(self, row: RankStats) -> float:
        return median(other.wait_share for other in self.ranks if other is not row)

    def total(self) -> dict[str, float]:
        """The counters of all ranks, summed up, under the names of `LoaderStats.as_dict`."""
        total: dict[str, float] = {}
        for row in self.ranks:
            for name, value in row.values.items():
                if name.endswith("_total"):
                    total[name] = total.get(name, 0) + value
        return total

    def __str__(self) -> str:
        if not self.ranks:
            return "no rank has delivered anything yet"
        lines: list[tuple[str, ...]] = [
            ("rank", "host", "batches", "samples/s", "waits", "read", "decode", "transf.", "assemble")
        ]
        lines += [self._line(row) for row in self.ranks]
        return "\n".join([text_table(lines), *self._remarks()])

    @staticmethod
    def _line(row: RankStats) -> tuple[str, ...]:
        seconds = row.values["seconds_total"]
        busy = (row.values.get(f"worker_{stage}_seconds_total", 0.0) for stage in _STAGES)
        return (
            str(row.rank),
            in_one_line(row.host)[:16],
            f"{row.values['batches_total']:,.0f}",
            f"{row.samples_per_second:,.0f}",
            _percent(row.wait_share),
            *(f"{value / seconds if seconds else 0.0:.2f}" for value in busy),
        )

    def _remarks(self) -> Iterable[str]:
        newest = max(row.time for row in self.ranks)
        for row in self.ranks:
            if newest - row.time > _SILENT_S:
                yield f"rank {row.rank} ({in_one_line(row.host)}) was last heard of {newest - row.time:.0f} s earlier"
        count = int(max(row.values.get("world_size", 1) for row in self.ranks))
        missing = sorted(set(range(count)) - {row.rank for row in self.ranks})
        if missing:
            yield f"no numbers of {named(missing)}"
        slow = self.slowest
        if slow is None:
            yield "no rank waits for data much longer than the others"
        else:
            yield (
                f"rank {slow.rank} ({in_one_line(slow.host)}) waits for data {_percent(slow.wait_share)} of the time, "
                f"the others {_percent(self._others(slow))} (median): they wait for it; its bottleneck: "
                f"{in_one_line(slow.bottleneck)}"
            )


def named(ranks: list[int]) -> str:
    """Ranks for a sentence, the first ten of them by number.

    >>> named([3]), named([1, 2])
    ('rank 3', 'ranks 1, 2')
    """
    first = ", ".join(map(str, ranks[:10]))
    more = f" and {len(ranks) - 10} more" if len(ranks) > 10 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {first}{more}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 or not share else f"{100 * share:.1f} %"
