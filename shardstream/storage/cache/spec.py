"""``Cache``: where cached blocks go, and how much room they may take."""

from __future__ import annotations

import os
from dataclasses import dataclass

from shardstream.errors import UsageError
from shardstream.sizes import parse_size
from shardstream.storage.base.address import absolute, parse


@dataclass(frozen=True, slots=True)
class Cache:
    """A cache of what was read from a store: a folder on a local disk, and memory before it if wanted.

    Objects are admitted until there is no more room; the rest keeps streaming. Nothing is evicted while it is in use:
    a shuffled epoch touches everything once, so whatever were evicted would be needed just as much.

    Args:
        path: Folder of the cache, made at the first use; on ``/dev/shm`` it is a cache in memory. It may be shared by
            any data sets and jobs. It must be empty, or a cache already, and of this user or of root: nothing of
            anybody else is used.
        size: Bytes that `path` may hold, of all data sets and processes together: a number, or ``"800GB"``. Default:
            as much as the file system has, but for a reserve (`shardstream.storage.cache.capacity`).
        memory: Folder of a file system in memory, such as ``"/dev/shm"``, that is filled before `path`; a folder of our
            own is made in it. Default: none. What is fixed is that shuffled training uses all objects alike, so which
            of them lie in memory makes no difference.
        memory_size: Bytes that `memory` may hold. Default: half of what is free at the first use.
        shared: Whether the members of the folder's group share the cache, each of whom says so: what is in it belongs
            to the group, which may write it, whatever the umask says, and each trusts what any of them has put there.
            Default: nobody but this user and root is trusted.

    Raises:
        UsageError: The path is not a local folder, or the size is not a valid one.

    Example:
        >>> Cache("/nvme/cache", size="800GB", memory="/dev/shm", memory_size="64GB").size
        800000000000
    """

    path: str | os.PathLike[str]
    size: int | str | None = None
    memory: str | os.PathLike[str] | None = None
    memory_size: int | str | None = None
    shared: bool = False

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "path", _folder(self.path, "path"))
        if self.size is not None:
            put(self, "size", parse_size(self.size, name="size of the cache"))
        if self.memory is not None:
            put(self, "memory", _folder(self.memory, "memory"))
        if self.memory_size is not None:
            if self.memory is None:
                raise UsageError("memory_size is given, but no memory", hint='name its folder too: memory="/dev/shm"')
            put(self, "memory_size", parse_size(self.memory_size, name="memory_size of the cache"))

        if not isinstance(self.shared, bool):
            raise UsageError(f"shared must be True or False, got {self.shared!r}")

    @classmethod
    def of(cls, value: str | os.PathLike[str] | Cache) -> Cache:
        """What a user gave as ``cache=``: a folder, or a `Cache`.

        Raises:
            UsageError: It is neither.
        """
        return value if isinstance(value, Cache) else cls(value)


def _folder(value: object, name: str) -> str:
    try:
        text = os.fspath(value)  # type: ignore[call-overload]
    except TypeError:
        text = None
    if not isinstance(text, str) or not text:
        raise UsageError(
            f"{name} of a cache must be a folder, got {value!r}", hint="pass a path, or ss.Cache(path, size=...)"
        )
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    if "://" in text:
        raise UsageError(f"a cache must be a local folder, got {parse(text).url!r}", hint="pass a local path")
    return absolute(os.path.expanduser(text))
