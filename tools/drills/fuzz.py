"""Damaged input of every parser that is not of a foreign format; see ``tools/drills/fuzz``."""

from __future__ import annotations

import argparse
import io
import json
import logging
import random
import shutil
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from drills.damage import samples, state_case_of, write
from drills.guided import available, guided
from drills.processes.apart import tried
from shardstream.cli.verbs.top import top_text
from shardstream.dataset.shared import HEAD_BYTES, SLOT, RunStatus, WorkerStatuses
from shardstream.diagnose.top import run_of
from shardstream.errors import ShardStreamError
from shardstream.images import backends
from shardstream.images.geometry import Box
from shardstream.images.header import probe
from shardstream.images.jpeg.cutting import is_addressable, read
from shardstream.images.jpeg.transcode import make_addressable, restore
from shardstream.images.structure import check_structure
from shardstream.load.rank_stats import RankStats, RankTable
from shardstream.load.stats import LoaderStats
from shardstream.names.braces import without_braces
from shardstream.pack.sources.base import Source
from shardstream.pack.sources.opening import open_source
from shardstream.shards.fields import FieldType, from_bytes
from shardstream.shards.writing import encode_value
from shardstream.sizes import parse_size
from shardstream.storage.base.address import parse
from shardstream.storage.base.awaited import AwaitedRequest
from shardstream.testing import MemoryStore
from tests.formats.catalog.mutating import damaged
from tests.images.jpeg_processes import Case, every_process, installed, lies, problems
from tests.shards.making import extract_all, samples_of, scan_bytes, shard_bytes
from tests.shards.test_damage import index_start_fits, reseal

MEMORY = 256 << 20
CORPUS = Path(__file__).parents[2] / "tests/golden/corpus"
LARGEST = 1 << 20  # of a finding that is kept
MOST = 10
LISTS = {
    ".tsv": b"a/1.jpg\t3\na/2.jpg\t4\nb \xc3\xa9.png\t5\n",
    ".csv": b'path,label,text\na/1.jpg,3,"x, ""y"""\nb.jpg,4,\n',
    ".jsonl": b'{"path": "a.jpg", "label": 3, "x": [1, 2]}\n{"path": "b.jpg", "label": 4}\n',
    ".txt": b"a.jpg 1\nb.jpg 2\n",
}
VALUES = {
    "array": np.arange(12.0).reshape(3, 4),
    "json": {"a": [1, None, "x"]},
    "msgpack": {"a": [1, None, "x"]},
    "str": "text é",
}
WORDS = (
    *(b"s3://bucket/a/b?versionId=3", b"az://container/set", b"https://user:pw@host:1/x%20y", b"/data/{000..127}.tar"),
    *(b"array:uint8:3,224,224", b"256MB", b"shard-{0..9}{a,b}.tar", b"int64"),
)


@dataclass(frozen=True)
class Target:
    """A parser.

    Attributes:
        name: What it is given.
        seeds: Sound input, by names that end in what it is.
        run: Parses a case, and uses what comes out; raises what must not be raised, and no `ShardStreamError`.
    """

    name: str
    seeds: Mapping[str, bytes]
    run: Callable[[bytes], object]

    def case(self, seed: int, number: int) -> bytes:
        """The case of a number."""
        draw = random.Random(f"{self.name} {seed} {number}")
        name = draw.choice(list(self.seeds))
        files = dict(self.seeds)
        for _ in range(draw.choice((1, 1, 2, 3, 8))):
            files[name] = damaged(name, files, draw)
        return files[name]

    def tried(self, data: bytes) -> str | None:
        """What is wrong with how a case was taken."""
        try:
            self.run(data)
        except ShardStreamError:
            return None
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None


def shard(framing: str, data: bytes) -> None:
    """An index, and every value; half of the time with a checksum that is right again."""
    if zlib.crc32(data) & 1 and len(data) > 1_200 and index_start_fits(framing, bytearray(data)):
        data = bytes(reseal(framing, bytearray(data)))
    index, buffers = scan_bytes(framing, data)
    list(index.keys)
    extract_all(framing, index, buffers)


def data_set(objects: Mapping[str, bytes], name: str, data: bytes) -> None:
    """A data set of which one object is another."""
    samples(MemoryStore({**objects, name: data}))


def jpeg(data: bytes) -> None:
    """A header, rectangles, restart markers and back, and pixels."""
    info = probe(data)
    found = read(data)
    if found is not None:
        height, width = min(found.height, 40), min(found.width, 30)
        for top, left in ((0, 0), (found.height - height, found.width - width)):
            found.cut(Box(top, left, height, width))
    made = make_addressable(data)
    if made.kind == "addressable" and not is_addressable(data) and restore(made.data) != data:
        raise ValueError("it was not restored")
    if info.width * info.height < 1 << 22:
        backends.decode(data)


