"""What every format of another library has to hold."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.opened import OpenedDataset
from shardstream.dataset.opening import open_dataset
from shardstream.errors import DataError, FormatError, NotFoundError, ShardStreamError, UsageError
from shardstream.extras import built_in
from shardstream.options import SourceOptions
from shardstream.storage import PathOrUrl
from shardstream.testing.asserting import check, check_equal, expect, shown
from shardstream.testing.memory import MemoryStore

Sample: TypeAlias = tuple[str, Mapping[str, Any]]
"""A sample: its key, and the values of the fields that it has."""

_FILES = 3  # of a dataset that are cut, one after another
_FLIPPED = 12  # bytes of a file that are changed, one after another


class FormatConformance:
    """Tests that every source format must pass; subclass it as ``Test...``.

    The tests open what `write` wrote, through the same functions as training does, from a directory and from a store
    that behaves like S3. Catalogs go to temporary directories.

    Attributes:
        format: An object of your class. It needn't be installed as a plug-in.
        options: Options of reading what `write` writes.
        tells_cuts: Whether the format notices that a file ends too early. Without it, a file that was cut may give
            fewer or shorter values.

    Example:
        >>> import numpy as np
        >>> from shardstream.formats.npy import Npy
        >>> class TestNpy(FormatConformance):
        ...     format = Npy()  # an object of your class
        ...     def write(self, folder):
        ...         np.save(folder / "x.npy", np.arange(4))
        ...         return [(f"x/{row:08d}", {"x": row}) for row in range(4)]
    """

    format: Any
    options: Mapping[str, str] = {}
    tells_cuts: bool = True

    # ---------------------------------------------------------------------------------------------------- to override

    def write(self, folder: Path) -> Sequence[Sample]:
        """Write a small dataset, at best of several files, by code that has no part in the format.

        Args:
            folder: An empty directory.

        Returns:
            All samples in order: the key, and values by field as `ss.Reader` gives them, image files as bytes. A field
            that a sample lacks is ``None``, or left out.
        """
        raise NotImplementedError(f"{type(self).__name__} must override write(folder)")

    # -------------------------------------------------------------------------------------------------------- helpers

    @contextmanager
    def _workplace(self) -> Iterator[Path]:
        """A directory in which the format is known."""
        registry = built_in("registry")
        kind, name = type(self.format), self.format.name
        added = name not in registry.format_names()
        if added:
            registry.register(kind)
        known = type(registry.format_named(name))
        check(known is kind, f"a format called {name!r} is known already: {known.__module__}.{known.__qualname__}")
        try:
            with tempfile.TemporaryDirectory(prefix="shardstream-testing-") as folder:
                (Path(folder) / "data").mkdir()
                yield Path(folder)
        finally:
            if added:
                with suppress(KeyError):  # a test took it out
                    registry.unregister(name)

    @contextmanager
    def _written(self) -> Iterator[tuple[Path, Sequence[Sample]]]:
        with self._workplace() as folder:
            yield folder, self.write(folder / "data")

    def _open(self, place: PathOrUrl, cache: Path, *, named: bool = True) -> OpenedDataset:
        """The dataset, whose catalog goes into ``cache``."""
        source = self.format.name if named else None
        return open_dataset(place, cache=cache, reading=SourceOptions(format=source, options=self.options or None))

    # ---------------------------------------------------------------------------------------------------- recognizing

    def test_its_data_are_recognized(self) -> None:
        """No other format takes them, and nobody has to name this one."""
        with self._written() as (folder, _):
            dataset = self._open(folder / "data", folder / "cache", named=False)
            check_equal(dataset.manifest.format, self.format.name, "the format of what write() wrote")

    def test_data_of_others_are_not_recognized(self) -> None:
        """Files of other formats, and of none, are left to others."""
        with self._workplace() as folder:
            for name, files in _others().items():
                if name == self.format.name:
                    continue
                place = _put(folder / name, files)
                try:
                    found = open_dataset(place, cache=folder / "cache").manifest.format
                except NotFoundError:
                    continue
                except ShardStreamError as error:
                    check(self.format.title not in str(error), f"{name} data are taken for its own: {error}")
                    continue
                check(found != self.format.name, f"{name} data are taken for its own: {sorted(files)}")

    def test_nothing_is_recognized_in_an_empty_directory(self) -> None:
        """A directory without files, or with an empty one, has no data."""
        with self._workplace() as folder:
            for name, files in {"no": {}, "empty": {"notes": b""}}.items():
                place = _put(folder / name, files)
                what = f"opening a directory with {name} files"
                expect(ShardStreamError, what, self._open, place, folder / "cache")

    def test_unknown_options_are_refused(self) -> None:
        """An option that the format doesn't list is an error that names it."""
        with self._written() as (folder, _):
            options = {**self.options, "no-such-option": "1"}
            error = expect(
                UsageError,
                "opening with SourceOptions(options={'no-such-option': '1'})",
                lambda: (
                    open_dataset(
                        folder / "data",
                        cache=folder / "cache",
                        reading=SourceOptions(format=self.format.name, options=options),
                    ).manifest
                ),
            )
            check("no-such-option" in str(error), f"the error must name the option 'no-such-option', got {error}")

    # --------------------------------------------------------------------------------------------------------- values

    def test_samples_are_those_that_were_written(self) -> None:
        """Keys, order and values are those of `write`."""
        with self._written() as (folder, samples):
            check(len(samples) > 1, "write() must write at least 2 samples")
            _compare(_read(self._open(folder / "data", folder / "cache")), samples)

    def test_rows_can_be_read_in_any_order(self) -> None:
        """Each sample can be read alone."""
        with self._written() as (folder, samples):
            rows = DatasetRows(self._open(folder / "data", folder / "cache"))
            for number in reversed(range(len(samples))):
                _compare(_samples(rows.read_ids([number])), [samples[number]], first=number)

    def test_a_store_gives_the_same_samples(self) -> None:
        """What is read over a network is the same, and no read goes past the end of an object."""
        with self._written() as (folder, samples):
            files = _files(folder / "data")
            store = MemoryStore(files)
            dataset = self._open(store, folder / "cache")
            _compare(_read(dataset), samples)
            for request in store.requests:
                if request.kind == "open" and request.path in files:
                    size = len(files[request.path])
                    inside = request.start <= size and (request.stop is None or request.stop <= size)
                    check(inside, f"a read must be inside of {request.path} of {size} bytes, got {tuple(request)}")
            local = self._open(folder / "data", folder / "cache").manifest.fingerprint
            check_equal(dataset.manifest.fingerprint, local, "the fingerprint of the same data in a store")

    def test_scanning_twice_gives_the_same(self) -> None:
        """The same files give the same dataset, wherever they are; its catalog is made once."""
        with self._written() as (folder, _):
            copy = _put(folder / "copy", _files(folder / "data"))
            first = self._open(folder / "data", folder / "cache").manifest
            again = self._open(copy, folder / "other-cache").manifest
            check_equal(again.fingerprint, first.fingerprint, "the fingerprint of a second scan of the same files")
            made = _written_at(folder / "cache")
            self._open(folder / "data", folder / "cache")
            same = _written_at(folder / "cache") == made
            check(
                same, "a second opening must find the catalog of the first: recognising the same files must be the same"
            )

    def test_datasets_can_be_pickled(self) -> None:
        """A worker process reads a dataset from its pickle, also if the format is no installed plug-in."""
        with self._written() as (folder, samples):
            data = pickle.dumps(self._open(folder / "data", folder / "cache"))
            with suppress(KeyError):  # of one that is built in, or installed
                built_in("registry").unregister(self.format.name)
            _compare(_read(pickle.loads(data)), samples)  # noqa: S301 - made two lines above

    # --------------------------------------------------------------------------------------------------------- damage

    def test_files_that_end_too_early_are_errors(self) -> None:
        """A file that was cut is a FormatError or an UnsupportedError, unless what is left of it is whole."""
        with self._written() as (folder, samples):
            expected = dict(samples)
            for place, what, missing in self._damaged(folder, _cuts):
                found = self._read_damaged(place, folder / f"cache-{place.name}", what)
                if found is None or not self.tells_cuts:
                    continue
                for key, values in found:
                    check(key in expected, f"{what} must be an error, but gives a sample {key!r} that was not there")
                    _compare([(key, values)], [(key, expected[key])], what=what)
                fewer = len(found) < len(samples)
                check(
                    missing > 1 or not fewer,
                    f"{what} must be an error, but gives {len(found)} of {len(samples)} samples",
                )

    def test_damaged_bytes_are_no_other_errors(self) -> None:
        """A file of which a byte was changed gives other values, or an error of this library."""
        with self._written() as (folder, _):
            for place, what, _ in self._damaged(folder, _flips):
                self._read_damaged(place, folder / f"cache-{place.name}", what, ShardStreamError)

    def _damaged(
        self, folder: Path, damage: Callable[[bytes], Iterator[tuple[str, bytes]]]
    ) -> Iterator[tuple[Path, str, int]]:
        """Copies of the data, each with a damaged file; what was done to it, and how many bytes it lacks."""
        files = _files(folder / "data")
        number = 0
        for name in list(files)[-_FILES:]:
            for what, data in damage(files[name]):
                yield _put(folder / str(number), files | {name: data}), f"{name} {what}", len(files[name]) - len(data)
                number += 1

    def _read_damaged(
        self, place: Path, cache: Path, what: str, kind: type[ShardStreamError] = FormatError
    ) -> list[Sample] | None:
        """All samples; ``None`` if there is an error that may be there."""
        __tracebackhide__ = True
        try:
            dataset = self._open(place, cache)
            count = dataset.manifest.samples
        except kind:
            return None
        except Exception as error:
            raise AssertionError(f"opening {what} must raise {kind.__name__}, but raised {_told(error)}") from error
        try:
            return _samples(DatasetRows(dataset).read_ids(range(count)))
        except (DataError, kind):
            return None
        except Exception as error:
            raise AssertionError(f"reading {what} must raise DataError, but raised {_told(error)}") from error


