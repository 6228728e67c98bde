"""TFRecord files: those of TensorFlow against what it reads, random ones, damaged and hostile ones."""

from __future__ import annotations

import base64
import gzip
import json
import random
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import FormatError, UsageError
from shardstream.formats.contract import SourceFormat
from shardstream.formats.scans import protobuf
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import PIECE, ScannedRows
from shardstream.formats.tfrecord import crc32c, examples
from shardstream.formats.tfrecord import format as tfrecord
from shardstream.formats.tfrecord.format import TFRecord
from shardstream.testing import MemoryStore

from . import example_writer as writer
from .damaging import check_forms
from .scanning import in_memory, listing_of, recognised, samples, scanned

GOLDEN = Path(__file__).parents[1] / "golden" / "foreign" / "tfrecord"
JPEG = b"\xff\xd8\xff\xe0" + bytes(20)


def expected(name: str) -> list[dict[str, Any]]:
    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return base64.b64decode(value["bytes"])
        return [plain(one) for one in value] if isinstance(value, list) else value

    found = json.loads((GOLDEN / "expected.json").read_text())[name]
    return [{field: plain(value) for field, value in sample.items()} for sample in found]


def scan_bytes(
    data: bytes, about: dict[str, Any] | None = None, format: SourceFormat | None = None
) -> list[ScannedRows]:
    store = MemoryStore({"a.tfrecord": data})
    return list((format or TFRecord()).scan(ObjectBytes(store, "a.tfrecord", len(data)), about or {}))


def values_of(features: list[dict[str, Any]], tmp_path: Path, options: dict[str, str] | None = None) -> list[Any]:
    (tmp_path / "a.tfrecord").write_bytes(writer.records([writer.example(one) for one in features], sums=False))
    return [values for _, values in samples(TFRecord(), tmp_path, options)]


def columns_of(folder: Path, options: dict[str, str] | None = None) -> dict[str, tuple[str, str]]:
    (_, rows), *_ = scanned(TFRecord(), folder, options)
    return {column.name: (str(column.type), column.codec) for column in rows.columns}


# ---------------------------------------------------------------------------------------------- files of TensorFlow


@pytest.mark.parametrize("remote", [False, True])
def test_imagenet_as_tf_slim_writes_it(remote: bool) -> None:
    place: Any = in_memory(GOLDEN / "imagenet") if remote else GOLDEN / "imagenet"
    found, wanted = samples(TFRecord(), place), expected("imagenet")
    assert [key for key, _ in found] == [one["image/filename"][0].decode() for one in wanted]
    for (_, values), one in zip(found, wanted, strict=True):
        assert values["jpg"] == one["image/encoded"][0]
        assert values["cls"] == one["image/class/label"][0] - 1
        assert values["image.class.text"] == one["image/class/text"][0].decode()
        assert values["image.height"] == one["image/height"][0]
        assert values["image.object.bbox.xmin"].tolist() == one["image/object/bbox/xmin"]
        assert values.get("image.object.bbox.label", np.zeros(0)).tolist() == (one["image/object/bbox/label"] or [])
    assert any("counts from 1" in note for note in recognised(TFRecord(), listing_of(place)).notes)
    assert columns_of(GOLDEN / "imagenet")["jpg"] == ("jpg", "none")


def test_the_first_label_can_be_said() -> None:
    found = samples(TFRecord(), GOLDEN / "imagenet", {"first_label": "0"})
    assert [values["cls"] for _, values in found] == [one["image/class/label"][0] for one in expected("imagenet")]


