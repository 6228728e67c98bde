"""``StatsReporter``: tells the numbers of a run every few seconds, to a function of the user's and to a file."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

from shardstream.errors import UsageError
from shardstream.load.stats import LoaderStats
from shardstream.storage.local.output_files import check_regular, write_file
from shardstream.text import in_one_line

logger = logging.getLogger(__name__)

OnStats: TypeAlias = Callable[[dict[str, float]], object]

_OF_SOURCE = re.compile(r"source_(.*)_(samples_total|samples_per_second)", re.DOTALL)


class StatsReporter:
    """Looks at the clock with every batch, in the thread of who takes them, unless it is idle.

    Args:
        stats: The numbers.
        on_stats: Called with `LoaderStats.as_dict` and, of the time since the last call, `LoaderStats.since`, in one.
        every: Seconds from one report to the next. An iteration ends with one, too.
        file: Written with the same, see `Loader`.

    Attributes:
        idle: Whether there is nobody to tell: `step` need not be called.

    Raises:
        UsageError: An argument that cannot be.
    """

    def __init__(
        self,
        stats: LoaderStats,
        on_stats: OnStats | None,
        every: float,
        file: str | os.PathLike[str] | None = None,
    ) -> None:
        if on_stats is not None and not callable(on_stats):
            raise UsageError(f"on_stats must be callable, got {on_stats!r}", hint="give a function of one dict")
        if not every >= 0:
            raise UsageError(f"stats_every must be a number of seconds, got {every!r}", hint="leave it out for 10")
        self._file = None if file is None else os.fspath(file)
        if self._file is not None and not self._file.endswith((".json", ".prom")):
            hint = 'give "stats-{rank}.json", or "stats-{rank}.prom" for Prometheus'
            raise UsageError(f"stats_file must end in .json or .prom, got {self._file!r}", hint=hint)
        self._stats = stats
        self._on_stats = on_stats
        self._every = every
        self._told = stats.as_dict()
        self._due = time.monotonic() + every
        self._warned = False
        self.idle = on_stats is None and file is None

    def begin(self) -> None:
        """An iteration begins.

        Raises:
            UsageError: All ranks would write the same file, or it is a FIFO or a device.
        """
        if self._file is None:
            return
        if self._stats.world_size > 1 and "{rank}" not in self._file:
            raise UsageError(
                f"{self._stats.world_size} ranks would write the same stats_file {self._file!r}",
                hint='put {rank} into its name: "stats-{rank}.json"',
            )
        check_regular(self._name)

    def step(self, *, last: bool = False) -> None:
        """A batch was received; report what there is, if it is time.

        Args:
            last: Whether it was the last one of an iteration.
        """
        if not (last or time.monotonic() >= self._due):
            return
        now = self._stats.as_dict()
        if now["batches_total"] == self._told["batches_total"]:
            return
        values = now | self._stats.since(self._told)
        self._told, self._due = now, time.monotonic() + self._every
        if self._file is not None:
            self._write(self._name, values)
        if self._on_stats is not None:
            self._on_stats(values)

    @property
    def _name(self) -> str:
        assert self._file is not None
        return self._file.replace("{rank}", str(self._stats.rank))

    def _write(self, name: str, values: Mapping[str, float]) -> None:
        prometheus = name.endswith(".prom")
        text = prometheus_text(values) if prometheus else json.dumps(self._stats.of_rank().to_json()) + "\n"
        try:
            write_file(name, text.encode())
        except OSError as error:  # training is worth more than its curves
            if not self._warned:
                logger.warning("the stats_file %s cannot be written: %s", in_one_line(name), error.strerror)
            self._warned = True


def prometheus_text(values: Mapping[str, float]) -> str:
    """Numbers in the text format of Prometheus, for the textfile collector of its node exporter.

    Args:
        values: What an ``on_stats`` function gets.

    >>> print(prometheus_text({"rank": 3, "samples_total": 640}), end="")
    # TYPE shardstream_samples_total counter
    shardstream_samples_total{rank="3"} 640
    """
    rank, lines, told = int(values.get("rank", 0)), [], set()
    for name, value in values.items():
        if name == "rank":
            continue
        source = _OF_SOURCE.fullmatch(name)
        labels = f'rank="{rank}"'
        if source is not None:
            name = f"source_{source[2]}"
            escaped = source[1].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            labels += f',source="{escaped}"'
        if name not in told:
            lines.append(f"# TYPE shardstream_{name} {'counter' if name.endswith('_total') else 'gauge'}")
            told.add(name)
        lines.append(f"shardstream_{name}{{{labels}}} {value}")
    return "".join(f"{line}\n" for line in lines)
