"""Packing straight to stores: real servers, real processes."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardstream import StorageOptions
from shardstream.diagnose import info, verify
from shardstream.errors import (
    AccessError,
    DestinationError,
    DuplicateKeyError,
    NotFoundError,
    ShardStreamError,
    StorageError,
    UsageError,
)
from shardstream.pack.execution.channel import ParentEnd, WorkerEnd
from shardstream.pack.execution.worker import Done, _work
from shardstream.pack.options import PackOptions
from shardstream.pack.output.commits import Committer
from shardstream.pack.output.receipts import ShardResult
from shardstream.pack.output.stats import PackStats
from shardstream.pack.run import pack, run_pack
from shardstream.pack.writer import ShardWriter
from shardstream.progress import ProgressEvent
from shardstream.shards.manifest import Manifest
from shardstream.shards.writing import ShardSummary
from shardstream.storage import Location, ObjectWriter, locate
from shardstream.storage.base.location import with_transport

from ..processes import pack_workers, session
from ..storage.faults import FaultProxy
from ..storage.places import AzurePlace, S3Place
from ..storage.servers import KEY, SECRET
from .making import objects, photo_list, tree
from .test_kill import until

SMALL = "10kB"


def stored(place: S3Place | AzurePlace) -> dict[str, bytes]:
    """Every object of a place as the server has it."""
    return {name: place.dig(name) or b"" for name in names(place)}


def names(place: S3Place | AzurePlace) -> list[str]:
    prefix = f"{place.name}/"
    if isinstance(place, AzurePlace):
        found = [blob.name for blob in place.service.get_container_client(place.container).list_blobs(prefix)]
    else:
        pages = place.client.get_paginator("list_objects_v2").paginate(Bucket=place.bucket, Prefix=prefix)
        found = [one["Key"] for page in pages for one in page.get("Contents", ())]
    return sorted(name.removeprefix(prefix) for name in found)


def uploads(place: S3Place) -> list[str]:
    """Multipart uploads that nobody completed or aborted."""
    found = place.client.list_multipart_uploads(Bucket=place.bucket, Prefix=f"{place.name}/")
    return [one["Key"] for one in found.get("Uploads", ())]


@pytest.fixture(params=["s3", "azure"])
def place(request: pytest.FixtureRequest) -> S3Place | AzurePlace:
    found: S3Place | AzurePlace = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return photo_list(tmp_path / "in", 60)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("transport", ["obstore", "fsspec"])
def test_the_objects_are_the_files_of_a_local_run(place: S3Place, source: Path, tmp_path: Path, transport: Any) -> None:
    local = pack(source, tmp_path / "out", shard_size=SMALL, workers=0)
    url, storage = with_transport(place.url(), transport), StorageOptions(options=place.options)
    manifest = pack(source, url, shard_size=SMALL, workers=0, storage=storage)
    assert manifest.fingerprint == local.fingerprint
    assert manifest.url == place.url()
    assert stored(place) == tree(tmp_path / "out")
    report = verify(url, storage_options=place.options)
    assert report.ok
    assert report.bytes == local.bytes
    assert info(url, storage_options=place.options).samples == 60


def test_processes_get_credentials_but_not_in_their_command_lines(s3: S3Place, source: Path, tmp_path: Path) -> None:
    pack(source, tmp_path / "out", shard_size=SMALL, workers=0)
    lines: set[bytes] = set()

    def look(_event: ProgressEvent) -> None:
        for pid in pack_workers():
            lines.add(Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes())

    pack(source, s3.url(), storage=StorageOptions(options=s3.options), shard_size=SMALL, workers=2, progress=look)
    assert lines
    assert not any(SECRET.encode() in line for line in lines)
    assert stored(s3) == tree(tmp_path / "out")


@pytest.mark.one_in(4)
def test_again_another_and_overwriting(place: S3Place, source: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"storage": StorageOptions(options=place.options), "shard_size": SMALL, "workers": 0}
    pack(source, place.url(), **options)
    before = stored(place)
    assert pack(source, place.url(), **options).samples == 60  # complete already
    assert stored(place) == before
    with pytest.raises(DestinationError, match="already holds another data set") as caught:
        pack(source, place.url(), seed=1, **options)
    assert caught.value.place["url"] == place.url()
    place.plant("notes.txt", b"mine")
    new = pack(source, place.url(), seed=1, overwrite=True, **options)
    expected = objects(new) | {"notes.txt"}
    assert set(names(place)) == expected
    again = pack(source, place.url(), seed=1, overwrite=True, **options)
    assert again.fingerprint == new.fingerprint
    assert set(names(place)) == expected


def test_rejects_are_listed_in_the_store(s3: S3Place, source: Path) -> None:
    source.write_text(source.read_text() + "gone.jpg\t0\n")
    pack(source, s3.url(), storage=StorageOptions(options=s3.options), workers=0)
    (line,) = (s3.dig("rejects.jsonl") or b"").splitlines()
    assert json.loads(line)["path"].endswith("gone.jpg")
    assert info(s3.url(), storage_options=s3.options).rejects == 1


def test_what_is_missing_or_forbidden_is_one_clear_error(s3: S3Place, azure: AzurePlace, source: Path) -> None:
    wrong = "not-the-secret-0123456789"
    refused = {**s3.options, "secret_access_key": wrong}
    for place, options, kind in (
        (s3.url(), refused, AccessError),
        (s3.url(), s3.reader, AccessError),
        ("s3://no-such-bucket/set", s3.options, NotFoundError),
        ("az://no-such-container/set", azure.options, NotFoundError),
    ):
        with pytest.raises(kind) as caught:
            pack(source, place, storage=StorageOptions(options=options), workers=0)
        assert str(caught.value.place["url"]).startswith(place)
        assert not any(one in str(caught.value) for one in (wrong, SECRET, "<?xml"))
    assert not names(s3)


def test_a_web_server_is_no_destination(source: Path) -> None:
    with pytest.raises(DestinationError, match="web server"):
        pack(source, "https://example.org/set", workers=0)
    with pytest.raises(DestinationError, match="web server"), ShardWriter("https://example.org/set"):
        pass


def test_the_memory_of_this_process(source: Path, tmp_path: Path) -> None:
    local = pack(source, tmp_path / "out", shard_size=SMALL, workers=0)
    assert pack(source, "memory://pack/set", shard_size=SMALL).fingerprint == local.fingerprint
    assert verify("memory://pack/set").ok


def test_foreign_objects_are_never_touched(s3: S3Place, source: Path) -> None:
    s3.plant("shard-000000.tar", b"somebody else's")
    for overwrite in (False, True):
        with pytest.raises(DestinationError, match=r"shard-000000\.tar.*not written by shardstream"):
            pack(source, s3.url(), storage=StorageOptions(options=s3.options), workers=0, overwrite=overwrite)
    assert stored(s3) == {"shard-000000.tar": b"somebody else's"}


def test_options_that_cannot_travel(s3: S3Place, source: Path) -> None:
    credential = {"access_key_id": KEY, "secret_access_key": SECRET, "expires_at": None}
    options = {"endpoint": s3.endpoint, "credential_provider": lambda: credential}
    with pytest.raises(UsageError, match="sent to worker processes") as caught:
        pack(source, s3.url(), storage=StorageOptions(options=options), shard_size=SMALL, workers=2)
    assert SECRET not in str(caught.value)
    assert pack(source, s3.url(), storage=StorageOptions(options=options), shard_size=SMALL, workers=0).samples == 60


# ------------------------------------------------------------------------------------------------------- one by one


def test_a_writer(place: S3Place, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).bytes(3 << 20)
    for dest, options in ((place.url(), place.options), (tmp_path / "out", None)):
        with ShardWriter(dest, storage=StorageOptions(options=options), shard_size="20MB") as writer:
            for i in range(12):
                writer.write({"__key__": f"{i}", "raw": noise[i:], "cls": i})
    assert stored(place) == tree(tmp_path / "out")
    assert Manifest.load(place.url(), storage_options=place.options).shards == 2


def test_a_writer_that_fails_leaves_nothing(s3: S3Place) -> None:
    noise = np.random.default_rng(0).bytes(1 << 20)
    with pytest.raises(ZeroDivisionError):  # noqa: PT012, SIM117 - the block is what is tested
        with ShardWriter(s3.url(), storage=StorageOptions(options=s3.options), shard_size="12MB") as writer:
            for i in range(30):
                writer.write({"__key__": f"{i}", "raw": noise})
            raise ZeroDivisionError
    assert not names(s3)
    assert not uploads(s3)


def test_keys_are_unique_over_shards_of_a_store(s3: S3Place) -> None:
    with pytest.raises(DuplicateKeyError, match=r"sample 1 of shard-000000\.tar"):  # noqa: PT012, SIM117 - the same
        with ShardWriter(s3.url(), storage=StorageOptions(options=s3.options), shard_size="8kB") as writer:
            for i in (0, 1, 2, 3, 4, 5, 6, 7, 1):
                writer.write({"__key__": f"{i}", "raw": bytes(1500)})
    assert not names(s3)


class Held(ObjectWriter):
    """An object whose commit waits until it is told how to end."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun, self.go, self.error = threading.Event(), threading.Event(), error

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def tell(self) -> int:
        return 0

    def commit(self) -> None:
        self.begun.set()
        assert self.go.wait(20)
        if self.error is not None:
            raise self.error

    def discard(self) -> None: ...


