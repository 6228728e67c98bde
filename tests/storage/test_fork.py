"""Clients in processes that were forked, however deep, and at the end of a process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable

import pytest

from shardstream.storage import Store, open_store
from shardstream.storage.base.location import with_transport


def in_child(work: Callable[[], bool]) -> int:
    """The exit status of a forked child: 0 if ``work`` gives true. A child that hangs is killed.

    Not by faulthandler's timer, which pytest has running: setting it anew in a child waits for a thread of the parent.
    """
    child = os.fork()
    if not child:
        good = False
        try:
            good = work()
        except BaseException:
            traceback.print_exc()
        os._exit(0 if good else 1)
    deadline = time.monotonic() + 30
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(ended[1])


@pytest.fixture
def store(s3) -> Store:
    s3.plant("x", b"123")
    return open_store(s3.url(), storage_options=s3.options)


def test_children_of_a_parent_that_has_read(store) -> None:
    assert bytes(store.get("x")) == b"123"
    assert [in_child(lambda: bytes(store.get("x")) == b"123") for _ in range(3)] == [0, 0, 0]
    assert bytes(store.get("x")) == b"123"


@pytest.mark.full
def test_a_child_of_a_parent_that_has_read_through_fsspec(s3) -> None:
    s3.plant("x", b"123")
    store = open_store(with_transport(s3.url(), "fsspec"), storage_options=s3.options)
    assert bytes(store.get("x")) == b"123"
    assert in_child(lambda: bytes(store.get("x")) == b"123") == 0


def test_children_of_a_parent_that_has_not(store) -> None:
    assert in_child(lambda: bytes(store.get("x")) == b"123") == 0
    assert bytes(store.get("x")) == b"123"


def test_children_of_children(store) -> None:
    def reads() -> bool:
        return bytes(store.get("x")) == b"123"

    assert reads()
    # One that reads before it forks, and one that does not.
    assert in_child(lambda: reads() and in_child(lambda: reads() and in_child(reads) == 0) == 0 and reads()) == 0
    assert in_child(lambda: in_child(lambda: in_child(reads) == 0) == 0 and reads()) == 0
    assert reads()


def test_a_child_writes(store, s3) -> None:
    store.put("a", b"parent")

    def writes() -> bool:
        with store.create("b") as out:
            out.write(b"child")
        return True

    assert in_child(writes) == 0
    assert (s3.dig("a"), s3.dig("b")) == (b"parent", b"child")


def test_a_parent_that_used_obstore_by_itself(s3) -> None:
    """Not we, but somebody in the parent has started obstore's threads."""
    import obstore
    from obstore.store import S3Store

    s3.plant("x", b"123")
    theirs = S3Store(
        "tests",
        config={
            "aws_endpoint_url_s3": s3.endpoint,
            "access_key_id": s3.options["access_key_id"],
            "secret_access_key": s3.options["secret_access_key"],
        },
        client_options={"allow_http": True},
    )
    assert bytes(obstore.get(theirs, f"{s3.name}/x").bytes()) == b"123"
    store = open_store(s3.url(), storage_options=s3.options)
    assert in_child(lambda: bytes(store.get("x")) == b"123") == 0


def test_the_copy_comes_from_a_file_where_memory_cannot_be_loaded_from(s3, monkeypatch) -> None:
    from shardstream.storage.clients import forked_obstore as own_obstore

    s3.plant("x", b"123")
    store = open_store(s3.url(), storage_options=s3.options)
    assert bytes(store.get("x")) == b"123"
    with monkeypatch.context() as patch:
        patch.setattr(own_obstore, "_copy", None)
        patch.setattr(own_obstore, "_copied_by", os.getpid())
        assert in_child(lambda: bytes(store.get("x")) == b"123") == 0


def _reads(store: Store) -> None:
    if bytes(store.get("x")) != b"123":
        sys.exit(1)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_start_methods(method, s3) -> None:
    s3.plant("x", b"123")
    store = open_store(s3.url(), storage_options=s3.options)
    assert bytes(store.get("x")) == b"123"
    child = multiprocessing.get_context(method).Process(target=_reads, args=(store,))
    child.start()
    child.join(60)
    if child.exitcode is None:
        child.kill()
        child.join()
    assert child.exitcode == 0
    child.close()


ENDINGS = ["", "os.fork() or sys.exit(3)", "os.fork() or store.get('x')", "out = store.create('y'); out.write(b'1')"]


def ends(place, ending: str, transport: str) -> None:
    place.plant("x", b"123")
    code = (
        "import os, sys\nfrom shardstream.storage import open_store\n"
        f"store = open_store({place.url()!r}, storage_options={place.options!r}, transport={transport!r})\n"
        f"assert bytes(store.get('x')) == b'123'\n{ending}\nprint('end')\n"
    )
    # Since 3.12 Python warns of forks beside threads, ours among them, which are made for it.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith("end\n")


@pytest.mark.one_in(4)
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_end_of_a_process_waits_for_nothing(ending, s3) -> None:
    ends(s3, ending, "auto")


@pytest.mark.full
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_end_of_a_process_that_used_fsspec(ending, s3) -> None:
    ends(s3, ending, "fsspec")
