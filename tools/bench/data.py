"""The photographs, and the shards made from them."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".bench"
BATCH = 128
WORKERS = 2
SHARDS = 8  # of WebDataset, of equal size: so its workers' shares hold whole batches and nothing is left over
UNIT = SHARDS * BATCH
_MCL_CURRENT = 1


@dataclass(frozen=True)
class Corpus:
    """Photographs in class folders, with their list."""

    folder: Path
    count: int

    @cached_property
    def entries(self) -> list[tuple[Path, int]]:
        """Path and label of each."""
        return list(read_list(self.folder))

    @cached_property
    def bytes(self) -> int:
        """Size of all photographs together."""
        return sum(path.stat().st_size for path, _ in self.entries)


def list_of(folder: Path) -> Path:
    """The list of a folder of photographs: lines of ``path<TAB>label``, paths relative to the list."""
    return folder.with_name(f"{folder.name}.tsv")


def read_list(folder: Path) -> Iterator[tuple[Path, int]]:
    """Path and label of each photograph of a folder."""
    for line in list_of(folder).read_text().splitlines():
        path, label = line.split("\t")
        yield folder.parent / path, int(label)


def photographs(count: int) -> Corpus:
    """The photographs, made if they are not there; ``count`` is rounded up to a multiple of `UNIT`, at least two."""
    return exactly(max(2, -(-count // UNIT)) * UNIT)


def exactly(count: int) -> Corpus:
    """So many photographs, made if they are not there."""
    folder = HOME / f"photos-{count}"
    subprocess.run([sys.executable, ROOT / "tools" / "make_photos.py", folder, "--count", str(count)], check=True)
    return Corpus(folder, count)


def write_webdataset(entries: Iterable[tuple[Path, int]], folder: Path, out: Path, **limits: int) -> None:
    """Write photographs of ``folder`` with ``webdataset.ShardWriter``, in shards limited by these of its arguments."""
    import webdataset

    out.mkdir(parents=True)
    with webdataset.ShardWriter(str(out / "%05d.tar"), verbose=0, **limits) as writer:
        for path, label in entries:
            key = str(path.relative_to(folder).with_suffix(""))
            writer.write({"__key__": key, "jpg": path.read_bytes(), "cls": label})


def shards(corpus: Corpus) -> tuple[Path, Path]:
    """Fresh shards of the photographs, shuffled: WebDataset's and ours. Made by the code as it is now."""
    import shardstream

    theirs, ours = HOME / "shards-webdataset", HOME / "shards"
    for folder in (theirs, ours):
        shutil.rmtree(folder, ignore_errors=True)
    if importlib.util.find_spec("webdataset") is not None:
        entries = random.Random(0).sample(corpus.entries, corpus.count)
        write_webdataset(entries, corpus.folder, theirs, maxcount=corpus.count // SHARDS)
    shardstream.pack(list_of(corpus.folder), ours, shard_size="48MB", workers=WORKERS)
    return theirs, ours


def pinned(paths: Iterable[Path]) -> list[memoryview]:
    """Files that stay in the page cache as long as what is returned lives, where the kernel lets us.

    Some kernels take pages back within seconds, however much memory is free.
    """
    from shardstream.storage.local.mapped_files import map_file

    maps = [map_file(path).data for path in paths]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(_MCL_CURRENT):
        print(f"files are not pinned in memory: {os.strerror(ctypes.get_errno())}")
    return maps


def settle(*folders: Path) -> None:
    """Write out what is dirty, and read these folders into the page cache."""
    os.sync()
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                path.read_bytes()
