"""Real processes, killed with SIGKILL: nothing may look whole that is not, and the next run completes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from shardstream.diagnose import verify
from shardstream.errors import NotFoundError, ShardStreamError
from shardstream.pack.options import PackOptions
from shardstream.pack.output.destination import BESIDE
from shardstream.pack.run import pack, run_pack
from shardstream.pack.writer import ShardWriter
from shardstream.progress import ProgressEvent
from shardstream.shards.framings import framing_of
from shardstream.shards.key_table import key_table_name
from shardstream.shards.manifest import Manifest
from shardstream.storage import MappedBuffers, open_store

from ..processes import pack_workers, session
from .making import jpeg, photo_list, samples, tree

WRITER = """
import sys
from shardstream.pack.writer import ShardWriter
with ShardWriter(sys.argv[1], shard_size="200kB", format=sys.argv[2]) as writer:
    for i in range(10**9):
        writer.write({"__key__": str(i), "raw": bytes(1000), "cls": i})
"""


def until(condition: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.005)


def check_shards(out: Path, suffix: str, format: str) -> int:
    """Every file that is called like a shard is whole, to the last checksum."""
    store, paths = open_store(out), sorted(out.glob(f"*{suffix}"))
    for path in paths:
        index = framing_of(format).scan(store, path.name)
        framing_of(format).extract(index, MappedBuffers(store), np.arange(index.samples), list(index.columns))
    return len(paths)


def check_end(out: Path, whole: dict[str, bytes], again: Callable[[], object]) -> None:
    """If a killed run got through, its data set is whole, and the same run again clears up; makes room for the next."""
    if not (out / "dataset.json").exists():
        return
    found = tree(out)
    expected = {name: whole[name] for name in whole.keys() - set(BESIDE)}  # those are published behind the manifest
    assert {name: found.get(name) for name in expected} == expected
    again()
    assert tree(out) == whole
    for path in out.iterdir():
        path.unlink()


@pytest.mark.full
@pytest.mark.parametrize(("format", "suffix"), [("tar", ".tar"), ("record", ".rec")])
def test_a_writer_that_is_killed(tmp_path: Path, format: str, suffix: str) -> None:
    out = tmp_path / "out"
    for shards in (1, 4, 9):
        with subprocess.Popen([sys.executable, "-c", WRITER, out, format]) as process:
            until(lambda n=shards: len(list(out.glob(f"*{suffix}"))) >= n)  # type: ignore[misc]
            process.kill()
        with pytest.raises(NotFoundError):
            Manifest.load(out)
        assert check_shards(out, suffix, format) >= shards
    with ShardWriter(out, format=format) as writer:  # type: ignore[arg-type]
        writer.write({"__key__": "a", "cls": 1})
    manifest = Manifest.load(out)
    keys = key_table_name(manifest.fingerprint)
    assert set(tree(out)) == {manifest.shard_name(0), manifest.table_name, keys, "dataset.json"}


@pytest.mark.full
def test_a_run_that_is_killed_leaves_no_process_and_can_be_done_again(tmp_path: Path) -> None:
    source = photo_list(tmp_path, 900)
    pack(source, tmp_path / "whole", shard_size="20kB", workers=0)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "shardstream.cli", "pack", source, out, "--workers", "2", "--shard-size", "20kB"]
    for shards in (1, 6):
        with subprocess.Popen([*command, "-q"], start_new_session=True) as process:
            until(lambda n=shards: len(list(out.glob("*.tar"))) >= n)  # type: ignore[misc]
            process.kill()
            process.wait()
            until(lambda leader=process.pid: not session(leader))  # type: ignore[misc]
        assert not (out / "dataset.json").exists()
        assert check_shards(out, ".tar", "tar") >= shards
    pack(source, out, shard_size="20kB", workers=0)
    assert tree(out) == tree(tmp_path / "whole")
    assert verify(out).ok


def test_a_worker_that_is_killed(tmp_path: Path) -> None:
    source = photo_list(tmp_path, 900)

    def kill(event: ProgressEvent) -> None:
        if event.tally.samples:
            os.kill(pack_workers()[0], signal.SIGKILL)

    with pytest.raises(ShardStreamError, match="a worker process was killed by SIGKILL") as caught:
        pack(source, tmp_path / "out", shard_size="20kB", workers=2, progress=kill)
    assert "memory" in str(caught.value)
    assert "dataset.json" not in tree(tmp_path / "out")
    assert str(caught.value.place["shard"]).startswith("shard-")
    assert not pack_workers()


def test_an_interrupt_from_the_keyboard(tmp_path: Path) -> None:
    source = photo_list(tmp_path, 500)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "shardstream.cli", "pack", source, out, "--workers", "2", "--shard-size", "20kB"]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: len(list(out.glob("*.tar"))) >= 2)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=20)
        until(lambda: not session(process.pid))
    assert process.returncode == 130
    assert errors.splitlines() == ["finished shards are kept: the same command goes on from there", "interrupted"]
    kept = len(list(out.glob("*.tar")))
    assert check_shards(out, ".tar", "tar") == kept >= 2
    assert not list(out.rglob(".shardstream-*"))  # nothing half-written
    again = run_pack(source, out, PackOptions(shard_size="20kB"), workers=0)
    assert again.kept in (kept - 1, kept)  # one's receipt may be missing
    pack(source, tmp_path / "whole", shard_size="20kB", workers=0)
    assert tree(out) == tree(tmp_path / "whole")


@pytest.mark.full
def test_half_of_an_overwrite(tmp_path: Path) -> None:
    source = photo_list(tmp_path, 900)
    out = tmp_path / "out"
    pack(source, out, shard_size="20kB", workers=0)
    before = tree(out)
    command = [sys.executable, "-m", "shardstream.cli", "pack", source, out, "--workers", "2", "--shard-size", "20kB"]
    with subprocess.Popen([*command, "--overwrite", "--seed", "5"], start_new_session=True) as process:
        until(lambda: len(list(out.glob("*.tar"))) > len(before))
        process.kill()
        process.wait()
        until(lambda: not session(process.pid))
    assert before.items() <= tree(out).items()
    assert len(samples(out)) == 900
    assert samples(out)["c0/00000"]["jpg"] == jpeg(0)
    pack(source, out, shard_size="20kB", workers=0)
    assert tree(out) == before
