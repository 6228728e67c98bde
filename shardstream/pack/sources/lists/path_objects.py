"""Paths from Python, as a list of files: a sequence or an iterator of ``str`` and ``Path``."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import xxhash

from shardstream.errors import SourceError
from shardstream.pack.sources.lists.columns import Columns, Wanted
from shardstream.pack.sources.lists.records import packed
from shardstream.pack.sources.lists.source import ListSource, row_reader
from shardstream.pack.sources.lists.spool import Spool
from shardstream.storage import locate


def path_list(samples: Any, wanted: Wanted) -> tuple[ListSource | None, Any]:
    """Paths as a list of files, copied to a temporary file; what they are relative to is the current directory.

    Args:
        samples: Samples from Python, of which the first tells.
        wanted: How keys are made.

    Returns:
        The list, or ``None`` if the first sample is no path; and the samples, for an iterator with the first one again.

    Raises:
        SourceError: A later sample is no path, or a path is empty.
        DuplicateKeyError: Two paths have the same key.
    """
    name = f"a {type(samples).__name__}"
    if isinstance(samples, Iterator):
        first: Sequence[Any] = list(itertools.islice(samples, 1))
        samples = itertools.chain(first, samples)
    elif isinstance(samples, Sequence) and not isinstance(samples, bytes | bytearray):
        first = samples[:1]
    else:
        return None, samples  # nobody knows what a second look at it costs
    if not len(first) or not isinstance(first[0], str | os.PathLike):
        return None, samples
    return _source(samples, name, wanted), samples


def _source(samples: Iterable[Any], name: str, wanted: Wanted) -> ListSource:
    spool, hasher = Spool(), xxhash.xxh3_128()
    try:
        for number, sample in enumerate(samples):
            if not isinstance(sample, str | os.PathLike):
                raise SourceError(
                    f"sample {number} is a {type(sample).__name__}, and the first is a path",
                    url=name,
                    hint="pass paths alone, or dicts of fields alone",
                )
            record = packed([os.fsdecode(sample)])
            hasher.update(record)
            spool.add(record)
    except BaseException:
        spool.close()
        raise
    columns = Columns(1)
    return ListSource(
        spool.finish(name), row_reader("packed", columns, wanted, locate(os.path.curdir).join(name)), hasher.hexdigest()
    )
