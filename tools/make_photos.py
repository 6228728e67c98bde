#!/usr/bin/env python3
"""Make a directory of real images in classes, with ImageNet's mix of sizes, for the demo and for benchmarks.

    python tools/make_photos.py OUT [--count 2400] [--seed 0] [--workers 2] [--source auto|debian|python]

Every photograph of a small collection becomes a class, named after what it shows; its samples are random crops of it.
So a network can really learn the labels (to tell a ladybird's meadow from a storm), while files differ in size, shape,
zoom, JPEG quality and subsampling as ImageNet's do.

The collection comes from Debian's wallpaper packages (downloaded with `apt-get download`, never installed) or, where
there is no apt or no network for it, from the photographs inside the Python packages scikit-learn and scikit-image.

Writes OUT/CLASS/NNNNN.jpg. Beside the directory, OUT.tsv has one `path<TAB>label` a line, with classes numbered in
alphabetical order. `shardstream pack` takes both. OUT.json says how OUT was made. The same arguments and collection
make the same files, whatever the number of workers, and a finished OUT is left as it is. Needs Pillow and rich.
Exit status: 0 done, 3 no collection was available.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeAlias

from PIL import Image
from rich.progress import track

# The photographs in each package, by what they show. A release that lacks one just has one class less.
DEBIAN = {
    "lomiri-wallpapers-16.04": {
        "Picture_0B_by_freespace.jpg": "fig",
        "Picture_1A_by_freespace.jpg": "paintbrushes",
        "aitzgorri_by_Aitzol_Berasategi.jpg": "autumn-hills",
        "life_by_Aitzol_Berasategi.jpg": "creek",
        "picosdeeuropa_by_Aitzol_Berasategi.jpg": "mountains",
        "seeding_by_Clements_Engelhardt.jpg": "dandelions",
        "Dragonfly_by_Bolly.jpg": "vine-leaves",
        "greentock_by_Peter_Nerlich.jpg": "clock",
        "sunset_by_Aitzol_Berasategi.jpg": "sunset",
    },
    "lomiri-wallpapers-20.04": {"Kleiber_by_Lukas_Baubkus.jpg": "tree-trunk"},
    "mate-backgrounds": {
        "Aqua.jpg": "water-drop",
        "Dune.jpg": "dune-grass",
        "Garden.jpg": "marigold",
        "GreenMeadow.jpg": "meadow",
        "LadyBird.jpg": "ladybird",
        "RainDrops.jpg": "wet-leaf",
        "Storm.jpg": "storm",
        "TwoWings.jpg": "flying-seeds",
        "Wood.jpg": "planks",
        "YellowFlower.jpg": "yellow-flower",
    },
}
PYTHON = {
    "sklearn": {"datasets/images/china.jpg": "temple", "datasets/images/flower.jpg": "dahlia"},
    "skimage": {
        "data/astronaut.png": "astronaut",
        "data/brick.png": "bricks",
        "data/chelsea.png": "cat",
        "data/coffee.png": "coffee",
        "data/grass.png": "grass",
        "data/gravel.png": "gravel",
        "data/hubble_deep_field.jpg": "galaxies",
        "data/motorcycle_left.png": "motorcycle",
        "data/rocket.jpg": "rocket",
    },
}
FEWEST = 6  # classes, below which a collection does not count

# (width, height), each as often as it is drawn: roughly the mix of ILSVRC2012.
SIZES = (
    [(500, 375)] * 5
    + [(375, 500)] * 2
    + [(500, 333)] * 3
    + [(333, 500), (640, 480), (400, 300), (1024, 768), (250, 188), (500, 500)]
)
QUALITIES = (90, 92, 95, 96)
SUBSAMPLINGS = (2, 2, 2, 0)  # 4:2:0 mostly, and 4:4:4
LARGEST = 2600  # pixels along the longer side of a photograph before it is cut

Collection: TypeAlias = dict[str, Path]


def from_debian(folder: Path) -> Collection:
    """Download the packages into ``folder`` and name the photographs in them."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return {}
    # A fresh machine has no package lists yet; only root may fetch them.
    if not _download(folder) and os.geteuid() == 0 and _apt_get("update"):
        _download(folder)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, folder / "unpacked"], check=True)
    files = {path.name: path for path in sorted((folder / "unpacked").rglob("*.jpg"))}
    names = {name: label for members in DEBIAN.values() for name, label in members.items()}
    return {label: files[name] for name, label in names.items() if name in files}


def _download(folder: Path) -> bool:
    arrived = [_apt_get("download", package, folder=folder) for package in DEBIAN]
    return all(arrived)


