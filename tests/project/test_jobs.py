"""The jobs of docs/jobs.md, typed as the page has them on small data, and what has to be true of what came out."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
from ast import literal_eval
from pathlib import Path

import numpy as np
import pytest

from .test_documents import blocks, commands

PAGE = (Path(__file__).resolve().parents[2] / "docs/jobs.md").read_text()
JOBS = {
    title.partition(":")[0]: text for title, text in re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
}
ENVIRONMENT = os.environ | {
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    "OMP_NUM_THREADS": "1",
}


class Job:
    """A job in a directory: its program is saved, its commands are typed one by one.

    Attributes:
        lines: The commands.
        program: The text of the program.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.folder = folder
        found = blocks(JOBS[name])
        (self.program,) = (block.body for block in found if block.kind == "python")
        self.lines = [" ".join(words) for block in found if block.kind == "bash" for words in commands(block.body)]
        (folder / self.program.splitlines()[0].removeprefix("# ")).write_text(self.program)

    def type(self, line: str) -> str:
        """Run a line in a shell; returns what it printed."""
        done = subprocess.run(
            line, shell=True, cwd=self.folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def type_all(self) -> list[str]:
        return [self.type(line) for line in self.lines]


@pytest.mark.parametrize("name", JOBS)
def test_a_job_is_at_most_three_commands_and_thirty_lines(name: str, tmp_path: Path) -> None:
    job = Job(name, tmp_path)
    assert 0 < len(job.lines) <= 3
    assert len([line for line in job.program.splitlines()[1:] if line.strip()]) <= 30


def image(color: int, kind: str = "jpeg") -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    noise = np.random.default_rng(color).integers(-20, 20, (120, 160, 3))
    pixels = np.clip(noise + np.array([color, 128, 255 - color]), 0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def make_photos(folder: Path) -> None:
    """Two classes in both splits, PNG among JPEG files."""
    for split, count in (("train", 96), ("val", 21)):
        for number, name in enumerate(("cat", "dog")):
            (folder / "photos" / split / name).mkdir(parents=True)
            for i in range(count):
                kind = "png" if i % 7 == 3 else "jpeg"
                data = image(60 + 120 * number + i % 40, kind)
                (folder / "photos" / split / name / f"{i}.{kind}").write_bytes(data)


@pytest.mark.full
def test_images_train_on_two_ranks_stop_and_resume_on_one(tmp_path: Path) -> None:
    make_photos(tmp_path)
    job = Job("Images", tmp_path)
    *packing, training = job.lines
    for line in packing:
        job.type(line)
    run = subprocess.Popen(training.split(), cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    assert run.stdout.readline() == "epoch 1\n"
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=120)
    printed = job.type(training.replace("=2", "=1"))
    assert "epoch 3" in printed
    assert "epoch 1\n" not in printed
    assert "42 of 42 right" in printed


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def test_images_and_texts_are_filtered_and_mixed(tmp_path: Path) -> None:
    (tmp_path / "laion").mkdir()
    for shard in range(4):
        with tarfile.open(tmp_path / "laion" / f"{shard:05d}.tar", "w") as tar:
            for i in range(40):
                data = b"\xff\xd8\xff broken" if i == 5 else image(i)
                add(tar, f"{shard:05d}{i:04d}.jpg", data)
                add(tar, f"{shard:05d}{i:04d}.txt", f"caption {i}".encode())
                add(tar, f"{shard:05d}{i:04d}.json", json.dumps({"similarity": 0.2 + i % 2 / 5}).encode())
    (tmp_path / "images").mkdir()
    with open(tmp_path / "captions.jsonl", "w") as file:
        for i in range(40):
            (tmp_path / f"images/{i}.jpg").write_bytes(image(2 * i))
            print(json.dumps({"image": f"images/{i}.jpg", "captions": [f"a dog {i}", "a brown dog"]}), file=file)
    *_, printed = Job("Images and texts", tmp_path).type_all()
    assert re.fullmatch(r"80 samples chosen; [1-4] damaged\n", printed)


def make_texts(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    from pyarrow import Table, parquet

    texts = [" ".join(f"word{(i * j) % 97}" for j in range(20 + 13 * i % 400)) for i in range(800)]
    model = tokenizers.models.WordLevel({f"word{i}": i for i in range(97)}, "word0")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with gzip.open(tmp_path / "web.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"text": text, "url": f"u/{i}"}) + "\n" for i, text in enumerate(texts))
    parquet.write_table(Table.from_pydict({"content": texts[:400]}), tmp_path / "code.parquet")


def test_texts_become_rows_of_tokens(tmp_path: Path) -> None:
    make_texts(tmp_path)
    *_, seen = Job("Language", tmp_path).type_all()
    assert sum(literal_eval(seen).values()) == 10 * 4 * 1024


@pytest.mark.full
def test_training_on_texts_resumes(tmp_path: Path) -> None:
    make_texts(tmp_path)
    job = Job("Language", tmp_path)
    job.type_all()
    assert sum(literal_eval(job.type(job.lines[-1])).values()) == 20 * 4 * 1024


def test_speech_comes_in_batches_of_as_many_seconds(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    for chapter in range(4):
        folder = tmp_path / f"LibriSpeech/dev-clean/84/{chapter}"
        folder.mkdir(parents=True)
        lines = []
        for i in range(20):
            soundfile.write(folder / f"84-{chapter}-{i:04d}.flac", np.zeros(16000 + 800 * i, np.float32), 16000)
            lines.append(f"84-{chapter}-{i:04d} SO IT GOES {i}\n")
        (folder / f"84-{chapter}.trans.txt").write_text("".join(lines))
    *_, printed = Job("Speech", tmp_path).type_all()
    assert re.fullmatch(r"\d+ recordings in \d+ batches\n", printed)


def test_the_test_of_a_loop_passes(tmp_path: Path) -> None:
    job = Job("Operations", tmp_path)
    assert "3 passed" in job.type(job.lines[-1])


@pytest.mark.full
def test_operations_check_a_machine_and_a_dataset(tmp_path: Path) -> None:
    from shardstream.testing import make_dataset

    make_dataset(tmp_path / "shards", samples=200, fields={"jpg": "jpg", "cls": "int64"})
    doctor, bench, _ = Job("Operations", tmp_path).type_all()
    assert "0 failures" in doctor
    assert "samples/s" in bench
