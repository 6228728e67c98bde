"""``doctor``: all checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from shardstream.diagnose.doctor import caching
from shardstream.diagnose.doctor.finding import Finding
from shardstream.diagnose.doctor.gpus import gpu_findings
from shardstream.diagnose.doctor.memory import memory_findings
from shardstream.diagnose.doctor.packages import package_findings
from shardstream.diagnose.doctor.processors import processor_findings
from shardstream.diagnose.doctor.reaching import store_findings
from shardstream.diagnose.doctor.workload import Workload, expected
from shardstream.errors import ShardStreamError, UsageError
from shardstream.options import takes_flat
from shardstream.shards.manifest import Manifest
from shardstream.sizes import parse_size
from shardstream.storage import Location, PathOrUrl, locate
from shardstream.storage.base.location import flat_transport


@takes_flat(flat_transport("url"))
def doctor(
    url: PathOrUrl | None = None,
    *,
    cache: str | None = None,
    num_workers: int | None = None,
    batch_bytes: int | str = "20MB",
    storage_options: Mapping[str, Any] | None = None,
) -> list[Finding]:
    """Look at this machine as training would find it: packages, cores, memory, a cache, a store, GPUs.

    Nothing is written and nothing is started on a GPU. Without ``url`` nobody is asked over a network.

    Args:
        url: A data set, or the folder or bucket where one lies or will lie. Two small requests and some ranged reads.
        cache: Folder of a cache, as training is given it. It need not exist.
        num_workers: Workers of a loader. Default: as many as it takes by itself.
        batch_bytes: Size of a batch, in bytes or as ``"20MB"``: 128 images of 224 x 224 take that.
        storage_options: Credentials and settings by name; default: the environment's.

    Returns:
        What was found, in the order of the checks. Training will not work while one is of the level ``"fail"``.

    Raises:
        UsageError: An argument that cannot be meant.

    Example:
        >>> [one.check for one in ss.doctor() if one.level == "fail"]
        []
    """
    place = None if url is None else locate(url, storage_options=storage_options)
    if num_workers is not None and num_workers < 0:
        raise UsageError(f"num_workers must be 0 or more, got {num_workers}", hint="write num_workers=2")
    work = expected(num_workers, parse_size(batch_bytes, name="batch_bytes"))
    return [*_findings(place, cache, work)]


def _findings(place: Location | None, cache: str | None, work: Workload) -> Iterator[Finding]:
    yield from package_findings()
    yield from processor_findings(work)
    yield from memory_findings(work)
    yield from gpu_findings(work)
    if place is not None:
        yield from store_findings(place)
    if cache is not None:
        yield caching.cache(caching.cache_folder(cache), None if place is None else _bytes_of(place))


def _bytes_of(place: Location) -> int | None:
    """Bytes of a data set of ours; ``None`` where there is none."""
    with suppress(ShardStreamError):
        return Manifest.load(place).bytes
    return None
