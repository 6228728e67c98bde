"""Every bit and every length of what the package writes; see ``tools/drills/damage``."""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import shardstream as ss
from drills.processes.apart import tried
from shardstream.errors import ShardStreamError
from shardstream.testing import MemoryStore

SAMPLES = 3  # several shards, values of each kind, empty ones too: every bit of each costs 10 ms
MEMORY = 64 << 20
MOST = 20  # findings that are shown of a file

Samples = list[dict[str, Any]]


@dataclass(frozen=True)
class Target:
    """A file that is damaged.

    Attributes:
        name: What it is.
        path: Where it lies.
        read: Reads everything that depends on it, in some form that can be compared.
        mended: The folder that reading changes: it is a copy of another one at the beginning of each case.
    """

    name: str
    path: Path
    read: Callable[[], object]
    mended: tuple[Path, Path] | None = None

    def place(self, content: bytes) -> None:
        """Put this in the place of the file."""
        if self.mended is not None:
            folder, whole = self.mended
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(whole, folder)
        self.path.write_bytes(content)


def plain(value: Any) -> object:
    """A value in a form that can be compared."""
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, bytes | memoryview | bytearray):
        return bytes(value)
    array = np.asarray(value)
    return str(value) if array.dtype.hasobject else (array.dtype.str, array.shape, array.tobytes())


def samples(url: Any, **options: Any) -> Samples:
    """What a data set gives: by number, by key, and in the order of an epoch."""
    reader = ss.Reader(url, **options)
    found = [plain(dict(reader[i])) for i in range(len(reader))]
    found += [plain(dict(reader.get(f"sample/{i}"))) for i in range(SAMPLES)]
    dataset = ss.ShardDataset(url, shuffle=True, tail="exact", seed=1, **options)
    return found + [plain(dict(one)) for one in dataset]  # type: ignore[return-value]


def write(folder: Path, format: str, **options: Any) -> Path:
    """A data set of several shards that has a value of each kind."""
    draws = np.random.default_rng(0)
    with ss.ShardWriter(folder, format=format, shard_size="400B", **options) as writer:  # type: ignore[arg-type]
        for i in range(SAMPLES):
            writer.write(
                {
                    "__key__": f"sample/{i}",
                    "cls": i,
                    "txt": "text " * i,
                    "raw": draws.bytes(10 * i),
                    "json": {"a": [i, None]},
                    "array": np.arange(i + 1, dtype=np.uint16),
                }
            )
    return folder


def files_of(folder: Path) -> Iterator[Target]:
    """Every file of data sets in each format, and of a cache of one."""
    for name, options in (
        ("tar", {}),
        ("record", {}),
        ("record, zstd", {"shards": ss.ShardOptions(zstd=["txt", "json"])}),
    ):
        url = write(folder / name.replace(", ", "-"), name.partition(",")[0], **options)
        for path in sorted(url.iterdir()):
            yield Target(f"{name}: {path.name}", path, lambda url=url: samples(url))  # type: ignore[misc]
    source = folder / "record"  # tar shards are ten times as long, of zeros, and blocks know nothing of formats
    store = MemoryStore({path.name: path.read_bytes() for path in source.iterdir()})
    cache = folder / "cache"

    def cached() -> object:
        store.requests.clear()  # which tests look at
        return samples(store, cache=str(cache))

    cached()
    whole = Path(shutil.copytree(cache, folder / "cache-as-it-was"))
    for path in sorted(one for one in cache.rglob("*") if one.is_file() and one.stat().st_size):
        yield Target(f"cache: {path.relative_to(cache)}", path, cached, (cache, whole))


def state_case_of(url: Path) -> tuple[dict[str, Any], Callable[[bytes], None]]:
    """A state that was saved in mid-epoch; and what takes a damaged one, as JSON.

    That one is refused, or leads to an epoch of samples that are there, each once at most.
    """

    def dataset() -> ss.ShardDataset:
        return ss.ShardDataset(url, shuffle=True, tail="exact", seed=1)

    def take(data: bytes) -> None:
        try:
            loaded = json.loads(data)
        except (ValueError, RecursionError):  # whoever keeps states finds that out
            return
        target = dataset()
        target.load_state_dict(loaded)
        keys = [str(one["__key__"]) for one in target]
        if len(keys) != len(set(keys)) or not {f"sample/{i}" for i in range(SAMPLES)}.issuperset(keys):
            raise ValueError(f"an epoch of {len(keys)} samples that never was")

    begun = dataset()
    next(iter(begun))
    return begun.state_dict(), take


def damage(target: Target) -> tuple[int, list[str]]:
    """Flip each bit of a file, and cut it at each length; the number of cases, and what was wrong with some."""
    whole, right = target.path.read_bytes(), target.read()
    bits, started = 8 * len(whole), time.monotonic()

    def case(number: int) -> str | None:
        content = bytearray(whole)
        if number < bits:
            content[number // 8] ^= 1 << number % 8
        else:
            del content[number - bits :]
        target.place(bytes(content))
        try:
            return None if target.read() == right else "other samples"
        except ShardStreamError:
            return None

    _, found = tried(bits + len(whole), case, memory=MEMORY)
    target.place(whole)
    took = f"{time.monotonic() - started:.0f} s"
    print(f"{target.name}: {bits:,} bits, {len(whole):,} lengths, {len(found)} findings, {took}", flush=True)
    for one in found[:MOST]:
        where = f"bit {one.case % 8} of byte {one.case // 8}" if one.case < bits else f"cut at {one.case - bits}"
        print(f"  {where}: {one.what}", flush=True)
    return bits + len(whole), [f"{target.name}: {one.what}" for one in found]


def damaged_states(url: Path) -> tuple[int, list[str]]:
    """Flip each bit of a state."""
    state, take = state_case_of(url)
    text = json.dumps(state).encode()

    def case(number: int) -> None:
        damaged = bytearray(text)
        damaged[number // 8] ^= 1 << number % 8
        with suppress(ShardStreamError):
            take(bytes(damaged))

    _, found = tried(8 * len(text), case, memory=MEMORY)
    print(f"state: {8 * len(text):,} bits, {len(found)} findings")
    print("".join(f"  bit {one.case % 8} of byte {one.case // 8}: {one.what}\n" for one in found[:MOST]), end="")
    return 8 * len(text), [f"state: {one.what}" for one in found]


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="beginning of the names of what is damaged; default: all")
    given = parser.parse_args()
    logging.disable()  # a damaged table of keys is a warning, each time
    shutil.rmtree(given.folder, ignore_errors=True)
    given.folder.mkdir(parents=True)
    done = [damage(one) for one in files_of(given.folder) if one.name.startswith(given.only)]
    if "state".startswith(given.only):
        done.append(damaged_states(given.folder / "tar"))
    problems = [one for _, found in done for one in found]
    print(f"{sum(cases for cases, _ in done):,} cases in all, {len(problems)} findings")
    if problems:
        return 1
    shutil.rmtree(given.folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