def test_every_kind_of_list() -> None:
    for (key, values), (row, one) in zip(
        samples(TFRecord(), GOLDEN / "lists"), enumerate(expected("lists")), strict=True
    ):
        assert key == f"lists/{row:08d}"
        assert values["one_int"] == one["one_int"][0]
        assert values["extreme"].tolist() == one["extreme"]
        assert values["ints"].tolist() == one["ints"]
        assert values["one_float"] == one["one_float"][0]
        assert values["floats4"].tolist() == one["floats4"]
        assert values["floats"].tolist() == one["floats"]
        assert values["text"] == one["text"][0].decode()
        assert values["strings"] == one["strings"]
        assert values["some_strings"] == one["some_strings"]
        assert values.get("sometimes") == (one["sometimes"] or [None])[0]
        assert values.get("absent") == one.get("absent", [None])[0]
        assert values["picture"] == one["picture"][0]
    types = columns_of(GOLDEN / "lists")
    assert types["floats4"] == ("array:float32:4", "none")
    assert types["picture"] == ("png", "none")
    assert types["ints"] == ("array", "tfrecord.ints")


def test_sequence_examples() -> None:
    for (_, values), one in zip(samples(TFRecord(), GOLDEN / "sequences"), expected("sequences"), strict=True):
        assert values["video"] == one["video"][0]
        assert values["length"] == one["length"][0]
        assert values["captions"] == [frame[0] for frame in one["captions"]]
        assert values["ids"].tolist() == [frame[0] for frame in one["ids"]]
        assert values["boxes"].tolist() == one["boxes"]
        assert values["words"] == one["words"]
        assert values["tags"] == one["tags"]


def test_records_that_are_no_examples() -> None:
    assert samples(TFRecord(), GOLDEN / "bytes") == [
        ("notes/00000000", {"record": b"no message"}),
        ("notes/00000001", {"record": b""}),
        ("notes/00000002", {"record": b"\x0a\x03abc"}),
    ]


def test_files_of_the_package_tfrecord() -> None:
    for (_, values), one in zip(samples(TFRecord(), GOLDEN / "package"), expected("package"), strict=True):
        assert values == {
            "image": one["image"][0],
            "cls": one["label"][0],
            "weights": pytest.approx(np.array(one["weights"], np.float32)),
        }


def test_tensorflow_datasets() -> None:
    found = recognised(TFRecord(), listing_of(GOLDEN / "tfds"))
    assert found.classes == ("airplane", "cat", "sea lion")
    assert len(found.objects) == 1
    for (key, values), one in zip(samples(TFRecord(), GOLDEN / "tfds"), expected("tfds"), strict=True):
        assert key == values["file_name"] == one["file_name"][0].decode()
        assert values["cls"] == one["label"][0]
        assert values["image"] == one["image"][0]
        assert values["vector"].tolist() == one["vector"]
        assert values["objects.bbox"].tolist() == one["objects/bbox"]
        assert values["objects.id"].tolist() == one["objects/id"]  # one value in every sample, and still a list


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("folder", ["gzip", "zlib"])
def test_compressed_files_are_read_inflated(folder: str, remote: bool) -> None:
    place: Any = in_memory(GOLDEN / folder) if remote else GOLDEN / folder
    (path,) = (GOLDEN / folder).iterdir()
    inflate = gzip.decompress if folder == "gzip" else zlib.decompress
    plain = MemoryStore({"lists.tfrecord": inflate(path.read_bytes())})
    assert repr(samples(TFRecord(), place)) == repr(samples(TFRecord(), plain))


def test_compressed_labels_count_from_one_as_plain_ones_do(tmp_path: Path) -> None:
    for path in (GOLDEN / "imagenet").iterdir():
        (tmp_path / f"{path.name}.tfrecord.gz").write_bytes(gzip.compress(path.read_bytes()))
    found, plain = ([values for _, values in samples(TFRecord(), place)] for place in (tmp_path, GOLDEN / "imagenet"))
    assert [one["cls"] for one in found] == [one["cls"] for one in plain]


