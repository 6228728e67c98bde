"""A run's tasks for worker processes of this machine: pickled once, so that a task is a number.

What a plan holds much of stays where it is: a worker opens the list or the temporary file by the descriptor that it
inherits, and maps large arrays from files without names. So it reads its part of the plan itself, and nothing of it
goes through this process again.
"""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.lists.list_file import ListFile
from shardstream.memory_files import memory_file
from shardstream.pack.execution.jobs import PackJob, Result
from shardstream.storage.base.sorting import no_room

_LARGE = 1 << 16  # bytes of an array that is mapped


class Lent:
    """Tasks in files that child processes inherit; a context manager.

    Args:
        tasks: The tasks.

    Attributes:
        descriptors: What a child has to inherit, under the same numbers.
        handle: Descriptor of what `borrowed` takes.

    Raises:
        StorageError: The disk is full.
    """

    def __init__(self, tasks: Sequence[PackJob[Result]]) -> None:
        with ExitStack() as files:
            # In memory, as storage options may hold keys.
            self.handle = memory_file("shardstream-tasks")
            files.callback(os.close, self.handle)
            with open(self.handle, "wb", closefd=False) as out:
                pickler = _Pickler(out, files)
                pickler.dump(tasks)
            self.descriptors = (self.handle, *pickler.descriptors)
            self._files = files.pop_all()

    def __enter__(self) -> Lent:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()


def borrowed(handle: int) -> Sequence[PackJob[Result]]:
    """The tasks, in a process that has inherited them.

    Args:
        handle: Of `Lent`.
    """
    with mmap.mmap(handle, 0, prot=mmap.PROT_READ) as data:
        tasks: Sequence[PackJob[Result]] = pickle.loads(data)  # noqa: S301 - of this run's own parent process
    return tasks


class _Pickler(pickle.Pickler):
    def __init__(self, out: Any, files: ExitStack) -> None:
        super().__init__(out, pickle.HIGHEST_PROTOCOL)
        self._files = files
        self.descriptors: list[int] = []

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, ListFile):
            handle, url, stamp = value.inherited
            self.descriptors.append(handle)
            return ListFile, (handle, url, stamp)
        if type(value) is np.ndarray and value.nbytes >= _LARGE and not value.dtype.hasobject:
            return _mapped, (self._written(value), value.dtype.str, value.shape)
        return NotImplemented

    def _written(self, array: NDArray[Any]) -> int:
        file = self._files.enter_context(tempfile.TemporaryFile(prefix="shardstream-"))  # noqa: SIM115 - it is one
        try:
            file.write(np.ascontiguousarray(array).data)
            file.flush()
        except OSError as error:
            raise no_room(error) from error
        self.descriptors.append(file.fileno())
        return file.fileno()


def _mapped(handle: int, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    return np.frombuffer(mmap.mmap(handle, 0, prot=mmap.PROT_READ), dtype).reshape(shape)
