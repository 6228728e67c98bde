"""As users see it: their own store, framing, decoder and source in a test file of theirs, run by pytest.

Good ones pass; of bad ones exactly the tests fail that should, and say what is wrong.
"""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from tests.testing.bad_formats import FORMATS, WRONG_FORMATS

STORES = '''
from shardstream.errors import NotFoundError, StorageError, UsageError
from shardstream.storage import ObjectMeta, ObjectWriter, Store
from shardstream.testing import ReadOnlyStoreConformance, StoreConformance

HELD = {}  # what the store reads: objects by path


class Good(Store):
    url = "held://objects"

    def _check(self, path):
        if path.startswith("/") or ".." in path.split("/") or "\\0" in path:
            raise UsageError("the path leads out of the store", url=self.url)

    def size(self, path):
        self._check(path)
        if path not in HELD:
            raise NotFoundError("no such object", url=self.locate(path))
        return len(HELD[path])

    def get(self, path, offset=0, length=None):
        size = self.size(path)
        end = size if length is None else offset + length
        if not 0 <= offset <= end <= size:
            raise StorageError("the range is not in the object", url=self.locate(path), offset=offset)
        return memoryview(HELD[path])[offset:end]

    def list(self, prefix=""):
        return (ObjectMeta(path, len(HELD[path])) for path in sorted(HELD) if path.startswith(prefix))

    def create(self, path):
        self._check(path)
        return Writer(path)

    def delete(self, path):
        self._check(path)
        HELD.pop(path, None)


class Writer(ObjectWriter):
    def __init__(self, path):
        self.path, self.data = path, bytearray()

    def write(self, data):
        self.data += memoryview(data).cast("B")

    def tell(self):
        return len(self.data)

    def commit(self):
        HELD[self.path], self.data = bytes(self.data), bytearray()

    def discard(self):
        self.data.clear()


class ShortReads(Good):
    """Serves what there is of a range, as `file.read` does."""

    def get(self, path, offset=0, length=None):
        self.size(path)
        return memoryview(HELD[path])[offset:][:length]


class Bare(Good):
    """Raises what it meets."""

    def size(self, path):
        return len(HELD[path])


class EarlyWriter(Writer):
    def write(self, data):
        super().write(data)
        HELD[self.path] = bytes(self.data)


class ShowsEarly(Good):
    """Writes in place."""

    def create(self, path):
        self._check(path)
        return EarlyWriter(path)


class Held(StoreConformance):
    def make_store(self):
        HELD.clear()
        return self.store()

    def plant(self, path, data):
        HELD[path] = data

    def dig(self, path):
        return HELD.get(path)


class TestGood(Held):
    store = Good

class TestShortReads(Held):
    store = ShortReads

class TestBare(Held):
    store = Bare

class TestShowsEarly(Held):
    store = ShowsEarly

class TestNothingOverridden(ReadOnlyStoreConformance):
    pass
'''

FRAMINGS = """
from shardstream.shards.framing import FieldValues
from shardstream.shards.framings import framing_of, writer_of
from shardstream.shards.record import RecordFraming
from shardstream.shards.writing import encode_value
from shardstream.storage import Request
from shardstream.storage.local.store import LocalStore
from shardstream.testing import FramingConformance
from shardstream.testing.framing import TYPES


class Written(FramingConformance):
    framing = framing_of("record")

    def write(self, folder, samples):
        with LocalStore(folder).create("shard.rec") as out:
            shard = writer_of("record")(out)
            for key, values in samples:
                shard.write(key, {f: (TYPES[f], encode_value(f, TYPES[f], v)) for f, v in values.items()})
            shard.finish()
        return "shard.rec"

    def place_of(self, folder, path, row):
        return folder / path, (folder / path).read_bytes().index(self.samples()[row][1]["jpg"])


class PlansTwice(RecordFraming):
    def plan(self, index, rows, fields):
        return super().plan(index, rows, fields) * 2


class TrustsAll(RecordFraming):
    def extract(self, index, buffers, rows, fields, **options):
        return super().extract(index, buffers, rows, fields, **options | {"verify": False})


class MixesRows(RecordFraming):
    def extract(self, index, buffers, rows, fields, **options):
        return super().extract(index, buffers, sorted(rows), fields, **options)


class TestGood(Written):
    pass

class TestPlansTwice(Written):
    framing = PlansTwice()

class TestTrustsAll(Written):
    framing = TrustsAll()

class TestMixesRows(Written):
    framing = MixesRows()
"""

BACKENDS = """
import io

import numpy as np
from PIL import Image
from shardstream.errors import DecodeError
from shardstream.testing import BackendConformance


class Good:
    def max_scale(self, info):
        return 1 if info.kind == "png" and info.bit_depth == 8 else 0

    def decode(self, data, info, job):
        try:
            with Image.open(io.BytesIO(data)) as image:
                return np.array(image.convert("RGB"))
        except (OSError, SyntaxError, ValueError, EOFError) as error:
            raise DecodeError(f"it does not decode: {error}") from error


class BlueFirst(Good):
    def decode(self, data, info, job):
        return super().decode(data, info, job)[..., ::-1]


class FillsUp(Good):
    def decode(self, data, info, job):
        try:
            return super().decode(data, info, job)
        except DecodeError:
            return np.zeros((info.height, info.width, 3), np.uint8)


class TestGood(BackendConformance):
    backend = Good()
    scales = {"jpg": 0, "png": 1, "webp": 0}

class TestBlueFirst(BackendConformance):
    backend = BlueFirst()

class TestFillsUp(BackendConformance):
    backend = FillsUp()

class TestSaysMore(BackendConformance):
    backend = Good()
    scales = {"jpg": 8, "png": 1, "webp": 0}
"""

