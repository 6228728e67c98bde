"""The golden data set of bins: documents in rows of tokens, and the table by which they are found."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import shardstream as ss
from shardstream.diagnose import verify

from . import independent_reader

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "bins"
EXPECTED: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
Documents = dict[str, dict[str, Any]]


def in_full(document: dict[str, Any]) -> dict[str, Any]:
    """A document with what it leaves out."""
    return {"loss_mask": [1] * len(document["ids"]), "title": None} | document


def read_bins() -> tuple[dict[str, Any], Documents, dict[str, list[int]]]:
    """The head, all documents, and the bins of each, by a reader that knows nothing but the page."""
    head, found = independent_reader.read_dataset(FOLDER)
    field, size = head["bins"]["field"], head["bins"]["size"]
    pieces: dict[str, list[tuple[int, int, dict[str, Any]]]] = {}
    for number, (_, sample) in enumerate(found):
        lengths = np.frombuffer(sample[f"{field}.lengths"], "<i4")
        offsets = np.frombuffer(sample[f"{field}.offsets"], "<u4")
        runs = np.frombuffer(sample[f"{field}.loss"], "<u4") if f"{field}.loss" in sample else []
        mask = np.repeat(np.arange(len(runs)) % 2 == 0, runs) if len(runs) else np.ones(size, bool)
        begins = np.cumsum(np.abs(lengths)) - np.abs(lengths)
        assert (sample[field][np.repeat(lengths < 0, np.abs(lengths))] == head["bins"]["pad"]).all()
        own = lengths > 0
        assert sample[f"{field}.documents"] == own.sum() - np.count_nonzero(offsets)
        for i, (begin, length) in enumerate(zip(begins[own].tolist(), lengths[own].tolist(), strict=True)):
            key, part = sample[f"{field}.keys"][i], slice(begin, begin + length)
            one = {
                "ids": sample[field][part].tolist(),
                "loss_mask": mask[part].astype(int).tolist(),
                "n": int(np.frombuffer(sample["n"], "<i8")[i]),
                "score": float(np.frombuffer(sample["score"], "<f8")[i]),
                "title": sample["title"][i] if "title" in sample else None,
            }
            pieces.setdefault(key, []).append((int(offsets[i]) if len(offsets) else 0, number, one))
    documents: Documents = {}
    for key, some in pieces.items():
        some.sort(key=lambda piece: piece[0])
        documents[key] = some[0][2] | {"__key__": key}
        for name in ("ids", "loss_mask"):
            documents[key][name] = [token for _, _, one in some for token in one[name]]
    return head, documents, {key: sorted(number for _, number, _ in some) for key, some in pieces.items()}


def test_the_page_is_enough_to_read_documents() -> None:
    head, documents, _ = read_bins()
    assert head["bins"] == EXPECTED["bins"]
    assert documents == {one["__key__"]: in_full(one) for one in EXPECTED["documents"]}


def test_the_page_is_enough_to_find_documents() -> None:
    head, _, bins = read_bins()
    data = (FOLDER / f"documents-{head['fingerprint']}.table").read_bytes()
    magic, version, width, start, stop, block, own, below, expected = struct.unpack("<8sIIQQQ16s16sQ", data[-80:])
    assert (magic, version, start, stop) == (b"SSKEYST\n", 1, 0, head["bins"]["pieces"])
    assert (own.hex(), below, width) == (head["fingerprint"], bytes(16), 4)
    assert stop <= block, "one block"
    assert xxhash.xxh3_64_intdigest(data[12 * stop : -8]) == expected
    hashes, numbers = np.frombuffer(data, "<u8", stop), np.frombuffer(data, "<u4", stop, 8 * stop)
    assert np.frombuffer(data, "<u8", 2, 12 * stop).tolist() == [
        hashes[-1],
        xxhash.xxh3_64_intdigest(data[: 12 * stop]),
    ]
    for key, of in bins.items():
        assert numbers[hashes == xxhash.xxh3_64_intdigest(key.encode())].tolist() == of


@pytest.mark.parametrize("document", EXPECTED["documents"], ids=lambda one: one["__key__"])
def test_documents_are_found(document: dict[str, Any]) -> None:
    found = ss.Reader(FOLDER).get(document["__key__"])
    values = {name: found.get(name) for name in ("__key__", "n", "score", "title")}
    mask = found.get("loss_mask", np.ones(len(found["ids"])))
    values |= {"ids": found["ids"].tolist(), "loss_mask": mask.astype(int).tolist()}
    assert values == in_full(document)


def test_it_is_sound() -> None:
    assert verify(FOLDER).ok