def _cuts(data: bytes) -> Iterator[tuple[str, bytes]]:
    for length in sorted({0, 1, len(data) // 2, len(data) - 1} & set(range(len(data)))):
        yield f"cut from {len(data)} to {length} bytes", data[:length]


def _flips(data: bytes) -> Iterator[tuple[str, bytes]]:
    for offset in range(0, len(data), max(1, len(data) // _FLIPPED)):
        changed = bytearray(data)
        changed[offset] ^= 0xFF
        yield f"with another byte {offset}", bytes(changed)


def _others() -> dict[str, dict[str, bytes]]:
    """Small data of some formats, and files of none, by the name of the format."""
    tar, array = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for number in range(3):
            info = tarfile.TarInfo(f"{number}.txt")
            info.size = 5
            archive.addfile(info, io.BytesIO(b"hello"))
    np.save(array, np.arange(12).reshape(4, 3))
    rows = "".join(json.dumps({"text": f"row {number}"}) + "\n" for number in range(4)).encode()
    return {
        "webdataset": {"a-0.tar": tar.getvalue(), "a-1.tar": tar.getvalue()},
        "npy": {"x.npy": array.getvalue()},
        "jsonl": {"a.jsonl": rows, "b.jsonl": rows},
        "text": {"README.md": b"# Notes\n", "notes.txt": b"nothing\n"},
        "binary": {"weights.bin": bytes(range(256)) * 4, "noise": b"\x00\xff" * 40},
    }


def _put(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    folder.mkdir(exist_ok=True)
    return folder


def _files(folder: Path) -> dict[str, bytes]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _written_at(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("shardstream-*")}


def _read(dataset: OpenedDataset) -> list[Sample]:
    return [
        sample
        for batch in DatasetRows(dataset).read_shards(range(dataset.manifest.shards))
        for sample in _samples(batch)
    ]


def _samples(batch: Any) -> list[Sample]:
    """The samples of a `RowBatch`, with the fields that each has."""
    found: list[Sample] = []
    for row, key in enumerate(batch.keys):
        values = {}
        for name, column in batch.columns.items():
            if column.valid is None or column.valid[row]:
                values[name] = column.type.decode(column.data[row])
        found.append((key, values))
    return found


def _compare(found: Sequence[Sample], expected: Sequence[Sample], *, first: int = 0, what: str = "") -> None:
    __tracebackhide__ = True
    check_equal(len(found), len(expected), f"the number of samples{_of(what)}")
    for number, ((key, values), (right, wanted)) in enumerate(zip(found, expected, strict=True), first):
        wanted = {name: value for name, value in wanted.items() if value is not None}
        check_equal(key, right, f"the key of sample {number}{_of(what)}")
        check_equal(sorted(values), sorted(wanted), f"the fields of sample {number}, {key!r}{_of(what)}")
        for name, value in values.items():
            same = _comparable(value) == _comparable(wanted[name])
            told = f"{name!r} of sample {number}, {key!r}{_of(what)}, must be {shown(wanted[name])}, got {shown(value)}"
            check(same, told)


def _of(what: str) -> str:
    return f" of {what}" if what else ""


def _comparable(value: Any) -> object:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, float):
        return repr(value)  # NaN is itself
    return value


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
