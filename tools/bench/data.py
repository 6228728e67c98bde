"""The photographs, and the shards made from them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".bench"
BATCH = 128
WORKERS = 2
SHARDS = 8  # of WebDataset, of equal size: so its workers' shares hold whole batches and nothing is left over
UNIT = SHARDS * BATCH


@dataclass(frozen=True)
class Corpus:
    """Photographs in class folders, with their list."""

    folder: Path
    count: int

    @property
    def list(self) -> Path:
        """Lines of ``path<TAB>label``."""
        return self.folder / "list.tsv"

    @cached_property
    def entries(self) -> list[tuple[Path, int]]:
        """Path and label of each."""
        return list(read_list(self.folder))

    @cached_property
    def bytes(self) -> int:
        """Size of all photographs together."""
        return sum(path.stat().st_size for path, _ in self.entries)


def read_list(folder: Path) -> Iterator[tuple[Path, int]]:
    """Path and label of each photograph of a folder."""
    for line in (folder / "list.tsv").read_text().splitlines():
        path, label = line.split("\t")
        yield folder / path, int(label)


def photographs(count: int) -> Corpus:
    """The photographs, made if they are not there; ``count`` is rounded up to a multiple of `UNIT`."""
    count = -(-count // UNIT) * UNIT
    folder = HOME / f"photos-{count}"
    subprocess.run(
        [sys.executable, ROOT / "tools" / "make_photos.py", folder, "--count", str(count)], check=True
    )
    return Corpus(folder, count)


def write_webdataset(folder: Path, out: Path, shard_samples: int | None, shard_bytes: int | None) -> None:
    """Write the photographs with ``webdataset.ShardWriter``, with shards of a number of samples or of bytes."""
    import webdataset

    out.mkdir(parents=True)
    limits = {"maxcount": shard_samples or 10**9, "maxsize": shard_bytes or 10**12}
    with webdataset.ShardWriter(str(out / "%05d.tar"), verbose=0, **limits) as writer:
        for path, label in read_list(folder):
            key = str(path.relative_to(folder).with_suffix(""))
            writer.write({"__key__": key, "jpg": path.read_bytes(), "cls": label})


def shards(corpus: Corpus) -> tuple[Path, Path]:
    """Fresh shards of the photographs, shuffled: WebDataset's and ours. Made by the code as it is now."""
    import shardstream

    theirs, ours = HOME / "shards-webdataset", HOME / "shards"
    for folder in (theirs, ours):
        shutil.rmtree(folder, ignore_errors=True)
    if importlib.util.find_spec("webdataset") is not None:
        write_webdataset(corpus.folder, theirs, corpus.count // SHARDS, None)
    shardstream.pack(corpus.list, ours, shard_size="48MB", workers=WORKERS)
    return theirs, ours


def settle(*folders: Path) -> None:
    """Write out what is dirty, and read these folders into the page cache."""
    os.sync()
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                path.read_bytes()
