"""Tasks anywhere, in any order, more than once; runs that go on where an earlier one ended."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import shardstream as ss
from shardstream.errors import DestinationError, StorageError, UsageError
from shardstream.pack.encode.sample import SampleEncoder
from shardstream.pack.options import PackOptions
from shardstream.pack.output.destination import Destination
from shardstream.pack.plan.pack_plan import pack_plan
from shardstream.pack.run import pack, run_pack
from shardstream.pack.sources import Item

from ..storage.places import S3Place
from .making import PYTHON, jpeg, photo_list, samples, tree

SMALL = "10kB"

RUN = """
import pickle, sys
with open(sys.argv[1], "rb") as file:
    pickle.load(file).run()
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    found = photo_list(tmp_path / "in", 60)
    (tmp_path / "in" / "c0" / "00003.jpg").write_bytes(b"no image")
    return found


@pytest.fixture
def whole(source: Path, tmp_path: Path) -> dict[str, bytes]:
    pack(source, tmp_path / "whole", shard_size=SMALL, workers=0)
    return tree(tmp_path / "whole")


def test_tasks_in_any_order_and_other_processes(source: Path, whole: dict[str, bytes], tmp_path: Path) -> None:
    plan = pack_plan(source, tmp_path / "out", shard_size=SMALL)
    assert isinstance(plan, ss.PackPlan)
    assert (plan.samples, plan.shards) == (60, len(plan.tasks))
    assert plan.shards > 4
    tasks = list(plan.tasks)
    random.Random(0).shuffle(tasks)
    (tmp_path / "task").write_bytes(pickle.dumps(tasks[0]))
    subprocess.run([*PYTHON, "-c", RUN, tmp_path / "task"], check=True)
    with ThreadPoolExecutor(3) as pool:  # each twice, perhaps at once
        list(pool.map(lambda task: task.run(), tasks[1:] * 2))
    manifest = plan.commit()
    assert manifest.plan == plan.fingerprint
    assert tree(tmp_path / "out") == whole
    again = pack_plan(source, tmp_path / "out", shard_size=SMALL)
    assert again.manifest is not None
    assert list(again.tasks) == []
    assert again.commit().fingerprint == manifest.fingerprint


def test_a_commit_too_early_names_what_is_missing(source: Path, whole: dict[str, bytes], tmp_path: Path) -> None:
    plan = pack_plan(source, tmp_path / "out", shard_size=SMALL)
    for task in plan.tasks[2:]:
        task.run()
    with pytest.raises(UsageError, match=f"2 of {plan.shards} shards are not written yet") as caught:
        plan.commit()
    assert caught.value.place["shard"] == plan.tasks[0].name
    report = run_pack(source, tmp_path / "out", PackOptions(shard_size=SMALL), workers=0)
    assert report.kept == plan.shards - 2
    assert report.rejects == 1
    assert tree(tmp_path / "out") == whole


def test_plans_in_a_store(s3: S3Place, source: Path, whole: dict[str, bytes]) -> None:
    plan = pack_plan(source, s3.url(), shard_size=SMALL, storage=ss.StorageOptions(options=s3.options))
    for task in plan.tasks:
        pickle.loads(pickle.dumps(task)).run()
    assert all(task.run().kept for task in plan.tasks)
    plan.commit()
    assert {name: s3.dig(name) for name in whole} == whole


def unfinished(source: Path, out: Path) -> list[Path]:
    """A run that ended after its tasks: its shards, and receipts beside them."""
    for task in pack_plan(source, out, shard_size=SMALL).tasks:
        task.run()
    return sorted(out.glob("*.tar"))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)


