"""Rows of values: ``values:DTYPE``, stored as bytes, with the meaning beside the type in manifest and index."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import shardstream as ss
from shardstream.diagnose import verify
from shardstream.errors import DecodeError, FieldError
from shardstream.shards.fields import SCALAR_TYPES, FieldType, agree, meant_type
from shardstream.shards.framings import framing_of
from shardstream.shards.heads import seal
from shardstream.shards.manifest import Manifest
from shardstream.storage import open_store

from . import independent_reader
from .making import FRAMINGS, shard_bytes

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "golden" / "values"
TOKENS = FieldType.parse("values:uint16")
EXPECTED: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
SAMPLES: list[tuple[str, dict[str, Any]]] = [(key, values) for shard in EXPECTED["shards"] for key, values in shard]
OLD = "78a7b3e"  # knows nothing of rows of values


def stored(name: str, value: Any) -> Any:
    """What is stored of a value of `EXPECTED`, by its type there."""
    kind = EXPECTED["types"][name]
    if kind == "int16":
        return value
    dtype = kind.removeprefix("values:")
    return bytes.fromhex(value) if dtype == "bytes" else np.array(value, np.dtype(dtype).newbyteorder("<")).tobytes()


# -------------------------------------------------------------------------------------------------------- one value


@pytest.mark.parametrize("elements", SCALAR_TYPES)
def test_every_dtype(elements: str) -> None:
    kind = FieldType.parse(f"values:{elements}")
    array = np.array([0, 1, 1], elements)
    encoded = bytes(kind.encode(array))
    assert encoded == array.astype(array.dtype.newbyteorder("<")).tobytes()
    found = kind.decode(memoryview(encoded))
    assert (found.dtype, found.tolist(), found.flags.writeable) == (array.dtype, array.tolist(), True)
    assert (kind.name, str(kind), kind.stored, kind.kind, kind.dtype) == (f"values:{elements}",) * 2 + (
        "bytes",
        "payload",
        None,
    )


@pytest.mark.parametrize(
    "text", ["values", "values:", "values:complex64", "values:str", "values:uint16:4", "values:u2"]
)
def test_other_names_are_no_types(text: str) -> None:
    with pytest.raises(FieldError, match="unknown field type") as caught:
        FieldType.parse(text)
    assert "values:DTYPE" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(0, np.uint16),
        np.arange(10, dtype=np.uint16)[::3],
        np.array([1, 513], ">u2"),
        torch.tensor([1, 2], dtype=torch.uint16),
        b"",
        b"\x01\x02",
        memoryview(b"\x01\x02\x03\x04"),
    ],
)
def test_what_is_taken(value: Any) -> None:
    raw = isinstance(value, bytes | memoryview)
    found = TOKENS.decode(memoryview(bytes(TOKENS.encode(value))))
    expected = np.frombuffer(value, "<u2") if raw else np.asarray(value)
    assert (found.dtype, found.tolist()) == (np.uint16, expected.tolist())


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (np.zeros(2, np.int16), r"expected one dimension of uint16, got int16 \[2\]"),
        (np.zeros((2, 2), np.uint16), r"got uint16 \[2, 2\]"),
        (np.uint16(3), r"got uint16 \[\]"),
        (torch.zeros(2, dtype=torch.bfloat16), "BFloat16"),
        (b"\x01\x02\x03", "3 bytes are not a multiple of 2"),
        ("text", "got str"),
    ],
)
def test_what_is_refused(value: Any, what: str) -> None:
    with pytest.raises(FieldError, match=what):
        TOKENS.encode(value)


@given(st.sampled_from(SCALAR_TYPES), st.binary(max_size=40))
def test_any_bytes_are_values_or_an_error(elements: str, data: bytes) -> None:
    kind = FieldType.parse(f"values:{elements}")
    whole = len(data) % np.dtype(elements).itemsize == 0 and (elements != "bool" or max(data, default=0) <= 1)
    if whole:
        assert bytes(kind.encode(kind.decode(memoryview(data)))) == bytes(kind.encode(data)) == data
        return
    with pytest.raises(DecodeError, match=f"not valid values:{elements}: .*(multiple|neither true nor false)"):
        kind.decode(memoryview(data))
    with pytest.raises(FieldError):
        kind.encode(data)


def test_which_types_agree() -> None:
    plain, image, other = (FieldType.parse(text) for text in ("bytes", "image", "values:int32"))
    assert FieldType.parse("values:uint16") == TOKENS
    assert TOKENS not in (plain, image, other)
    assert all(agree(one, two) for one, two in [(TOKENS, TOKENS), (TOKENS, plain), (plain, TOKENS), (image, plain)])
    assert not any(agree(one, two) for one, two in [(TOKENS, other), (TOKENS, image), (image, TOKENS)])


@pytest.mark.parametrize("meaning", [None, 7, "", "values:complex64", "array:uint16:2", "jpg", {"values": "uint16"}])
def test_a_meaning_that_is_not_known_is_ignored(meaning: Any) -> None:
    assert str(meant_type("bytes", meaning)) == "bytes"
    assert str(meant_type("str", "values:uint16")) == "str"


# ------------------------------------------------------------------------------------------------- manifest and index


@pytest.mark.parametrize("framing", FRAMINGS)
def test_the_index_says_it_beside_the_type(framing: str, tmp_path: Path) -> None:
    samples = [("a", {"t": np.arange(3, dtype=np.uint16), "x": b"plain"})]
    types = {"t": TOKENS, "x": FieldType.parse("bytes")}
    (tmp_path / "shard").write_bytes(shard_bytes(tmp_path, framing, samples, types=types))
    index = framing_of(framing).scan(open_store(tmp_path), "shard")
    assert {name: column.type.name for name, column in index.columns.items()} == {"t": "values:uint16", "x": "bytes"}


@pytest.mark.parametrize("framing", FRAMINGS)
def test_golden(framing: str) -> None:
    manifest, store = Manifest.load(FOLDER / framing), open_store(FOLDER / framing)
    assert {name: str(kind) for name, kind in manifest.fields.items()} == EXPECTED["types"]
    for number, samples in enumerate(EXPECTED["shards"]):
        index = manifest.reader.scan(store, manifest.shard_name(number))
        for name, column in index.columns.items():
            assert column.type.name == EXPECTED["types"][name]
        assert list(index.keys) == [key for key, _ in samples]
    assert verify(FOLDER / framing).ok


@pytest.mark.parametrize("framing", FRAMINGS)
def test_the_independent_reader_takes_them_as_bytes(framing: str) -> None:
    head, found = independent_reader.read_dataset(FOLDER / framing)
    said = {name: entry.get("as", entry["type"]) for name, entry in head["fields"].items()}
    assert said == EXPECTED["types"]
    assert {head["fields"][name]["type"] for name in said} == {"bytes", "int16"}
    for (key, values), (name, expected) in zip(found, SAMPLES, strict=True):
        assert key == name
        assert values == {field: stored(field, value) for field, value in expected.items()}


@pytest.mark.parametrize("framing", FRAMINGS)
def test_the_writer_still_writes_these_bytes(framing: str, tmp_path: Path) -> None:
    types = {name: FieldType.parse(kind) for name, kind in EXPECTED["types"].items()}
    names = sorted((FOLDER / framing).glob("shard-*"))
    for name, shard in zip(names, EXPECTED["shards"], strict=True):
        samples = [(key, {field: stored(field, one) for field, one in values.items()}) for key, values in shard]
        assert shard_bytes(tmp_path, framing, samples, types=types) == name.read_bytes()
    head = (FOLDER / framing / "dataset.json").read_bytes()
    assert seal(json.loads(head)) == head


def test_the_index_of_bytes_is_what_it_was(tmp_path: Path) -> None:
    data = shard_bytes(tmp_path, "record", [("a", {"x": b"1"})], types={"x": FieldType.parse("image")})
    start = data.index(b"SSINDEX\n") + 16
    (field,) = msgpack.Unpacker(io.BytesIO(data[start:])).unpack()["fields"]
    assert field == {"name": "x", "type": "bytes", "codec": "none", "base": None}


# ------------------------------------------------------------------------------------------------------- older readers

_OLD = """
import json, sys
import numpy as np
import shardstream as ss
from shardstream.diagnose import verify
from shardstream.shards.manifest import Manifest
from shardstream.storage import fetch, open_store

