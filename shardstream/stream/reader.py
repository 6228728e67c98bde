"""``Reader``: random access to a data set, for notebooks and viewers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shardstream.dataset.conditions import Where
from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.keys.documents import DocumentFinder
from shardstream.dataset.keys.finder import KeyFinder
from shardstream.dataset.keys.selection import rows_where
from shardstream.dataset.opening import open_dataset
from shardstream.dataset.rows import RowBatch
from shardstream.dataset.source import DatasetSource
from shardstream.dataset.step import Step
from shardstream.dataset.view import ViewSpec
from shardstream.errors import ShardStreamError, UsageError
from shardstream.options import SourceOptions, takes_flat
from shardstream.sizes import parse_size, plural
from shardstream.storage import PathOrUrl
from shardstream.storage.base.location import flat_transport
from shardstream.storage.cache import Cache
from shardstream.stream.batching.samples import SampleDecoder, StageClock, StepDecoding
from shardstream.stream.contact_sheet import contact_sheet, stored_cells
from shardstream.stream.iteration.content import ContentPart
from shardstream.stream.iteration.settings import DecodeOptions, Fields, ReadOptions
from shardstream.stream.tensors.crops import refuse_samples
from shardstream.stream.tensors.numbers import Numbers, declared_dtypes
from shardstream.text import html_text

_TOGETHER = 256  # samples of a list that are read at once, but
_BYTES = 64 << 20  # fewer where they are large: so many bytes of mean ones
_SHEET = 12  # samples of a contact sheet
_FIELDS = 12  # that a repr names


class Reader(Sequence[dict[str, Any]]):
    """The samples of a data set by number, in stored order, or by key.

    ``reader[3]`` and ``reader[-1]`` are samples; ``reader[10:20]`` and ``reader[[7, 3, 7]]`` lists of them, whose bytes
    are read side by side. ``for sample in reader`` reads the bytes of some samples at a time, and decodes one after
    another. ``len(reader)`` counts them, ``key in reader`` says whether there is one of this key, or a document in some
    bin. A notebook shows a reader as a contact sheet of its first samples.

    Args:
        url: The folder of the data set, its URL, or a store, see `ShardDataset`.
        fields: What to deliver, as of `ShardDataset`. Default: every field by its type.
        version: Which version of a data set that grew. Default: the newest.
        fingerprint: The fingerprint that the dataset has to have, as of `ShardDataset`. Default: any.
        seed: Of random decoders; sample i is decoded as at position i of epoch 0.
        reads: ``verify`` and ``max_value`` of `ReadOptions`.
        cache: As of `ShardDataset`.
        replicas: As of `ShardDataset`.
        storage_options: As of `ShardDataset`.
        reading: As of `ShardDataset`.

    Raises:
        NotFoundError: There is no data set.
        FieldError: ``fields`` asks for what does not exist.
        UsageError: There is no such version, or a decoder has ``resize="device"``.

    Example:
        >>> reader = ss.Reader("out/")
        >>> reader[0]["cls"], reader.get("photo/3")["__key__"], "photo/200" in reader
        (17, 'photo/3', False)
    """

    @takes_flat(flat_transport("url", "replicas"), reads=ReadOptions, reading=SourceOptions)
    def __init__(
        self,
        url: PathOrUrl,
        *,
        fields: Fields = None,
        version: int | None = None,
        fingerprint: str | None = None,
        seed: int = 0,
        reads: ReadOptions | None = None,
        cache: str | os.PathLike[str] | Cache | None = None,
        replicas: Sequence[PathOrUrl] = (),
        storage_options: Mapping[str, Any] | None = None,
        reading: SourceOptions | None = None,
    ) -> None:
        arguments: dict[str, Any] = {
            "cache": cache,
            "replicas": replicas,
            "storage_options": storage_options,
            "reading": reading,
        }
        self._dataset = open_dataset(url, version=version, fingerprint=fingerprint, **arguments)
        self.manifest = self._dataset.manifest
        arguments |= {"fields": fields, "seed": seed, "reads": reads}
        self._again = partial(
            Reader, url, version=self.manifest.version, fingerprint=self.manifest.fingerprint, **arguments
        )
        reads = reads or ReadOptions()
        verify, largest = reads.verify, parse_size(reads.max_value, name="max_value")
        self._source = source = DatasetSource([self._dataset], ViewSpec(), verify=verify)
        part = ContentPart.of(source, DecodeOptions(fields=fields, reads=reads))
        refuse_samples(part.plan.cut)
        self._rows = DatasetRows(self._dataset, part.plan.sources, verify=verify, max_value=largest)
        self._together = max(1, min(_TOGETHER, int(_BYTES / max(source.mean_bytes, 1))))
        self._verify = verify
        self._keys = KeyFinder(self._rows)
        numbers = Numbers(declared_dtypes(part.plan, source.fields))
        bins = self.manifest.bins
        options: dict[str, Any] = {"verify": verify, "max_value": largest}
        self._documents = None if bins is None else DocumentFinder(self._dataset, bins, **options)
        self._decoder = SampleDecoder(self._rows, part, numbers, StageClock(), seed=seed)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._again, ()

    def __repr__(self) -> str:
        found = self.manifest
        fields = ", ".join(f"{name} {kind}" for name, kind in islice(found.fields.items(), _FIELDS))
        more = f", and {len(found.fields) - _FIELDS} more" if len(found.fields) > _FIELDS else ""
        of = f"{plural(len(self), 'sample')} in {plural(found.shards, 'shard')}, version {found.version}"
        return f"Reader({self._dataset.url!r}: {of}; {fields}{more})"

    def _repr_html_(self) -> str:
        """A contact sheet of the first samples as they are stored, for notebooks; a table without image decoders."""
        most = min(_SHEET, self._together)
        try:
            return contact_sheet(repr(self), stored_cells(self._dataset, most, verify=self._verify))
        except ShardStreamError as error:  # a cell of a notebook shows what can be shown
            return f"<div><p>{html_text(repr(self))}</p><p>{html_text(error)}</p></div>"

    def __len__(self) -> int:
        return self.manifest.samples

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice | ArrayLike) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice | ArrayLike) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return self._samples(np.arange(len(self))[index])
        numbers = np.asarray(index)
        if numbers.size and numbers.dtype.kind not in "iu":
            raise UsageError(
                f"samples are numbered by integers, got {index!r}",
                url=self._dataset.url,
                hint="reader[3], reader[10:20], reader[[7, 3]]; reader.get(key) takes a key",
            )
        wrong = (numbers < -len(self)) | (numbers >= len(self))
        if wrong.any():
            raise IndexError(
                f"there is no sample {numbers[wrong][0]}: numbers go from 0 to {len(self) - 1}"
                f" [url {self.manifest.url}]"
            )
        found = self._samples(np.where(numbers < 0, numbers + len(self), numbers).astype(np.int64).reshape(-1))
        return found if numbers.ndim else found[0]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        batches = self._rows.read_shards(range(self.manifest.shards))
        done = 0
        while done < len(self):
            try:
                rows = next(batches)
            except ShardStreamError:  # one after another: whatever comes before what cannot be read is handed out
                yield from (self[i] for i in range(done, len(self)))
                return
            numbers = np.arange(done, done + len(rows.rows))
            yield from self._decoded(rows, self._step(numbers))
            done += len(numbers)

    def __contains__(self, key: object) -> bool:
        """Whether a sample has this key, or a document that lies in bins."""
        if not isinstance(key, str):
            return False
        return self._keys.find(key) is not None or (
            self._documents is not None and self._documents.bin_of(key) is not None
        )

    def _samples(self, numbers: NDArray[np.int64]) -> list[dict[str, Any]]:
        samples: list[dict[str, Any]] = []
        for start in range(0, len(numbers), self._together):
            step = self._step(numbers[start : start + self._together])
            rows, _ = self._decoder.read(step)
            assert rows is not None, "damaged rows are errors here"
            samples += self._decoded(rows, step)
        return samples

    def _step(self, numbers: NDArray[np.int64]) -> Step:
        return Step(0, numbers, *self._dataset.locate(numbers), None)

    def _decoded(self, rows: RowBatch, step: Step) -> Iterator[dict[str, Any]]:
        """The samples of these rows, decoded one after another."""
        decoding = StepDecoding(self._decoder, rows, step, self._decoder.plan.outputs)
        for i in range(len(step.rows)):
            sample, _ = decoding.sample(i)
            yield {name: _by_itself(value) for name, value in sample.items()}

    def get(self, key: str) -> dict[str, Any]:
        """The first sample of this key; where samples are bins, also the first document of it.

        It is found by the key tables of the data set. One that has none gets a table on this machine, made once of the
        indexes of all shards, for documents of the keys in all bins: in the folder of ``cache``, else in
        ``$XDG_CACHE_HOME/shardstream``.

        A document comes as it was packed, whatever ``fields`` say: the tokens of all its pieces, as ``ids`` (tokens,)
        of the stored dtype, its columns, and ``loss_mask``, bool (tokens,), where it lies in bins that have one.
        Besides there is ``ids.places``, int64 (pieces, 3): the bin that each piece lies in, where it begins there, and
        its length.

        Raises:
            MissingKeyError: There is none; also a KeyError.
            DataError, StorageError: It cannot be read.

        Example:
            >>> ss.Reader("out/").get("photo/3")["cls"]
            20
        """
        number = self._keys.find(key)
        document = self._documents.get(key) if number is None and self._documents is not None else None
        if document is not None:
            return document
        return self[self._keys.number_of(key) if number is None else number]

    def find(self, where: Where) -> NDArray[np.int64]:
        """The numbers of the samples that match, in stored order: int64 (n,). Reads the indexes of all shards.

        Args:
            where: What must be true of stored numbers, or keys, as of `ShardDataset`.

        Raises:
            FieldError: A column that does not exist, or is not a number in the index.
            UsageError: ``where`` is not such a dict.
            TransformError: A callable in it raised.
            DataError, StorageError: An index cannot be read.

        Example:
            >>> reader = ss.Reader("out/")
            >>> samples = reader[reader.find(where={"cls": [1, 5]})[:8]]
        """
        found = rows_where(self._source, where)
        begin = self._dataset.numbering.begin
        parts = [found.rows(shard) + begin(shard) for shard in range(self.manifest.shards)]
        return np.concatenate([np.empty(0, np.int64), *parts])


def _by_itself(value: Any) -> Any:
    """The value; a copy of an array that is one row of many, which would be held as long as it is."""
    among_others = isinstance(value, np.ndarray) and isinstance(value.base, np.ndarray)
    return value.copy() if among_others and value.base.nbytes > value.nbytes else value