def process(data: bytes) -> None:
    """A JPEG, decoded by every backend at every scale."""
    for problem in problems(Case("", data), installed()):
        raise ValueError(problem)


def picture(data: bytes) -> None:
    """A header, a structure and pixels."""
    info = probe(data)
    check_structure(data, info)
    if info.width * info.height < 1 << 22:
        backends.decode(data, tolerant=bool(data[-1] & 1))
        backends.decode_frames(data)
        backends.decode_deep(data)


def listing(folder: Path, suffix: str, data: bytes) -> None:
    """Every sample of a list."""
    path = folder / f"list{suffix}"
    path.write_bytes(data)
    source = open_source(path, key="line")
    if isinstance(source, Source):
        list(source.part(np.arange(min(len(source), 50))))


def value(kind: str, data: bytes) -> None:
    """A stored value."""
    from_bytes(FieldType.parse(kind), memoryview(data))


def text(data: bytes) -> None:
    """What somebody writes as an argument."""
    words = data.decode("utf-8", "surrogateescape")
    for take in (parse, partial(parse_size, name="size"), FieldType.parse, without_braces):
        with suppress(ShardStreamError):
            take(words)


def run(data: bytes) -> None:
    """What another process says of its run, as ``top`` draws it."""
    try:
        if RunStatus.length(data[:HEAD_BYTES]) != len(data):
            return
        seen = run_of(data)
    except (ValueError, RecursionError):  # which `top` expects
        return
    top_text([seen], 80).encode()
    json.dumps(asdict(seen))


def ranks(data: bytes) -> None:
    """The file of a rank, in a table with another one."""
    table = LoaderStats(batches=1, samples=8, seconds=1.0, rank=1, world_size=2).merged([])
    str(RankTable.of([*table.ranks, RankStats.from_bytes(data)])).encode()


def memory_of_a_run() -> bytes:
    """Of two workers, one of which decodes."""
    statuses = WorkerStatuses(2, 3, [[("s3://bucket/set", 12, [("shard-{:06d}.tar", 12)])]])
    worker = statuses.of(1)
    worker.lists(np.array([2, 3, 3]), [5, 0, 1], ["a", "é", "k000013"])
    worker.words[SLOT] = 1
    worker.awaits(AwaitedRequest("s3://bucket/set/shard-000002.tar"), 3)
    return bytes(statuses._shared.words)


def statistics() -> bytes:
    """As ``stats_file=`` has it."""
    stats = LoaderStats(batches=10, samples=80, seconds=2.0, world_size=2, sources={"a": 3})
    return json.dumps(stats.of_rank().to_json()).encode()


def pictures() -> dict[str, bytes]:
    """One of each format, and of JPEG several kinds."""
    from PIL import Image

    draws = np.random.default_rng(0)
    rows = np.linspace(0, 255, 96 * 64 * 3).reshape(64, 96, 3)
    image = Image.fromarray((rows + draws.integers(0, 20, rows.shape)).clip(0, 255).astype(np.uint8))
    found: dict[str, bytes] = {}
    kinds: tuple[tuple[str, dict[str, Any]], ...] = (
        ("JPEG", {}),
        ("JPEG", {"progressive": True}),
        ("JPEG", {"restart_marker_blocks": 3, "subsampling": 0}),
        ("PNG", {}),
        ("WEBP", {}),
        ("WEBP", {"lossless": True}),
        ("GIF", {}),
        ("BMP", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "jpeg"}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("JPEG2000", {"tile_size": (32, 32)}),
        ("AVIF", {"speed": 10}),
        ("PPM", {}),
        ("TGA", {}),
        ("ICO", {}),
    )
    for name, options in kinds:
        out = io.BytesIO()
        image.save(out, name, **options)
        found[f"{len(found)}.{name.lower()}"] = out.getvalue()
    return found