SOURCES = """
import itertools

from shardstream.pack.sources import Item, Source, SourcePart
from shardstream.testing import SourceConformance

COUNT = itertools.count()


class Part(SourcePart):
    def __init__(self, numbers):
        self.numbers = numbers

    def __iter__(self):
        for number in self.numbers.tolist():
            yield Item(number + 1, f"number {number}", f"k{number}", {"id": number, "txt": str(number)})


class Good(Source):
    url = "numbers"

    def __len__(self):
        return 12

    def part(self, numbers):
        return Part(numbers)

    @property
    def fingerprint(self):
        return "numbers 12"


class Sorted(Good):
    def part(self, numbers):
        numbers.sort()
        return Part(numbers)


class OncePart(Part):
    def __init__(self, numbers):
        self.samples = iter([*Part(numbers)])

    def __iter__(self):
        return self.samples

    def __reduce__(self):
        raise TypeError("an open file")


class Once(Good):
    def part(self, numbers):
        return OncePart(numbers)


class Restless(Good):
    @property
    def fingerprint(self):
        return f"numbers at {next(COUNT)}"


class TestGood(SourceConformance):
    expected = 12

    def make_source(self):
        return Good()

class TestSorted(SourceConformance):
    def make_source(self):
        return Sorted()

class TestOnce(SourceConformance):
    def make_source(self):
        return Once()

class TestRestless(SourceConformance):
    def make_source(self):
        return Restless()

class TestOneKey(SourceConformance):
    def make_source(self):
        return ({"__key__": "same", "id": number} for number in range(3))

class TestNoType(SourceConformance):
    def make_source(self):
        return [{"__key__": "a", "x": object()}]
"""

# Of each class that does not conform: a test that fails, and what it says.
WRONG = {
    "formats": (FORMATS, WRONG_FORMATS),
    "stores": (
        STORES,
        {
            ("TestShortReads", "test_get_refuses_ranges_outside_with_url_and_offset"): (
                "get('x', 0, 11) of 10 bytes must raise StorageError, but returned"
            ),
            ("TestBare", "test_what_is_not_there_is_not_found"): "KeyError",
            ("TestShowsEarly", "test_nothing_shows_before_the_commit"): (
                "what is there before the commit must be None, got b'abcdef'"
            ),
            ("TestNothingOverridden", "test_locate"): "TestNothingOverridden must override make_store()",
        },
    ),
    "framings": (
        FRAMINGS,
        {
            ("TestPlansTwice", "test_requests_lie_in_their_objects_are_not_empty_and_come_once"): (
                "a plan must hold each request once"
            ),
            ("TestTrustsAll", "test_a_damaged_value_is_found_with_its_place"): (
                "extract of row 1, of whose jpg a byte was changed, must raise ChecksumError, but returned"
            ),
            (
                "TestMixesRows",
                "test_scalars_need_no_bytes",
            ): "the values of 'cls': 22 of 23 elements differ, first at (0,)",
        },
    ),
    "backends": (
        BACKENDS,
        {
            (
                "TestBlueFirst",
                "test_the_content_counts_not_the_name",
            ): "a PNG: 1198 of 1800 elements differ, first at (0, 0, 0)",
            ("TestFillsUp", "test_truncated_files_are_errors"): "bytes of a PNG must raise DecodeError, but returned",
            ("TestSaysMore", "test_max_scale_is_1_2_4_8_or_0"): "what max_scale says must be {'jpg': 8",
        },
    ),
    "sources": (
        SOURCES,
        {
            (
                "TestSorted",
                "test_parts_have_their_samples_in_their_order",
            ): "sample 11, read as number 0 of a part, must be",
            ("TestOnce", "test_parts_can_be_read_twice_and_elsewhere"): "a part that is read a second time must be",
            ("TestRestless", "test_the_fingerprint_is_the_same_each_time"): (
                "the fingerprint of a source that was made again must be"
            ),
            ("TestOneKey", "test_keys_are_unique"): "samples 0 and 1 have the same key, 'same'",
            ("TestNoType", "test_samples_can_be_packed"): "sample 0 cannot be packed: a object has no field type",
        },
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("what", WRONG)
def test_good_ones_pass_and_bad_ones_are_told_what_is_wrong(tmp_path, what) -> None:
    code, wrong = WRONG[what]
    (tmp_path / "test_mine.py").write_text(code)
    quick = "TestGood or not (dct_scales or addressable or threads)"
    options = ("-q", "-p", "no:cacheprovider", "--junitxml=found.xml", "--rootdir=.")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-k", quick, "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    failed = {
        (case.get("classname", "").rpartition(".")[2], case.get("name")): found.get("message", "")
        for case in ET.parse(tmp_path / "found.xml").iter("testcase")
        for found in [*case.iter("failure"), *case.iter("error")]
    }
    assert not [name for name in failed if name[0] == "TestGood"]
    for name, said in wrong.items():
        assert said in failed.get(name, "it passed"), (name, failed.get(name))
    assert {name for name, _ in failed} == {name for name, _ in wrong}