def test_a_shard_is_completed_while_the_next_is_made() -> None:
    committer, first, second = Committer(), Held(), Held(StorageError("full"))
    committer.begin(first, "one")
    assert first.begun.wait(20)  # under way, and we are here
    first.go.set()
    committer.wait()
    second.go.set()
    committer.begin(second, "two")
    with pytest.raises(StorageError, match="full") as caught:
        committer.wait()
    assert caught.value.place == {"shard": "two"}
    committer.wait()  # told once


def test_a_refused_upload_is_told_and_leaves_nothing(s3: S3Place, source: Path) -> None:
    with FaultProxy(s3.endpoint.removeprefix("http://")) as proxy:
        proxy.add("status", status=403, method="PUT", match="-000001")
        options = {**s3.options, "endpoint": proxy.url}
        for workers in (0, 2):
            with pytest.raises(AccessError) as caught:
                pack(source, s3.url(), storage=StorageOptions(options=options), shard_size=SMALL, workers=workers)
            assert "-000001" in str(caught.value.place["url"])
            left = names(s3)
            receipts = [name for name in left if name.startswith(".pack/")]
            assert receipts, left
            # A worker may have been ended between a shard and its receipt, which comes last.
            assert {name.removeprefix(".pack/").removesuffix(".json") for name in receipts} <= set(left)
            assert not uploads(s3)
        for name in names(s3):
            s3.client.delete_object(Bucket=s3.bucket, Key=f"{s3.name}/{name}")
        with pytest.raises(AccessError):  # noqa: PT012, SIM117 - the block is what is tested
            with ShardWriter(s3.url(), storage=StorageOptions(options=options), shard_size="8kB") as writer:
                for i in range(20):  # the second shard's end is met while the third or fourth is written
                    writer.write({"__key__": f"{i}", "raw": bytes(1500)})
        assert not names(s3)


