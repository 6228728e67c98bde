"""From a `Cache` to its tiers, the one to be filled first first; and whether memory is what the user takes it for."""

from __future__ import annotations

import hashlib
import os
from weakref import WeakValueDictionary

from shardstream.storage.cache.capacity import RESERVED_MEMORY, memory_left
from shardstream.storage.cache.spec import Cache
from shardstream.storage.cache.tier import Tier

_GIB = 1 << 30


_open: WeakValueDictionary[tuple[object, ...], Tier] = WeakValueDictionary()


def tiers_of(cache: Cache) -> list[Tier]:
    """The tiers of a cache; nothing is looked at yet. Data sets of one process share them, with what they hold open."""
    path = os.fspath(cache.path)
    assert isinstance(path, str), "Cache makes them so"
    size = cache.size if isinstance(cache.size, int) else None
    disk = _tier(cache, path, size, None)
    if cache.memory is None:
        return [disk]
    memory_size = cache.memory_size if isinstance(cache.memory_size, int) else None
    return [_tier(cache, memory_folder(cache), memory_size, disk), disk]


def _tier(cache: Cache, root: str, limit: int | None, disk: Tier | None) -> Tier:
    key = os.getpid(), root, limit, cache.shared, id(disk)
    found = _open.get(key)
    if found is None or found.gone:
        found = _open[key] = Tier(root, limit, modest=disk is not None, shared=cache.shared, disk=disk)
    return found


def memory_folder(cache: Cache) -> str:
    """Our own folder in the memory that the user names: another one for each cache."""
    name = hashlib.blake2s(os.fsencode(cache.path), digest_size=8).hexdigest()
    return os.path.join(os.fsdecode(cache.memory or ""), f"shardstream-{name}")


def shortage(tier: Tier) -> str | None:
    """What to tell a user who asks for more memory than there is; ``None`` if there is enough.

    Raises:
        OSError: It cannot be looked at.
    """
    if tier.limit is None or not tier.memory:
        return None
    with tier.ledger.open() as entry:
        possible = tier.most(entry)
        used = entry.used
    if tier.limit <= possible:
        return None
    left = memory_left()
    if left is not None and left + used < tier.limit:
        return (
            f"{tier.root} may hold {tier.limit:,} bytes, but the memory limit of the container leaves {possible:,}; "
            "raise that limit, or ask for less with memory_size="
        )
    return f"{tier.root} may hold {tier.limit:,} bytes, but there is room for {possible:,}; {more_memory(tier.limit)}"


def more_memory(wanted: int) -> str:
    """How to give a container so many bytes of memory for files.

    >>> more_memory(64 * 10**9).partition(",")[0]
    'start the container with --shm-size=64g'
    """
    size = -(-min(wanted * 4 // 3, wanted + RESERVED_MEMORY) // _GIB)
    return (
        f"start the container with --shm-size={size}g, or on Kubernetes mount a volume "
        f"emptyDir: {{medium: Memory, sizeLimit: {size}Gi}} at /dev/shm (it counts as memory of the container)"
    )
