"""What every part is given, and what it returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

import torch


class NeedsCuda(Exception):
    """The part has nothing to say where there is no CUDA device."""


class Row(NamedTuple):
    """One thing that was looked at.

    Attributes:
        what: What, in words.
        found: A figure with its unit, or a verdict.
        aim: What was hoped for, where there is such a thing.
        failed: Whether it is a defect.
    """

    what: str
    found: str
    aim: str = ""
    failed: bool = False


@dataclass(frozen=True)
class Setting:
    """Where a part runs.

    Attributes:
        root: The checkout.
        shards: Photographs with the fields jpg and cls, addressable.
        scratch: A folder for what it makes.
        quick: Whether a few seconds must do.
    """

    root: str
    shards: str
    scratch: str
    quick: bool

    @property
    def device(self) -> torch.device:
        """The GPU, where there is one."""
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def need_cuda(self) -> None:
        """Leave a part that is about nothing else."""
        if self.device.type != "cuda":
            raise NeedsCuda("needs a CUDA device")

    def some(self, count: int) -> int:
        """How often something is done."""
        return max(count // 10, 2) if self.quick else count


def synchronize(device: torch.device) -> None:
    """Wait until a device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def first_line(error: Exception) -> str:
    """What an error says, without its hint."""
    return str(error).partition("\n")[0]


@contextmanager
def one_thread() -> Iterator[None]:
    """In it, torch's operators have one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def seconds(device: torch.device, call: Callable[[], Any], times: int) -> float:
    """The median of some calls, each waited for, after one that is not counted."""
    call()
    synchronize(device)
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        synchronize(device)
        taken.append(time.perf_counter() - begun)
    return median(taken)