@pytest.mark.full
def test_compressed_files_that_are_cut_off_or_damaged(tmp_path: Path) -> None:
    packed, rng = (GOLDEN / "gzip" / "lists.tfrecord.gz").read_bytes(), random.Random(2)
    hostile = [packed[:length] for length in range(2, len(packed), 5)]
    for data in hostile:
        with pytest.raises(FormatError):
            samples(TFRecord(), MemoryStore({"a.tfrecord": data}))
    for _ in range(200):
        flipped = bytearray(packed)
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        with suppress(FormatError):  # a name or a time in gzip's header may be anything
            list(scanned(TFRecord(), MemoryStore({"a.tfrecord": bytes(flipped)})))


@pytest.mark.parametrize("folder", ["imagenet", "lists", "sequences", "bytes", "package", "tfds"])
def test_all_checksums_of_tensorflow_are_right(folder: str) -> None:
    assert samples(TFRecord(), GOLDEN / folder, {"verify": "crc"})


@pytest.mark.parametrize("folder", ["imagenet", "lists", "sequences", "bytes", "package", "tfds"])
def test_many_small_reads_give_the_same_rows(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = list(scanned(TFRecord(), GOLDEN / folder))
    monkeypatch.setattr(tfrecord, "_BLOCK", 100)
    for (path, one), (other_path, other) in zip(
        mapped, scanned(TFRecord(), in_memory(GOLDEN / folder), window=100), strict=True
    ):
        assert (path, list(one.keys)) == (other_path, list(other.keys))
        assert [column.name for column in one.columns] == [column.name for column in other.columns]
        for column, same in zip(one.columns, other.columns, strict=True):
            assert (str(column.type), column.codec) == (str(same.type), same.codec)
            for array in ("valid", "values", "offsets", "lengths"):
                np.testing.assert_array_equal(getattr(column, array), getattr(same, array))


# ------------------------------------------------------------------------------------------------- what is decided


def test_lists_that_are_one_value_in_one_file_can_be_named(tmp_path: Path) -> None:
    features = [{"scores": [1.0], "ids": [3], "names": [b"a"], "n": [1]}]
    assert values_of(features, tmp_path) == [{"scores": 1.0, "ids": 3, "names": b"a", "n": 1}]
    (values,) = values_of(features, tmp_path, {"lists": "scores, ids,names"})
    assert values["scores"].tolist() == [1.0]
    assert values["ids"].tolist() == [3]
    assert values["names"] == [b"a"]
    assert values["n"] == 1


def test_floats_that_are_not_packed_have_a_form(tmp_path: Path) -> None:
    lists: list[dict[str, Any]] = [{"f": [1.0, 2.0], "i": [-1, 300], "one": [7], "x": [0.5]}] * 2
    data = writer.records([writer.example(one, packed=False) for one in lists])
    (tmp_path / "a.tfrecord").write_bytes(data)
    for _, values in samples(TFRecord(), tmp_path):
        assert values["f"].tolist() == [1.0, 2.0]
        assert values["i"].tolist() == [-1, 300]
        assert (values["one"], values["x"]) == (7, 0.5)
    assert columns_of(tmp_path)["f"] == ("array", "tfrecord.floats")


def test_names_are_keys_only_if_each_is_another(tmp_path: Path) -> None:
    values_of([{"key": [b"/n1//a.jpg"]}, {"key": [b"b"]}], tmp_path)
    assert [key for key, _ in samples(TFRecord(), tmp_path)] == ["n1/a.jpg", "b"]
    values_of([{"key": [b"/a"]}, {"key": [b"a"]}], tmp_path)
    assert [key for key, _ in samples(TFRecord(), tmp_path)] == ["a/00000000", "a/00000001"]
    values_of([{"key": [b"a"], "__key__": [b"z"]}, {"key": [b""], "__key__": [b"\xff"]}], tmp_path)
    assert samples(TFRecord(), tmp_path) == [("z", {"key": b"a"}), ("%FF", {"key": b""})]


def test_a_label_is_cls_as_it_is_unless_imagenet_wrote_it(tmp_path: Path) -> None:
    assert values_of([{"image/encoded": [JPEG], "image/class/label": [0]}], tmp_path) == [{"jpg": JPEG, "cls": 0}]
    assert values_of([{"label": [4], "jpg": [JPEG], "image/encoded": [b"x"]}], tmp_path) == [
        {"cls": 4, "jpg": JPEG, "image.encoded": b"x"}
    ]
    assert "label" in values_of([{"label": [4, 5]}], tmp_path)[0]
    assert values_of([{"image/encoded": [JPEG, JPEG]}], tmp_path) == [{"image.encoded": [JPEG, JPEG]}]


def test_a_feature_of_two_types_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="'x' has values of two types, int64 and float32"):
        values_of([{"x": [1]}, {"x": [1.0]}], tmp_path)


