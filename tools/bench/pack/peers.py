"""Everybody else, each as its documentation shows it. Each function runs in a process of its own."""

from __future__ import annotations

import json
import os
import random
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.data import read_list, write_webdataset
from bench.pack.timing import OUT, SHARD_MB, result, timed

_AHEAD = 32  # img2dataset's threads a process: more were slower here


def tar(folder: str, octets: int) -> dict[str, Any]:
    """GNU tar, the same photographs in the order of the list."""
    names = OUT.with_name("packed-names")
    names.write_text("".join(f"{path.relative_to(Path(folder).parent)}\n" for path, _ in read_list(Path(folder))))
    OUT.mkdir()
    command = ["tar", "cf", str(OUT / "photos.tar"), "-C", str(Path(folder).parent), "--files-from", str(names)]
    figures = timed(octets, lambda: subprocess.run(command, check=True))
    return result(figures, _in_tars())


def webdataset(folder: str, octets: int) -> dict[str, Any]:
    """The loop that WebDataset's documentation shows, over shuffled photographs."""
    import webdataset  # noqa: F401  # before the clock starts

    entries = _shuffled(folder)
    figures = timed(octets, lambda: write_webdataset(entries, Path(folder).parent, OUT, maxsize=SHARD_MB * 1_000_000))
    return result(figures, _in_tars())


def streaming(folder: str, octets: int) -> dict[str, Any]:
    """MosaicML Streaming's ``MDSWriter``."""
    from bench.peers import bare_streaming

    bare_streaming()
    from streaming.base.format.mds.writer import MDSWriter

    def job() -> None:
        columns = {"jpg": "bytes", "cls": "int"}
        with MDSWriter(out=str(OUT), columns=columns, size_limit=SHARD_MB * 1_000_000) as writer:
            for entry in entries:
                writer.write(_sample(entry))

    entries = _shuffled(folder)
    figures = timed(octets, job)
    index = json.loads((OUT / "index.json").read_text())
    return result(figures, sum(shard["samples"] for shard in index["shards"]))


def litdata(folder: str, octets: int, workers: int) -> dict[str, Any]:
    """LitData's ``optimize``."""
    import litdata

    entries = [(str(path), label) for path, label in _shuffled(folder)]

    def job() -> None:
        litdata.optimize(
            fn=_sample,
            inputs=entries,
            output_dir=str(OUT),
            chunk_bytes=SHARD_MB * 1_000_000,
            num_workers=workers,
            reorder_files=False,
            verbose=False,
        )

    figures = timed(octets, job)
    index = json.loads((OUT / "index.json").read_text())
    return result(figures, sum(chunk["chunk_size"] for chunk in index["chunks"]))


def img2dataset(urls: str, octets: int, count: int, workers: int) -> dict[str, Any]:
    """img2dataset: files as they come, into WebDataset's tars."""
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"
    from img2dataset import download

    def job() -> None:
        download(
            url_list=urls,
            input_format="csv",
            url_col="url",
            save_additional_columns=["label"],
            output_folder=str(OUT),
            output_format="webdataset",
            number_sample_per_shard=int(SHARD_MB * 1e6 / octets * count),
            processes_count=workers,
            thread_count=_AHEAD,
            disable_all_reencoding=True,
            extract_exif=False,
            compute_hash=None,
        )

    figures = timed(octets, job)
    return result(figures, _in_tars())


def _shuffled(folder: str) -> list[tuple[Path, int]]:
    """Photographs in another order than that on disk, as ours are read."""
    entries = list(read_list(Path(folder)))
    return random.Random(0).sample(entries, len(entries))


def _sample(entry: tuple[Path | str, int]) -> dict[str, Any]:
    return {"jpg": Path(entry[0]).read_bytes(), "cls": entry[1]}


def _in_tars() -> int:
    return sum(_photographs(path) for path in OUT.rglob("*.tar"))


def _photographs(path: Path) -> int:
    with tarfile.open(path) as archive:
        names: Iterable[str] = archive.getnames()
        return sum(name.endswith(".jpg") for name in names)
