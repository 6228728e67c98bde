"""What every source of `pack` has to hold."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from shardstream.errors import ShardStreamError
from shardstream.options import SourceOptions
from shardstream.pack.encode.images import ImageOptions
from shardstream.pack.output.places import StorageOptions
from shardstream.pack.run import pack
from shardstream.pack.sources import File, Item, Reject, Source, SourcePart
from shardstream.pack.sources.base import SourceReading, StreamSource
from shardstream.pack.sources.opening import open_source
from shardstream.shards.field_names import check_field_name
from shardstream.shards.fields import infer_type
from shardstream.shards.index import check_key
from shardstream.shards.manifest import Manifest
from shardstream.storage.base.location import Access
from shardstream.storage.local.store import LocalStore
from shardstream.testing.asserting import check, check_equal, shown, skip


class SourceConformance:
    """What everything that `ss.pack` takes samples from has to hold, as test methods; subclass it as ``Test...``.

    A source is a `shardstream.pack.sources.Source` of your own, a sequence or iterable of dicts, or anything else that
    `ss.pack` takes. What only numbered sources have (`Source`, sequences) is skipped for those that can only be read
    in order.

    Attributes:
        arguments: More arguments of `ss.pack` that the source needs, as ``{"key": "line"}``.
        expected: How many of its samples are packed, if you know: at least 1. ``None``: as many as it has that are no
            rejects.

    Example:
        >>> class TestNumbers(SourceConformance):
        ...     def make_source(self):
        ...         return [{"__key__": str(i), "cls": i} for i in range(10)]
    """

    arguments: dict[str, Any] = {}  # noqa: RUF012 - to override, not to change
    expected: int | None = None

    # ---------------------------------------------------------------------------------------------------- to override

    def make_source(self) -> Any:
        """The source, made anew with each call, and always of the same samples."""
        raise NotImplementedError(f"{type(self).__name__} must override make_source()")

    # -------------------------------------------------------------------------------------------------------- helpers

    def _opened(self) -> Source | StreamSource:
        given = {name: value for name, value in self.arguments.items() if name in ("key", "labels", "fields")}
        reading = self.arguments.get("reading", SourceOptions())
        storage = self.arguments.get("storage", StorageOptions())
        return open_source(
            self.make_source(),
            access=Access(storage.source or storage.options or {}),
            reading=SourceReading(**vars(reading)),
            **given,
        )

    def _numbered(self) -> Source:
        source = self._opened()
        if isinstance(source, StreamSource):
            skip("the source can only be read in order")
        return source

    def _read(self, source: Source, numbers: Sequence[int]) -> list[Item | Reject]:
        found = list(source.part(np.array(numbers, np.int64)))
        check_equal(len(found), len(numbers), f"the number of samples in part({shown(list(numbers))})")
        return found

    def _all(self) -> list[Item | Reject]:
        source = self._opened()
        if isinstance(source, StreamSource):
            return [one for stream in source.streams for one in stream]
        return self._read(source, range(len(source)))

    def _pack(self, folder: Path, **more: Any) -> Manifest:
        arguments: dict[str, Any] = {"images": ImageOptions(jpeg="keep"), "workers": 0} | self.arguments | more
        return pack(self.make_source(), folder, **arguments)

    # ----------------------------------------------------------------------------------------------------- what it is

    def test_it_says_what_it_is(self) -> None:
        """``url``, ``notes``, ``classes`` and ``types`` are what `pack` and its messages need."""
        source: Any = self._opened()
        check(isinstance(source.url, str) and source.url, f"url must be a non-empty str, got {source.url!r}")
        check(all(isinstance(note, str) for note in source.notes), f"notes must be strings, got {source.notes!r}")
        names = source.classes or ()
        check(all(isinstance(name, str) for name in names), f"classes must be None or names, got {shown(names)}")
        check_equal(len(set(names)), len(names), "the number of different names in classes")
        for name in source.types:
            check_field_name(name)

    def test_the_fingerprint_is_the_same_each_time(self) -> None:
        """It says which samples there are, and nothing of where or when: an interrupted run goes on by it."""
        first, second = self._opened().fingerprint, self._opened().fingerprint
        check_equal(second, first, "the fingerprint of a source that was made again")
        if not isinstance(self._opened(), StreamSource):
            check(isinstance(first, str) and first, f"the fingerprint must be a non-empty str, got {first!r}")

    # -------------------------------------------------------------------------------------------------------- samples

    def test_samples_can_be_packed(self) -> None:
        """Each is an `Item` with a key, fields and values that have a type, or a `Reject` with a reason."""
        found, types = self._all(), self._opened().types
        check(found, "a source must have samples")
        for number, sample in enumerate(found):
            what, one = f"sample {number}", cast("Any", sample)
            check(isinstance(one, Item | Reject), f"{what} must be an Item or a Reject, got {shown(one)}")
            check(type(one.line) is int and one.line >= 0, f"line of {what} must be a number, got {one.line!r}")
            check(isinstance(one.path, str), f"path of {what} must be a str, got {one.path!r}")
            if isinstance(one, Reject):
                check(one.reason, f"{what} is a Reject without a reason")
                continue
            try:
                check_key(one.key)
                for name, value in one.values.items():
                    check_field_name(name)
                    if not isinstance(value, File) and name not in types:
                        infer_type(name, value)
            except ShardStreamError as error:
                raise AssertionError(f"{what} cannot be packed: {error}") from error
            check(one.values, f"{what} (key {one.key!r}) has no values")

    def test_keys_are_unique(self) -> None:
        """A key names one sample, unless they are made while it is packed."""
        seen: dict[str, int] = {}
        if getattr(self._opened(), "key", "path") != "path":
            skip("keys are made while the source is packed")
        for number, one in enumerate(self._all()):
            if isinstance(one, Item):
                first = seen.setdefault(one.key, number)
                check(first == number, f"samples {first} and {number} have the same key, {one.key!r}")

    def test_parts_have_their_samples_in_their_order(self) -> None:
        """Any numbers, in any order, repeated or not, in parts of any size, give what the whole gives."""
        source = self._numbered()
        count = len(source)
        whole = [_plain(one) for one in self._read(source, range(count))]
        backwards = list(range(count))[::-1]
        mixed = np.random.default_rng(0).integers(0, count, min(2 * count, 1000)).tolist()
        for numbers in (backwards, mixed, [0], [count - 1], []):
            found = [_plain(one) for one in self._read(source, numbers)]
            for place, number in enumerate(numbers):
                check_equal(found[place], whole[number], f"sample {number}, read as number {place} of a part,")

    def test_parts_can_be_read_twice_and_elsewhere(self) -> None:
        """A part is picklable: it goes to the process that reads it, and again to another if that one dies."""
        source = self._numbered()
        numbers = np.arange(min(len(source), 100), dtype=np.int64)[::-1]
        part = source.part(numbers)
        first, again = ([_plain(one) for one in part] for _ in range(2))
        check_equal(again, first, "a part that is read a second time")
        check_equal([_plain(one) for one in _travelled(part, "a part")], first, "a part that went through a pickle")

    def test_streams_can_be_read_elsewhere(self) -> None:
        """Of a source that is read in order: streams that travel are picklable."""
        source = self._opened()
        if not isinstance(source, StreamSource) or not source.travels:
            skip("there are no streams that travel to other processes")
        for stream in source.streams:
            there = [_plain(one) for one in _travelled(stream, "a stream")]
            check_equal(there, [_plain(one) for one in stream], "a stream that went through a pickle")

    def test_a_lendable_source_works_from_a_pickle(self) -> None:
        """Workers of one machine open a ``lendable`` source from its pickle and read their own parts."""
        source = self._numbered()
        if not source.lendable:
            skip("the source is not lendable")
        other = pickle.loads(_pickled(source, "a lendable source"))  # noqa: S301 - made a line above
        check_equal(len(other), len(source), "the number of samples of a source that went through a pickle")
        numbers = range(min(len(source), 100))
        found, expected = ([_plain(one) for one in self._read(each, numbers)] for each in (other, source))
        check_equal(found, expected, "the samples of a source that went through a pickle")

    # --------------------------------------------------------------------------------------------------------- packed

    def test_packing_stores_every_sample_once(self) -> None:
        """All that are not rejects are in the data set, and the others in ``rejects.jsonl``."""
        found = self._all()
        with tempfile.TemporaryDirectory(prefix="shardstream-testing-") as folder:
            out = Path(folder) / "out"
            manifest = self._pack(out)
            items = sum(isinstance(one, Item) for one in found)
            count = items if self.expected is None else self.expected
            if manifest.samples != count:
                raise AssertionError(
                    f"{count} samples must be packed, got {manifest.samples}{_rejected(Path(folder) / 'out')}"
                )
            keys = list(_keys(Path(folder) / "out", manifest))
            check_equal(len(set(keys)), len(keys), "the number of different keys in the data set")

    def test_packing_twice_gives_the_same_bytes(self) -> None:
        """The same source and options give the same shards."""
        with tempfile.TemporaryDirectory(prefix="shardstream-testing-") as folder:
            prints = [self._pack(Path(folder) / name).fingerprint for name in ("one", "two")]
            check_equal(prints[1], prints[0], "the fingerprint of a data set that was packed a second time")

    def test_packing_in_processes_gives_the_same_bytes(self) -> None:
        """Worker processes pack what this process packs."""
        with tempfile.TemporaryDirectory(prefix="shardstream-testing-") as folder:
            here = self._pack(Path(folder) / "here").fingerprint
            there = self._pack(Path(folder) / "there", workers=2).fingerprint
            check_equal(there, here, "the fingerprint of a data set that worker processes packed")


def _plain(one: Item | Reject) -> object:
    """A sample, so that ``==`` compares it: arrays and tensors as text."""
    if isinstance(one, Reject):
        return one
    return one.line, one.path, one.key, {name: _comparable(value) for name, value in one.values.items()}


def _comparable(value: Any) -> object:
    if hasattr(value, "shape"):
        array = np.asarray(value)
        return array.dtype.name, array.shape, array.tobytes()
    return value


def _pickled(one: object, what: str) -> bytes:
    try:
        return pickle.dumps(one)
    except Exception as error:  # whatever an object of somebody else's raises
        raise AssertionError(f"{what} must be picklable, but raised {type(error).__name__}: {error}") from error


def _travelled(part: SourcePart, what: str) -> SourcePart:
    travelled: SourcePart = pickle.loads(_pickled(part, what))  # noqa: S301 - made in this line
    return travelled


def _keys(folder: Path, manifest: Manifest) -> Iterator[str]:
    store = LocalStore(folder)
    for shard in range(manifest.shards):
        yield from manifest.reader.scan(store, manifest.shard_name(shard)).keys


def _rejected(folder: Path) -> str:
    rejects = folder / "rejects.jsonl"
    if not rejects.exists():
        return ""
    with rejects.open() as lines:
        return f"; the first reject is {lines.readline().strip()}"