def targets(folder: Path) -> list[Target]:
    """All parsers; what they need is written in a folder."""
    found = [
        Target(name, {"shard.bin": shard_bytes(folder, framing, samples_of(4), **options)}, partial(shard, framing))
        for name, framing, options in (
            ("tar", "tar", {}),
            ("record", "record", {}),
            ("record-zstd", "record", {"zstd": ["txt"]}),
        )
    ]
    objects = {path.name: path.read_bytes() for path in write(folder / "set", "tar").iterdir()}
    for name, whole in objects.items():
        if not name.endswith(".tar"):
            kind = "manifest" if name == "dataset.json" else name.partition("-")[0] + Path(name).suffix
            found.append(Target(f"set-{kind}", {name: whole}, partial(data_set, objects, name)))
    images = pictures()
    jpegs = {name: data for name, data in images.items() if name.endswith("jpeg")}
    jpegs |= {f"addressable-{name}": make_addressable(data, width=16).data for name, data in jpegs.items()}
    processes = {f"{i}.jpeg": case.data for i, case in enumerate((*every_process(), *lies()))}
    found += [
        Target("jpeg", jpegs, jpeg),
        Target("process", processes, process),
        Target("picture", images, picture),
    ]
    found += [
        Target(f"list{suffix}", {f"list{suffix}": data}, partial(listing, folder, suffix))
        for suffix, data in LISTS.items()
    ]
    for kind, example in VALUES.items():
        whole = bytes(cast("bytes", encode_value("x", FieldType.parse(kind), example)))
        name = "value.json" if kind == "json" else "value.bin"
        found.append(Target(f"value-{kind}", {name: whole}, partial(value, kind)))
    found.append(Target("text", {f"{i}.txt": one for i, one in enumerate(WORDS)}, text))
    found += [
        Target("top", {"memory.bin": memory_of_a_run()}, run),
        Target("stats", {"stats.json": statistics()}, ranks),
    ]
    state, take = state_case_of(folder / "set")
    found.append(Target("state", {"state.json": json.dumps(state).encode()}, take))
    return found


def replay(folder: Path) -> list[str]:
    """What is wrong with how the findings of earlier runs are taken now, with as little memory and time."""
    by_name = {one.name: one for one in targets(folder)}
    kept = sorted(CORPUS.glob("*/*"))
    for target in by_name.values():
        target.run(next(iter(target.seeds.values())))  # what is made once, before memory and time are limited

    def case(number: int) -> str | None:
        if not number:  # of which memory is not limited
            return None
        path = kept[number - 1]
        return by_name[path.parent.name].tried(path.read_bytes())

    count, found = tried(len(kept) + 1, case, memory=MEMORY)
    left_out = [f"{len(kept) + 1 - count} findings were not tried"] if count <= len(kept) else []
    return left_out + [f"{kept[one.case - 1].relative_to(CORPUS)}: {one.what}" for one in found]


def fuzz(target: Target, folder: Path, *, seconds: float, seed: int) -> tuple[int, int]:
    """Try a parser for some time: half of it on cases that reach new lines, where atheris is there to find them.

    Args:
        target: The parser.
        folder: Takes the findings, and what atheris writes.
        seconds: How long.
        seed: Of the cases.

    Returns:
        How many cases there were, and how many findings.
    """
    guide = available()

    def case(number: int) -> str | None:
        try:
            data = target.case(seed, number)
        except MemoryError:  # of this drill itself: what makes a case of JSON may repeat it
            return None
        return target.tried(data)

    count, drawn = tried(
        1 << 40,
        case,
        memory=MEMORY,
        seconds=seconds / 2 if guide else seconds,
    )
    found = [(one.what, target.case(seed, one.case)) for one in drawn]
    print(f"{target.name}: {count:,} cases, {len(drawn)} findings", flush=True)
    if guide:
        place = folder / "guided" / target.name
        reached = guided(target.name, target.seeds, place, seconds=seconds / 2, seed=seed, most=MOST)
        found += [(target.tried(data) or "it takes too long, or too much memory", data) for data in reached.findings]
        found += [(told, b"") for told in reached.problems]
        told = f"{reached.cases:,} cases that reached {reached.edges:,} edges, {len(found) - len(drawn)} findings"
        print(f"{target.name}, guided: {told}", flush=True)
        count += reached.cases
    kinds: dict[str, bytes] = {}
    for what, data in found:
        kinds.setdefault(what[:60], data)
    for number, (what, data) in enumerate(list(kinds.items())[:MOST]):
        print(f"  {what}", flush=True)
        if len(data) <= LARGEST:
            kept = folder / "findings" / target.name
            kept.mkdir(parents=True, exist_ok=True)
            (kept / f"{seed}-{number}").write_bytes(data)
    return count, len(found)


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=60.0, help="of all together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="beginning of the names of parsers; default: all")
    given = parser.parse_args()
    logging.disable()
    shutil.rmtree(given.folder, ignore_errors=True)
    given.folder.mkdir(parents=True)
    chosen = [one for one in targets(given.folder) if one.name.startswith(given.only)]
    seconds = 60 * given.minutes / len(chosen)
    done = [fuzz(one, given.folder, seconds=seconds, seed=given.seed) for one in chosen]
    bad = sum(found for _, found in done)
    kept = f", kept in {given.folder}/findings" if bad else ""
    print(f"{sum(count for count, _ in done):,} cases, {bad} findings{kept}")
    return bool(bad)


if __name__ == "__main__":
    raise SystemExit(main())
