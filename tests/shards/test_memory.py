"""What open indexes cost a process of its own."""

from __future__ import annotations

import subprocess
import sys

from shardstream.shards.fields import FieldType
from shardstream.storage.local.store import LocalStore

from .making import write_shard

SAMPLES, SHARDS = 5_000, 200

CODE = """
import sys
from shardstream.shards.framings import framing_of
from shardstream.storage import open_store

def private():
    with open("/proc/self/smaps_rollup") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty"))

store, framing = open_store(sys.argv[1]), framing_of("record")
held = [framing.scan(store, "warm-up")]
before = private()
for shard in range(int(sys.argv[2])):
    held.append(framing.scan(store, f"{shard}"))
print(private() - before, sum(index.samples for index in held), sum(map(len, (index.keys[17] for index in held))))
"""


def test_open_indexes_cost_no_private_memory_a_sample(tmp_path) -> None:
    types = {"jpg": FieldType.parse("jpg"), "cls": FieldType.parse("int64")}
    samples = [(f"folder/with/a/name/{i:08d}", {"jpg": b"x", "cls": i}) for i in range(SAMPLES)]
    write_shard(LocalStore(tmp_path), "warm-up", "record", samples, types)
    data = (tmp_path / "warm-up").read_bytes()
    for shard in range(SHARDS):
        # Flushed to the disk: the kernel counts pages of a file that it has not written yet as dirty and private.
        LocalStore(tmp_path).put(f"{shard}", data)
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path), str(SHARDS)], capture_output=True, text=True, check=True
    )
    kilobytes, seen, _ = map(int, done.stdout.split())
    assert seen == SAMPLES * (SHARDS + 1)
    # As Python objects, the keys alone would be 75 MB.
    assert kilobytes < 4096, f"{SHARDS} indexes of {SAMPLES} samples cost {kilobytes} kB"
