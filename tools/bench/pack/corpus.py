"""The photographs that are packed: several copies of each, so that a run takes seconds."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from bench import data
from bench.data import HOME, Corpus

FOLDER = HOME / "pack"
COPIES = 8  # files of their own: tar would store names of one file as links
TRANSCODED = 6
FETCHED = 1


@dataclass(frozen=True)
class Corpora:
    """Photographs for each of the works; every one is `Corpus.folder` beside its list.

    Attributes:
        raw: All copies.
        transcoded: Those that are transcoded.
        fetched: Those that come from a web server; their paths are the server's.
    """

    raw: Corpus
    transcoded: Corpus
    fetched: Corpus


def make(count: int) -> Corpora:
    """So many photographs, each `COPIES` times; made where they are missing."""
    origin = data.photographs(count)
    folder = FOLDER / f"{origin.count}"
    names = [(str(path.relative_to(origin.folder)), label) for path, label in origin.entries]
    done = folder / f"copies-{COPIES}"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        for copy in range(COPIES):
            shutil.copytree(origin.folder, folder / f"{copy}")
        done.touch()

    def listed(name: str, copies: int) -> Corpus:
        lines = [f"{folder.name}/{copy}/{path}\t{label}\n" for copy in range(copies) for path, label in names]
        corpus = Corpus(FOLDER / f"{name}-{origin.count}", len(lines))
        data.list_of(corpus.folder).write_text("".join(lines))
        return corpus

    return Corpora(listed("raw", COPIES), listed("transcoded", TRANSCODED), listed("fetched", FETCHED))
