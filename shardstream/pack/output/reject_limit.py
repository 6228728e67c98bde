"""``SourceOptions(max_rejects=...)``: how many samples may be rejected before a run ends with an error."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from shardstream.errors import TooManyRejectsError, UsageError
from shardstream.pack.output.rejects import summary_of
from shardstream.pack.output.stats import PackStats
from shardstream.pack.sources import Reject
from shardstream.sizes import plural

_FROM = 1000  # samples read, before which a share says little
_SHARE = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*%")


@dataclass(slots=True)
class RejectLimit:
    """The largest number or share of samples that may be rejected.

    Attributes:
        given: As users write it: a number, or ``"P%"``; ``None`` for any.
        url: Where the data set is written, for messages.

    Raises:
        UsageError: It is neither.
    """

    given: int | str | None
    url: str | None = None
    _most: int | None = field(default=None, init=False)
    _share: float | None = field(default=None, init=False)
    _before: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        given = self.given
        if isinstance(given, str) and (match := _SHARE.fullmatch(given.strip())) and float(match[1]) <= 100:
            self._share = float(match[1]) / 100
        elif isinstance(given, str) and given.strip().isdecimal():
            self._most = int(given)
        elif isinstance(given, int) and not isinstance(given, bool) and given >= 0:
            self._most = given
        elif given is not None:
            raise UsageError(
                f"max_rejects must be a number of samples from 0 on, or a share such as '0.5%', got {given!r}",
                hint="reading=SourceOptions(max_rejects='0.5%') (--max-rejects 0.5%), or a number",
            )

    def __bool__(self) -> bool:
        return self.given is not None

    def begin(self, rejects: Iterable[Reject], samples: int) -> None:
        """Take what is lost of a source into account before any of its samples is packed.

        Args:
            rejects: The losses, which were found by reading all of it.
            samples: Samples that are left.

        Raises:
            TooManyRejectsError: They are too many, or their number cannot be known.
        """
        if not self:
            return
        found = summary_of(rejects)
        if found.uncounted:
            files = f"of {plural(found.uncounted, 'file')} an unknown number of samples is lost"
            first = next(one for one in rejects if one.samples is None)
            raise self._error(f"{files}, such as {first.path}: {first.reason}")
        self._before = found.count
        self._check(found.count, found.count + samples)

    def check(self, tally: PackStats) -> None:
        """Compare with what was packed so far.

        Args:
            tally: Counts of all shards, those of earlier runs included.

        Raises:
            TooManyRejectsError: Too many were rejected.
        """
        if self._most is not None:
            self._check(self._before + tally.rejects, self._before + tally.done)
        elif tally.done >= _FROM:  # what was lost before is a share of all samples, and not of these
            self._check(tally.rejects, tally.done)

    def end(self, tally: PackStats) -> None:
        """Compare with what was packed in all; raises as `check`."""
        self._check(self._before + tally.rejects, self._before + tally.done)

    def _check(self, rejects: int, read: int) -> None:
        most = self._most if self._share is None else self._share * read
        if most is not None and rejects > most:
            raise self._error(f"{rejects:,} of {plural(read, 'sample')} read so far cannot be packed")

    def _error(self, what: str) -> TooManyRejectsError:
        return TooManyRejectsError(
            f"{what}; max_rejects is {self.given}",
            url=self.url,
            hint="`shardstream pack SOURCE DEST --dry-run` shows some with their reasons; correct the data and run it "
            "again, which reads them again, or raise reading=SourceOptions(max_rejects=...) (--max-rejects)",
        )
