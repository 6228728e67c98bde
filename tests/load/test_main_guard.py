"""A script that starts workers as it is imported by one is told of the guard it lacks, however its workers fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import shardstream as ss

# Python 3.12.8 and later import the script in the server already; earlier ones meant to.
PRELOAD = """
from multiprocessing import spawn
prepare = spawn.get_preparation_data
def with_script(name):
    data = prepare(name)
    return data | {"main_path": data["init_main_from_path"]} if name == "ignore" else data
spawn.get_preparation_data = with_script
"""
SCRIPT = """
import multiprocessing, sys
from functools import partial
import shardstream as ss
multiprocessing.set_start_method("METHOD", force=True)
def take(samples, data):
    return samples
loader = ss.Loader(ss.ShardDataset("shards"), batch_size=2, num_workers=1, collate_fn=partial(take, data=b"x" * SIZE))
for batch in loader:
    print("a batch")
"""
LARGER_THAN_A_PIPE = 1 << 20


@pytest.mark.parametrize(
    ("method", "size", "before"),
    [
        ("spawn", 1, ""),
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in (
                ("forkserver", 1, ""),
                ("forkserver", LARGER_THAN_A_PIPE, ""),
                ("forkserver", 1, PRELOAD),
                ("forkserver", LARGER_THAN_A_PIPE, PRELOAD),
            )
        ),
    ],
)
def test_a_script_without_the_guard_is_told_so(method: str, size: int, before: str, tmp_path: Path) -> None:
    with ss.ShardWriter(tmp_path / "shards") as writer:
        for i in range(4):
            writer.write({"__key__": str(i), "cls": i})
    script = before + SCRIPT.replace("METHOD", method).replace("SIZE", str(size))
    (tmp_path / "train.py").write_text(script)
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "a batch" not in done.stdout
    assert "shardstream.errors.WorkerError: " in done.stderr
    assert f'hint: start workers only below `if __name__ == "__main__":`, since under {method}' in done.stderr
    assert "dmesg" not in done.stderr


@pytest.mark.full
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_with_the_guard_it_runs(method: str, tmp_path: Path) -> None:
    with ss.ShardWriter(tmp_path / "shards") as writer:
        for i in range(4):
            writer.write({"__key__": str(i), "cls": i})
    top, loop = SCRIPT.replace("METHOD", method).replace("SIZE", "1").split("loader =")
    body = "".join(f"    {line}\n" for line in f"loader ={loop}".splitlines())
    (tmp_path / "train.py").write_text(f'{top}if __name__ == "__main__":\n{body}')
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "a batch\n" * 2), done.stderr
