"""Which sample goes where: a function of the source and the options, never of workers, time or place."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.errors import NotFoundError, SourceError, UsageError, did_you_mean
from shardstream.pack.bins.documents import DocumentEncoder
from shardstream.pack.bins.texts import TEXT_FIELDS
from shardstream.pack.bins.windows import ShardBins
from shardstream.pack.encode.files import Files, Unreadable, is_url
from shardstream.pack.encode.reading import read_all
from shardstream.pack.encode.sample import SampleEncoder
from shardstream.pack.execution.isolated import end, finish
from shardstream.pack.execution.jobs import Jobs
from shardstream.pack.execution.loading import batches, rejecting
from shardstream.pack.execution.task import ShardTask
from shardstream.pack.options import PackOptions
from shardstream.pack.output.receipts import FOLDER
from shardstream.pack.output.rejects import CORRECT
from shardstream.pack.plan.document_fields import check_document_fields
from shardstream.pack.plan.inference import infer_types
from shardstream.pack.plan.permute import Permutation
from shardstream.pack.sources import File, Item, Reject, Source, SourcePart
from shardstream.pack.sources.base import StreamSource
from shardstream.pack.sources.declared import declared_name
from shardstream.shards.bins import Bins
from shardstream.shards.fields import FieldType
from shardstream.shards.layout import FORMAT_VERSION
from shardstream.storage import Location, Store
from shardstream.text import valid_unicode
from shardstream.threads import each

PLAN_VERSION = 1
SAMPLED = 1000
_TRIED = 64  # samples that are transformed or made smaller for the estimate: a second or two, for 10 % of error
_SAMPLED_STREAM = 1  # the stream of the permutation that chooses the files whose sizes are looked at
_REQUESTS = 32  # sizes asked of remote stores at once
# What a sample costs beside its bytes: a member's header and half a block of padding for file and label, or none; what
# a document costs in bins.
_OVERHEAD = {"tar": 2 * (512 + 256), "record": 64, "bins": 32}
_SCALAR_BYTES = 8


@dataclass(frozen=True)
class PackLayout:
    """Samples cut into shards. Stored position p is sample π(p) of the source; shard s holds [s·per, (s+1)·per).

    Attributes:
        source: Where samples come from.
        options: What was asked for.
        files: Reads the files of samples.
        types: Types of fields, as far as they are not left to each value; those that are declared go before them.
        per_shard: Samples a shard; the last may hold fewer, and rejected samples leave a shard shorter.
        fingerprint: Hash of all that changes a byte of the result, 32 hexadecimal digits.
    """

    source: Source
    options: PackOptions
    files: Files
    types: Mapping[str, FieldType]
    per_shard: int
    fingerprint: str
    again: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of how samples are understood."""
        texts = self.options.texts
        if texts is None or texts.conversations or texts.field == TEXT_FIELDS[0]:
            return ()
        return (f"The text of a document is its field {texts.field!r}.",)

    @property
    def samples(self) -> int:
        """Number of samples, unreadable ones included."""
        return len(self.source)

    @property
    def shards(self) -> int:
        """Number of shards."""
        return -(-self.samples // self.per_shard)

    def numbers(self, shard: int) -> NDArray[np.int64]:
        """The positions that a shard holds."""
        start = shard * self.per_shard
        return np.arange(start, min(start + self.per_shard, self.samples), dtype=np.int64)

    @property
    def stored_bins(self) -> Bins | None:
        """What the source says of its bins, where these are stored as they are; ``None`` where samples are not bins."""
        as_they_are = self.options.binning is None and self.options.transform is None
        return self.source.bins if as_they_are else None

    @property
    def stem(self) -> str:
        """What the names of the shards begin with: another plan's shards never bear the same name."""
        return f"shard-{self.fingerprint[:8]}"

    def tasks(self, dest: Location, pattern: str) -> Sequence[ShardTask]:
        """A task a shard, made when asked for.

        Args:
            dest: Place of the data set.
            pattern: Name of shard i is ``pattern.format(i)``.
        """
        return _Tasks(self, dest, pattern)


class _Tasks(Jobs[ShardTask]):
    def __init__(self, layout: PackLayout, dest: Location, pattern: str) -> None:
        self._layout = layout
        self._dest = dest
        self._pattern = pattern
        self._order = Permutation(layout.samples, seed=layout.options.seed) if layout.options.shuffle else None
        self._recipe = recipe_of(layout.source, layout.options, layout.types)
        self.lendable = layout.source.lendable

    def __len__(self) -> int:
        return self._layout.shards

    def name(self, number: int) -> str:
        return self._pattern.format(number)

    def make(self, number: int) -> ShardTask:
        layout = self._layout
        numbers = layout.numbers(number)
        return ShardTask(
            number=number,
            name=self.name(number),
            dest=self._dest,
            part=layout.source.part(numbers if self._order is None else self._order(numbers)),
            format=layout.options.format,
            shards=layout.options.shards,
            recipe=self._recipe,
            files=layout.files,
            bins=bins_of(layout.options, f"{layout.stem}-{number:06d}", number),
            stored_bins=layout.stored_bins,
            again=layout.again,
        )


def make_layout(source: Source, options: PackOptions, files: Files, store: Store) -> PackLayout:
    """Cut a source into shards of about ``options.shard_size``, by the mean size of some 1,000 of its samples.

    Where samples are transformed, or images made smaller, some of them are, to see by how much.

    What lies behind URLs answers differently from day to day: the cut of such a source is kept in the destination until
    the data set is complete, so that a run that goes on finds its shards.

    Raises:
        SourceError: None of those samples can be read.
    """
    identity = _identity(source, options)
    options.handling.check_values(_values(sampled(source, _TRIED)))
    plain = options.bins is not None and options.transform is None  # a transform may make any field
    tried = list(sampled(source, _TRIED)) if plain else []
    options = _reading_text(source, options, tried)
    if source.mean_bytes is not None:
        types = dict(source.types)
        if source.declared.keys() - types.keys():
            _check_declared(source, options, {*types, *_names(sampled(source, SAMPLED))})
        check_document_fields(source, options, types, tried)
        per_shard = _per_shard(source, options, files, types, source.mean_bytes)
        return PackLayout(source, options, files, types, per_shard, _digest(identity))
    some = list(sampled(source, SAMPLED))
    types = dict(source.types)
    if options.transform is None:
        types = infer_types(some, {**source.implied, **types, **source.declared}, url=source.url)
        _check_declared(source, options, set(_names(some)))
    check_document_fields(source, options, types, some)
    if any(map(_answers_vary, some)):
        name = f"{FOLDER}/{_digest(identity)}.cut"
        kept = _kept(store, name)
        per_shard = kept or _per_shard(source, options, files, types, _mean(_sizes(source, some, files)))
        if kept is None:
            store.put(name, json.dumps(per_shard).encode())
    else:
        sizes = _sizes(source, some, files)
        per_shard = _per_shard(source, options, files, types, _mean(sizes))
        # Relative paths mean other files elsewhere: their sizes tell them apart, where their names do not.
        identity["sizes"] = xxhash.xxh3_64_hexdigest(np.array(sizes, "<u8").tobytes())
        identity["per_shard"] = per_shard
    return PackLayout(source, options, files, types, per_shard, _digest(identity))


def fingerprint_of(source: StreamSource, options: PackOptions) -> str:
    """The plan's fingerprint where the source's own says all of it, sizes too.

    Args:
        source: The source, whose fingerprint is known.
        options: What was asked for.
    """
    return _digest(_identity(source, options))


def _identity(source: Source | StreamSource, options: PackOptions) -> dict[str, Any]:
    identity = {
        "plan_version": PLAN_VERSION,
        "format_version": FORMAT_VERSION,
        "source": source.fingerprint,
        **options.identity,
    }
    types = {**source.implied, **source.declared}
    if types:
        identity["types"] = {name: declared_name(kind) for name, kind in types.items()}
    return identity


def _check_declared(source: Source, options: PackOptions, names: Collection[str]) -> None:
    """Refuse types of fields that no sample has, and no transform makes."""
    for name, kind in source.declared.items():
        if options.transform is None and name not in names:
            there = ", ".join(map(repr, sorted(names))) or "none"
            all_seen = len(source) <= SAMPLED
            who = "no sample" if all_seen else f"none of {SAMPLED:,} samples looked at"
            rarer = "" if all_seen else "; one that fewer have, too: it may return each sample as it is"
            raise UsageError(
                f"{who} has a field {name!r}, which is declared {declared_name(kind)}",
                url=source.url,
                field=name,
                hint=f"{did_you_mean(name, names)}there are {there}; others need a transform={rarer}",
            )


def bins_of(options: PackOptions, name: str, number: int) -> ShardBins | None:
    """How the documents of a shard become bins, if they do.

    Args:
        options: What was asked for.
        name: What the keys of the bins begin with.
        number: Of the shard.
    """
    binning = options.binning
    if binning is None:
        return None
    return ShardBins(binning, name, options.seed if options.shuffle else None, number, binning.window)


def recipe_of(
    source: Source | StreamSource, options: PackOptions, types: Mapping[str, FieldType]
) -> SampleEncoder | DocumentEncoder:
    """How a sample of a source becomes what is stored, with these types of its fields."""
    decoded = isinstance(source, Source) and source.decoded
    images = options.handling.unchecked if decoded else options.handling
    samples = SampleEncoder(images, types, options.transform, dict(source.declared))
    return samples if options.binning is None else DocumentEncoder(samples, options.binning, options.texts)


def _reading_text(source: Source, options: PackOptions, some: Sequence[Item | Reject]) -> PackOptions:
    """The options with the field that some of the documents have their text in."""
    fields = set(_names(some))
    if options.bins is None or not fields:
        return options
    return replace(options, bins=options.bins.reading(fields, url=source.url))


def _mean(sizes: Sequence[int]) -> float:
    return sum(sizes) / len(sizes)


def _digest(identity: dict[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(identity, sort_keys=True, separators=(",", ":")).encode())


def _kept(store: Store, name: str) -> int | None:
    with suppress(NotFoundError, ValueError):
        found = json.loads(bytes(store.get(name)))
        return found if isinstance(found, int) and found > 0 else None
    return None


def _answers_vary(item: Item | Reject) -> bool:
    return (
        isinstance(item, Item)
        and item.size is None
        and any(isinstance(value, File) and is_url(value.path) for value in item.values.values())
    )


def _per_shard(source: Source, options: PackOptions, files: Files, types: Mapping[str, FieldType], mean: float) -> int:
    overhead = _OVERHEAD[options.format if options.binning is None else "bins"]
    cost = mean * _change(source, options, files, types) + overhead
    wanted = max(1, int(options.shard_bytes // cost))
    shards = -(-len(source) // wanted)
    return -(-len(source) // shards)


def sampled(source: Source, most: int) -> SourcePart:
    """Up to ``most`` samples, chosen by a permutation of its own."""
    return source.part(_sampled_numbers(source, most))


def _sampled_numbers(source: Source, most: int) -> NDArray[np.int64]:
    count = min(most, len(source))
    return Permutation(len(source), seed=0, stream=_SAMPLED_STREAM)(np.arange(count, dtype=np.int64))


def _change(source: Source, options: PackOptions, files: Files, types: Mapping[str, FieldType]) -> float:
    """The bytes that samples take once they are transformed and made smaller, as a share of what they take before."""
    if options.images.max_side is None and options.transform is None and options.binning is None:
        return 1.0
    before = after = 0
    recipe = recipe_of(source, options, types)
    try:
        for batch in batches(read_all(sampled(source, _TRIED), files.read), recipe):
            there = [(item, held) for item, held in batch if isinstance(item, Item) and isinstance(held, dict)]
            outcomes = finish([rejecting(recipe.load(item, contents)) for item, contents in there], recipe.work)
            for (item, contents), loaded in zip(there, outcomes, strict=True):
                if loaded is not None and not isinstance(loaded, Unreadable):
                    before += sum(map(len, contents.values())) + _plain_bytes(item)
                    after += loaded.size
    finally:
        end()
    return after / before if before else 1.0


def _values(samples: Iterable[Item | Reject]) -> Iterator[object]:
    return (value for one in samples if isinstance(one, Item) for value in one.values.values())


def _names(samples: Iterable[Item | Reject]) -> Iterator[str]:
    return (name for one in samples if isinstance(one, Item) for name in one.values)


def _plain_bytes(item: Item) -> int:
    return sum(_length(value) for value in item.values.values() if not isinstance(value, File))


def _length(value: object) -> int:
    if isinstance(value, bytes | str):
        return len(value)
    return int(getattr(value, "nbytes", _SCALAR_BYTES))


def _sizes(source: Source, sampled: Sequence[Item | Reject], files: Files) -> list[int]:
    """Sizes of those of these samples that can be read."""
    reject = next((one for one in sampled if isinstance(one, Reject)), None)
    items = [one for one in sampled if isinstance(one, Item)]
    at_once = _REQUESTS if any(map(_answers_vary, items)) else 1
    sizes = list(each(lambda item: _size(item, files), items, at_once=at_once, what="the size of a file of the source"))
    found = [size for size in sizes if size]
    if found:
        return found
    whole = len(sampled) == len(source)
    if reject is not None:
        raise SourceError(
            f"{'no sample' if whole else f'none of {len(sampled)} samples'} can be packed "
            f"({f'{valid_unicode(reject.path)}: ' if reject.path else ''}{reject.reason})",
            url=source.url,
            hint=CORRECT,
        )
    path = valid_unicode(items[0].path)
    raise SourceError(
        f"{'no file of the list' if whole else f'none of {len(sampled)} files sampled from the list'} "
        f"can be read ({path}: missing, empty, or no file)",
        url=source.url,
        hint="look at whether the files are there"
        if path.startswith("/") or "://" in path
        else "relative paths are taken from the directory of the list",
    )


def _size(item: Item, files: Files) -> int:
    """Bytes of a sample; 0 where one of its files is not to be had. Labels beside files count nothing."""
    paths = [value.path for value in item.values.values() if isinstance(value, File)]
    if not paths:
        return _plain_bytes(item)
    if item.size is not None:
        return item.size
    sizes = [files.size(path) for path in paths]
    return sum(sizes) if all(sizes) else 0
