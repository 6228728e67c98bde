"""Systems that lack what Linux has: the package is imported there, and local data are packed and streamed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# None of the modules `fcntl` and `resource`, no files below /proc, no `posix_fallocate`.
BLOCKED = """
import builtins, importlib, io, os, pkgutil, sys, torch

for name in ("fcntl", "resource"):
    sys.modules[name] = None
del os.posix_fallocate
open_file = io.open

def opened(file, *args, **kwargs):
    if str(file).startswith("/proc"):
        raise FileNotFoundError(2, "No such file or directory", file)
    return open_file(file, *args, **kwargs)

io.open = builtins.open = opened
import shardstream as ss
"""


LOCAL = """
source = [{"__key__": f"{number:03}", "txt": f"text {number}", "id": number} for number in range(100)]
ss.pack(source, "packed", shard_size="1KB", workers=0)
ss.repack("packed", "out", format="record", shard_size="1KB", seed=3, workers=0)
ds = ss.ShardDataset("out", fields=["txt", "id"], shuffle=True, batch_size=10)
found = [one for batch in ss.Loader(ds, num_workers=0) for one in batch["id"].tolist()]
print(sorted(found) == list(range(100)), ss.verify("out").ok, ss.info("out").samples)
"""
# Without locks, nobody knows whether a file is still being written.
SWEEP = """
from shardstream.storage import open_store

open("out/.shardstream-written", "wb").close()
open_store("out").sweep()
print(os.path.exists("out/.shardstream-written"))
"""
CACHE = """
import logging

logging.basicConfig(stream=sys.stdout, format="%(message)s")
ss.pack(source, "memory://stored", workers=0)
ds = ss.ShardDataset("memory://stored", cache="cache", batch_size=50)
print(sum(len(batch["txt"]) for _ in range(2) for batch in ds))
"""
MODULES = """
for module in pkgutil.walk_packages(ss.__path__, "shardstream."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ss.errors.MissingExtraError as error:
            print(error)
print(sys.modules["fcntl"], sys.modules["resource"])
"""


@pytest.mark.full
def test_without_locks_limits_and_proc(tmp_path: Path) -> None:
    program = [sys.executable, "-c", "\n".join((BLOCKED, LOCAL, SWEEP, CACHE, MODULES))]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "True True 100\n"
        "True\n"
        f"the cache {tmp_path}/cache cannot be used (this system has no locks on files); what it does not hold is "
        "read from memory://stored each time\n"
        "200\n"
        "None None\n"
    )


def test_on_windows_the_import_names_wsl_in_one_sentence() -> None:
    program = 'import sys; sys.platform = "win32"; import shardstream'
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: shardstream does not run on Windows")
    assert "WSL" in last