def _apt_get(*words: str, folder: Path | None = None) -> bool:
    try:
        done = subprocess.run(["apt-get", "-qq", *words], cwd=folder, check=False, capture_output=True, timeout=600)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def from_python(_folder: Path) -> Collection:
    """The photographs inside installed Python packages."""
    found: Collection = {}
    for package, members in PYTHON.items():
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            home = Path(spec.origin).parent
            found |= {label: home / name for name, label in members.items() if (home / name).exists()}
    return found


SOURCES: dict[str, Callable[[Path], Collection]] = {"debian": from_debian, "python": from_python}
ORIGINS = {"debian": "Debian's wallpaper packages", "python": "scikit-learn and scikit-image"}


def described(count: int, photographs: int) -> str:
    """What the images are."""
    return f"{count:,} crops of {photographs} photographs"


def crops(label: str, photograph: Path, count: int, seed: int, out: Path) -> int:
    """Write ``count`` random crops of one photograph into ``out / label``."""
    Image.MAX_IMAGE_PIXELS = None
    rng = random.Random(f"{seed} {label}")
    image: Image.Image = Image.open(photograph).convert("RGB")
    image.thumbnail((LARGEST, LARGEST), reducing_gap=2.0)
    (out / label).mkdir(parents=True)
    for i in range(count):
        width, height = rng.choice(SIZES)
        limit = min(image.width / width, image.height / height)
        # Never the whole photograph shrunk to a thumbnail, and enlarged only where the photograph is small.
        zoom = rng.uniform(min(1.0, 0.5 * limit), max(0.8 * limit, min(1.0, limit)))
        w, h = width * zoom, height * zoom
        x, y = rng.uniform(0, image.width - w), rng.uniform(0, image.height - h)
        crop = image.resize((width, height), Image.Resampling.BICUBIC, box=(x, y, x + w, y + h))
        if rng.random() < 0.5:
            crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        crop.save(
            out / label / f"{i:05d}.jpg",
            quality=rng.choice(QUALITIES),
            subsampling=rng.choice(SUBSAMPLINGS),
        )
    return count


def make(collection: Collection, out: Path, count: int, seed: int, workers: int) -> list[str]:
    """Write ``count`` photographs, evenly from the classes of ``collection``; returns ``path<TAB>label`` of each."""
    labels = sorted(collection)
    shares = [count * (i + 1) // len(labels) - count * i // len(labels) for i in range(len(labels))]
    with ProcessPoolExecutor(workers) as pool:
        jobs = [
            pool.submit(crops, label, collection[label], share, seed, out)
            for label, share in zip(labels, shares, strict=True)
        ]
        for job in track(jobs, description="cutting images", transient=True, disable=not sys.stdout.isatty()):
            job.result()
    return [
        f"{label}/{i:05d}.jpg\t{number}"
        for number, (label, share) in enumerate(zip(labels, shares, strict=True))
        for i in range(share)
    ]


def find_collection(source: str, folder: Path) -> tuple[str, Collection]:
    """The first collection with enough photographs, and where it is from; leaves with status 3 when there is none."""
    names = list(SOURCES) if source == "auto" else [source]
    for name in names:
        collection = SOURCES[name](folder)
        if len(collection) >= FEWEST:
            return name, collection
    print(
        f"no photographs from {' or '.join(names)}: `debian` needs apt-get with a network, `python` needs the "
        "packages scikit-learn and scikit-image",
        file=sys.stderr,
    )
    raise SystemExit(3)


def main() -> None:
    """Make the folder, unless a folder made with the same arguments stands there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=2400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--source", choices=["auto", *SOURCES], default="auto")
    args = parser.parse_args()

    made, listed = (args.out.with_name(f"{args.out.name}.{kind}") for kind in ("json", "tsv"))
    wanted = {"count": args.count, "seed": args.seed, "source": args.source}
    there = sorted(os.listdir(args.out)) if args.out.exists() else []
    had = json.loads(made.read_text()) if made.exists() else {}
    if there and had.get("classes") == there:
        given = {**wanted, "source": had["arguments"]["source"]} if args.source == "auto" else wanted
        if had["arguments"] == given:
            print(f"{args.out}/ already has {described(args.count, len(there))}")
            return
    elif there:
        parser.error(f"{args.out} holds something else; name a new directory")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.out.parent, prefix=".photographs-") as scratch:
        # Made aside and renamed, so that a folder of this name is always a whole one.
        fresh = Path(scratch) / "out"
        fresh.mkdir()
        name, collection = find_collection(args.source, Path(scratch))
        lines = make(collection, fresh, args.count, args.seed, args.workers)
        if args.out.exists():
            shutil.rmtree(args.out)
        listed.write_text("".join(f"{args.out.name}/{line}\n" for line in lines))
        made.write_text(json.dumps({"arguments": wanted, "from": name, "classes": sorted(collection)}))
        fresh.rename(args.out)
    print(f"{args.out}/ has {described(args.count, len(collection))} (from {ORIGINS[name]})")


if __name__ == "__main__":
    main()