def test_features_that_would_have_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"both called 'a\.b'"):
        values_of([{"a/b": [1], "a.b": [1]}], tmp_path)


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    entries = [
        writer.part(1, writer.part(1, name) + writer.part(2, writer.feature([1]))) for name in (b"\xffa", b"\xfeb")
    ]
    data = writer.records([writer.part(1, b"".join(entries))])
    assert [column.name for column in scan_bytes(data)[0].columns] == ["_a", "_b"]
    with pytest.raises(FormatError, match="both called '_a'"):
        scan_bytes(data.replace(b"\xfeb", b"\xfea"))


def test_samples_come_in_pieces_with_one_type(tmp_path: Path) -> None:
    count = PIECE + 10
    values_of([{"n": [row], "late": [1, 2] if row == count - 1 else [row]} for row in range(count)], tmp_path)
    rows = [one for _, one in scanned(TFRecord(), tmp_path)]
    assert [len(one.keys) for one in rows] == [count // 2] * 2
    assert {str(column.type) for one in rows for column in one.columns if column.name == "late"} == {"array"}
    assert np.concatenate([one.columns[1].values for one in rows]).tolist() == list(range(count))


def test_options_are_checked() -> None:
    for options in ({"verify": "yes"}, {"first_label": "2"}):
        with pytest.raises(UsageError, match="of TFRecord files"):
            TFRecord().recognize(listing_of(GOLDEN / "lists"), options)


# --------------------------------------------------------------------------------------------------- recognition


def test_what_is_recognised(tmp_path: Path) -> None:
    data = writer.records([writer.example({"a": [1]})])
    for name in ("x.tfrecord", "x.TFRecords", "x.tfrec", "x.tfrecord-00000-of-00002", "data-00001-of-00002"):
        store = MemoryStore({name: data, name + ".idx": b"0 24\n", ".hidden.tfrecord": b"x", "README.md": b"x"})
        assert [one.path for one in recognised(TFRecord(), listing_of(store)).objects] == [name]
    for objects in ({"a.bin": data}, {"train-00000-of-00001": b"text, as C4 has it"}, {"a.tfrecord": b""}, {}):
        assert TFRecord().recognize(listing_of(MemoryStore(objects)), {}) is None
    with pytest.raises(FormatError, match="not a TFRecord file"):
        TFRecord().recognize(listing_of(MemoryStore({"a.tfrecord": b"something else"})), {})


def test_an_empty_file_has_no_samples() -> None:
    assert scan_bytes(b"") == []


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[]",
        b'{"featuresDict": 3}',
        b'{"a":' * 5000,
        b"\xff",
        b'{"sequence": [1]}',
        b'{"featuresDict": {"features": {"a": 3}}}',
    ],
)
def test_descriptions_that_are_malformed(text: bytes) -> None:
    store = MemoryStore({"a.tfrecord": writer.records([b""]), "features.json": text})
    with pytest.raises(FormatError, match="description of the features is malformed"):
        TFRecord().recognize(listing_of(store), {})


# -------------------------------------------------------------------------------------------------------- reading


