"""The first of two passes over what can only be read in order: its samples, as they come, into temporary shards.

They are shards of ours in the destination, below the folder of receipts, so that any machine of a run reaches them, and
are removed with it. Then the samples are counted and can be read in any order, and the second pass shuffles them like
any other source. It costs writing and reading all bytes once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import xxhash

from shardstream.dataset.opened import DatasetAddress, OpenedDataset
from shardstream.errors import SourceError
from shardstream.pack.encode.files import Files, Unreadable
from shardstream.pack.encode.images import ImageHandling, ImageOptions
from shardstream.pack.encode.reading import read_all
from shardstream.pack.encode.sample import UNREADABLE, SampleEncoder, unreadable, values_of
from shardstream.pack.execution.task import ShardTask, Task
from shardstream.pack.options import PackOptions, ShardOptions
from shardstream.pack.output.receipts import FOLDER, ShardResult, rejects_of
from shardstream.pack.output.rejects import SortedRejects, StoredRejects, save_rejects
from shardstream.pack.plan.inference import infer_types
from shardstream.pack.plan.layout import SAMPLED
from shardstream.pack.plan.permute import Permutation
from shardstream.pack.sources import Reject, Source
from shardstream.pack.sources.base import Item, SourcePart, StreamSource
from shardstream.pack.sources.declared import declared_name
from shardstream.pack.sources.numbered import numbered
from shardstream.pack.sources.stored import StoredSource
from shardstream.pack.sources.values import KEY, is_picture_name
from shardstream.pack.writer import ShardWriter
from shardstream.shards.fields import FieldType
from shardstream.shards.heads import MANIFEST_NAME
from shardstream.shards.manifest import Manifest
from shardstream.storage import Location, Store, open_store
from shardstream.text import valid_unicode

Run: TypeAlias = Callable[[Sequence[Task]], Sequence[ShardResult]]
"""Runs tasks somewhere, all of them."""

_Types: TypeAlias = Mapping[str, FieldType]

_PATTERN = "spool-{:06d}.rec"
_SHARD_SIZE = "1GB"  # of shards that are written one after another


def materialize(
    source: StreamSource, dest: Location, files: Files, run: Run, options: PackOptions, *, again: bool = False
) -> tuple[Source, Iterable[Reject]]:
    """A stream as a source that can be read in any order, and what it held that cannot be packed.

    A stream that an earlier run had read to its end is not read again, if its fingerprint can be known beforehand.

    Args:
        source: The stream.
        dest: Place of the data set.
        files: Reads files that its samples name.
        run: Runs tasks.
        options: Of the whole run. Where it has a transform, types that are declared hold in the second pass.
        again: Whether streams of which an earlier run rejected samples are read again.

    Raises:
        MissingExtraError: They need a package that is not installed.
        SourceError: It holds no sample that can be packed.
        DuplicateKeyError: Two samples have one key.
    """
    known, first = source.fingerprint, options.first_pass
    types = dict(source.types)
    if options.transform is None:
        types = {**source.implied, **types, **source.declared}
    what = f"{known} {first.identity} {_named(types) if types != source.types else ''}"
    name = "spool" if known is None else f"spool-{xxhash.xxh3_64_hexdigest(what.encode())}"
    place = dest.join(f"{FOLDER}/{name}")
    store = open_store(place)
    if known is None or again or not store.exists(MANIFEST_NAME):
        if source.travels:
            options.handling.check_values(value for item in _first(source) for value in item.values.values())
            _by_tasks(source, types, place, files, run, first, again=again)
        else:
            _one_by_one(source, types, place, store, files, options)
    found = StoredSource(
        OpenedDataset(DatasetAddress(place)), key=source.key, fingerprint=known, unique=not source.travels
    )
    found.url, found.decoded = source.url, first.check == "decode"
    if options.transform is None:
        found.types = _with_pictures(found, types)
    found.implied, found.declared = dict(source.implied), dict(source.declared)
    found.notes = (
        *source.notes,
        f"It can only be read in order: {found.manifest.bytes:,} bytes went through temporary shards first.",
    )
    return numbered(found), StoredRejects(place)


def _with_pictures(source: StoredSource, known: _Types) -> dict[str, FieldType]:
    """Its types. What is called like a picture, and is one nearly always, is one, as where samples can be counted."""
    stored = dict(source.types)
    mixed = {name for name, kind in stored.items() if str(kind) == "bytes" and is_picture_name(name)} - known.keys()
    if not mixed:
        return stored
    numbers = Permutation(len(source), seed=0)(np.arange(min(SAMPLED, len(source)), dtype=np.int64))
    others = {name: kind for name, kind in stored.items() if name not in mixed}
    return infer_types(source.part(numbers), others, url=source.url)


def _named(types: _Types) -> dict[str, str]:
    return {name: declared_name(kind) for name, kind in types.items()}


def _first(source: StreamSource) -> Iterator[Item]:
    """The first sample, if there is one."""
    return islice((item for stream in source.streams[:1] for item in stream if isinstance(item, Item)), 1)


def _by_tasks(
    source: StreamSource,
    types: _Types,
    place: Location,
    files: Files,
    run: Run,
    images: ImageHandling,
    *,
    again: bool,
) -> None:
    recipe, store = SampleEncoder(images, types), open_store(place)
    whole = ShardTask(0, "", place, source.streams[0], "record", ShardOptions(), recipe, files, again=again)
    tasks = [
        replace(whole, number=number, name=_PATTERN.format(number), part=stream)
        for number, stream in enumerate(source.streams)
    ]
    results = sorted(run(tasks), key=lambda result: result.number)
    rejects = (one for result in results for one in rejects_of(store, result, _PATTERN.format(result.number)))
    if not any(result.summary.samples for result in results):
        raise _nothing(source, rejects)
    save_rejects(store, rejects)
    summaries = [result.summary for result in results]
    Manifest.of(summaries, _PATTERN, framing="record", classes=source.classes).save(store)


def _one_by_one(
    source: StreamSource, types: _Types, place: Location, store: Store, files: Files, options: PackOptions
) -> None:
    first = options.first_pass
    given: dict[str, Any] = {"format": "record", "shard_size": _SHARD_SIZE, "classes": source.classes}
    given |= {"fields": _named(types), "damaged": first.damaged}
    with SortedRejects() as rejects:
        with ShardWriter(place, **given, images=ImageOptions(check=first.check), overwrite=True) as writer:
            for stream in source.streams:
                rejects.add(_write(stream, writer, types, files, options.handling))
            if not writer.samples:
                raise _nothing(source, rejects)
        save_rejects(store, rejects)


def _write(
    stream: SourcePart, writer: ShardWriter, types: _Types, files: Files, images: ImageHandling
) -> Iterator[Reject]:
    """Write what can be packed; gives the rest."""
    lacking = images.lacks_numba
    for item, contents in read_all(stream, files.read):
        if isinstance(item, Reject):
            yield item
        elif isinstance(contents, Unreadable):
            yield Reject(item.line, valid_unicode(item.path), str(contents), kind=contents.kind)
        else:
            try:
                values = values_of(item, contents)
                if lacking:
                    images.check_values(values.values())
                _write_one(writer, types, {KEY: item.key, **values})
            except Unreadable as error:
                yield Reject(item.line, valid_unicode(item.path), str(error), kind=error.kind)


def _write_one(writer: ShardWriter, types: _Types, sample: Mapping[str, Any]) -> None:
    """Write a sample; `Unreadable` if it cannot be packed, as where it is packed in one pass."""
    try:
        writer.write(sample)
    except UNREADABLE as error:
        declared = next((name for name in types if name == error.place.get("field")), None)
        raise unreadable(error, declared) from error


def _nothing(source: StreamSource, rejects: Iterable[Reject]) -> SourceError:
    one = next(iter(rejects), None)
    if one is None:
        return SourceError("it holds no samples", url=source.url, hint="name a source that holds some")
    return SourceError(
        f"no sample can be packed ({one.path}: {one.reason})", url=source.url, hint="look at what it holds"
    )
