"""The folder that is carried to a machine without a network."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import shardstream as ss

ROOT = Path(__file__).resolve().parents[2]
PHOTOGRAPHS = 250
MOST = 55 * 10**6  # bytes in all: with the checkout, what can be carried to a machine that takes 64 MiB
# Pinned by tools/constraints.txt: what the tests need, and the peers of augmentation.
PINNED = ("pytest", "hypothesis", "simplejpeg", "kornia", "kornia_rs")
NEEDED_BY_PYTEST = ("pluggy", "iniconfig")
NVIDIA = ("nvidia-nvimgcodec-cu13==0.9.0.20", "nvidia-nvjpeg==13.3.2.43")
PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014", "manylinux1")


def prepare(folder: Path, python: str) -> None:
    """Make the folder: shards and wheels for a version of Python on x86-64.

    Raises:
        SystemExit: Something cannot be had, or all together is too much.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _pack(folder / "shards")
    _download(folder / "wheels", python)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if size > MOST:
        raise SystemExit(f"error: {folder} has {size / 1e6:.1f} MB, more than {MOST / 1e6:.0f}")
    print(f"{folder}: {size / 1e6:.1f} MB. On the machine with the GPU: tools/gpu_checks --with {folder}")


def _pack(shards: Path) -> None:
    if (shards / "dataset.json").exists():
        return
    with tempfile.TemporaryDirectory() as scratch:
        photographs = Path(scratch) / "photographs"
        maker = [sys.executable, str(ROOT / "tools" / "make_photos.py"), str(photographs)]
        subprocess.run([*maker, "--count", str(PHOTOGRAPHS)], check=True)
        ss.pack(photographs, shards, labels="name")


def _download(wheels: Path, python: str) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    pip += ["--only-binary=:all:", "--implementation", "cp", "--python-version", python, "--dest", str(wheels)]
    for platform in PLATFORMS:
        pip += ["--platform", f"{platform}_x86_64"]
    constraints = str(ROOT / "tools" / "constraints.txt")
    subprocess.run([*pip, "-c", constraints, *PINNED, *NEEDED_BY_PYTEST, *NVIDIA], check=True)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tools/gpu_checks --prepare", description="Make what is carried to a GPU.")
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument(
        "--python", default="3.12", metavar="VERSION", help="of the machine with the GPU (default 3.12)"
    )
    args = parser.parse_args()
    prepare(args.folder, args.python)
    return 0


if __name__ == "__main__":
    sys.exit(main())