def test_an_object_that_is_not_mapped_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfrecord, "_BLOCK", 10_000)
    features = [{"image/encoded": [JPEG + bytes(1000 + 9000 * (row == 7))], "key": [b"%d" % row]} for row in range(50)]
    data = writer.records([writer.example(one) for one in features], sums=False)
    store = MemoryStore({"a.tfrecord": data})
    store.requests.clear()
    rows = list(TFRecord().scan(ObjectBytes(store, "a.tfrecord", len(data), window=10_000), {}))
    assert sum(len(one.keys) for one in rows) == 50
    assert len(store.requests) <= len(data) // 10_000 + 5


# --------------------------------------------------------------------------------------------- damaged and hostile


def test_cut_off_anywhere_gives_the_whole_samples() -> None:
    messages = [writer.example({"a": [row], "b": [b"x" * row]}) for row in range(3)]
    data = writer.records(messages)
    ends = np.cumsum([len(one) + 16 for one in messages]).tolist()
    for length in range(1, len(data)):
        whole = sum(end <= length for end in ends)
        if whole == 0:
            with pytest.raises(FormatError, match="ends inside of a record"):
                scan_bytes(data[:length])
            continue
        (rows,) = scan_bytes(data[:length])
        assert len(rows.keys) == whole
        assert (rows.damage is None) == (length in ends)


@pytest.mark.parametrize("rounds", [100, pytest.param(3000, marks=pytest.mark.full)])
def test_random_damage_is_one_error(rounds: int) -> None:
    chance = random.Random(rounds)
    messages = [writer.example({"a": [row, -1], "b": [b"x" * row], "f": [0.5] * row or [1.0]}) for row in range(3)]
    messages.append(writer.sequence_example({"a": [1, 2]}, {"s": [[1], [2]], "t": [[b"u"], [b"v", b"w"]]}))
    data = writer.records(messages)
    for _ in range(rounds):
        wrong = bytearray(data)
        for _ in range(chance.randint(1, 3)):
            wrong[chance.randrange(len(wrong))] = chance.randrange(256)
        try:
            found = scan_bytes(bytes(wrong))
        except FormatError:
            continue
        check_forms(TFRecord(), bytes(wrong), found)


def test_damage_inside_of_a_record_is_named() -> None:
    messages = [writer.example({"a": [row]}) for row in range(20)]
    messages[13] = b"\x0a\xff\x01"
    (rows,) = scan_bytes(writer.records(messages))
    assert len(rows.keys) == 13
    assert "record 13 is not a tf.train.Example" in str(rows.damage)


def test_a_wrong_checksum_of_a_length_ends_the_samples() -> None:
    data = bytearray(writer.records([writer.example({"a": [row]}) for row in range(5)]))
    size = len(data) // 5
    data[size * 3 + 9] ^= 1
    (rows,) = scan_bytes(bytes(data))
    assert len(rows.keys) == 3
    assert rows.damage is not None
    assert rows.damage.place["offset"] == size * 3


def test_the_checksums_of_records_are_compared_if_asked() -> None:
    data = bytearray(writer.records([writer.example({"a": [b"some bytes"]}) for _ in range(5)]))
    size = len(data) // 5
    data[size * 2 + size - 6] ^= 1
    assert len(scan_bytes(bytes(data))[0].keys) == 5
    (rows,) = scan_bytes(bytes(data), {"verify": "crc"})
    assert len(rows.keys) == 2
    assert "record 2 are not those that were written" in str(rows.damage)


def test_more_features_than_columns_can_be_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "MOST_FEATURES", 20)
    alone = writer.example({f"f{n}": [n] for n in range(21)})
    assert [column.name for column in scan_bytes(writer.records([alone]))[0].columns] == ["record"]
    together = [writer.example({f"f{row * 10 + n}": [n] for n in range(10)}) for row in range(3)]
    (rows,) = scan_bytes(writer.records(together))
    assert len(rows.keys) == 2
    assert "more than 20 features" in str(rows.damage)
    monkeypatch.setattr(tfrecord, "PIECE", 1)
    (rows,) = scan_bytes(writer.records(together))
    assert (len(rows.keys), len(rows.columns)) == (2, 20)
    assert "samples have more than 20 features" in str(rows.damage)