def samples(manifest, store):
    for shard in range(manifest.shards):
        index = manifest.reader.scan(store, manifest.shard_name(shard))
        rows, names = np.arange(index.samples), sorted(index.columns)
        buffers = fetch(store, lambda: manifest.reader.plan(index, rows, names))
        values = manifest.reader.extract(index, buffers, rows, names)
        for row in rows:
            valid = {name: index.columns[name].valid for name in names}
            has = [name for name in names if valid[name] is None or valid[name][row >> 3] >> (row & 7) & 1]
            raw = {name: values[name].data[row] for name in has}
            yield index.keys[row], {name: int(one) if name == "cls" else bytes(one).hex() for name, one in raw.items()}

*folders, grows = sys.argv[1:]
for folder in folders:
    manifest = Manifest.load(folder)
    types = {name: str(kind) for name, kind in manifest.fields.items()}
    found = list(samples(manifest, open_store(folder)))
    print(json.dumps({"types": types, "samples": found, "ok": verify(folder).ok}))
with ss.ShardWriter(grows, append=True) as writer:
    writer.write({"__key__": "new", "tokens": b"12"})
"""


@pytest.fixture(scope="module")
def old_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it was before there were rows of values."""
    git = ["git", "-C", str(ROOT), "archive", "--format=tar", OLD, "shardstream"]
    done = subprocess.run(git, capture_output=True, timeout=60)
    if done.returncode:
        pytest.skip(f"this copy of the repository does not have {OLD}")
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian 12's Python has none
        archive.extractall(folder)
    return folder


def test_older_versions_take_them_as_bytes(old_package: Path, tmp_path: Path) -> None:
    grows = shutil.copytree(FOLDER / "record", tmp_path / "grows")
    done = subprocess.run(
        [sys.executable, "-c", _OLD, *(FOLDER / framing for framing in FRAMINGS), grows],
        cwd=old_package,
        env={"PYTHONPATH": str(old_package), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    as_bytes = {name: "bytes" if kind.startswith("values:") else kind for name, kind in EXPECTED["types"].items()}
    outputs = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(found["types"], found["ok"]) for found in outputs] == [(as_bytes, True)] * len(FRAMINGS)
    for found in outputs:
        for (key, values), (name, expected) in zip(found["samples"], SAMPLES, strict=True):
            raw = {field: stored(field, value) for field, value in expected.items()}
            raw = {field: one.hex() if isinstance(one, bytes) else one for field, one in raw.items()}
            assert (key, values) == (name, raw)
    # What an older version has written anew knows the meaning no more; indexes that still do are not at odds with it.
    assert {name: str(kind) for name, kind in Manifest.load(grows).fields.items()} == as_bytes
    assert verify(grows).ok
    assert ss.Reader(grows).get("a")["tokens"] == stored("tokens", SAMPLES[0][1]["tokens"])
