"""Values that a few bytes announce: beyond ``max_value`` an error with shard and field, never all of the memory."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.diagnose import verify, view
from shardstream.errors import BatchError, DecodeError, ShardStreamError, UsageError
from shardstream.formats.blocks import store as blocks_store
from shardstream.pack.export.run import export
from shardstream.pack.repack import repack
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Column
from shardstream.shards.layout import checksum, pack_index
from shardstream.shards.manifest import Manifest
from shardstream.shards.record import MAGIC
from shardstream.shards.writing import ShardSummary
from shardstream.storage import counters, open_store
from tests.grouped import grouped

from ..storage.places import Place

WIDE = np.arange(3000, dtype=np.uint8)


def written(folder: Path, **fields: Any) -> Path:
    """Eight samples with one value of 3,000 bytes, which only the first has, and a label."""
    zstd = [name for name in fields if name == "packed"]
    types = {"fixed": "array:uint8:3000"} if "fixed" in fields else {}
    with ss.ShardWriter(folder, format="record", shards=ss.ShardOptions(zstd=zstd), fields=types) as writer:
        for i in range(8):
            writer.write({"__key__": f"k{i}", "cls": i} | (fields if i == 0 or "whole" in folder.name else {}))
    return folder


def forged(folder: Path, width: int, *, lacking: bool = False) -> Path:
    """Two shards of 8 samples, each of a KB; no sample has the array of ``width`` bytes. One shard lacks its column."""
    kind, store = FieldType.parse(f"array:uint8:{width}"), open_store(folder)
    keys, summaries = np.arange(1, 9, dtype=np.uint64), []
    for number in range(2):
        columns = [Column("cls", FieldType.parse("int64"), values=np.arange(8, dtype="<i8"))]
        fields = {"cls": columns[0].type, "x": kind}
        if number == 0 or not lacking:
            columns.append(Column("x", kind, valid=np.zeros(1, np.uint8), offsets=np.zeros(8, np.uint64)))
        data = MAGIC + bytes(56)
        data += pack_index("record", (keys, b"abcdefgh"), columns, end=len(data))
        store.put(f"shard-{number:06d}.rec", data)
        summaries.append(ShardSummary(8, len(data), checksum(data), 1024, fields))
    Manifest.of(summaries, "shard-{:06d}.rec", framing="record").save(store)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 8192
    return folder


def readers(url: Path, **options: Any) -> dict[str, Any]:
    """Every way to read one field of the first sample or batch."""
    return {
        "reader": lambda: ss.Reader(url, **grouped(options))[0],
        "by key": lambda: ss.Reader(url, **grouped(options)).get(ss.Reader(url)._rows.index(0).keys[0]),
        "samples": lambda: next(iter(ss.ShardDataset(url, **grouped(options)))),
        "batches": lambda: next(iter(ss.ShardDataset(url, batch_size=4, **grouped(options)))),
        "loader": lambda: next(iter(ss.Loader(ss.ShardDataset(url, batch_size=4, **grouped(options)), num_workers=0))),
        "replaced": lambda: next(iter(ss.ShardDataset(url, fields=["cls"], batch_size=4).replace(**grouped(options)))),
        "mixture": lambda: next(iter(ss.Mixture({"a": ss.ShardDataset(url, **grouped(options))}, batch_size=8))),
    }


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("name", "value"), [("packed", bytes(3000)), ("fixed", WIDE), ("array", WIDE.reshape(3, 1000)), ("array", WIDE)]
)
def test_a_value_beyond_the_limit_names_shard_and_field(tmp_path: Path, name: str, value: Any, whole: bool) -> None:
    url = written(tmp_path / ("whole" if whole else "part"), **{name: value})
    size = 3000 if name != "array" else len(value.tobytes()) + 128
    for how, read in readers(url, fields=[name], max_value=size - 1).items():
        with pytest.raises(DecodeError, match=f"{size} bytes, and max_value is {size - 1}") as caught:
            read()
        assert (caught.value.place["field"], caught.value.place["shard"]) == (name, "shard-000000.rec"), how
        assert "max_value" in str(caught.value.hint)
    for read in readers(url, fields=["cls"], max_value=1).values():
        read()
    assert bytes(np.asarray(ss.Reader(url, reads=ss.ReadOptions(max_value=size))[0][name])) == bytes(value)
    (problem, *rest) = verify(url, max_value=size - 1).problems
    assert (problem.check, problem.field, problem.sample, problem.key) == ("value", name, 0, "k0")
    assert len(rest) == (7 if whole and name != "fixed" else 0)
    assert verify(url, max_value=size).ok


def test_no_other_place_is_asked_for_what_the_caller_will_not_have(
    tmp_path: Path, s3: Place, caplog: pytest.LogCaptureFixture
) -> None:
    url = written(tmp_path / "part", packed=bytes(3000), array=WIDE)
    for file in url.iterdir():
        s3.plant(file.name, file.read_bytes())
    before = counters().snapshot()
    for name, size in (("packed", 3000), ("array", 3128)):
        for near in (s3.url(), str(url)):
            places = {"replicas": [near], "cache": tmp_path / "cache", "storage_options": s3.options}
            dataset = ss.ShardDataset(
                s3.url(), fields=[name], reads=ss.ReadOptions(max_value=size - 1), **grouped(places)
            )
            for _ in range(2):
                with pytest.raises(DecodeError, match=f"{size} bytes, and max_value is {size - 1}"):
                    next(iter(dataset))
    assert "instead" not in caplog.text
    assert counters().since(before)["cache_repaired"] == 0


@pytest.mark.parametrize("lacking", [False, True])
def test_absent_arrays_of_two_gigabytes_are_refused(tmp_path: Path, lacking: bool) -> None:
    url = forged(tmp_path / "forged", (1 << 31) - 1, lacking=lacking)
    for number, shard in ((0, "shard-000000.rec"), (15, "shard-000001.rec")):
        with pytest.raises(DecodeError, match="2147483647 bytes, and max_value is 1073741824") as caught:
            ss.Reader(url)[number]
        assert (caught.value.place["field"], caught.value.place["shard"]) == ("x", shard)
    for how in ("samples", "batches", "loader", "mixture"):
        with pytest.raises(DecodeError, match="max_value"):
            readers(url)[how]()
    assert [problem.field for problem in verify(url).problems] == ["x"] * (1 if lacking else 2)
    assert next(iter(ss.ShardDataset(url, fields=["cls"], batch_size=16)))["cls"].tolist() == [*range(8)] * 2


def test_a_batch_that_memory_does_not_hold_is_an_error_with_the_field(tmp_path: Path) -> None:
    url = forged(tmp_path / "forged", 1 << 30)
    with pytest.raises(BatchError) as caught:
        next(iter(ss.ShardDataset(url, batch_size=16, epoch_size=1 << 16)))
    assert caught.value.place["field"] == "x"


def test_arrays_that_some_samples_lack_stay_with_those_that_have_them(tmp_path: Path) -> None:
    with ss.ShardWriter(tmp_path, format="record", fields={"x": "array:uint8:3"}) as writer:
        for i in range(80):
            writer.write({"__key__": f"{i}", "cls": i} | ({"x": np.full(3, i, np.uint8)} if i % 3 else {}))
    for sample in ss.ShardDataset(tmp_path):
        assert (sample["x"] is None) == (sample["cls"] % 3 == 0)
        assert sample["x"] is None or sample["x"].tolist() == [sample["cls"]] * 3


def test_samples_that_are_too_large_are_skipped_like_damaged_ones(tmp_path: Path) -> None:
    url = written(tmp_path / "part", packed=bytes(3000))
    dataset = ss.ShardDataset(
        url, fields={"packed": "bytes", "cls": None}, reads=ss.ReadOptions(max_value="1kB"), on_error="skip"
    )
    assert [sample["cls"] for sample in dataset] == [*range(1, 8)]


@pytest.mark.parametrize("wrong", [0, -1, "much", 1.5, None, True])
def test_what_is_no_size(tmp_path: Path, wrong: Any) -> None:
    url = written(tmp_path / "part", fixed=WIDE)
    for make in (
        lambda: ss.ShardDataset(url, reads=ss.ReadOptions(max_value=wrong)),
        lambda: ss.ShardDataset(url).replace(reads=ss.ReadOptions(max_value=wrong)),
        lambda: ss.Reader(url, reads=ss.ReadOptions(max_value=wrong)),
        lambda: verify(url, max_value=wrong),
    ):
        with pytest.raises(UsageError, match="max_value must be a size"):
            make()


@pytest.mark.parametrize("name", ["plain", "txt"])
def test_a_limit_that_is_set_counts_for_what_is_stored_as_it_is(tmp_path: Path, monkeypatch, name: str) -> None:
    url = written(tmp_path / "part", **{name: "x" * 3000 if name == "txt" else bytes(3000)})
    for how, read in readers(url, fields=[name], max_value=2999).items():
        with pytest.raises(DecodeError, match="the value has 3000 bytes, and max_value is 2999") as caught:
            read()
        assert "max_value=3000" in str(caught.value.hint), how
    found = [(problem.check, problem.kind) for problem in verify(url, max_value=2999).problems]
    assert found == [("value", "unsupported")]
    assert len(ss.Reader(url, reads=ss.ReadOptions(max_value=3000))[0][name]) == 3000
    monkeypatch.setattr("shardstream.dataset.shard.MAX_VALUE", 2999)  # the default bounds what grows
    assert len(ss.Reader(url, reads=ss.ReadOptions(max_value=2999))[0][name]) == 3000


# ------------------------------------------------------------------------------------------------ compressed objects

LARGE, SMALL = bytes(100_000), b"small"


def tar(mode: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for key, value in (("large", LARGE), ("small", SMALL)):
            info = tarfile.TarInfo(f"{key}.bin")
            info.size = len(value)
            archive.addfile(info, io.BytesIO(value))
    return file.getvalue()


def tar_zst() -> bytes:
    return pytest.importorskip("zstandard").compress(tar("w"))


def jsonl_gz() -> bytes:
    return gzip.compress(b"".join(b'{"bin": "%s"}\n' % (b"x" * len(one)) for one in (LARGE, SMALL)))


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, value in (("large", LARGE), ("small", SMALL)):
            archive.writestr(f"{key}.bin", value)
    return file.getvalue()


def arrow() -> bytes:
    pa, file = pytest.importorskip("pyarrow"), io.BytesIO()
    table = pa.table({"bin": pa.array([LARGE, SMALL], pa.binary())})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(file, table.schema, options=options) as writer:
        writer.write_table(table)
    return file.getvalue()


def parquet() -> bytes:
    pa, pq, file = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet"), io.BytesIO()
    pq.write_table(pa.table({"bin": pa.array([LARGE, SMALL], pa.binary())}), file, compression="zstd")
    return file.getvalue()


def hdf5() -> bytes:
    h5py, file = pytest.importorskip("h5py"), io.BytesIO()
    with h5py.File(file, "w") as out:
        out.create_dataset("bin", (4, 60_000), "u1", chunks=(4, 60_000), compression=9)[:] = 0
    return file.getvalue()


# By name of the object: its bytes, and whether its small value lies in a part that is decompressed by itself.
OBJECTS: dict[str, tuple[Callable[[], bytes], bool]] = {
    "0.tar": (partial(tar, "w"), True),
    "0.tar.gz": (partial(tar, "w:gz"), False),
    "0.tar.xz": (partial(tar, "w:xz"), False),
    "0.tar.zst": (tar_zst, False),
    "0.jsonl.gz": (jsonl_gz, False),
    "0.zip": (zipped, True),
    "0.arrow": (arrow, False),
    "0.parquet": (parquet, False),
    "0.h5": (hdf5, False),
}


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("name", OBJECTS)
def test_what_is_decompressed_is_bounded(tmp_path: Path, monkeypatch, name: str, far: bool) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("shardstream.dataset.shard.LEAST_AT_ONCE", 1000)
    make, apart = OBJECTS[name]
    folder: Any = ss.testing.MemoryStore() if far else tmp_path / "set"
    open_store(folder).put(name, make())
    large = 60_000 if name == "0.h5" else len(LARGE)
    assert len(ss.Reader(folder)[1]["bin"]) == (60_000 if name == "0.h5" else len(SMALL))
    assert len(ss.Reader(folder, reads=ss.ReadOptions(max_value="1MB"))[0]["bin"]) == large
    inflated = inflated_sizes(monkeypatch)
    for how in ("reader", "samples", "batches", "loader"):
        with pytest.raises(DecodeError, match=f"{large} bytes, and max_value is 2000") as caught:
            readers(folder, max_value=2000)[how]()
        assert caught.value.place["field"] == "bin"
        assert f"max_value={large}" in str(caught.value.hint)
    if not apart:
        what = "60000 bytes" if name == "0.h5" else "have to be decompressed at once"
        with pytest.raises(DecodeError, match=what):
            ss.Reader(folder, reads=ss.ReadOptions(max_value=2000))[1]
        assert not inflated
    else:
        assert ss.Reader(folder, reads=ss.ReadOptions(max_value=2000))[1]["bin"] == SMALL
        dataset = ss.ShardDataset(folder, reads=ss.ReadOptions(max_value=2000), on_error="skip")
        assert [sample["__key__"] for sample in dataset] == ["small"]


def inflated_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of what readers inflate from now on."""
    found: list[int] = []
    inflate = blocks_store.inflate

    def counted(codec: int, data: memoryview, size: int, setting: bytes = b"") -> memoryview:
        found.append(size)
        return inflate(codec, data, size, setting)

    monkeypatch.setattr(blocks_store, "inflate", counted)
    return found


def test_whoever_else_reads_has_the_limit_too(tmp_path: Path) -> None:
    url = forged(tmp_path / "forged", (1 << 31) - 1)
    with pytest.raises(ShardStreamError, match="max_value"):
        repack(url, tmp_path / "again", workers=0)
    with pytest.raises(ShardStreamError, match="max_value"):
        export(url, tmp_path / "files", to="files", workers=0)
    assert view(url, [0]).samples[0].key == "a"
