"""What a loader delivered, and how long its consumer waited for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from shardstream.stream.parcel import Parcel

_LISTED = 1000


@dataclass(slots=True)
class LoaderStats:
    """Counters over the life of a `Loader`, or since `reset`.

    A high `wait_share` says that training waits for data: add workers, or make decoding cheaper. A low one says
    that data waits for training, and no loader could be faster.

    Attributes:
        batches: Batches delivered; samples, where the loader has no batch size.
        samples: Samples delivered, without padding and skipped ones.
        wait_seconds: Time that the loop spent inside the loader, waiting.
        seconds: Time between the first request and the last: waiting, and what the loop did with the data.
        worker_seconds: Time that workers spent on these data, all of them together.
        skipped: Number of samples that were skipped for broken data.
        skipped_places: Where the first 1,000 of them lie, and why.
        sources: Of a mixture: samples delivered from each source, by name.
        transfers: What the workers read over a network: requests, bytes, retries by reason, hedged reads, bytes that
            the cache served and fetched; see ``docs/storage.md``. Empty for local data.
    """

    batches: int = 0
    samples: int = 0
    wait_seconds: float = 0.0
    seconds: float = 0.0
    worker_seconds: float = 0.0
    skipped: int = 0
    skipped_places: list[str] = field(default_factory=list)
    sources: dict[str, int] = field(default_factory=dict)
    transfers: dict[str, int] = field(default_factory=dict)

    @property
    def wait_share(self) -> float:
        """Share of the time that was waiting, in [0, 1]; 0 before anything was delivered."""
        return self.wait_seconds / self.seconds if self.seconds else 0.0

    @property
    def samples_per_second(self) -> float:
        """Samples delivered a second; 0 before anything was delivered."""
        return self.samples / self.seconds if self.seconds else 0.0

    def add(self, parcel: Parcel) -> None:
        """Count a parcel from a worker."""
        self.samples += parcel.samples
        self.worker_seconds += parcel.seconds
        self.skipped += len(parcel.skipped)
        _add(self.sources, parcel.sources)
        _add(self.transfers, parcel.transfers)
        self.skipped_places += parcel.skipped[: _LISTED - len(self.skipped_places)]

    def reset(self) -> None:
        """Begin anew."""
        self.__init__()  # type: ignore[misc]  # a dataclass without arguments


def _add(totals: dict[str, int], more: dict[str, int]) -> None:
    for name, count in more.items():
        totals[name] = totals.get(name, 0) + count
