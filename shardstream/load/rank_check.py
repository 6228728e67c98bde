"""Ranks that do not agree on what to read would train on duplicates, or wait for each other for ever.

So they compare it, through the key-value store of ``torch.distributed``, and no rank waits for another. See
``docs/decisions/019-comparing-ranks.md`` for why no rank hangs, and why ranks that rightly iterate unequally pass.

* As an iteration begins, ranks compare what stays the same for the life of a loader (data, seed, shape), and look
  whether another rank has found a difference.
* With its second batch, or its end if that comes first, an iteration gets a number, and ranks compare all of what
  they read under it. Before that, it may be one rank's look at a batch, which counts for nothing.
* At its end they look once more whether another rank has found a difference.

Loaders are told apart by where in the program they were made, so that one that a single rank makes for itself, to look
at its data, does not shift those of all others.
"""

from __future__ import annotations

import inspect
import logging
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import xxhash

from shardstream.errors import RankError
from shardstream.stream.iteration.agreement import Agreement, Plan
from shardstream.stream.iteration.rank_entries import default_store, process_start
from shardstream.stream.iteration.ranks import Rank

logger = logging.getLogger(__name__)


class RankCheck:
    """The comparisons of one loader.

    Args:
        compare: Whether there are any.
    """

    _made: ClassVar[Counter[str]] = Counter()  # loaders by where they were made
    _unreachable: ClassVar[weakref.ref[Any] | None] = None  # the process group whose store has failed

    def __init__(self, *, compare: bool = True) -> None:
        where = _where()
        self.name = f"shardstream/{where}/{RankCheck._made[where]}"
        RankCheck._made[where] += 1
        self._compare = compare
        self._iterations = 0
        self._gatherings = 0
        self._recipe_due = True

    def renew(self) -> None:
        """Compare once more how samples are made: a loaded state may bring another version of the data."""
        self._recipe_due = True

    def next_gathering(self) -> tuple[str, str]:
        """The key under which all ranks leave what they tell one another now, and the one of the time before."""
        number, self._gatherings = self._gatherings, self._gatherings + 1
        return f"{self.name}/stats/{number}", f"{self.name}/stats/{number - 1}"

    def next_number(self) -> int:
        """The number of the iteration that is compared now."""
        number, self._iterations = self._iterations, self._iterations + 1
        return number

    def begin(self, rank: Rank, plan: Callable[[], Plan], recipe: Callable[[], Plan]) -> RankIteration:
        """An iteration begins.

        Args:
            rank: This rank.
            plan: Makes what all ranks must agree on, JSON-able values by name.
            recipe: Makes what ranks that read the same samples must agree on besides.

        Raises:
            RankError: Ranks differ; names what differs, with both values. On each rank that comes here later, too.
        """
        iteration = RankIteration(self, rank, plan if self._compare and rank.world_size > 1 else None)
        iteration.begin(recipe if self._recipe_due and rank.source == "arguments" else None)
        self._recipe_due = False
        return iteration

    @classmethod
    def reach(cls, ask: Callable[[Any], str | None]) -> None:
        """Ask the store of the process group, if there is one; a store that fails is not asked again.

        Raises:
            RankError: The answer is that ranks differ.
        """
        import torch.distributed as dist

        if not (dist.is_available() and dist.is_initialized()):
            return
        group = dist.group.WORLD
        if cls._unreachable is not None and cls._unreachable() is group:
            return
        try:
            difference = ask(default_store())
        except (
            RuntimeError,
            ValueError,
            OSError,
            AttributeError,
            ImportError,
        ) as error:  # a group of MPI has no store at all
            cls._unreachable = weakref.ref(group)
            reason = str(error).partition("\n")[0]  # torch may add the frames of its own stack
            logger.debug("ranks are not compared: the store of torch.distributed cannot be reached: %s", reason)
            return
        if difference is not None:
            raise RankError(
                f"ranks do not read the same: {difference}",
                hint="make the same loaders in the same order on all ranks, with one dataset, seed, epoch, state, "
                "batch size, and number of workers; for separate trainings in one job use "
                "ss.Loader(..., compare_ranks=False)",
            )


class RankIteration:
    """The comparisons of one iteration.

    Args:
        check: The loader's.
        rank: This rank.
        plan: Makes what all ranks must agree on; ``None``: nothing is compared.
    """

    def __init__(self, check: RankCheck, rank: Rank, plan: Callable[[], Plan] | None) -> None:
        self._check = check
        self._rank = rank
        self._plan = plan
        self._compared = False
        if plan is not None:
            self._agreement = Agreement(check.name, self._who(), process_start())

    def _who(self) -> str:
        import torch.distributed as dist

        if self._rank.source != "arguments":
            return f"rank {self._rank.rank}"
        group = dist.is_available() and dist.is_initialized()
        return f"rank {dist.get_rank()} (rank={self._rank.rank})" if group else ""

    def begin(self, recipe: Callable[[], Plan] | None) -> None:
        """Compare what stays the same for the life of the loader.

        Args:
            recipe: See `RankCheck.begin`; ``None``: it is not compared.
        """
        if self._plan is None:
            return
        plan = self._plan()
        RankCheck.reach(lambda store: self._agreement.begin(store, plan, fixed=True))
        if recipe is not None:
            made, (number, count, _) = recipe(), self._rank
            # By fingerprint: another version of the data, of which a state is loaded, may have other fields.
            key = f"{self._check.name}/rank {number} of {count}/{plan['fingerprint']}"
            peers = Agreement(key, self._who(), process_start())

            def ask(store: Any) -> str | None:
                difference = peers.begin(store, made, fixed=False)
                return None if difference is None else self._agreement.publish(store, difference)

            RankCheck.reach(ask)

    def compare(self) -> None:
        """Compare all: this is an iteration, and no look at a batch.

        Raises:
            RankError: Ranks differ.
        """
        if self._plan is not None and not self._compared:
            self._compared = True
            number, plan = self._check.next_number(), self._plan()
            RankCheck.reach(lambda store: self._agreement.compare(store, number, plan))

    def end(self) -> None:
        """All was received: look whether another rank has found a difference.

        Raises:
            RankError: One has.
        """
        if self._compared:
            RankCheck.reach(self._agreement.look)
        else:
            self.compare()


def _where() -> str:
    """Where the program is: the functions that are running, outside of this package, as a hash."""
    frame: FrameType | None = inspect.currentframe()
    calls = []
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] != __package__.partition(".")[0]:
            calls.append((Path(frame.f_code.co_filename).name, frame.f_code.co_name, frame.f_lineno))
        frame = frame.f_back
    return xxhash.xxh3_64_hexdigest(repr(calls).encode())
