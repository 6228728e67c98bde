"""The demo's images: the same files from the same arguments, a whole directory or none; and the picture of them."""

from __future__ import annotations

import hashlib
import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
# The tool, with a collection of two drawn pictures in place of downloads.
PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv.pop(1))
import make_photos
from PIL import Image

def drawn(folder):
    paths = {"blue": folder / "blue.png", "big-red": folder / "red.png"}
    Image.radial_gradient("L").resize((900, 700)).save(paths["blue"])
    Image.linear_gradient("L").resize((300, 200)).save(paths["big-red"])
    return paths

make_photos.FEWEST = 2
make_photos.SOURCES = {"python": drawn}
make_photos.main()
"""


def run(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, str(TOOLS), str(out), "--count", "9", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.full
def test_the_files_do_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    for name, workers in (("one", "1"), ("three", "3")):
        done = run(tmp_path / name, "--workers", workers)
        assert done.returncode == 0, done.stderr
    one = contents(tmp_path / "one")
    assert one == contents(tmp_path / "three")
    assert len([name for name in one if name.endswith(".jpg")]) == 9
    listed = (tmp_path / "one.tsv").read_text().splitlines()
    assert listed[0] == "one/big-red/00000.jpg\t0"
    assert listed[-1] == "one/blue/00004.jpg\t1"
    assert {line.split("\t")[0] for line in listed} == {f"one/{name}" for name in one if name.endswith(".jpg")}


@pytest.mark.full
def test_a_finished_folder_is_left_and_other_arguments_replace_it(tmp_path: Path) -> None:
    out = tmp_path / "photos"
    assert run(out).returncode == 0
    before = contents(out)
    assert "already has 9 crops of 2 photographs" in run(out).stdout
    assert run(out, "--seed", "1").returncode == 0
    after = contents(out)
    assert json.loads(out.with_name("photos.json").read_text())["arguments"]["seed"] == 1
    assert before.keys() == after.keys()
    assert before["blue/00000.jpg"] != after["blue/00000.jpg"]


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    done = run(tmp_path)
    assert done.returncode == 2
    assert "holds something else" in done.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / "mine.txt"]


def test_without_any_collection_the_status_says_so(tmp_path: Path) -> None:
    program = PROGRAM.replace("make_photos.FEWEST = 2", "make_photos.FEWEST = 3")
    command = [sys.executable, "-c", program, str(TOOLS), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 3
    assert "no photographs" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_picture_shows_each_class_before_any_comes_twice_and_no_dull_or_equal_images() -> None:
    choose = runpy.run_path(str(TOOLS / "contact_sheet.py"))["choose"]
    rng = np.random.default_rng(0)
    images = np.full((24, 64, 64, 3), 90, np.uint8)  # four classes of six images, of which two have much to see
    for label in range(4):
        for number in (1, 4):
            tiles = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            images[6 * label + number] = np.kron(tiles, np.ones((8, 8, 1), np.uint8))
        images[6 * label + 5] = images[6 * label + 1][:, ::-1]  # the mirror image
    labels = [f"class {i // 6}" for i in range(24)]
    chosen = choose(images, labels, 8)
    assert chosen == choose(images, labels, 8)
    assert {labels[i] for i in chosen[:4]} == set(labels)
    assert sorted(i // 6 for i in chosen) == [0, 0, 1, 1, 2, 2, 3, 3]
    for label in range(4):
        first, second = sorted(i - 6 * label for i in chosen if i // 6 == label)
        assert {first, second} in ({1, 4}, {4, 5})
    assert len(choose(images, labels, 99)) == 24
