"""What a dataset of ours passes and imports: few packages and modules, and nothing of other libraries' formats."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import shardstream as ss
from shardstream.dataset.opening import open_dataset

MOST = 204  # modules of ours; each takes memory and processor time in every worker
MOST_PACKAGES = 8
PROGRAM = """
import sys
from torch.utils.data import DataLoader
import shardstream as ss

def imported(batch):
    return [name for name in sys.modules if name.startswith("shardstream")]

if __name__ == "__main__":
    dataset = ss.ShardDataset(sys.argv[1], batch_size=4)
    next(iter(dataset))
    print(*imported(None))
    spawned = dataset.replace(batch_transform=imported)
    loader = DataLoader(spawned, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    print(*next(iter(loader)))
"""


def test_a_first_batch_imports_no_formats_and_few_modules(tmp_path: Path) -> None:
    ss.pack([{"txt": "a", "cls": number} for number in range(8)], tmp_path / "set", workers=0)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, program, tmp_path / "set"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    here, in_worker = (line.split() for line in done.stdout.splitlines())
    for names in (here, in_worker):
        assert "shardstream.stream.dataset" in names
        assert [name for name in names if name.split(".")[1:2] in (["formats"], ["pack"], ["diagnose"], ["cli"])] == []
        assert len(names) <= MOST


def test_a_url_of_ours_passes_few_packages(tmp_path: Path) -> None:
    ss.pack([{"txt": "a"}], tmp_path / "set", workers=0)
    root, passed = Path(ss.__file__).parent, set[Path]()

    def note(frame: Any, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(root):
            passed.add(path.parent.relative_to(root))

    open_dataset(tmp_path / "set")
    sys.setprofile(note)
    try:
        open_dataset(tmp_path / "set")
    finally:
        sys.setprofile(None)
    assert Path("dataset") in passed
    assert len(passed) <= MOST_PACKAGES, passed
