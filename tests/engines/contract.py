"""What every engine has to do. Each has a file here with its cluster, and runs these tests in its own environment."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from shardstream import PackedSequences, StorageOptions
from shardstream.errors import FieldError, UsageError, WorkerError
from shardstream.pack.options import PackOptions
from shardstream.pack.plan.pack_plan import pack_plan
from shardstream.pack.run import pack, run_pack
from shardstream.progress import ProgressEvent

from ..pack.making import tree
from ..pack.test_kill import until
from ..processes import session
from ..storage.places import S3Place
from ..storage.servers import SECRET

ROOT = Path(__file__).resolve().parents[2]
SMALL = "10kB"


def command(folder: Path, out: str, transform: str, *arguments: str) -> list[str]:
    """The command line that packs, to be run in ``folder``."""
    program = [sys.executable, "-m", "shardstream.cli", "pack", str(folder / "in" / "list.tsv"), str(folder / out)]
    return [
        *program,
        "--shard-size",
        SMALL,
        "--workers",
        "2",
        "--json",
        "--transform",
        f"helpers:{transform}",
        *arguments,
    ]


def ended(program: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False)


def report_of(process: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert process.returncode == 0, process.stderr
    report: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    assert report["event"] == "done"
    return report


def deadly() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A transform that a worker does not survive; where the plan is made, it does nothing."""
    planner = os.getpid()

    def fatal(sample: dict[str, Any]) -> dict[str, Any]:
        if os.getpid() != planner and sample["__key__"] == "c0/00003":
            os.kill(os.getpid(), signal.SIGKILL)
        return sample

    return fatal


def texts_into_bins(place: Path) -> dict[str, Any]:
    """Write texts, of which one has no tokens, and say how to pack them: by a tokenizer, into several shards."""
    tokenizers = pytest.importorskip("tokenizers")
    texts = ["" if i == 500 else f"page {i}: " + "to be, or not to be " * (i % 37) for i in range(3000)]
    place.write_text("".join(json.dumps({"text": text, "source": "web"}) + "\n" for text in texts))
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(texts, 300, special_tokens=["<|end|>"], show_progress=False)
    return {"bins": PackedSequences(256, tokenizer=tokenizer, eos="<|end|>"), "format": "record", "shard_size": "200kB"}


