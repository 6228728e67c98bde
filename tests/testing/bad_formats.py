"""A good format and bad ones, as in a test file of a user; and what is said of the bad ones."""

from __future__ import annotations

FORMATS = """
import pickle
import struct

from shardstream.formats.contract import SourceFormat, SourceObject, Recognized
from shardstream.formats.scans.rows import RowBuilder, numbered_keys
from shardstream.testing import FormatConformance

HEAD = struct.Struct("<II")


class Good(SourceFormat):
    name = "good"
    title = "labels and texts (.pairs)"
    suffix = ".pairs"

    def recognize(self, listing, options):
        found = listing.only(self.suffix)
        if listing.first_that(found, lambda start: start.startswith(b"PAIR")) is None:
            return None
        return Recognized(tuple(SourceObject(one.path, one.size) for one in found))

    def scan(self, data, about):
        rows, offset, count = RowBuilder(data), 4, 0
        while self.more(offset, data.size):
            label, length = HEAD.unpack(data.get(offset, HEAD.size))
            rows.begin(numbered_keys(data.path, count, 1)[0])
            rows.number("label", label)
            rows.value("text", self.place(offset), length, "str")
            offset, count = offset + HEAD.size + length, count + 1
        yield rows.take()

    def more(self, offset, size):
        return offset < size

    def place(self, offset):
        return offset + HEAD.size


class TakesAll(Good):
    name = "takes-all"

    def recognize(self, listing, options):
        return Recognized(tuple(SourceObject(one.path, one.size) for one in listing.objects))


class OffByOne(Good):
    name = "off-by-one"

    def place(self, offset):
        return offset + HEAD.size - 1


class Bare(Good):
    name = "bare"

    def scan(self, data, about):
        stored = bytes(data.get(0, data.size))
        stored[stored.index(b"PAIR")]
        return super().scan(data, about)


class DropsTheLast(Good):
    name = "drops-the-last"

    def more(self, offset, size):
        return offset + 18 <= size


class Restless(Good):
    name = "restless"
    count = 0

    def recognize(self, listing, options):
        found = super().recognize(listing, options)
        Restless.count += 1
        if found is None:
            return None
        return Recognized(tuple(SourceObject(one.path, one.size, {"n": self.count}) for one in found.objects))


class TakesAnyOption(dict):
    def __contains__(self, name):
        return True


class AnyOption(Good):
    name = "any-option"
    options = TakesAnyOption()


class Written(FormatConformance):
    def write(self, folder):
        samples = []
        for name in ("a", "b"):
            rows = [(f"{name}/{row:08d}", {"label": row, "text": f"{name} number {row}"}) for row in range(4)]
            data = [HEAD.pack(one["label"], len(one["text"])) + one["text"].encode() for _, one in rows]
            (folder / f"{name}.pairs").write_bytes(b"PAIR" + b"".join(data))
            samples += rows
        return samples


class TestGood(Written):
    format = Good()

class TestTakesAll(Written):
    format = TakesAll()

class TestOffByOne(Written):
    format = OffByOne()

class TestDropsTheLast(Written):
    format = DropsTheLast()

class TestBare(Written):
    format = Bare()

class TestRestless(Written):
    format = Restless()

class TestAnyOption(Written):
    format = AnyOption()
"""

WRONG_FORMATS = {
    ("TestTakesAll", "test_data_of_others_are_not_recognized"): (
        "webdataset data are taken for its own: WebDataset and labels and texts (.pairs) are found here"
    ),
    ("TestOffByOne", "test_samples_are_those_that_were_written"): (
        "'text' of sample 0, 'a/00000000', must be 'a number 0', got '\\x00a number '"
    ),
    ("TestOffByOne", "test_rows_can_be_read_in_any_order"): "'text' of sample 7, 'b/00000003', must be",
    ("TestOffByOne", "test_a_store_gives_the_same_samples"): "must be 'a number 0'",
    ("TestOffByOne", "test_datasets_can_be_pickled"): "must be 'a number 0'",
    ("TestOffByOne", "test_files_that_end_too_early_are_errors"): "must be 'b number 0'",
    ("TestDropsTheLast", "test_files_that_end_too_early_are_errors"): (
        "a.pairs cut from 76 to 75 bytes must be an error, but gives 7 of 8 samples"
    ),
    ("TestBare", "test_files_that_end_too_early_are_errors"): (
        "opening a.pairs cut from 76 to 0 bytes must raise FormatError, but raised ValueError"
    ),
    ("TestBare", "test_damaged_bytes_are_no_other_errors"): (
        "opening a.pairs with another byte 0 must raise ShardStreamError, but raised ValueError"
    ),
    (
        "TestRestless",
        "test_scanning_twice_gives_the_same",
    ): "a second opening must find the catalog of the first",
    ("TestAnyOption", "test_unknown_options_are_refused"): (
        "opening with SourceOptions(options={'no-such-option': '1'}) must raise UsageError, but returned"
    ),
}
"""Of each class that does not conform: a test that fails, and what it says."""
