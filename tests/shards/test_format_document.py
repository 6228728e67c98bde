"""``docs/format.md`` is right, and enough: a reader written from it alone reads the golden files."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from shardstream.shards.fields import PAYLOAD_TYPES, SCALAR_TYPES

from . import dump_index, independent_reader
from .golden import FOLDER, SETS, expectations, same, shards
from .making import FRAMINGS, samples_of, shard_bytes

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "format.md"


@pytest.mark.parametrize("name", SETS)
def test_the_independent_reader_reads_the_golden_files(name) -> None:
    head, found = independent_reader.read_dataset(FOLDER / name)
    expected = expectations(name)
    assert {field: entry["type"] for field, entry in head["fields"].items()} == expected["types"]
    assert (head["classes"], head["meta"]) == (expected["classes"], expected["meta"])
    samples = [sample for _, samples in shards(name) for sample in samples]
    compared = 0
    for (key, values), sample in zip(found, samples, strict=True):
        assert key == sample.key
        assert set(values) == set(sample.values)
        for field, value in values.items():
            described = sample.values[field]
            assert same(value, described) if described is not None else value == sample.stored[field], (key, field)
            compared += 1
    assert compared == 44


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("options", [{}, {"checksums": False}])
def test_the_independent_reader_reads_what_is_written_today(framing, options, tmp_path) -> None:
    samples = samples_of(21)
    found = list(independent_reader.read_shard(shard_bytes(tmp_path, framing, samples, **options), framing))
    assert [key for key, _ in found] == [key for key, _ in samples]
    for (_, values), (_, expected) in zip(found, samples, strict=True):
        assert set(values) == set(expected)
        assert (values["jpg"], values["cls"]) == (expected["jpg"], expected["cls"])
        assert values.get("txt") == expected.get("txt")
        assert "emb" not in expected or (values["emb"] == expected["emb"]).all()


def test_the_independent_reader_is_independent() -> None:
    tree = ast.parse(Path(independent_reader.__file__).read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    others = {name.split(".")[0] for name in imported} - set(sys.stdlib_module_names)
    assert others == {"msgpack", "numpy", "xxhash", "zstandard"}


def test_the_dump_is_the_one_of_todays_writer() -> None:
    assert f"```text\n{dump_index.dump(dump_index.tiny_shard())}```\n" in DOCUMENT.read_text()


def test_every_type_is_in_the_document() -> None:
    text = DOCUMENT.read_text()
    assert [name for name in (*PAYLOAD_TYPES, *SCALAR_TYPES) if f"`{name}`" not in text] == []
