"""From workers to the training loop. Knows nothing of formats.

===================  ====================================================================
``loader``           ``Loader``: a ``DataLoader`` with the right settings and a state
``arguments``        those that a ``Loader`` refuses, with the line to write
``iteration``        the items of one iteration of it, and what its consumer has received
``workers``          torch's iterator over worker processes, each of whose waits ends
``frameworks``       what Accelerate, Trainer, Lightning and Fabric find in a ``Loader``
``preemption``       ``Preemption``: SIGTERM, as a fact that all ranks learn in the same step
``rank_check``       ranks compare what they read, in each iteration of a loader
``prefetcher``       ``DevicePrefetcher``: batches on their device some steps ahead
``prefetch_thread``  the thread that does it
``device``           how a batch gets to a device: a package
``synthetic``        ``Synthetic``: batches that cost nothing
``rank_stats``       ``RankTable``: the numbers of several ranks side by side
``gather``           ``gather_stats``: those of all ranks, on every rank
``reporter``         what is told of it every few seconds, to whom
``epoch_progress``   ``progress``: batches with how far the epoch has come
``stall``            what each worker is at, in words, for who waits too long
``tracing``          ``trace``: a file of what took how long, in workers and here
``stats``            ``LoaderStats``: what was delivered, and what training waited for
``diagnosis``        what that means, and what to do about it; also for ``bench``
===================  ====================================================================
"""

from shardstream.load.diagnosis import Diagnosis
from shardstream.load.epoch_progress import progress
from shardstream.load.gather import gather_stats
from shardstream.load.loader import Loader
from shardstream.load.preemption import Preemption
from shardstream.load.prefetcher import DevicePrefetcher
from shardstream.load.rank_stats import RankStats, RankTable
from shardstream.load.stats import LoaderStats
from shardstream.load.synthetic import Synthetic
from shardstream.load.tracing import trace
from shardstream.threads import Processors

__all__ = [
    "DevicePrefetcher",
    "Diagnosis",
    "Loader",
    "LoaderStats",
    "Preemption",
    "Processors",
    "RankStats",
    "RankTable",
    "Synthetic",
    "gather_stats",
    "progress",
    "trace",
]


def __dir__() -> list[str]:
    return sorted(__all__)
