"""The loop of a process: results, deadlines, forks, and an end without hanging or crashing, whatever is in flight."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from shardstream.errors import NotFoundError, StorageError
from shardstream.storage.transfer import loop

from .faults import FaultProxy

FOR_EVER = 120  # seconds after which a process counts as hanging


def test_results_come_back_to_any_thread() -> None:
    async def double(number: int) -> int:
        await asyncio.sleep(0.001)
        return 2 * number

    found: dict[int, int] = {}

    def ask(number: int) -> None:
        found[number] = loop.run(lambda: double(number), wait=30, what="a number")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: 2 * number for number in range(8)}


def test_errors_pass_through() -> None:
    async def fails(error: Exception) -> None:
        raise error

    for error in (NotFoundError("no such object", url="s3://b/x"), TimeoutError("its own"), ZeroDivisionError()):
        with pytest.raises(type(error)) as caught:
            loop.run(functools.partial(fails, error), wait=30, what="nothing")
        assert caught.value.args == error.args


def test_a_wait_ends_and_says_on_what_it_waited() -> None:
    cancelled = threading.Event()

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(StorageError, match=r"waited 0\.05 s for bytes 0 to 5 of s3://b/x"):
        loop.run(never, wait=0.05, what="bytes 0 to 5 of s3://b/x")
    assert cancelled.wait(30)


def test_cancelling_the_future_cancels_the_coroutine() -> None:
    begun, cancelled = threading.Event(), threading.Event()

    async def never() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    future = loop.submit(never)
    assert begun.wait(30)
    future.cancel()
    assert cancelled.wait(30)


def test_an_interrupt_ends_the_wait_and_the_coroutine() -> None:
    cancelled = threading.Event()

    async def never() -> None:
        try:
            await asyncio.sleep(0.2)  # until the other thread surely waits
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(KeyboardInterrupt):
        loop.run(never, wait=60, what="nothing")
    assert cancelled.wait(30)


def test_waiting_on_the_loop_for_itself_is_refused() -> None:
    async def nothing() -> None: ...

    async def asks() -> None:
        loop.run(nothing, wait=1, what="itself")

    with pytest.raises(RuntimeError, match="wait for itself"):
        loop.run(asks, wait=30, what="nothing")


def test_a_forked_child_has_a_loop_of_its_own_and_the_parent_keeps_its() -> None:
    gate = threading.Event()

    async def gated() -> str:
        while not gate.is_set():
            await asyncio.sleep(0.005)
        return "parent"

    async def answer(number: int) -> int:
        await asyncio.sleep(0.001)
        return number

    waiting = loop.submit(gated)
    child = os.fork()
    if not child:
        good = loop.run(lambda: answer(1), wait=20, what="the child's loop") == 1
        grandchild = os.fork()
        if not grandchild:
            os._exit(0 if loop.run(lambda: answer(2), wait=20, what="the grandchild's loop") == 2 else 1)
        good &= os.waitpid(grandchild, 0)[1] == 0
        os._exit(0 if good and loop.run(lambda: answer(3), wait=20, what="the child's loop") == 3 else 1)
    assert os.waitpid(child, 0)[1] == 0
    gate.set()
    assert waiting.result(30) == "parent"


def test_what_the_parent_was_doing_is_left_alone_in_a_child() -> None:
    """A waiting task is a cycle; collected in the child, or here, it would run its handlers."""
    program = """
        import asyncio, gc, os, sys, threading
        from shardstream.storage.transfer import loop

        begun = threading.Event()

        async def waits():
            gate = asyncio.Event()
            begun.set()
            try:
                await gate.wait()
            finally:
                os.write(1, b"ended\\n")

        loop.submit(waits)
        begun.wait()
        gc.collect()
        os.write(1, b"collected\\n")
        child = os.fork()
        if not child:
            gc.collect()
            loop.run(lambda: asyncio.sleep(0), wait=30, what="the child's loop")
            sys.exit(7)
        assert os.waitpid(child, 0)[1] == 7 << 8
    """
    assert outcome(programs(1, program)[0]) == (0, "collected\nended\n", "")


# ------------------------------------------------------------------------------------------------------------- the end


def programs(count: int, text: str, *arguments: str) -> list[subprocess.Popen[str]]:
    command = [
        sys.executable,
        "-W",
        "error",
        "-W",
        "ignore::DeprecationWarning",
        "-c",
        textwrap.dedent(text),
        *arguments,
    ]
    pipe = subprocess.PIPE
    return [subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) for _ in range(count)]


def outcome(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=FOR_EVER)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        pytest.fail("the process hangs")
    return process.returncode, out, err


def test_the_end_cancels_what_runs_and_tells_who_waits() -> None:
    program = """
        import asyncio, atexit, sys, threading

        atexit.register(lambda: thread.join(60))  # before ours, and so called after it: daemons are not waited for
        from shardstream.errors import StorageError
        from shardstream.storage.transfer import loop

        begun = threading.Event()

        async def never():
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                sys.stdout.write("cancelled\\n")

        def waits():
            try:
                loop.run(never, wait=3600, what="nothing")
            except StorageError as error:
                sys.stdout.write(f"told: {error}\\n")

        thread = threading.Thread(target=waits, daemon=True)
        thread.start()
        begun.wait()
        sys.exit(3)
    """
    code, out, err = outcome(programs(1, program)[0])
    assert (code, err) == (3, "")
    assert out.startswith("cancelled\n")
    assert "told: stopped, after" in out


@pytest.mark.full
def test_a_task_that_will_not_end_does_not_keep_the_process() -> None:
    program = """
        import asyncio, threading
        from shardstream.storage.transfer import loop

        begun = threading.Event()

        async def stubborn():
            begun.set()
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    pass

        loop.submit(stubborn)
        begun.wait()
    """
    assert outcome(programs(1, program)[0]) == (0, "", "")


def test_nothing_begins_once_the_end_has_begun() -> None:
    program = """
        import asyncio, atexit

        def late():
            try:
                loop.run(lambda: asyncio.sleep(0), wait=5, what="nothing")
            except StorageError as error:
                print(error)

        atexit.register(late)  # before ours, and so called after it
        from shardstream.errors import StorageError
        from shardstream.storage.transfer import loop
        loop.run(lambda: asyncio.sleep(0), wait=5, what="a start")
    """
    code, out, err = outcome(programs(1, program)[0])
    assert (code, err) == (0, "")
    assert "the interpreter is exiting" in out


READING = """
    import functools, multiprocessing, os, sys, time, warnings
    warnings.filterwarnings("ignore", "This process .* is multi-threaded")
    from shardstream.storage import open_store
    from shardstream.storage.transfer import loop

    def busy(store):
        "Requests that are cut off in the middle of their bodies, some near their ends."
        store.get("x", 0, 1000)
        for start in range(16):
            loop.submit(functools.partial(store.read, "x", start, 1_000_000))
        time.sleep(float(sys.argv[3]))

    def opened():
        options = {"endpoint": sys.argv[1], "access_key_id": sys.argv[4], "secret_access_key": sys.argv[5]}
        return open_store(sys.argv[2], storage_options=options)