@pytest.mark.parametrize(
    "message",
    [
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a length of 2 ** 64 - 1
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a number of 11 bytes
        b"\x0a\x02\x0a\x00\x00",  # something after the features
        writer.part(2, b"") + writer.part(1, b""),  # the wrong order
        writer.part(1, writer.part(1, b"")),  # a feature without a name
        writer.part(1, writer.part(1, writer.part(1, b"a") + writer.part(3, b""))),
        writer.part(1, writer.part(1, writer.part(1, b"a") + writer.part(2, writer.part(4, b"")))),
        writer.part(1, writer.part(1, writer.part(1, b"a") + writer.part(2, writer.part(2, writer.part(1, b"abc"))))),
        writer.part(1, writer.part(1, writer.part(1, b"a") + writer.part(2, writer.part(3, writer.part(1, b"\xff"))))),
        writer.part(1, (writer.part(1, writer.part(1, b"a"))) * 2),  # a feature twice
    ],
)
def test_what_is_no_example(message: bytes) -> None:
    (column,) = scan_bytes(writer.records([message]))[0].columns
    assert (column.name, str(column.type)) == ("record", "bytes")


def test_many_frames_cost_no_call_each() -> None:
    frames = [[1]] * 20_000
    ((column,),) = [
        one.columns for one in scan_bytes(writer.records([writer.sequence_example({}, {"s": frames})], sums=False))
    ]  # type: ignore[arg-type]
    assert column.codec == "tfrecord.frames:int64:1"


# ------------------------------------------------------------------------------------------------------- properties

_INTS = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=5)
_FLOATS = st.lists(st.floats(width=32, allow_nan=False), max_size=5)
_STRINGS = st.lists(st.binary(max_size=12), max_size=4)


@given(st.data(), st.integers(1, 20), st.booleans())
def test_random_samples_come_back(data: st.DataObject, count: int, packed: bool) -> None:
    kinds = {name: data.draw(st.sampled_from([int, float, bytes])) for name in ("a", "b/c", "d")}
    draws = {int: _INTS, float: _FLOATS, bytes: _STRINGS}
    written = [
        {name: data.draw(draws[kind]) for name, kind in kinds.items() if data.draw(st.integers(0, 9))}
        for _ in range(count)
    ]
    messages = [
        writer.part(
            1,
            writer.feature_map(
                {name: writer.feature(one, packed=packed, kind=kinds[name]) for name, one in sample.items()}
            ),
        )
        for sample in written
    ]
    store = MemoryStore({"a.tfrecord": writer.records(messages, sums=False)})
    found = samples(TFRecord(), store)
    if not any(written):
        return
    for (_, values), sample in zip(found, written, strict=True):
        for name, given_values in sample.items():
            value = values.get(name.replace("/", "."))
            if value is None:
                assert given_values == []
            else:
                assert (value.tolist() if isinstance(value, np.ndarray) else value) in (given_values, *given_values[:1])


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_checksums_are_those_of_the_definition(runs: list[bytes]) -> None:
    expected = [writer.crc32c(one) for one in runs]
    assert [crc32c.crc32c(one) for one in runs] == expected
    assert [crc32c.by_numpy(one) for one in runs] == expected
    eights = np.frombuffer(b"".join(one[:8].ljust(8) for one in runs), np.uint8).reshape(-1, 8)
    assert crc32c.of_eights(eights).tolist() == [writer.crc32c(one.tobytes()) for one in eights]


@given(st.lists(st.integers(0, (1 << 64) - 1)))
def test_numbers_one_after_another(numbers: list[int]) -> None:
    data = b"".join(writer.varint(one) for one in numbers)
    assert protobuf.all_varints(memoryview(data)).tolist() == numbers
