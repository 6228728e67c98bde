"""Who runs: the works of the race, and for each its contenders with what they do, as the tables say it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.data import WORKERS, Corpus
from bench.harness import Contender
from bench.race import environments
from bench.race.corpora import LARGE_BATCH, Kind
from bench.race.prepared import Stores

OURS = "shardstream"
ADDRESSABLE, KEPT, FAST = f"{OURS}, addressable", f"{OURS}, untouched files", f"{OURS}, addressable, `fast=True`"
TORCHVISION, WEBDATASET, STREAMING, LITDATA = (
    "`ImageFolder` + torchvision",
    "WebDataset",
    "MosaicML Streaming",
    "LitData",
)
FFCV, DALI, SPDL, GRAIN, LANCE = "FFCV", "DALI, CPU", "SPDL", "Grain", "Lance, random `take`"
FILES, BATCHES = "files in a folder", "batches"
PILLOW, SIMD, TENSORS = "Pillow", "Pillow-SIMD", "tensors"
_ANTIALIASED = "accurate · antialiased"
_FFMPEG = "FFmpeg's · bilinear, antialiased"
_FAST = "fast · linear"
_FFCV = "fast · area"


@dataclass(frozen=True)
class Line:
    """A contender as its table has it.

    Attributes:
        peer: Who it is, without a variant: bars name peers.
        contender: The contender.
        settings: Inverse DCT and resize.
    """

    peer: str
    contender: Contender
    settings: str = ""


def of_photographs(work: str, corpus: Corpus, stores: Stores) -> list[Line]:
    """Everybody, on photographs of usual size.

    Args:
        work: "crop" or "center".
        corpus: The photographs.
        stores: Them in each format.
    """
    told: dict[str, Any] = {"work": work, "count": corpus.count}
    lines = _ours(told, stores)
    lines += _torchvision(told, corpus)
    # Where only the best peer counts, the slower way is left out.
    for decoder in (PILLOW, TENSORS) if work == "crop" else (TENSORS,):
        for peer, function, needs in (
            (WEBDATASET, "webdataset", "webdataset"),
            (STREAMING, "streaming", "streaming"),
            (LITDATA, "litdata", "litdata"),
        ):
            options = {**told, "store": str(stores[function]), "decoder": decoder.lower()}
            call = Contender(f"{peer}, {decoder}", f"bench.race.processes:with_{function}", options, needs=needs)
            lines.append(Line(peer, call, _ANTIALIASED))
    lines.append(_peer(GRAIN, "grain", "processes", {**told, "store": str(stores["grain"]), "decoder": "tensors"}))
    return lines + _threads(told, corpus, stores)


def of_large(corpus: Corpus, stores: Stores) -> list[Line]:
    """Those that have something to tell on large photographs: what feeds a decoder costs nothing there."""
    told = {"work": "crop", "count": corpus.count, "batch": LARGE_BATCH}
    return [*_ours(told, stores), *_torchvision(told, corpus), *_threads(told, corpus, stores)]


def _ours(told: dict[str, Any], stores: Stores) -> list[Line]:
    call = "bench.race.ours:photographs"
    return [
        Line(OURS, Contender(name, call, {**told, "store": str(stores[jpeg]), "fast": fast}, ours=True), settings)
        for name, jpeg, fast, settings in (
            (ADDRESSABLE, "addressable", False, _ANTIALIASED),
            (FAST, "addressable", True, _FAST),
            (KEPT, "kept", False, _ANTIALIASED),
        )
    ]


def _torchvision(told: dict[str, Any], corpus: Corpus) -> list[Line]:
    lines = []
    for decoder, python in ((PILLOW, None), (SIMD, environments.python("pillow-simd")), (TENSORS, None)):
        options = {**told, "store": str(corpus.folder), "decoder": decoder.lower()}
        name, call = f"{TORCHVISION}, {decoder}", "bench.race.processes:with_torchvision"
        lines.append(
            Line(TORCHVISION, Contender(name, call, options, needs="torchvision", python=python), _ANTIALIASED)
        )
    return lines


def _threads(told: dict[str, Any], corpus: Corpus, stores: Stores) -> list[Line]:
    tars, files = {"store": str(stores["webdataset"])}, {"store": str(corpus.folder)}
    lines = [
        _peer(f"{FFCV}, the same files", "ffcv", "threads", {**told, "store": str(stores["ffcv"])}, _FFCV, FFCV),
        _peer(f"{DALI}, as we do it", "dali", "threads", {**told, **tars, "fast": False}, peer=DALI),
        _peer(f"{DALI}, fastest", "dali", "threads", {**told, **tars, "fast": True}, _FAST, DALI),
        _peer(SPDL, "spdl", "threads", {**told, **files}, _FFMPEG),
    ]
    if "ffcv-again" in stores:
        again = {**told, "store": str(stores["ffcv-again"])}
        lines.insert(1, _peer(f"{FFCV}, files encoded anew", "ffcv", "threads", again, _FFCV, FFCV))
    return lines


def _peer(
    name: str,
    function: str,
    module: str,
    options: dict[str, Any],
    settings: str = _ANTIALIASED,
    peer: str | None = None,
) -> Line:
    """A peer in an environment of its own."""
    call = f"bench.race.{module}:with_{function}"
    needs, python = environments.PEERS[function].module, environments.python(function)
    return Line(peer or name, Contender(name, call, options, needs=needs, python=python), settings)


def of_small(kind: Kind, count: int, stores: Stores) -> list[Line]:
    """Everybody that stores samples, by two workers or threads; ours in process as well."""
    told: dict[str, Any] = {"count": count}
    call = "bench.race.ours:small_samples"
    lines = []
    for workers, how in ((WORKERS, f"{WORKERS} workers"), (0, "in process")):
        options = {**told, "workers": workers, "store": str(stores["ours"])}
        lines.append(Line(OURS, Contender(f"{OURS}, {how}", call, options, ours=True)))
    told["kind"] = kind
    for peer, function in ((WEBDATASET, "webdataset"), (STREAMING, "streaming"), (LITDATA, "litdata")):
        options = {**told, "workers": WORKERS, "store": str(stores[function])}
        lines.append(Line(peer, Contender(peer, f"bench.race.small:with_{function}", options, needs=function)))
    lines.append(_peer(GRAIN, "grain", "small", {**told, "workers": WORKERS, "store": str(stores["grain"])}, ""))
    for peer, function, store in ((FFCV, "ffcv", "ffcv"), (DALI, "dali", "webdataset")):
        lines.append(_peer(peer, function, "small", {**told, "store": str(stores[store])}, "", peer))
    return lines


def of_kernels(stores: Stores) -> list[Line]:
    """Our own kernels, alone and through the data set."""
    return [
        Line(OURS, Contender(name, "bench.race.kernels:share", {"store": str(stores[jpeg])}, ours=True))
        for name, jpeg in ((ADDRESSABLE, "addressable"), (KEPT, "kept"))
    ]


def of_raw(workers: int, corpus: Corpus, stores: Stores) -> list[Line]:
    """Those that hand out bytes, in process or by workers; ours with checksums verified and not."""
    lines = []
    call = "bench.race.raw:with_"
    for form, batched, verify in (
        (BATCHES, True, True),
        (f"{BATCHES}, not verified", True, False),
        ("samples", False, True),
        ("samples, not verified", False, False),
    ):
        if batched or not workers:
            options = {"store": str(stores["kept"]), "workers": workers, "batched": batched, "verify": verify}
            lines.append(Line(OURS, Contender(f"{OURS}, {form}", f"{call}shardstream", options, ours=True)))
    for peer, function in ((WEBDATASET, "webdataset"), (STREAMING, "streaming"), (LITDATA, "litdata")):
        options = {"store": str(stores[function]), "workers": workers}
        lines.append(Line(peer, Contender(peer, f"{call}{function}", options, needs=function)))
    if not workers and "lance" in stores:  # it reads with threads of its own, and must not be forked
        options = {"store": str(stores["lance"])}
        lines.append(Line(LANCE, Contender(LANCE, f"{call}lance", options, needs="lance")))
    files = {"store": str(corpus.folder), "workers": workers}
    return [*lines, Line(FILES, Contender(FILES, f"{call}files", files))]
