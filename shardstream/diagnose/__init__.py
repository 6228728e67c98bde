"""What can be said about a data set: functions that return values. The command line prints them.

=================  =====================================================================
``info``           what a data set holds, from its manifest and one index
``verify``         every byte compared with what was written; all problems, not the first
``reseal``         checksums of manifests that were edited by hand
``cache``          what is in the cache of a machine; filling, comparing and clearing it
``members``        what ``verify`` checks of tar shards besides: the tar's own headers
``whole``          whole shards, the next one on its way while one is looked at
``view``           single samples, looked at closely
``overview``       samples from all over a data set and what its fields hold, for a page
``draws``          what training gets of a sample, epoch after epoch, and what was in a batch
``shown``          one value as a page can show it
``summaries``      what a field holds, for ``overview``
``bench``          how fast a data set streams here, and what keeps it from being faster
``sweep``            which settings stream fastest here, and what other data would gain
``stages``           what each stage takes alone, for ``sweep``
``doctor``         whether this machine is fit for training
``top``            what each worker of a run on this machine is at
``decoding``       how fast each image backend decodes here
``processor``      who computes, for ``bench``
=================  =====================================================================
"""

from shardstream.diagnose.bench import BenchReport, bench
from shardstream.diagnose.decoding import BackendReport, DecodeReport, DecodeSpeed, bench_decode
from shardstream.diagnose.doctor import Finding, doctor
from shardstream.diagnose.info import FieldInfo, Info, info
from shardstream.diagnose.reseal import reseal
from shardstream.diagnose.sweep import SweepReport, sweep
from shardstream.diagnose.top import RunSeen, WorkerSeen, top
from shardstream.diagnose.verify import Problem, VerifyReport, verify
from shardstream.diagnose.view import View, ViewedField, ViewedSample, view

__all__ = [
    "BackendReport",
    "BenchReport",
    "DecodeReport",
    "DecodeSpeed",
    "FieldInfo",
    "Finding",
    "Info",
    "Problem",
    "RunSeen",
    "SweepReport",
    "VerifyReport",
    "View",
    "ViewedField",
    "ViewedSample",
    "WorkerSeen",
    "bench",
    "bench_decode",
    "doctor",
    "info",
    "reseal",
    "sweep",
    "top",
    "verify",
    "view",
]


def __dir__() -> list[str]:
    return sorted(__all__)
