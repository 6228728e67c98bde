"""``Reader``: random access to a data set, for notebooks and viewers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from shardstream.dataset.indexes import OpenShards
from shardstream.dataset.opened import OpenedDataset
from shardstream.dataset.rows import RowReader
from shardstream.dataset.source import DatasetSource
from shardstream.dataset.step import Step
from shardstream.dataset.view import ViewSpec
from shardstream.shards.framing import MAX_VALUE
from shardstream.sizes import parse_size
from shardstream.storage import PathOrUrl, Transport, locate
from shardstream.storage.cache import Cache
from shardstream.stream.batching.samples import SampleDecoder, StageClock
from shardstream.stream.iteration.content import ContentPart
from shardstream.stream.iteration.settings import DecodeOptions, Fields
from shardstream.stream.tensors.crops import refuse_samples
from shardstream.stream.tensors.numbers import Numbers, declared_dtypes


class Reader(Sequence[dict[str, Any]]):
    """The samples of a data set by number, in stored order, or by key.

    Args:
        url: The folder of the data set, or its URL.
        fields: What to deliver, as of `ShardDataset`. Default: every field by its type.
        version: Which version of a data set that grew. Default: the newest.
        seed: Of random decoders; sample i is decoded as at position i of epoch 0.
        verify: Compare checksums.
        max_value: Bytes that one value may have, as of `ShardDataset`.
        cache: As of `ShardDataset`.
        storage_options: The same.
        transport: The same.

    Raises:
        NotFoundError: There is no data set.
        FieldError: ``fields`` asks for what does not exist.
        UsageError: There is no such version, or a decoder has ``resize="device"``.

    Example:
        >>> ss.Reader("out/")[0]["cls"]
        17
    """

    def __init__(
        self,
        url: PathOrUrl,
        *,
        fields: Fields = None,
        version: int | None = None,
        seed: int = 0,
        verify: bool = True,
        max_value: int | str = MAX_VALUE,
        cache: str | os.PathLike[str] | Cache | None = None,
        storage_options: Mapping[str, Any] | None = None,
        transport: Transport = "auto",
    ) -> None:
        place = locate(url, storage_options=storage_options, transport=transport)
        home = OpenedDataset(place, cache=None if cache is None else Cache.of(cache), version=version)
        source = DatasetSource([home], ViewSpec(), verify=verify)
        self.manifest = source.manifests[0]
        self._ends = np.cumsum(self.manifest.table.samples, dtype=np.int64)
        part = ContentPart.of(source, DecodeOptions(fields=fields, verify=verify, max_value=max_value))
        refuse_samples(part.plan.cut)
        types = {name: source.fields[name] for name in part.plan.sources}
        largest = parse_size(max_value, name="max_value")
        self._rows = RowReader(OpenShards([source]), types, verify=verify, max_value=largest)
        numbers = Numbers(declared_dtypes(part.plan, source.fields))
        self._decoder = SampleDecoder(self._rows, part, numbers, StageClock(), seed=seed)

    def __len__(self) -> int:
        return self.manifest.samples

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._sample(range(len(self))[index])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))

    def _sample(self, position: int) -> dict[str, Any]:
        shard = int(np.searchsorted(self._ends, position, side="right"))
        row = position - (int(self._ends[shard - 1]) if shard else 0)
        step = Step(0, np.array([position]), np.array([shard]), np.array([row]), None)
        samples, _ = self._decoder.samples(step)
        sample: dict[str, Any] = samples[0]
        return sample

    def get(self, key: str) -> dict[str, Any]:
        """The first sample of this key. Looks through the indexes of the shards, one after another.

        Raises:
            KeyError: There is none.
        """
        start = 0
        for shard in range(self.manifest.shards):
            keys = self._rows.index(shard).keys
            row = next((i for i, other in enumerate(keys) if other == key), None)
            if row is not None:
                return self[start + row]
            start += len(keys)
        raise KeyError(key)
