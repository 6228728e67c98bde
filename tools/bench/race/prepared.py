"""All stores of the race, made where they are missing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from bench.data import Corpus
from bench.harness import ContenderError
from bench.race import ours, stores
from bench.race.corpora import STORES, Kind
from bench.race.environments import PEERS, python

Stores: TypeAlias = Mapping[str, Path]


def photographs(corpus: Corpus, *formats: str) -> dict[str, Path]:
    """Photographs in some of the formats, and in ours, which are made anew.

    Args:
        corpus: The photographs.
        formats: Of `stores`, "ffcv-again" for files that FFCV encodes.
    """
    folder = STORES / corpus.folder.name
    told = {"folder": str(corpus.folder)}
    for name in formats:
        function, more = f"{name}_photographs", {}
        if name.startswith("ffcv"):
            function, more = "ffcv_photographs", {"quality": stores.REENCODED if name == "ffcv-again" else None}
        _bring(folder / name, function, {**told, **more})
    made = {name: folder / name for name in formats}
    for jpeg in ours.JPEG:
        made[jpeg] = ours.pack(corpus, folder / jpeg, jpeg)
    return made


def small(kind: Kind, count: int, *formats: str) -> dict[str, Path]:
    """Small samples in some of the formats, and in ours, which are made anew."""
    folder = STORES / f"{kind}-{count}"
    for name in formats:
        _bring(folder / name, f"{name}_small", {"kind": kind, "count": count})
    made = {name: folder / name for name in formats}
    made["ours"] = ours.write_small(folder / "ours", kind, count)
    return made


def _bring(out: Path, function: str, options: dict[str, Any]) -> None:
    peer = function.partition("_")[0]
    try:
        stores.bring(out, function, python(peer) if peer in PEERS else None, **options)
    except ContenderError as error:
        print(f"  {error}: going on without {out.name}")  # its contenders fail, and their lines say so
