"""The faults of a `MemoryStore` by name, and what a reader of ours makes of each.

==================  ========================================  =====================================================
fault               what the store does                       what a reader of ours then does
==================  ========================================  =====================================================
``"missing"``       has no such object, though it lists it    ``NotFoundError`` with the URL, at once; it is not
                                                              skipped
``"denied"``        refuses the request                       ``AccessError`` with the URL, at once; it is not
                                                              skipped
``"busy"``          answers "slow down" (status 503)          asks again after a pause, and again; after the store's
                                                              ``patience`` a ``StorageError`` that tells what was
                                                              tried
``"reset"``         cuts the connection after ``after``       goes on with the byte where it ended; else as ``busy``
                    bytes
``"stall"``         sends ``after`` bytes, then nothing       cuts the connection after the store's ``stall``
                    more                                      seconds, and goes on with the byte where it ended;
                                                              else as ``busy``
``"slow"``          takes ``seconds`` for each answer         waits, asking a second time beside it; nothing is
                                                              lost
``"truncated"``     holds the first ``after`` bytes only      ``FormatError`` where the index is gone, else
                                                              ``StorageError`` with the offset; it is not served
``"damaged byte"``  inverts byte ``after`` of the object      ``ChecksumError`` with shard, sample, key, field and
                    (negative: from its end)                  offset; under ``on_error="skip"`` the sample is
                                                              skipped, counted and listed
``"changed"``       writes the same bytes anew, as another    takes the new version once, if the bytes have their
                    version                                   checksums; nothing is lost
==================  ========================================  =====================================================

For an object that is replaced by *other* bytes there is `MemoryStore.plant`.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

from shardstream.errors import UsageError, did_you_mean

FaultName: TypeAlias = Literal[
    "missing", "denied", "busy", "reset", "stall", "slow", "truncated", "damaged byte", "changed"
]
"""See the module."""

_WRITES = ("put", "upload", "delete")
_OF_OBJECTS = ("missing", "truncated", "changed")  # those that happen to what is read only
_IN_BODY = ("reset", "stall", "truncated", "damaged byte")  # those that take `after`


class StoreRequest(NamedTuple):
    """What a `MemoryStore` was asked: ``stop=None`` means up to the end, a negative ``start`` counts from there."""

    kind: Literal["open", "head", "list", "put", "upload", "delete", "copy"]
    path: str
    start: int = 0
    stop: int | None = None

    def holds(self, byte: int, size: int) -> bool:
        """Whether the range holds a byte of an object of this size."""
        start = max(0, size + self.start) if self.start < 0 else self.start
        return start <= byte < (size if self.stop is None else min(self.stop, size))


@dataclass(slots=True)
class FaultRule:
    """When a fault happens.

    Attributes:
        fault: Which.
        path: Pattern of the objects that it happens to, as of a shell.
        left: How many requests more; ``None``: all.
        after: The byte, where the fault has one.
        seconds: How slow an answer is.
        hits: How often it happened.
    """

    fault: FaultName
    path: str = "*"
    left: int | None = None
    after: int = 0
    seconds: float = 0.0
    hits: int = 0

    def __post_init__(self) -> None:
        names = get_args(FaultName)
        if self.fault not in names:
            hint = f"{did_you_mean(str(self.fault), names)}there are {', '.join(map(repr, names))}"
            raise UsageError(f"there is no fault {self.fault!r}", hint=hint)
        if self.left is not None and self.left < 1:
            raise UsageError(f"times must be a positive integer or None, got {self.left}")
        if self.after and self.fault not in _IN_BODY:
            raise UsageError(f"after= is for {', '.join(map(repr, _IN_BODY))}", hint=f"leave it out for {self.fault!r}")
        if self.after < 0 and self.fault != "damaged byte":
            raise UsageError(f"after must not be negative for {self.fault!r}, got {self.after}")
        if self.seconds < 0 or (self.seconds > 0) != (self.fault == "slow"):
            raise UsageError("seconds= is for 'slow', which needs a positive number of them")

    def happens(self, request: StoreRequest, size: int) -> bool:
        """Whether it happens to a request for an object of this size, which it then counts."""
        if self.left == 0 or not fnmatch.fnmatchcase(request.path, self.path) or not self._concerns(request, size):
            return False
        if self.left is not None:
            self.left -= 1
        self.hits += 1
        return True

    def _concerns(self, request: StoreRequest, size: int) -> bool:
        if self.fault == "damaged byte":
            at = self.after + size if self.after < 0 else self.after
            return request.kind == "open" and request.holds(at, size)
        if self.fault in _OF_OBJECTS:
            return request.kind not in ("list", *_WRITES)
        return request.kind == "open" or not self.after
