"""Memory is looked at before it is used, and who has too little is told what to do."""

from __future__ import annotations

import logging
import os
import subprocess

import pytest

from shardstream.storage.cache import Cache
from shardstream.storage.cache import capacity as room
from shardstream.storage.cache.capacity import in_memory, memory_left
from shardstream.storage.cache.tier import Tier, memory_folder, more_memory, shortage, tiers_of

from .making import MIB, in_child, noise


def limit(folder, names, maximum, used, stat="") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{maximum}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(stat)


V2 = "memory.max", "memory.current"
V1 = "memory.limit_in_bytes", "memory.usage_in_bytes"


def test_the_containers_limit_is_found(tmp_path) -> None:
    assert memory_left(tmp_path) is None
    limit(tmp_path, V2, "max", 5)
    assert memory_left(tmp_path) is None
    limit(tmp_path, V2, 1000, 300, "anon 100\ninactive_file 50\nactive_file 25\nslab 7\n")
    assert memory_left(tmp_path) == 775
    limit(tmp_path / "memory", V1, 9223372036854771712, 5)
    assert memory_left(tmp_path) == 775
    limit(tmp_path / "memory", V1, 500, 450)
    assert memory_left(tmp_path) == 50
    limit(tmp_path / "memory", V1, 500, 800)
    assert memory_left(tmp_path) == 0


def test_what_lies_in_memory(tmp_path) -> None:
    assert in_memory("/dev/shm/x")
    assert not in_memory("/proc/x")
    assert not in_memory("/dev/shmx")


def test_a_reserve_stays_free(tmp_path) -> None:
    found = os.statvfs(tmp_path)
    free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    left = room.room(str(tmp_path), memory=False, groups=tmp_path)
    assert free - left == pytest.approx(min(total // 20, 1 << 30), abs=1 << 28)
    limit(tmp_path, V2, 10 * MIB, 0)
    assert room.room(str(tmp_path), memory=True, groups=tmp_path) == 0
    assert room.room(str(tmp_path), memory=False, groups=tmp_path) > 0


def test_asking_for_more_memory_than_there_is(tmp_path) -> None:
    tier = Tier("/dev/shm/shardstream-tests-never-made", 1 << 60)
    assert tier.memory
    cache = Cache(tmp_path / "c", memory="/dev/shm", memory_size=1 << 50)
    first, second = tiers_of(cache)
    assert first.root == memory_folder(cache)
    assert first.root.startswith("/dev/shm/shardstream-")
    assert memory_folder(Cache(tmp_path / "d", memory="/dev/shm")) != first.root
    assert second.limit is None
    assert "--shm-size=68g" in more_memory(64 << 30)
    assert "sizeLimit: 2Gi" in more_memory(1 << 30)
    first.limit = None
    assert shortage(first) is None
    assert not os.path.exists(tier.root)


@pytest.fixture
def memory(tmp_path):
    """A folder of 24 MiB in memory; of it, 18 MiB may be used."""
    folder = tmp_path / "shm"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_memory_is_filled_first_then_the_disk(world, memory, caplog) -> None:
    objects = [world.put(f"object-{i}", noise(2 * MIB, seed=i)) for i in range(6)]
    cache = Cache(world.cache, memory=memory, memory_size="5MB")
    store = world.store(cache)
    for _ in range(2):
        for i, data in enumerate(objects):
            assert store.get(f"object-{i}") == data
    assert world.origin.fetched() == 12 * MIB
    assert len(list(memory.rglob("*.blocks"))) == 2
    assert len(world.files()) == 4
    assert not caplog.records
    assert sorted(os.listdir(memory)) == [os.path.basename(memory_folder(cache))]


def test_memory_without_a_size_is_half_of_what_is_free(world, memory) -> None:
    objects = [world.put(f"object-{i}", noise(2 * MIB, seed=i)) for i in range(6)]
    store = world.store(Cache(world.cache, memory=memory))
    for i, data in enumerate(objects):
        assert store.get(f"object-{i}") == data
    assert len(list(memory.rglob("*.blocks"))) == 4
    assert len(world.files()) == 2


def test_memory_that_is_too_small_is_said_once_with_what_to_type(world, memory, caplog) -> None:
    data = world.put("object", noise(2 * MIB))
    cache = Cache(world.cache, memory=memory, memory_size="64GB")
    first = world.store(cache)
    assert first.get("object") == data
    assert world.store(cache).get("object") == data
    (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "64,000,000,000 bytes, but there is room for 18," in warning.getMessage()
    assert "--shm-size=64g" in warning.getMessage()
    assert "sizeLimit: 64Gi" in warning.getMessage()


def test_a_full_memory_streams_and_dies_of_nothing(world, memory, caplog) -> None:
    objects = [world.put(f"object-{i}", noise(5 * MIB, seed=i)) for i in range(6)]

    def train() -> None:
        store = world.store(Cache(memory / "cache"))
        for _ in range(2):
            for i, data in enumerate(objects):
                assert store.get(f"object-{i}") == data
        (memory / "else").write_bytes(bytes(MIB))  # there is room for others
        (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert "is full" in warning.getMessage()
        assert "--shm-size=" in warning.getMessage()

    in_child(train)
    assert len(list(memory.rglob("*.blocks"))) == 3


def test_a_tmpfs_that_others_fill_to_the_brim(world, memory) -> None:
    data = world.put("object", noise(5 * MIB))

    def train() -> None:
        store = world.store(Cache(memory / "cache", size="20MB"))
        assert store.get("object", 0, 100) == data[:100]
        with pytest.raises(OSError, match="No space"):
            (memory / "else").write_bytes(bytes(24 * MIB))
        assert store.get("object") == data  # its blocks were allocated
        assert store.holds("object")
        other = world.store(Cache(memory / "cache", size="20MB"), fingerprint="f" * 32)
        assert other.get("object") == data

    in_child(train)


def test_memory_that_is_no_folder_is_left_out(world, caplog) -> None:
    data = world.put("object", noise(100))
    store = world.store(Cache(world.cache, memory=world.folder / "none"))
    assert store.get("object") == data
    assert "cannot be used (No such file or directory)" in caplog.text
    assert not (world.folder / "none").exists()
    assert len(world.files()) == 1
