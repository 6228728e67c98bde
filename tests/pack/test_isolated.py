"""Calls that end their process: images that crash their decoder, in whatever way they come to be decoded."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from shardstream import ImageOptions
from shardstream.diagnose import verify
from shardstream.errors import DecodeError
from shardstream.pack.execution import isolated
from shardstream.pack.repack import repack
from shardstream.pack.run import pack
from shardstream.pack.writer import ShardWriter

from ..processes import living
from .making import jpeg, samples

pytest.importorskip("simplejpeg")

DEADLY = b"\xff\xd8\xff\xfe\x00\x08DEADLY"  # a JPEG that begins with this comment
DECODER = f"""
# The decoder of the package beside it, which crashes over some images.
import os, signal, sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

here = os.path.dirname(__file__)
spec = PathFinder.find_spec(__name__, [one for one in sys.path if one != here])
real = sys.modules[__name__] = module_from_spec(spec)
spec.loader.exec_module(real)
decode = real.decode_jpeg

def decode_jpeg(data, *args, **options):
    if bytes(data).startswith({DEADLY!r}):
        os.kill(os.getpid(), signal.SIGSEGV)
    return decode(data, *args, **options)

real.decode_jpeg = decode_jpeg
"""
WORK = """
import os, signal
from dataclasses import dataclass

@dataclass(frozen=True)
class Work:
    seconds: float = 0.5

    def __call__(self, value):
        if value == "die":
            os.kill(os.getpid(), signal.SIGBUS)
        if value == "leave":
            os._exit(0)
        while value == "spin":
            pass
        if value == "raise":
            raise ValueError("no")
        return bytes(value[:1]) if isinstance(value, memoryview) else value

    def prepare(self):
        pass

    def ended(self, how):
        return RuntimeError(f"it {how}")
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A call that does what its value says."""
    (tmp_path / "isolated_work.py").write_text(WORK)
    monkeypatch.syspath_prepend(tmp_path)
    yield import_module("isolated_work").Work()
    sys.modules.pop("isolated_work")
    isolated.end()


def test_what_ends_its_process_is_one_error_and_nothing_else_is_lost(work: Any) -> None:
    there = children()
    assert isolated.run(work, ["a", b"b" * (20 << 20), memoryview(b"c")]) == ["a", b"b", b"c"]
    values = ["a", "die", b"b", "leave", "raise", "spin", "z", ""]
    for _ in range(2):  # with new processes, and with those that took their place
        outcomes = isolated.run(work, values)
        assert [str(one) for one in outcomes] == [
            "a",
            "it ended its process by SIGBUS",
            "b'b'",
            "it ended its process",
            "no",
            "it took more than 0.5 s",
            "z",
            "",
        ]
        assert isinstance(outcomes[4], ValueError)
    isolated.end()
    assert children() == there


@pytest.fixture
def deadly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Images by key, of which two crash the decoder of any process that begins now."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "simplejpeg.py").write_text(DECODER)
    monkeypatch.syspath_prepend(tmp_path / "path")
    good = {f"{number:03d}": jpeg(number) for number in range(32)}
    return good | {key: DEADLY + good[key][2:] for key in ("007", "030")}


def reasons(out: Path) -> dict[str, str]:
    lines = map(json.loads, (out / "rejects.jsonl").read_text().splitlines())
    return {Path(line["path"]).stem: line["reason"] for line in lines}


REASONS = dict.fromkeys(("007", "030"), "decoding it ended its process by SIGSEGV")


@pytest.mark.parametrize(
    ("options", "workers"),
    [
        ({"images": ImageOptions(max_side=4)}, 0),
        pytest.param({"images": ImageOptions(check="decode")}, 0, marks=pytest.mark.full),
        ({"images": ImageOptions(check="decode")}, 2),
    ],
)
def test_pack_rejects_images_that_crash_their_decoder(
    tmp_path: Path, deadly: dict[str, bytes], options: Any, workers: int
) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for key, data in deadly.items():
        (source / f"{key}.jpg").write_bytes(data)
    there = children()
    pack(source, out, shuffle=False, shard_size="12kB", workers=workers, **options)
    assert children() == there
    assert reasons(out) == REASONS
    assert list(samples(out)) == [key for key in deadly if key not in REASONS]


def test_an_executor_keeps_its_workers(tmp_path: Path, deadly: dict[str, bytes]) -> None:
    there = children()
    source = [{"__key__": key, "jpg": data} for key, data in deadly.items()]
    with ThreadPoolExecutor(2) as executor:
        pack(source, tmp_path / "out", shard_size="12kB", on=executor, images=ImageOptions(check="decode"))
    assert reasons(tmp_path / "out") == REASONS
    assert children() == there


def test_what_is_stored_is_found_and_left_out(tmp_path: Path, deadly: dict[str, bytes]) -> None:
    source = [{"__key__": key, "jpg": data} for key, data in deadly.items()]
    pack(source, tmp_path / "out", shard_size="12kB", shuffle=False, images=ImageOptions(jpeg="keep"), workers=0)
    report = verify(tmp_path / "out", decode=True)
    assert {problem.key: problem.what for problem in report.problems} == REASONS
    assert report.pictures == len(deadly)
    repack(tmp_path / "out", tmp_path / "again", drop_damaged=True, workers=0)
    rejected = reasons(tmp_path / "again")
    assert {path.rpartition("/")[2]: reason for path, reason in rejected.items()} == REASONS
    assert list(samples(tmp_path / "again")) == [key for key in deadly if key not in REASONS]


def test_a_writer_refuses_them_and_goes_on(tmp_path: Path, deadly: dict[str, bytes]) -> None:
    there = children()
    with ShardWriter(tmp_path / "out", images=ImageOptions(check="decode")) as writer:
        writer.write({"__key__": "006", "jpg": deadly["006"]})
        with pytest.raises(DecodeError, match=r"decoding it ended its process by SIGSEGV.*key 007"):
            writer.write({"__key__": "007", "jpg": deadly["007"]})
        writer.write({"__key__": "008", "jpg": deadly["008"]})
    assert list(samples(tmp_path / "out")) == ["006", "008"]
    assert children() == there


def children() -> set[int]:
    """Processes that this one has started and that live."""
    return {one.pid for one in living() if one.parent == os.getpid()}
