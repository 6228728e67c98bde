"""The epoch number and a loaded state, shared between a data set's copies in the parent and in its workers.

A `DataLoader` tells its workers nothing, and without ``persistent_workers`` makes new copies for each iteration. So
what they must agree on lives in anonymous shared memory that every copy maps: the parent's ``set_epoch`` and
``load_state_dict`` reach persistent workers, and an epoch that all workers have finished is counted for copies that
do not exist yet.
"""

from __future__ import annotations

from typing import Any

from shardstream.errors import UsageError
from shardstream.order import OrderParameters
from shardstream.stream.shared import SharedRecord, SharedWords
from shardstream.stream.state import Begin, parameters_of, values_of

_MOST_WORKERS = 1024

# Places of the words.
_EPOCH = 0
_LOADED = 1  # counts the states that were loaded
_TAKER = 2  # who began an iteration from the last one: 0 nobody, else a number that this iteration's workers share
_BEGUN_EPOCH = 3  # what the last iteration (of workers: the first one) began: the epoch,
_BEGUN_LOADED = 4  # and which state, 0 for the epoch's beginning
_BUSY = 5  # whether workers began an iteration and have not all come to its end
_DROPPED = 6  # whether a worker dropped a single sample, so that samples no longer tell positions
_PINNED = 7  # seven order parameters that a loaded state has brought; 0: none
_MARKS = 14  # a word a worker: the epoch it has finished, plus 1


class EpochClock:
    """Epoch number, loaded state, and a mark for each worker that has finished its part."""

    def __init__(self) -> None:
        self._shared = SharedWords(_MARKS + _MOST_WORKERS)
        self._record = SharedRecord()

    @property
    def _words(self) -> Any:
        return self._shared.words

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration reads."""
        return int(self._words[_EPOCH])

    def set(self, epoch: int) -> None:
        """Choose the next iteration's epoch; a state of another epoch that was loaded and not used is forgotten.

        Raises:
            UsageError: Not an integer in [0, 2**32).
        """
        if type(epoch) is not int or not 0 <= epoch < 1 << 32:
            raise UsageError(f"epoch must be an integer in [0, 2**32), got {epoch!r}", hint="count epochs from 0")
        if epoch != self.epoch:
            self._words[_TAKER] = -1
        self._words[_EPOCH] = epoch

    def finish(self, epoch: int) -> None:
        """The whole of ``epoch`` was consumed: the next one follows. Harmless when said twice."""
        if self.epoch == epoch:
            self._words[_EPOCH] = epoch + 1

    # ------------------------------------------------------------------------------------------------ loaded states

    def load(self, begin: Begin) -> None:
        """The next iteration begins there."""
        self._record.write(begin.as_json())
        self._words[_EPOCH] = begin.epoch
        self._words[_TAKER] = 0
        self._words[_LOADED] += 1
        self._words[_BUSY] = 0
        self.pin(begin.parameters)

    def pin(self, parameters: OrderParameters | None) -> None:
        """All iterations from now on have the order of these parameters, whatever their shape; ``None``: their own."""
        values = (0,) * 7 if parameters is None else values_of(parameters)
        self._words[_PINNED : _PINNED + 7] = values

    @property
    def pinned(self) -> OrderParameters | None:
        """The parameters that a loaded state has brought."""
        values = self._words[_PINNED : _PINNED + 7].tolist()
        return parameters_of(values) if values[0] else None

    @property
    def loaded(self) -> int:
        """How many states were loaded."""
        return int(self._words[_LOADED])

    def pending(self) -> Begin | None:
        """The loaded state that no iteration has begun from yet."""
        if not self.loaded or self._words[_TAKER]:
            return None
        return Begin.from_json(self._record.read())

    def take(self, worker: Any, seen: int) -> Begin | None:
        """The loaded state, if the iteration that begins now is the first since it was loaded.

        Args:
            worker: Of ``get_worker_info``, or ``None``. The workers of one iteration share a seed, which the first one
                leaves here, so that the others may take the same state, and those of later iterations may not.
            seen: `loaded` when this copy of the data set took a state last: a persistent worker takes each once.
        """
        if not self.loaded or seen == self.loaded:
            return None
        taker = 0 if worker is None else 1 + (worker.seed - worker.id) % (1 << 62)
        if self._words[_TAKER] not in (0, taker):
            return None
        self._words[_TAKER] = taker or -1
        return Begin.from_json(self._record.read())

    # ------------------------------------------------------------------------------------------------------ workers

    def begin(self, worker: int, workers: int, begin: Begin, *, resumed: bool) -> None:
        """Worker ``worker`` of ``workers``, 0 for none, begins an iteration."""
        if workers > _MOST_WORKERS:
            raise UsageError(f"{workers} workers are more than {_MOST_WORKERS}", hint="use fewer")
        if workers:
            self._words[_MARKS + worker] = 0
            self._words[_BUSY] = 1
        if worker == 0:
            self._words[_BEGUN_EPOCH] = begin.epoch
            self._words[_BEGUN_LOADED] = self.loaded if resumed else 0
            self._words[_DROPPED] = 0

    def finish_worker(self, epoch: int, worker: int, workers: int) -> None:
        """Worker ``worker`` of ``workers`` has delivered all of its part; the last one to say so ends the epoch."""
        self._words[_MARKS + worker] = epoch + 1
        if bool((self._words[_MARKS : _MARKS + workers] == epoch + 1).all()):
            self._words[_BUSY] = 0
            self.finish(epoch)

    def drop(self) -> None:
        """A worker dropped a sample of an iteration over single samples."""
        self._words[_DROPPED] = 1

    @property
    def busy(self) -> bool:
        """Whether workers are at an iteration that has not ended, as far as is known."""
        return bool(self._words[_BUSY])

    @property
    def dropped(self) -> bool:
        """Whether workers dropped single samples in the last iteration."""
        return bool(self._words[_DROPPED])

    def begun(self) -> Begin:
        """Where the last iteration began."""
        if self._words[_BEGUN_LOADED] and self._words[_BEGUN_LOADED] == self.loaded:
            return Begin.from_json(self._record.read())
        return Begin(int(self._words[_BEGUN_EPOCH]), parameters=self.pinned)