def receipt(path: Path) -> Path:
    return path.parent / ".pack" / f"{path.name}.json"


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "harm",
    [cut, flip, Path.unlink, lambda path: cut(receipt(path)), lambda path: receipt(path).unlink()],
    ids=["shard cut", "bit flipped", "shard gone", "receipt cut", "receipt gone"],
)
def test_what_is_not_whole_is_done_again(
    source: Path, whole: dict[str, bytes], tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    shards = unfinished(source, tmp_path / "out")
    harm(shards[1])
    report = run_pack(source, tmp_path / "out", PackOptions(shard_size=SMALL), workers=0)
    assert report.kept == len(shards) - 1
    assert tree(tmp_path / "out") == whole


def test_in_a_store_size_and_index_are_compared(s3: S3Place, source: Path, whole: dict[str, bytes]) -> None:
    plan = pack_plan(source, s3.url(), shard_size=SMALL, storage=ss.StorageOptions(options=s3.options))
    for task in plan.tasks:
        task.run()
    names = [task.name for task in plan.tasks]
    short = s3.dig(names[0]) or b""
    s3.plant(names[0], short[:-512])
    broken = bytearray(s3.dig(names[1]) or b"")
    broken[-1024 - 100] ^= 1
    s3.plant(names[1], bytes(broken))
    report = run_pack(
        source, s3.url(), PackOptions(shard_size=SMALL), storage=ss.StorageOptions(options=s3.options), workers=0
    )
    assert report.kept == len(names) - 2
    assert {name: s3.dig(name) for name in whole} == whole


def test_kept_shards_are_not_read_again(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = unfinished(source, tmp_path / "out")

    def fail(*_: object) -> None:
        raise AssertionError("loaded again")

    monkeypatch.setattr(SampleEncoder, "load", fail)
    seen = []
    manifest = pack(source, tmp_path / "out", shard_size=SMALL, workers=0, progress=seen.append)
    assert manifest.shards == len(shards)
    assert seen[-1].kept == seen[-1].tally.done == 60
    assert seen[-1].tally.bytes == 0


def test_an_error_keeps_what_is_finished(
    source: Path, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, loaded = SampleEncoder.load, []

    def full(self: SampleEncoder, item: Item, contents: dict[str, bytes]) -> object:
        if len(loaded) == 25:
            raise StorageError("no room")
        loaded.append(item)
        return load(self, item, contents)

    with monkeypatch.context() as patch:
        patch.setattr(SampleEncoder, "load", full)
        with pytest.raises(StorageError, match="no room"):
            pack(source, tmp_path / "out", shard_size=SMALL, workers=0)
    kept = len(list((tmp_path / "out").glob("*.tar")))
    report = run_pack(source, tmp_path / "out", PackOptions(shard_size=SMALL), workers=0)
    assert report.kept == kept > 3
    assert tree(tmp_path / "out") == whole


def test_another_plan_does_not_take_what_is_there(source: Path, tmp_path: Path) -> None:
    unfinished(source, tmp_path / "out")
    report = run_pack(source, tmp_path / "out", PackOptions(shard_size=SMALL, seed=1), workers=0)
    assert report.kept == 0
    pack(source, tmp_path / "whole", shard_size=SMALL, seed=1, workers=0)
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


def test_an_overwrite_goes_on_too(source: Path, tmp_path: Path) -> None:
    pack(source, tmp_path / "out", shard_size=SMALL, workers=0)
    before = tree(tmp_path / "out")
    plan = pack_plan(source, tmp_path / "out", shard_size=SMALL, overwrite=True)
    assert plan.manifest is None
    plan.tasks[0].run()
    assert len(samples(tmp_path / "out")) == 59
    report = run_pack(source, tmp_path / "out", PackOptions(shard_size=SMALL), workers=0, overwrite=True)
    assert report.kept == 1
    assert tree(tmp_path / "out") == before


def test_the_switch_and_what_goes_with_it(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed right after the switch, the list of rejects and the report are those of the new data set in the end."""
    out = tmp_path / "out"
    pack(source, out, shard_size=SMALL, workers=0)
    (tmp_path / "in" / "c0" / "00003.jpg").write_bytes(jpeg(3))
    with monkeypatch.context() as patch:
        patch.setattr(Destination, "publish", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            pack(source, out, shard_size=SMALL, workers=0, seed=1, overwrite=True)
    assert (out / "rejects.jsonl").exists()
    pack(source, out, shard_size=SMALL, workers=0, seed=1)
    assert not (out / "rejects.jsonl").exists()
    assert json.loads((out / "report.json").read_text())["rejects"] == 0
    pack(source, tmp_path / "whole", shard_size=SMALL, workers=0, seed=1)
    assert tree(out) == tree(tmp_path / "whole")


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_plans_refuse_what_pack_refuses(source: Path, tmp_path: Path) -> None:
    pack(source, tmp_path / "out", workers=0)
    with pytest.raises(DestinationError, match="another data set"):
        pack_plan(source, tmp_path / "out", seed=3)
    with pytest.raises(UsageError, match="no argument 'sed'") as caught:
        pack_plan(source, tmp_path / "out", sed=3)
    assert "did you mean 'seed'" in str(caught.value)