class Ending(Held):
    """An object whose commit ends at once."""

    def commit(self) -> None:
        if self.error is not None:
            raise self.error


@dataclass(frozen=True)
class Task:
    """A task that takes no time; its object cannot be committed if it has an error."""

    number: int
    dest: Location
    error: Exception | None = None
    name: str = "shard-000000.tar"

    def finished(self) -> None: ...

    def write(self, _report: object) -> tuple[ShardResult, ObjectWriter]:
        return ShardResult(self.number, ShardSummary(0, 0, 0, 0, {}), {}, PackStats(), {}), Ending(self.error)


@pytest.mark.parametrize("dest", ["out", "s3://bucket/out"])
def test_a_worker_tells_of_every_task_in_order(dest: str) -> None:
    one, other = socket.socketpair()
    ours, theirs = ParentEnd(one), WorkerEnd(other.detach())
    worker = threading.Thread(target=_until_the_end, args=(theirs,))
    worker.start()
    for number in range(4):
        ours.put(Task(number, locate(dest), StorageError("disk full") if number == 1 else None))
    outcomes: list[Any] = []
    while len(outcomes) < 4:
        assert select.select([ours], [], [], 20)[0]
        outcomes += [message.outcome for message in ours.receive() if isinstance(message, Done)]
    ours.close()
    worker.join(20)
    assert not worker.is_alive()
    assert [getattr(one, "number", str(one)) for one in outcomes] == [
        *(0, "disk full [shard shard-000000.tar]", 2, 3),
    ]


