#!/usr/bin/env python3
# needs: megatron-core==0.12.1 torch==2.13.0
"""Write Megatron data sets with Megatron Core, and what its own reader gives: golden files of `tests/formats`.

    python tools/foreign/golden_megatron.py tests/golden/foreign/megatron  # in an environment that has megatron-core

A pair of files for each dtype, with documents of several sequences and an empty one, and ``merged``, of two.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import numpy as np
import torch
from megatron.core.datasets.indexed_dataset import DType, IndexedDataset, IndexedDatasetBuilder


def write(prefix: Path, dtype: str, documents: list[list[int]]) -> None:
    """A pair of files; a document of n tokens is as many sequences as it has tokens above 5, at least one."""
    kind = getattr(np, dtype)
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=kind)
    for document in documents:
        parts = np.array_split(np.array(document, kind), max(1, len(document) - 5))
        for part in parts:
            builder.add_item(torch.from_numpy(part.astype(np.int64 if dtype == "uint16" else kind)))
        builder.end_document()
    builder.finalize(f"{prefix}.idx")


def read(prefix: Path) -> list[list[float]]:
    """The documents, by Megatron's own reader."""
    found = IndexedDataset(str(prefix), multimodal=False)
    marks = found.document_indices
    return [
        [token for sequence in range(begin, end) for token in found[sequence].tolist()]
        for begin, end in itertools.pairwise(marks)
    ]


def main(folder: Path) -> None:
    """Writes all files."""
    folder.mkdir(parents=True, exist_ok=True)
    expected = {}
    for dtype in (one.name for one in DType):
        documents = [[(7 * i + j) % 120 for j in range(length)] for i, length in enumerate([3, 5, 1, 9, 0, 4])]
        write(folder / dtype, dtype, documents)
        expected[dtype] = read(folder / dtype)
    merged = IndexedDatasetBuilder(str(folder / "merged.bin"), dtype=np.int32)
    for _ in range(2):
        merged.add_index(str(folder / "int32"))
    merged.finalize(str(folder / "merged.idx"))
    expected["merged"] = read(folder / "merged")
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