"""


@pytest.fixture
def slow_line(s3, s3_server):
    s3.plant("x", bytes(1_500_000))
    with FaultProxy(s3_server[0].removeprefix("http://")) as proxy:
        proxy.add("bandwidth", bytes_per_second=3_000_000, ranged=True)

        def arguments(seconds: float) -> list[str]:
            keys = [s3.options["access_key_id"], s3.options["secret_access_key"]]
            return [proxy.url, s3.url(), str(seconds), *keys]

        yield arguments


def test_reads_that_wait_for_their_turn_do_not_begin_at_the_end(slow_line) -> None:
    """Each that was cancelled made room for the next one, which nobody cancelled any more."""
    text = (
        READING
        + """
    from shardstream.storage import Read, ReadQueue, Request
    store = opened()
    reads = [Read(store, Request("x", start, 100_000), order=start, size=1_500_000) for start in range(3000)]
    ReadQueue().submit(reads)
    time.sleep(float(sys.argv[3]))
    """
    )
    runs = [process for seconds in (0.1, 0.4) for process in programs(1, text, *slow_line(seconds))]
    assert [outcome(process) for process in runs] == [(0, "", "")] * len(runs)


@pytest.mark.full
def test_requests_in_flight_neither_hang_nor_crash_the_end(slow_line) -> None:
    """obstore's threads call into Python; one that came while the interpreter went down aborted one process in ten."""
    text = (
        READING
        + """
    busy(opened())
    """
    )
    runs = [process for seconds in (0.0, 0.3, 0.33, 0.36) for process in programs(2, text, *slow_line(seconds))]
    assert [outcome(process) for process in runs] == [(0, "", "")] * len(runs)


@pytest.mark.full
def test_forked_children_with_requests_in_flight_end(slow_line) -> None:
    text = (
        READING
        + """
    store = opened()
    busy(store)
    for leave in (sys.exit, os._exit):
        child = os.fork()
        if not child:
            busy(store)
            grandchild = os.fork()
            if not grandchild:
                busy(store)
                sys.exit(6)
            assert os.waitpid(grandchild, 0)[1] == 6 << 8
            leave(5)
        assert os.waitpid(child, 0)[1] == 5 << 8
    """
    )
    assert outcome(programs(1, text, *slow_line(0.3))[0]) == (0, "", "")


@pytest.mark.full
@pytest.mark.parametrize(
    "method",
    ["fork", "forkserver", "spawn"],
)
def test_children_of_multiprocessing_with_requests_in_flight_end(slow_line, tmp_path, method) -> None:
    text = (
        READING
        + f"""
    if __name__ == "__main__":
        context = multiprocessing.get_context({method!r})
        store = opened()
        busy(store)
        children = [context.Process(target=busy, args=(store,)) for _ in range(2)]
        for child in children:
            child.start()
        for child in children:
            child.join()
        assert [child.exitcode for child in children] == [0, 0]
    """
    )
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(text))
    pipe = subprocess.PIPE
    command = [sys.executable, str(script), *slow_line(0.3)]
    assert outcome(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)) == (0, "", "")


@pytest.mark.full
def test_workers_of_a_dataloader_with_requests_in_flight_end(slow_line) -> None:
    text = (
        READING
        + """
    import torch.utils.data

    class Reads(torch.utils.data.IterableDataset):
        def __init__(self, store):
            self.store = store

        def __iter__(self):
            while True:
                busy(self.store)
                yield len(self.store.get("x", 5, 1000))

    store = opened()
    busy(store)
    for found in torch.utils.data.DataLoader(Reads(store), batch_size=None, num_workers=2):
        assert found == 1000
        break
    """
    )
    code, out, err = outcome(programs(1, text, *slow_line(0.1))[0])
    assert (code, out) == (0, ""), err