def _until_the_end(end: WorkerEnd) -> None:
    with closing(end), pytest.raises(EOFError):
        _work(end, None)


# ------------------------------------------------------------------------------------------------------------- kills


def command(place: S3Place, source: Path) -> list[str]:
    program = [sys.executable, "-m", "shardstream.cli", "pack", str(source), place.url()]
    return [*program, "--workers", "2", "--shard-size", "20kB", "-q"]


@pytest.mark.full
def test_a_run_that_is_killed_can_be_done_again(s3: S3Place, tmp_path: Path) -> None:
    source = photo_list(tmp_path / "in", 900)
    pack(source, tmp_path / "whole", shard_size="20kB", workers=0)
    with subprocess.Popen(command(s3, source), start_new_session=True, env=os.environ | s3.environment) as process:
        until(lambda: len(names(s3)) >= 2)
        process.kill()
        process.wait()
        until(lambda: not session(process.pid))
    assert "dataset.json" not in names(s3)
    with pytest.raises(NotFoundError, match="no data set"):
        Manifest.load(s3.url(), storage_options=s3.options)
    s3.plant("shard-0123abcd-000007.tar", next((tmp_path / "whole").glob("*.tar")).read_bytes())  # of another plan
    pack(source, s3.url(), storage=StorageOptions(options=s3.options), shard_size="20kB", workers=0)
    assert stored(s3) == tree(tmp_path / "whole")


@pytest.mark.full
def test_an_interrupt_leaves_what_is_finished(s3: S3Place, tmp_path: Path) -> None:
    source = photo_list(tmp_path / "in", 900)
    environment = os.environ | s3.environment
    with subprocess.Popen(
        command(s3, source), start_new_session=True, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        until(lambda: len(names(s3)) >= 2)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        until(lambda: not session(process.pid))
    assert process.returncode == 130, errors
    assert errors.splitlines() == ["finished shards are kept: the same command goes on from there", "interrupted"]
    assert not uploads(s3)
    assert not any(name.startswith("dataset") for name in names(s3))
    report = run_pack(
        source, s3.url(), PackOptions(shard_size="20kB"), storage=StorageOptions(options=s3.options), workers=0
    )
    assert report.kept >= 1
    pack(source, tmp_path / "whole", shard_size="20kB", workers=0)
    assert stored(s3) == tree(tmp_path / "whole")


def test_the_place_of_an_error_holds_no_secret(source: Path) -> None:
    url = "https://acme.blob.core.windows.net/data?sv=2024&sig=hidden-signature"
    assert "hidden-signature" not in repr(locate(url)) + str(locate(url))
    with pytest.raises(ShardStreamError) as caught:
        pack(
            source,
            url + "x",
            storage=StorageOptions(options={"endpoint": "http://127.0.0.1:9/none"}),
            workers=0,
            seed=-1,
        )
    assert "hidden-signature" not in str(caught.value)
