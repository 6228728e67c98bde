"""What a stranger types: the README's lines, with the built wheel, in an environment that has nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from .test_documents import Block, blocks, commands

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
TYPED = README.partition("## Install")[2].partition("## What you want")[0]
OURS = ("PYTHON", "SHARDSTREAM_", "VIRTUAL_ENV")


def clean_environment(place: Path) -> dict[str, str]:
    """Of this one only what installers need, with the commands of an environment first."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return {**kept, "PATH": f"{place / 'bin'}:/usr/bin:/bin", "VIRTUAL_ENV": str(place)}


def type_line(words: list[str], folder: Path, environment: dict[str, str]) -> str:
    place = Path(environment["VIRTUAL_ENV"]) / "bin" / words[0]
    done = subprocess.run([place, *words[1:]], cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


def make_photos(folder: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="the photographs are written with it")
    for number, name in enumerate(("cat", "dog")):
        (folder / name).mkdir(parents=True)
        for i in range(64):
            image.new("RGB", (320 + i, 240), (i * 4, 128, number * 255)).save(folder / name / f"{i}.jpg")


def install_torch(environment: dict[str, str], folder: Path) -> None:
    """The build that tests run with, which no line of the README chooses."""
    index = os.environ.get("SHARDSTREAM_TORCH_INDEX")
    chosen = ["--index-url", index] if index else []
    line = ["python", "-m", "pip", "install", "--quiet", "--no-compile", *chosen, f"torch=={version('torch')}"]
    try:
        type_line(line, folder, environment)
    except AssertionError as error:
        pytest.skip(f"this torch cannot be installed here: {str(error).splitlines()[-1]}")


def test_three_typed_steps_lead_to_the_first_batch() -> None:
    """Installing, packing, training; what else is there only looks at the shards."""
    shell = [words for block in blocks(TYPED) if block.kind == "bash" for words in commands(block.body)]
    assert [words[:2] for words in shell] == [
        ["pip", "install"],
        ["shardstream", "pack"],
        ["shardstream", "verify"],
        ["shardstream", "view"],
    ]
    assert [block.kind for block in blocks(TYPED)].count("python") == 1


@pytest.mark.full
def test_a_stranger_comes_to_the_first_batch_with_the_lines_of_the_readme(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", wheels, ROOT]
    subprocess.run(build, check=True, capture_output=True, timeout=300)
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "environment"], check=True, timeout=120)
    environment = clean_environment(tmp_path / "environment")
    folder = tmp_path / "work"
    make_photos(folder / "photos")
    install_torch(environment, folder)

    printed = [run_block(block, folder, environment, wheel) for block in blocks(TYPED)]
    installed = type_line(["python", "-c", "import shardstream; print(shardstream.__file__)"], folder, environment)
    assert Path(installed.strip()).is_relative_to(tmp_path / "environment")
    assert (folder / "page.html").is_file()
    assert "2 steps of" in printed[-1]  # of the 128 photographs, 64 a batch


def run_block(block: Block, folder: Path, environment: dict[str, str], wheel: Path) -> str:
    """Type a block; the checkout of the README is the wheel that was built of it."""
    if block.kind == "python":
        (folder / "train.py").write_text(block.body)
        return type_line(["python", "train.py"], folder, environment)
    lines = [[word.replace(".[", f"{wheel}[") for word in words] for words in commands(block.body)]
    return "".join(type_line(words, folder, environment) for words in lines)
