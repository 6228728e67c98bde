"""An environment for each group of peers, layered on the one that the bench runs in.

A layer is a ``venv`` whose search path goes on with the packages of ``.bench/venv``: torch and torchvision are there
once, and what a peer brings of its own (Pillow-SIMD in Pillow's place) comes first in its layer alone.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.data import HOME

FOLDER = HOME / "race" / "environments"
LIMIT = 1800  # seconds that one installation may take


@dataclass(frozen=True)
class Peer:
    """A peer that the bench's own environment lacks.

    Attributes:
        layer: The environment that it goes into; those that can live together share one.
        module: What can be imported when it is there.
        packages: Arguments of ``pip install``, one call each; the last one names the peer and its version.
        system: Debian packages that it builds on or runs on.
        variables: Of the environment while it is installed.
    """

    layer: str
    module: str
    packages: tuple[tuple[str, ...], ...]
    system: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def recipe(self) -> str:
        """A fingerprint of what was installed, and on what."""
        told = repr((self.packages, self.system, sorted(self.variables.items()), sys.version))
        return hashlib.sha256(told.encode()).hexdigest()


PEERS = {
    "pillow-simd": Peer(
        "simd",
        "PIL",
        (("--no-deps", "--no-binary", "pillow-simd", "pillow-simd==12.1.1.post0"),),
        ("libjpeg62-turbo-dev", "zlib1g-dev"),
        {"CC": "cc -mavx2"},
    ),
    "ffcv": Peer(
        "threads",
        "ffcv",
        (
            ("numba==0.68.1", "opencv-python-headless==5.0.0.93", "pytorch-pfn-extras", "terminaltables"),
            ("fastargs", "assertpy", "psutil", "tqdm"),
            ("--no-deps", "ffcv==1.0.2"),
        ),
        ("libopencv-dev", "libturbojpeg0-dev", "pkg-config", "g++"),
    ),
    "spdl": Peer("threads", "spdl", (("spdl==0.8.0",),), ("libavdevice59", "libavfilter8")),
    "grain": Peer("threads", "grain", (("array_record==0.8.6", "grain==0.2.18"),)),
    "dali": Peer("dali", "nvidia.dali", (("nvidia-dali-cuda120==2.4.0",),)),
    "datasets": Peer("datasets", "datasets", (("datasets==5.2.0",),)),  # another huggingface_hub than LitData's
    "img2dataset": Peer("img2dataset", "img2dataset", (("img2dataset==1.47.0",),)),
    "imageio": Peer("classic", "imageio", (("imageio==2.38.1",),)),
    "opencv": Peer("classic", "cv2", (("opencv-python-headless==5.0.0.93",),)),
    "torchcodec": Peer("classic", "torchcodec", (("--no-deps", "torchcodec==0.17.0"),)),
    "albumentations": Peer("classic", "albumentations", (("albumentations==2.0.8",),)),
}


def make(*names: str) -> dict[str, str]:
    """Install what is missing of these peers.

    Returns:
        Why a peer is not there, by name, for those that are not.
    """
    problems = {}
    for name in names:
        peer = PEERS[name]
        stamp = FOLDER / peer.layer / f".{name}"
        if stamp.exists() and stamp.read_text() == peer.recipe:
            _put_below(FOLDER / peer.layer)
            continue
        print(f"installing {name}", flush=True)
        try:
            _install(peer, FOLDER / f"{name}.log")
        except (OSError, subprocess.SubprocessError) as error:
            problems[name] = f"cannot be installed ({_last_line(FOLDER / f'{name}.log') or error})"
            print(f"{name} {problems[name]}: going on without it", flush=True)
        else:
            stamp.write_text(peer.recipe)
    return problems


def versions(*names: str) -> dict[str, str]:
    """The versions of those of these peers that were installed."""
    found = {}
    for name in names:
        peer = PEERS[name]
        if (FOLDER / peer.layer / f".{name}").exists():
            package, _, number = peer.packages[-1][-1].partition("==")
            found[package] = number
    return found


def python(name: str) -> str:
    """The interpreter of a peer's layer."""
    return str(FOLDER / PEERS[name].layer / "bin" / "python")


def _install(peer: Peer, log: Path) -> None:
    layer = FOLDER / peer.layer
    executable = layer / "bin" / "python"
    if not executable.exists():
        subprocess.run([sys.executable, "-m", "venv", layer], check=True)
    _put_below(layer)
    with log.open("w") as out:

        def call(*words: str) -> None:
            variables = {**os.environ, **peer.variables}
            subprocess.run(words, check=True, stdout=out, stderr=out, timeout=LIMIT, env=variables)

        if peer.system:
            _install_system(peer.system)
        for words in peer.packages:
            call(str(executable), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words)
        call(str(executable), "-c", f"import {peer.module}")


def _put_below(layer: Path) -> None:
    """Let a layer see the packages of this environment, wherever that lies by now."""
    inside = sysconfig.get_path("purelib", vars={"base": str(layer), "platbase": str(layer)})
    (Path(inside) / "below.pth").write_text(f"{sysconfig.get_path('purelib')}\n")


def _install_system(packages: tuple[str, ...]) -> None:
    """Debian packages, where there is apt and we may; otherwise what needs them shows that they are missing."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return
    command = ["apt-get", "install", "-y", "-qq", *packages]
    variables = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for _ in range(2):
        done = subprocess.run(command, check=False, capture_output=True, timeout=LIMIT, env=variables)
        if done.returncode == 0:
            return
        subprocess.run(["apt-get", "update", "-qq"], check=False, capture_output=True, timeout=LIMIT)


def _last_line(log: Path) -> str:
    lines = log.read_text().split("\n") if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
