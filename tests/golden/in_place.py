"""What comes of data that are read in place, and of packing them, as plain JSON: the record that tests compare.

``python -m tests.golden.in_place --write`` writes ``foreign/in_place/expected.json`` anew, and its line in
``SHA256SUMS``. That is for what is added: a value that changes there has changed for users, whose catalogs, states and
packed datasets are of the values before. Only names that users may call are used here, so that the record outlives any
move of modules.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import shardstream as ss
from shardstream.storage import ObjectMeta, Store
from tests.golden.in_place_cases import CASES, INPUTS, PACKINGS, REFUSALS, dated, put
from tests.grouped import grouped

GOLDEN = Path(__file__).parent
EXPECTED = GOLDEN / "foreign" / "in_place" / "expected.json"
PLACE = "PLACE"  # what stands for the directory of the test in texts
SEED = 3


def _told(value: Any) -> Any:
    """A value with its type, as something whose ``repr`` is the same everywhere."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    if isinstance(value, np.generic):
        return value.dtype.str, value.item()
    if isinstance(value, Mapping):
        return [(name, _told(one)) for name, one in value.items()]
    if isinstance(value, list | tuple):
        return [_told(one) for one in value]
    return type(value).__name__, value


def digest(values: Iterable[Any]) -> str:
    """Of values, with their types."""
    out = hashlib.sha256()
    for value in values:
        out.update(repr(_told(value)).encode() + b"\n")
    return out.hexdigest()[:16]


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def values_of(samples: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """A digest of each field of all samples, in their order."""
    names = sorted({name for sample in samples for name in sample})
    return {name: digest(sample.get(name) for sample in samples) for name in names}


def catalog_of(place: Path) -> dict[str, Any]:
    """The three files of a catalog: the head, which is JSON, as it is, and the names and digests of all."""
    head = place / "shardstream-catalogue.json"
    files = [head, *sorted(place.glob("shardstream-objects-*.table")), *sorted(place.glob("shardstream-indexes-*.bin"))]
    return {"head": json.loads(head.read_bytes()), "files": {path.name: _sha(path) for path in files}}


def packed(source: Any, out: Path, **arguments: Any) -> dict[str, Any]:
    """What packing makes: the identity of all, samples, and what was rejected."""
    manifest = ss.pack(source, out, **grouped({"workers": 0, "jpeg": "keep", "seed": SEED} | arguments, ss.pack))
    rejects = out / "rejects.jsonl"
    return {
        "fingerprint": manifest.fingerprint,
        "samples": manifest.samples,
        "shards": manifest.shards,
        "fields": {name: str(kind) for name, kind in manifest.fields.items()},
        "classes": None if manifest.classes is None else list(manifest.classes),
        "manifest": _sha(out / "dataset.json"),
        "report": json.loads((out / "report.json").read_text(encoding="utf-8")),
        "rejects": [json.loads(line) for line in rejects.read_text().splitlines()] if rejects.exists() else [],
    }


def record_refusal(name: str, folder: Path) -> dict[str, Any]:
    """The error that a call ends with."""
    one, case = REFUSALS[name], REFUSALS[name].case
    inputs = put(case.inputs, folder / "data")
    one.change(inputs)
    dated(inputs)
    url = str(inputs / case.opened) if case.opened else str(inputs)
    how: dict[str, Any] = {"source_format": case.format, "format_options": case.options} | dict(one.arguments)
    try:
        if one.call == "pack":
            ss.pack(url, folder / "packed", workers=0, **grouped({"jpeg": "keep"} | how, ss.pack))
        elif one.call == "index":
            ss.index(url, fields=case.fields, workers=0, **grouped(how))
        else:
            dataset = ss.ShardDataset(url, **grouped(how))
            if one.call == "read":
                list(dataset)
    except ss.errors.ShardStreamError as error:
        kind = next(cls.__name__ for cls in type(error).__mro__ if cls.__name__ in ss.errors.__all__)
        found = {"class": kind, "code": error.code, "text": str(error)}
        return json.loads(json.dumps(found).replace(str(folder), PLACE))
    raise AssertionError(f"{name} is not refused")


class Mixed:
    """Mixtures of a packed dataset and one in place."""

    def __init__(self, folder: Path) -> None:
        lists = put("lists", folder / "lists")
        ss.pack(lists / "train.tsv", folder / "ours", workers=0, images=ss.ImageOptions(jpeg="keep"), seed=SEED)
        self.theirs = put("webdataset", folder / "theirs")
        self.ours = folder / "ours"
        ss.index(self.theirs, workers=0)

    def mixture(self, rank: int = 0) -> ss.Mixture:
        """Of one of two ranks."""
        fields = {"jpg": "bytes", "cls": None}
        sources = {
            "ours": (ss.ShardDataset(self.ours, fields=fields), 1.0),
            "theirs": (ss.ShardDataset(self.theirs, fields=fields), 2.0),
        }
        return ss.Mixture(sources, seed=SEED, ranks=(rank, 2), tail="exact")


def record_mixture(name: str, folder: Path) -> dict[str, Any]:
    """Orders and states of a mixture, or of several datasets in place that are streamed end to end."""
    mixed = Mixed(folder)

    def joined(rank: int = 0) -> ss.ShardDataset:
        urls = [mixed.theirs, mixed.ours]
        how = {"shuffle": True, "seed": SEED, "rank": rank, "world_size": 2, "tail": "exact"}
        return ss.ShardDataset(urls, fields={"jpg": "bytes", "cls": None}, **grouped(how))

    make = joined if name == "joined" else mixed.mixture
    return json.loads(json.dumps(run([make(rank) for rank in range(2)])).replace(str(folder), PLACE))


def stored(dataset: ss.ShardDataset) -> dict[str, Any]:
    """All fields, images as they are stored: those of most inputs only begin as images do."""
    return {name: "bytes" if str(kind) in IMAGES else None for name, kind in dataset.manifest.fields.items()}


class Opened:
    """A case's dataset in a directory, with its catalog."""

    def __init__(self, name: str, folder: Path) -> None:
        self.case = case = CASES[name]
        self.folder = put(case.inputs, folder / "data")
        self.url = str(self.folder / case.opened) if case.opened else str(self.folder)
        self.how: dict[str, Any] = {"source_format": case.format, "format_options": case.options}
        self.report = ss.index(self.url, **grouped(self.how), fields=case.fields, damaged=case.damaged, workers=0)
        self.fields = stored(ss.ShardDataset(self.url, **grouped(self.how)))

    def dataset(self, rank: int = 0, **arguments: Any) -> ss.ShardDataset:
        """Shuffled, of one of two ranks; the remembered fields are read."""
        given = {"fields": self.fields, "shuffle": True, "seed": SEED, "rank": rank, "world_size": 2, "tail": "exact"}
        return ss.ShardDataset(self.url, **grouped(given | self.how | arguments))


STORED = (
    "arrow",
    "coco",
    "files-class-directories",
    "hdf5",
    "jsonl",
    "lmdb",
    "mds-zstd",
    "parquet",
    "webdataset-gz",
    "zip",
)
LOOSE = ("coco", "files", "yolo")  # formats whose values are files: they have no checksums
IMAGES = ("jpg", "png", "webp", "image")


def keys(stream: Iterable[Mapping[str, Any]]) -> list[str]:
    return [sample["__key__"] for sample in stream]


def record(name: str, folder: Path) -> dict[str, Any]:
    """Everything about a case."""
    opened = Opened(name, folder)
    report, reader = opened.report, ss.Reader(opened.url, fields=opened.fields, **grouped(opened.how))
    samples, ranks = list(reader), [opened.dataset(rank) for rank in range(2)]
    found: dict[str, Any] = {
        "catalog": catalog_of(Path(report.place)),
        "title": report.title,
        "told": [text.replace(str(folder), PLACE) for text in report.notes],
        "fingerprint": ranks[0].manifest.fingerprint,
        "samples": ranks[0].samples,
        "keys": keys(samples[:2]),
        "by_key": digest([reader.get(samples[-1]["__key__"])]),
        "values": values_of(samples),
        **run(ranks),
    }
    if opened.case.pack is not None and report.format not in LOOSE:
        given = {"fields": opened.case.fields, "damaged": opened.case.damaged, "workers": 0}
        checked = ss.index(
            opened.url, checksums=True, cache=folder / "checked", **grouped(opened.how), **grouped(given)
        )
        found["with_checksums"] = catalog_of(Path(checked.place))["files"]
    if opened.case.pack is not None:
        how = opened.how | {"fields": opened.case.fields, "shard_size": "20KB"} | opened.case.pack
        found["packed"] = packed(opened.url, folder / "packed", **how)
    return json.loads(json.dumps(found).replace(str(folder), PLACE))


def run(ranks: Sequence[Any]) -> dict[str, Any]:
    """The order of an epoch on each rank, the state in the middle of it, and what follows that on each."""
    samples = iter(ranks[0])
    begin = keys(islice(samples, 2))
    state = ranks[0].state_dict()
    shuffled = [begin + keys(samples), *(keys(rank) for rank in ranks[1:])]
    return {"shuffled": [digest(one) for one in shuffled], "state": state, "after": after(ranks, state)}


def after(ranks: Sequence[Any], state: Mapping[str, Any]) -> list[list[str]]:
    """Keys of what a state goes on with, of the first samples of each rank."""
    found = []
    for dataset in ranks:
        dataset.load_state_dict(dict(state))
        found.append(keys(dataset)[:6])
    return found


class InMemory(Store):
    """Files in a store of a fixed URL, under which catalogs are kept for a user; nothing of it is mapped."""

    url = "golden:files"

    def __init__(self, folder: Path) -> None:
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        self._files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}

    def get(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        return memoryview(self._file(path))[offset : None if length is None else offset + length]

    def size(self, path: str) -> int:
        return len(self._file(path))

    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        found = ((path, data) for path, data in self._files.items() if path.startswith(prefix))
        return iter([ObjectMeta(path, len(data)) for path, data in found])

    def _file(self, path: str) -> bytes:
        if path not in self._files:
            raise ss.errors.NotFoundError("there is no such file", url=self.locate(path))
        return self._files[path]


def record_store(name: str, folder: Path) -> dict[str, Any]:
    """What is found in a store, and the names that catalogs are kept under: as it was indexed, and for one opening."""
    case, home = CASES[name], Path(os.environ["XDG_CACHE_HOME"])
    store = InMemory(put(case.inputs, folder / "data"))
    shutil.rmtree(home, ignore_errors=True)
    how: dict[str, Any] = {"source_format": case.format, "format_options": case.options}
    catalog = catalog_of(Path(ss.index(store, **grouped(how), fields=case.fields, workers=0).place))
    samples = list(ss.Reader(store, fields=stored(ss.ShardDataset(store))))
    again = ss.ShardDataset(store, reading=ss.SourceOptions(format=catalog["head"]["source"], options={}))
    kept = sorted(path.parent.name for path in home.rglob("shardstream-catalogue.json"))
    found = {"kept": kept, "files": catalog["files"], "values": values_of(samples), "again": again.manifest.fingerprint}
    return json.loads(json.dumps(found))


def record_packing(name: str, folder: Path) -> dict[str, Any]:
    """What packing a source makes of it."""
    one = PACKINGS[name]
    inputs = put(one.inputs, folder / "data")
    source = one.make(inputs) if one.make else str(inputs / one.opened) if one.opened else str(inputs)
    found = packed(source, folder / "packed", **one.arguments)
    return json.loads(json.dumps(found).replace(str(folder), PLACE))


def record_pickle(name: str, folder: Path) -> str:
    """The pickle of a dataset in place, in the protocol that is text."""
    return pickle.dumps(Opened(name, folder).dataset(), 0).decode("ascii").replace(str(folder), PLACE)


def main() -> int:
    """Write what is expected, anew."""
    if sys.argv[1:] != ["--write"]:
        print("usage: python -m tests.golden.in_place --write", file=sys.stderr)
        return 2
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as text:
        os.environ["XDG_CACHE_HOME"] = f"{text}/home"
        for kind, (names, make) in KINDS.items():
            found[kind] = {name: make(name, Path(text) / kind / name) for name in names}
    EXPECTED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sums = GOLDEN / "SHA256SUMS"
    lines = dict(line.split("  ", 1)[::-1] for line in sums.read_text().splitlines())
    lines |= {
        path.relative_to(GOLDEN).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (INPUTS, EXPECTED)
    }
    sums.write_text("".join(f"{checksum}  {name}\n" for name, checksum in lines.items()))
    return 0


KINDS: dict[str, tuple[Iterable[str], Callable[[str, Path], Any]]] = {
    "in_place": (CASES, record),
    "packed": (PACKINGS, record_packing),
    "mixed": (("mixture", "joined"), record_mixture),
    "refused": (REFUSALS, record_refusal),
    "stored": (STORED, record_store),
    "pickled": (("webdataset-key", "files-csv-root", "jsonl-fields", "parquet-structs"), record_pickle),
}


if __name__ == "__main__":
    sys.exit(main())
