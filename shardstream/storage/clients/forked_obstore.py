"""The obstore of this process.

obstore's extension runs threads of its own, which a fork does not copy: a child whose parent has used it would wait for
them for ever at its first request. Torch's DataLoader forks its workers wherever fork is the default, after the data
set was opened in the parent. So a forked child loads a second, fresh copy of the extension. The system's loader shares
what comes from one file (one inode), hence the copy has to be another file: a nameless one in memory that the parent
makes just before its first fork, so that all its children share its pages.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shutil
import sys
import tempfile
from types import ModuleType
from typing import Any

from shardstream.errors import StorageError
from shardstream.extras import lacking, require

_EXTENSION = "obstore._obstore"
_copy: int | None = None  # a descriptor of the copy that children of this process load; stays open
_stale = False  # whether the modules that are loaded belong to a process we were forked from
_copied_by = 0  # process that made _copy


def obstore() -> ModuleType:
    """The package obstore, fit for use in this process.

    Raises:
        MissingExtraError: obstore is not installed, or its extension has another name.
        StorageError: A forked process could load no copy of its own.
    """
    if _stale:
        _load_copy()
    package = require("obstore", extra="s3", purpose="to read s3://, az://, gs:// and http:// URLs")
    if _EXTENSION not in sys.modules:  # a forked process would wait for ever for threads of one by another name
        raise lacking("obstore", _EXTENSION)
    return package


def module(name: str) -> Any:
    """A module below obstore, such as ``"store"``, of this process."""
    obstore()
    return importlib.import_module(f"obstore.{name}")


def _before_fork() -> None:
    """Give the children a file to load, unless there is one already that this process has not loaded itself."""
    global _copy, _copied_by
    if _EXTENSION not in sys.modules or _stale or _copied_by == os.getpid():
        return
    if _copy is not None:
        os.close(_copy)
    _copy, _copied_by = None, os.getpid()
    try:
        with open(_source(), "rb") as source:
            handle = os.memfd_create("shardstream-obstore")
            with os.fdopen(os.dup(handle), "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
        _copy = handle
    except (OSError, ImportError, ValueError):
        pass  # the child makes a temporary file


def _after_fork() -> None:
    global _stale
    _stale = _EXTENSION in sys.modules


def _source() -> str:
    """The extension's file as it was installed."""
    root = importlib.util.find_spec("obstore")
    found = importlib.machinery.PathFinder.find_spec(_EXTENSION, root.submodule_search_locations if root else None)
    if found is None or found.origin is None:
        raise OSError("obstore's extension was not found")
    return found.origin


def _load_copy() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "obstore"]:
        del sys.modules[name]
    problem: Exception | None = None
    if _copy is not None:
        try:
            # By the number of the process too: the loader takes a path that it has seen for the same file.
            return _load(f"/proc/{os.getpid()}/fd/{_copy}")
        except (OSError, ImportError) as error:
            problem = error
    try:
        with tempfile.NamedTemporaryFile(prefix="shardstream-", suffix=".so") as target:
            with open(_source(), "rb") as source:
                shutil.copyfileobj(source, target, 1 << 20)
            target.flush()
            _load(target.name)
    except (OSError, ImportError) as error:
        raise StorageError(
            f"a forked process could not load its own copy of obstore ({problem or error})",
            hint="let the system load libraries from memory or from TMPDIR, or start workers by spawn "
            '(DataLoader(..., multiprocessing_context="spawn"))',
        ) from error


def _load(path: str) -> None:
    """Make what lies there the extension of this process."""
    global _stale
    loader = importlib.machinery.ExtensionFileLoader(_EXTENSION, path)
    spec = importlib.util.spec_from_file_location(_EXTENSION, path, loader=loader)
    assert spec is not None
    extension = importlib.util.module_from_spec(spec)
    sys.modules[_EXTENSION] = extension
    try:
        loader.exec_module(extension)
    except BaseException:
        del sys.modules[_EXTENSION]
        raise
    _stale = False


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
