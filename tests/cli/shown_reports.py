"""Prints a report whose figures differ from machine to machine, of made-up figures: ``python shown_reports.py NAME``.

``test_terminal`` looks at how it lies on the screen; that the figures are right is tested where they are measured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from shardstream.cli.verbs import bench, bench_decode, bench_sweep, doctor, top
from shardstream.diagnose import (
    BackendReport,
    BenchReport,
    DecodeReport,
    DecodeSpeed,
    Finding,
    RunSeen,
    SweepReport,
    WorkerSeen,
)
from shardstream.diagnose.stages import Stage
from shardstream.diagnose.sweep import Change, Trial
from shardstream.threads import Processors

URL = "s3://bucket/photographs"


def show_bench() -> None:
    report = BenchReport(
        url=URL,
        samples=25_600,
        batches=200,
        epochs=0.02,
        seconds=12.8,
        first_batch=1.25,
        bytes=1_408_000_000,
        wait_share=0.82,
        workers=8,
        worker_load=0.97,
        processors=Processors(cores=16, ours=8.1, others=0.4, disk=0.2),
        limit="decode",
        advice="decode-bound: 7.8 of 8 workers busy, 84 % of it in decoding; add workers (16 cores are there), or "
        "decode smaller crops",
        transfers={"requests": 1_042, "bytes": 1_452_000_000, "retries": 3},
        crop=224,
    )
    bench._print(report, URL)


def show_sweep() -> None:
    trials = (
        Trial(0, 128, None, 610.0, "decode"),
        Trial(2, 128, 2, 1_180.0, "decode"),
        Trial(4, 128, 2, 2_290.0, "loop"),
    )
    report = SweepReport(
        url=URL,
        cores=4,
        crop=224,
        samples=512,
        stages=(
            Stage("storage", 41_250.0, "stored values over the network, with their checksums"),
            Stage("decode", 1_520.0, "to the crop at the scale that covers it"),
            Stage("copy", None, "no device was asked for"),
        ),
        trials=trials,
        best=trials[2],
        line="loader = ss.Loader(ds, batch_size=128, num_workers=4, prefetch_factor=2)",
        changes=(
            Change("addressable JPEG", 1_180.0, 2_310.0, "512 pictures, packed anew", sure=True),
            Change("record", 1_180.0, 1_190.0, "512 samples, packed anew"),
            Change("cache", None, None, "there is one"),
        ),
    )
    bench_sweep.print_sweep(report, URL)


def show_decoding() -> None:
    report = DecodeReport(
        source=f"64 images of {URL}",
        images={"jpg": 64},
        sizes={"jpg": (500, 375)},
        crop=224,
        backends=(
            BackendReport("simplejpeg", "simplejpeg 1.9.0", None, (DecodeSpeed("jpg", 420.0, 1_520.0, taken=True),)),
            BackendReport("opencv", None, 'pip install "shardstream[opencv]"', ()),
        ),
    )
    bench_decode._print(report)


def show_doctor() -> None:
    findings = [
        Finding("versions", "ok", "shardstream 0.1.0, Python 3.11.2, torch 2.13.0, numpy 2.4.6"),
        Finding(
            "/dev/shm",
            "warn",
            "64.0 MB free of 64.0 MB, where 8 workers with 2 batches of 20.0 MB each ahead keep up to 320.0 MB",
            "docker run --shm-size=1g ...",
        ),
        Finding("open files", "fail", "100 at most, where this takes 512", "ulimit -n 1024"),
    ]
    doctor._print(findings, URL)


def show_top() -> None:
    key = "n01440764/n01440764_10026"
    wanted = f"{URL}/shard-000017.tar"
    workers = (
        WorkerSeen(0, 4121, "decode", 0.004, URL, "shard-000003.tar", 812, key, "", 0, 0.0, 0),
        WorkerSeen(1, 4122, "read", 31.0, URL, "shard-000017.tar", None, "", wanted, 4, 30.5, 3),
    )
    print(top.top_text([RunSeen(4120, 1, 8, 2, (URL,), workers)], 80))


SHOWN: dict[str, Callable[[], None]] = {
    "bench": show_bench,
    "bench-sweep": show_sweep,
    "bench-decode": show_decoding,
    "doctor": show_doctor,
    "top": show_top,
}

if __name__ == "__main__":
    SHOWN[sys.argv[1]]()
