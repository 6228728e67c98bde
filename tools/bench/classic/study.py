"""The two classic comparisons, and their page, ``docs/benchmarks/classic.md``."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import mean
from typing import Any

from bench import data
from bench.classic.augmenting import JITTER
from bench.classic.rounds import IMAGES
from bench.data import Corpus
from bench.harness import Benchmark, Contender, measure
from bench.race import environments
from bench.race.corpora import PHOTOGRAPHS
from bench.race.processes import SIZE
from bench.report import Outcome, as_json, circumstances, findings, missed, provenance, table, versions

ROUNDS = 3
PEERS = ("pillow-simd", "imageio", "opencv", "torchcodec", "albumentations")
PACKAGES = ("shardstream", "torch", "torchvision", "numpy", "pillow", "simplejpeg")

TEXT = f"""\
# The classic comparisons

Sample by sample, in one thread, without a loader: {IMAGES} photographs in memory, the same for all. A process does its
two works in turns, 64 photographs each. A second is one of processor time, which other programs disturb less.
"""
DECODING = f"""\
*Whole* ends with the picture as the library's users hold it: an image of Pillow or accimage, a tensor of torchvision,
else an array of RGB. *To {SIZE}* decodes, cuts a rectangle, drawn beforehand as `RandomResizedCrop` draws it, and
resizes it to {SIZE} × {SIZE}: antialiased by Pillow, torchvision and accimage, not antialiased by OpenCV's `resize`.
torchcodec takes torchvision's resize, simplejpeg and imageio take OpenCV's, having none. All of them decode the whole
file for it; shardstream, whose figure includes drawing the rectangle, does not, and its resize is antialiased. The
inverse DCT is the accurate one everywhere.
accimage is on no package index: it is measured where somebody has put it into `.bench/race/environments/classic`.
"""
AUGMENTING = f"""\
`RandomResizedCrop({SIZE})`, flip, `ColorJitter({JITTER}, {JITTER}, {JITTER})`, to float32, `Normalize`, to a tensor
(3, {SIZE}, {SIZE}). Albumentations takes what OpenCV decodes and does not antialias. *Tensors* are decoded by
torchvision and go through its transforms as such.
"""


def run(document: Path, rounds: int, count: int | None) -> Outcome:
    """Make the environment, run everybody ``rounds`` times, and give the section."""
    problems = environments.make(*PEERS)
    where = circumstances()
    where["versions"] = {"python": where["versions"]["python"], **versions(PACKAGES), **environments.versions(*PEERS)}
    corpus = data.photographs(count or PHOTOGRAPHS)
    content: dict[str, Any] = {**where, "photographs": corpus.count, "problems": problems}
    parts, busy, failed = [TEXT], [], False
    for benchmark in (decoding(corpus), augmenting(corpus)):
        print(benchmark.title, flush=True)
        rows = measure(benchmark, rounds, os.sync)
        content[benchmark.name] = as_json(benchmark, rows)
        busy += [share for row in rows for share in row.busy]
        failed |= missed(rows)
        parts.append(f"## {benchmark.title}\n\n{benchmark.text}\n{table(rows, memory=False)}")
        parts += ["".join(f"- {line}\n" for line in found)] if (found := list(findings(rows))) else []
    if problems:
        parts.append("".join(f"- Left out: {name} {problem}.\n" for name, problem in problems.items()))
    command = f"tools/bench/run classic --rounds {rounds} --count {corpus.count}"
    parts.append(provenance(where, command, mean(busy), f"{IMAGES} of {corpus.count:,} photographs, {rounds} rounds"))
    return Outcome("classic", document, "\n".join(parts), failed, content)


def decoding(corpus: Corpus) -> Benchmark:
    """Libraries that decode; Pillow is what the others are compared with."""
    call, own = "bench.classic.decoding:measured", environments.python("opencv")
    told = {"folder": str(corpus.folder)}
    contenders = [
        Contender(name, call, {**told, "library": library}, needs=needs, python=python)
        for name, library, needs, python in (
            ("Pillow", "pillow", "PIL", None),
            ("Pillow-SIMD", "pillow-simd", "PIL", environments.python("pillow-simd")),
            ("OpenCV", "opencv", "cv2", own),
            ("accimage", "accimage", "accimage", own),
            ("simplejpeg, OpenCV's resize", "simplejpeg", "simplejpeg", own),
            ("imageio, OpenCV's resize", "imageio", "imageio", own),
            ("torchvision", "torchvision", "torchvision", None),
            ("torchcodec, torchvision's resize", "torchcodec", "torchcodec", environments.python("torchcodec")),
        )
    ]
    for name, addressable in (("shardstream, untouched files", False), ("shardstream, addressable", True)):
        options = {**told, "addressable": addressable}
        contenders.append(Contender(name, "bench.classic.decoding:ours", options, ours=True))
    return Benchmark("decoding", "Decoding", DECODING, contenders)


def augmenting(corpus: Corpus) -> Benchmark:
    """The transforms of torchvision in their three ways, and Albumentations."""
    contenders = [
        Contender(
            name,
            "bench.classic.augmenting:measured",
            {"folder": str(corpus.folder), "library": library},
            needs=needs,
            python=python,
        )
        for name, library, needs, python in (
            ("torchvision, Pillow", "pillow", "torchvision", None),
            ("torchvision, Pillow-SIMD", "pillow-simd", "torchvision", environments.python("pillow-simd")),
            ("torchvision, tensors", "torchvision", "torchvision", None),
            ("Albumentations", "albumentations", "albumentations", environments.python("albumentations")),
        )
    ]
    return Benchmark("augmenting", "Augmentation", AUGMENTING, contenders)