class EngineTests:
    """Tests of one engine.

    Attributes:
        on: Its name.
    """

    on: Any

    def attached(self) -> AbstractContextManager[object]:
        """This process is connected to a cluster of two workers, before and after."""
        raise NotImplementedError

    def is_attached(self) -> bool:
        """Whether this process is connected to one, be it by whomever."""
        raise NotImplementedError

    def test_a_local_cluster_is_started_and_ended(
        self, source: Path, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        seen: list[ProgressEvent] = []
        interrupt = signal.getsignal(signal.SIGINT)
        options = PackOptions(shard_size=SMALL)
        report = run_pack("in/list.tsv", "out", options, on=self.on, workers=2, progress=seen.append)
        assert tree(tmp_path / "out") == whole
        assert (report.rejects, report.kept) == (1, 0)
        assert seen[-1].tally.done == seen[-1].total == 60
        assert not self.is_attached()
        assert signal.getsignal(signal.SIGINT) is interrupt

    def test_a_cluster_that_is_there_is_used_and_left(
        self, source: Path, whole: dict[str, bytes], tmp_path: Path
    ) -> None:
        planner, elsewhere = os.getpid(), tmp_path / "elsewhere"

        def noting(sample: dict[str, Any]) -> dict[str, Any]:
            if os.getpid() != planner:
                elsewhere.touch()
            return sample

        with self.attached():
            plan = pack_plan(source, tmp_path / "out", shard_size=SMALL)
            plan.tasks[1].run()
            report = run_pack(source, tmp_path / "out", PackOptions(shard_size=SMALL), on=self.on)
            assert self.is_attached()
            pack(source, tmp_path / "noted", shard_size=SMALL, on=self.on, workers=1, transform=noting)
            assert self.is_attached()
        assert report.kept == 1
        assert tree(tmp_path / "out") == whole
        assert elsewhere.exists()

    def test_texts_become_the_same_bins(self, tmp_path: Path) -> None:
        made = texts_into_bins(tmp_path / "in.jsonl")
        manifest = pack(tmp_path / "in.jsonl", tmp_path / "whole", workers=2, **made)
        assert manifest.shards > 3
        with self.attached():
            plan = pack_plan(tmp_path / "in.jsonl", tmp_path / "out", **made)
            plan.tasks[1].run()
            report = run_pack(tmp_path / "in.jsonl", tmp_path / "out", PackOptions(**made), on=self.on)
        assert report.kept == 1
        assert tree(tmp_path / "out") == tree(tmp_path / "whole")

    def test_an_error_of_a_task_is_ours(self, source: Path, tmp_path: Path) -> None:
        clash = threading.Event().is_set  # holds a lock, which nothing can pickle

        def typed(sample: dict[str, Any]) -> dict[str, Any]:
            key = sample["__key__"]
            return {"x": "text" if key == "c1/00001" else 1}

        with self.attached():
            with pytest.raises(UsageError, match="transform cannot be sent to worker processes"):
                pack(source, tmp_path / "out", shard_size=SMALL, on=self.on, transform=lambda sample: clash())
            with pytest.raises(FieldError) as caught:
                pack(source, tmp_path / "out", shard_size=200, on=self.on, transform=typed)
            assert self.is_attached()
        assert str(caught.value.place["shard"]).startswith("shard-")
        assert caught.value.hint
        assert len(str(caught.value)) < 1000

    def test_a_worker_that_dies(self, source: Path, helpers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FLAG", str(helpers / "flag"))
        process = ended(command(helpers, "out", "once", "--on", self.on), helpers)
        assert (helpers / "flag").exists()
        assert report_of(process)["samples"] == 59
        assert report_of(ended(command(helpers, "whole", "once"), helpers))["samples"] == 59
        assert tree(helpers / "out") == tree(helpers / "whole")

    def test_a_worker_that_always_dies(self, source: Path, tmp_path: Path) -> None:
        with pytest.raises(WorkerError, match="the cluster could not run a task") as caught:
            pack(source, tmp_path / "out", shard_size=SMALL, on=self.on, workers=2, transform=deadly())
        assert str(caught.value.place["shard"]).startswith("shard-")
        assert len(str(caught.value)) < 1000
        assert not self.is_attached()

    def test_an_interrupt_keeps_what_is_finished(self, source: Path, helpers: Path) -> None:
        out, program = helpers / "out", command(helpers, "out", "slow", "--on", self.on)
        with (helpers / "errors").open("w") as errors:
            process = subprocess.Popen(
                program, cwd=helpers, start_new_session=True, stdout=subprocess.DEVNULL, stderr=errors
            )
            until(lambda: len(list(out.glob("*.tar"))) >= 2, 60)
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(30) == 130
            until(lambda: not session(process.pid))
        assert "finished shards are kept" in (helpers / "errors").read_text()
        kept = len(list(out.glob("*.tar")))
        assert report_of(ended(program, helpers))["kept_shards"] in range(kept - 2, kept + 1)  # receipts may be missing
        assert not list(out.rglob(".shardstream-*"))  # nothing half-written
        assert report_of(ended(command(helpers, "whole", "slow"), helpers))["samples"] == 59
        assert tree(out) == tree(helpers / "whole")

    def test_keys_travel_and_are_not_shown(
        self,
        s3: S3Place,
        source: Path,
        whole: dict[str, bytes],
        caplog: pytest.LogCaptureFixture,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        options = PackOptions(shard_size=SMALL, transform=deadly())
        with self.attached(), caplog.at_level(logging.DEBUG):
            pack(source, s3.url(), shard_size=SMALL, storage=StorageOptions(options=s3.options), on=self.on)
            with pytest.raises(WorkerError):
                run_pack(source, s3.url("bad"), options, storage=StorageOptions(options=s3.options), on=self.on)
        assert {name: s3.dig(name) for name in whole} == whole
        captured = capfd.readouterr()
        assert SECRET not in caplog.text + captured.out + captured.err
