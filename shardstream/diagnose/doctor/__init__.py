"""Whether this machine is fit for training: what is there, what is missing, and what to write about it.

Each check is a pure function from facts to a `Finding`; the facts are gathered apart.

==============  ==================================================================
``run``         ``doctor``: all checks, as a list
``finding``     ``Finding``: ok, warn or fail, the fact, the fix
``workload``    ``Workload``: workers and batches that the machine has to carry
``packages``    versions; decoders and what makes them fast
``processors``  cores against workers and their threads; the start method
``memory``      ``/dev/shm``, memory, open files
``caching``     the folder of a cache: its disk, its room
``reaching``    a store: credentials, answers, latency, clocks
``gpus``        GPUs, their driver, locked memory, NUMA nodes
==============  ==================================================================
"""

from __future__ import annotations

from shardstream.diagnose.doctor.finding import Finding
from shardstream.diagnose.doctor.run import doctor

__all__ = ["Finding", "doctor"]
