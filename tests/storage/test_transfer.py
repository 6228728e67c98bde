"""One range through failures that come at exact points. A real server's part stands in `test_faults`."""

from __future__ import annotations

import asyncio
import gc
import weakref
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import AccessError, ChangedError, NotFoundError, StorageError
from shardstream.storage import Head, RetryPolicy, counters
from shardstream.storage.transfer.client import Fault
from shardstream.storage.transfer.fetch import Fetched, Known, fetch
from shardstream.storage.transfer.loop import run
from shardstream.storage.transfer.retry import SMALL_CHUNK, Pace, Recent

from .scripted import GOOD, Answer, ScriptedBody, ScriptedClient

DATA = bytes(range(256)) * 4
SOON = RetryPolicy(first=0.001, cap=0.001, deadline=30, contact=30)
NEVER = RetryPolicy(stall=3600, deadline=3600, contact=3600)  # what ends under this was not ended by a deadline


def read(client, offset=0, length=None, *, policy=SOON, pace=None, **known) -> Fetched:
    pace = pace or Pace()
    ask = partial(fetch, client, "x", offset, length, where="s3://b/x", policy=policy, pace=pace, known=Known(**known))
    return run(ask, wait=60, what="the test")


def content(found: Fetched) -> bytes:
    return b"".join(found.pieces)


@pytest.fixture
def counted():
    before = counters().snapshot()
    return lambda: {name: count for name, count in counters().since(before).items() if count}


def usual_pace() -> Pace:
    pace = Pace()
    for _ in range(64):
        pace.answered(0.001)
        pace.received(1 << 20, 0.001)
    return pace


# ----------------------------------------------------------------------------------------------- what comes, and is it


@pytest.mark.parametrize(("offset", "length"), [(0, None), (0, 1024), (5, 1), (1000, 24), (1000, None)])
def test_pieces_are_what_was_asked(offset, length, counted) -> None:
    client = ScriptedClient(DATA)
    found = read(client, offset, length)
    assert content(found) == DATA[offset:][:length]
    assert (found.start, found.head) == (offset, (1024, "one"))
    assert counted() == {"requests": 1, "bytes": len(content(found))}


def test_the_tail_says_where_it_begins() -> None:
    assert read(ScriptedClient(DATA), -10).start == 1014
    whole = read(ScriptedClient(DATA), -5000)
    assert (whole.start, content(whole)) == (0, DATA)


def test_an_empty_object_has_no_pieces() -> None:
    assert read(ScriptedClient(b"")).pieces == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("timeout", "retries_timeout"),
        ("connection", "retries_connection"),
        ("throttled", "retries_throttled"),
        ("server error", "retries_server"),
    ],
)
def test_faults_are_tried_again_and_counted_by_kind(kind, name, counted) -> None:
    client = ScriptedClient(DATA, *[Answer(error=Fault(kind, "passing"))] * 3)
    assert content(read(client, 3, 500)) == DATA[3:503]
    assert counted() == {"requests": 4, "bytes": 500, "retries": 3, name: 3}


@pytest.mark.parametrize("ends", ["connection", "timeout", "early"])
def test_a_broken_body_goes_on_after_the_last_byte_in_the_same_version(ends, counted) -> None:
    client = ScriptedClient(DATA, Answer(after=100, ends=ends), Answer(after=50, ends=ends))
    assert content(read(client, 10, 400)) == DATA[10:410]
    assert client.asked == [(10, 410, None), (110, 410, "one"), (160, 410, "one")]
    assert counted()["bytes"] == 400
    assert counted()["resumed"] == 2
    assert counted()["retries_short" if ends == "early" else f"retries_{ends}"] == 2


def test_a_broken_tail_goes_on_where_it_broke() -> None:
    client = ScriptedClient(DATA, Answer(after=10))
    found = read(client, -100)
    assert (found.start, content(found)) == (924, DATA[-100:])
    assert client.asked == [(-100, None, None), (934, 1024, "one")]


def test_after_a_break_smaller_pieces_are_taken() -> None:
    asked = []

    class Watched(ScriptedClient):
        async def open(self, *arguments, **more):
            body = await super().open(*arguments, **more)
            chunks = body.chunks
            body.chunks = lambda least: (asked.append(least), chunks(least))[1]
            return body

    data = bytes(3 << 20)
    assert content(read(Watched(data, Answer(after=100), chunk=1 << 20))) == data
    assert asked == [3 << 20, SMALL_CHUNK]


def test_a_stall_is_cut_and_resumed(counted) -> None:
    client = ScriptedClient(DATA, Answer(after=100, ends="silence"))
    pace = Pace()
    pace.unknown = 3600  # no second attempt
    assert content(read(client, policy=RetryPolicy(stall=0.05, first=0), pace=pace)) == DATA
    assert client.asked == [(0, None, None), (100, 1024, "one")]
    assert client.cancelled == 1
    assert counted()["retries_timeout"] == 1


@pytest.mark.parametrize("shift", [1, -1, 700])
def test_another_range_is_never_served(shift, counted) -> None:
    client = ScriptedClient(DATA, Answer(shift=shift))
    assert content(read(client, 10, 100)) == DATA[10:110]
    assert counted()["retries_range"] == 1
    stubborn = ScriptedClient(DATA, *[Answer(shift=shift)] * 100)
    with pytest.raises(StorageError, match=r"tried 4 times.*asked for bytes \[10, 110\), answered with") as caught:
        read(stubborn, 10, 100)
    assert caught.value.place == {"url": "s3://b/x", "offset": 10}
    assert len(stubborn.asked) == SOON.wrong


def test_a_replaced_object_is_never_mixed_with_the_old_one() -> None:
    with pytest.raises(ChangedError, match="replaced while in use") as caught:
        read(ScriptedClient(DATA, Answer(after=100), Answer(etag="two")))
    assert caught.value.place["url"] == "s3://b/x"
    with pytest.raises(ChangedError):
        read(ScriptedClient(DATA, Answer(etag="two")), etag="one")
    with pytest.raises(ChangedError, match="holds 1000 bytes, not 1024"):
        read(ScriptedClient(DATA, Answer(size=1000)), 0, 10, size=1024)
    with pytest.raises(ChangedError, match="holds 1000 bytes, not 1024"):  # without versions, the size tells
        read(ScriptedClient(DATA, Answer(after=100, etag=None), Answer(size=1000, etag=None)))


@pytest.mark.parametrize("error", [NotFoundError("no such object"), StorageError("no"), Fault("connection", "no")])
def test_an_object_that_is_gone_was_deleted_and_not_replaced(error) -> None:
    """Some stores say of an object that is not there any more that it is not of the version that was asked for."""

    class Gone(ScriptedClient):
        async def head(self, path: str) -> Head:
            raise error

    gone = isinstance(error, NotFoundError)
    with pytest.raises(
        NotFoundError if gone else ChangedError, match="deleted while in use" if gone else "x"
    ) as caught:
        read(Gone(DATA, Answer(error=ChangedError("x"))), etag="one")
    assert caught.value.place["url"] == "s3://b/x"


def test_a_version_known_beforehand_is_asked_for() -> None:
    client = ScriptedClient(DATA)
    read(client, 0, 10, etag="one")
    assert client.asked == [(0, 10, "one")]


@pytest.mark.parametrize("kind", [NotFoundError, AccessError, ChangedError])
def test_what_will_not_pass_fails_at_once_with_the_url(kind, counted) -> None:
    client = ScriptedClient(DATA, Answer(error=kind("no")))
    with pytest.raises(kind) as caught:
        read(client)
    assert caught.value.place["url"] == "s3://b/x"
    assert len(client.asked) == 1
    assert "retries" not in counted()


@pytest.mark.parametrize(("offset", "length"), [(1024, 1), (2000, None), (1000, 25), (0, 1 << 62)])
def test_ranges_outside_are_told_by_size(offset, length) -> None:
    refused = Answer(error=StorageError("status 416")) if offset >= 1024 else GOOD
    with pytest.raises(StorageError, match="past the end of an object of 1024 bytes") as caught:
        read(ScriptedClient(DATA, refused), offset, length)
    assert caught.value.place == {"url": "s3://b/x", "offset": offset}


def test_other_refusals_keep_their_words() -> None:
    with pytest.raises(StorageError, match="no such thing here") as caught:
        read(ScriptedClient(DATA, Answer(error=StorageError("no such thing here", hint="ask"))), 5, 10)
    assert caught.value.hint == "ask"
    assert caught.value.place == {"url": "s3://b/x", "offset": 5}


@pytest.mark.parametrize("answer", [Answer(error=Fault("throttled", "status 503")), Answer(hangs=True)])
def test_the_deadline_ends_it_with_what_was_tried(answer) -> None:
    client = ScriptedClient(DATA, Answer(after=100), *[answer] * 100_000)
    short = RetryPolicy(deadline=0.2, contact=0.2, first=0.001, cap=0.001, slowest=1e9)
    with pytest.raises(StorageError, match=r"gave up reading after .* s; tried \d+ times, 100 bytes came") as caught:
        read(client, policy=short)
    assert caught.value.place == {"url": "s3://b/x", "offset": 100}


def test_a_wait_longer_than_the_deadline_is_told_at_once() -> None:
    client = ScriptedClient(DATA, Answer(error=Fault("throttled", "status 429", wait=600)))
    with pytest.raises(StorageError, match=r"tried once, 0 bytes came: status 429 \(asked to wait 600 s\)"):
        read(client)


def test_a_store_that_was_never_reached_is_given_up_sooner() -> None:
    dead = [Answer(error=Fault("connection", "refused"))]
    policy = RetryPolicy(contact=0.05, deadline=3600, first=0.001, cap=0.01)
    with pytest.raises(StorageError, match="refused"):
        read(ScriptedClient(DATA, *dead * 10_000), policy=policy)
    reached = Pace()
    reached.answered(0.01)
    patient = ScriptedClient(DATA, *dead * 30)
    assert content(read(patient, policy=policy, pace=reached)) == DATA


def test_a_store_that_asks_to_wait_was_reached() -> None:
    policy = RetryPolicy(contact=0.05, deadline=3600, first=0.001, cap=0.01)
    client = ScriptedClient(DATA, Answer(error=Fault("throttled", "status 429", wait=0.1)))
    assert content(read(client, policy=policy)) == DATA


def test_a_first_answer_that_goes_on_for_long_is_of_a_store_that_was_reached() -> None:
    class LongBody(ScriptedBody):
        async def chunks(self, least):
            async for chunk in super().chunks(least):
                loop.later += 1
                await asyncio.sleep(0)
                yield chunk

    class LongClient(ScriptedClient):
        async def open(self, path, start, stop, *, etag=None):
            return LongBody(self, GOOD, start, stop)

    class Loop(asyncio.SelectorEventLoop):
        later = 0.0

        def time(self):
            return super().time() + self.later

    loop = Loop()
    policy = RetryPolicy(contact=30, deadline=3600, stall=3600)
    ask = fetch(LongClient(DATA), "x", 0, None, where="s3://b/x", policy=policy, pace=Pace())
    try:
        assert content(loop.run_until_complete(ask)) == DATA
    finally:
        loop.close()
    assert loop.later > policy.contact


# ---------------------------------------------------------------------------------------------------- second attempts


def test_an_answer_slower_than_its_peers_is_asked_for_again(counted) -> None:
    client = ScriptedClient(DATA, Answer(hangs=True))
    assert content(read(client, policy=NEVER, pace=usual_pace())) == DATA
    assert client.cancelled == 1
    assert counted() == {"requests": 2, "bytes": 1024, "hedged": 1, "hedged_won": 1}


def test_a_body_that_stops_is_asked_for_from_where_it_stopped(counted) -> None:
    client = ScriptedClient(DATA, Answer(after=70, ends="silence"))
    assert content(read(client, policy=NEVER, pace=usual_pace())) == DATA
    assert client.asked == [(0, None, None), (70, 1024, "one")]
    assert counted()["hedged_won"] == 1


def test_before_the_pace_is_known_it_is_asked_again_too() -> None:
    pace = Pace()
    pace.unknown = 0.01
    assert content(read(ScriptedClient(DATA, Answer(hangs=True)), policy=NEVER, pace=pace)) == DATA


@pytest.mark.parametrize("second", [Answer(error=Fault("throttled", "no")), Answer(after=200)])
def test_a_second_attempt_that_fails_leaves_the_first_to_finish(second, counted) -> None:
    class Slow(ScriptedClient):
        async def open(self, *arguments, **more):
            first = not self.asked
            body = await super().open(*arguments, **more)
            while first and len(self.asked) < 2:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05 if first else 0)
            return body

    pace = usual_pace()
    pace.least = 0.0
    assert content(read(Slow(DATA, GOOD, second), policy=NEVER, pace=pace)) == DATA
    assert counted()["hedged"] == 1
    assert "hedged_won" not in counted()


def test_few_are_asked_twice_where_everything_is_slow() -> None:
    pace = usual_pace()
    pace.least = 0.01
    most = 0
    clients = [ScriptedClient(DATA, Answer(hangs=True), Answer(hangs=True)) for _ in range(30)]

    async def all_of_them() -> list[Fetched]:
        nonlocal most
        policy = RetryPolicy(stall=0.5, first=0)
        asks = [fetch(client, "x", 0, None, where="x", policy=policy, pace=pace) for client in clients]
        everything = asyncio.ensure_future(asyncio.gather(*asks))
        while not everything.done():
            most = max(most, pace.hedging)
            await asyncio.sleep(0.001)
        return await everything

    for found in run(all_of_them, wait=60, what="the test"):
        assert content(found) == DATA
    assert most == 1 + 30 // 10
    assert (pace.reading, pace.hedging) == (0, 0)


def test_a_permanent_error_of_either_attempt_ends_the_read() -> None:
    client = ScriptedClient(DATA, Answer(hangs=True), Answer(error=NotFoundError("gone")))
    with pytest.raises(NotFoundError):
        read(client, policy=NEVER, pace=usual_pace())
    assert client.cancelled == 1


def test_cancelling_ends_every_attempt() -> None:
    client = ScriptedClient(DATA, Answer(hangs=True), Answer(hangs=True))

    async def cancelled() -> None:
        ask = fetch(client, "x", 0, None, where="x", policy=NEVER, pace=usual_pace())
        task = asyncio.ensure_future(ask)
        while len(client.asked) < 2:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0)
        assert task.cancelled()

    run(cancelled, wait=30, what="the test")
    assert client.cancelled == 2


def test_the_pace_is_the_ninth_of_ten() -> None:
    recent = Recent()
    for value in range(7):
        recent.add(value)
    assert recent.high is None
    for value in range(7, 1000):
        recent.add(value)
    assert recent.high == pytest.approx(992, abs=10)
    pace = usual_pace()
    assert pace.limit(0) == pace.least
    assert pace.limit(1 << 30) == pytest.approx(4 * (0.001 + 1.024))
    assert Pace().limit(1 << 30) == Pace.unknown


def test_slow_lines_are_read_in_small_pieces() -> None:
    assert Pace().chunk() == 4 << 20
    slow = Pace()
    for _ in range(8):
        slow.received(1 << 20, 1.0)
    assert slow.chunk() == 512 << 10
    for _ in range(80):
        slow.received(1 << 20, 100.0)
    assert slow.chunk() == SMALL_CHUNK


@pytest.mark.one_in(3)
@pytest.mark.parametrize("first", [GOOD, Answer(after=300), Answer(after=300, ends="silence")])
def test_nothing_of_a_read_stays_in_memory(first) -> None:
    """Without a garbage collection: a budget of memory is kept only if pieces go when they are let go of."""
    pieces = []

    class Fresh(ScriptedClient):
        async def open(self, *arguments, **more):
            body = await super().open(*arguments, **more)
            chunks = body.chunks

            async def copies(least):
                async for chunk in chunks(least):
                    copy = np.frombuffer(bytes(chunk), np.uint8)
                    pieces.append(weakref.ref(copy))
                    yield memoryview(copy)

            body.chunks = copies
            return body

    gc.collect()
    gc.disable()
    try:
        policy = NEVER if first.ends == "silence" else SOON
        found = read(Fresh(DATA, first, chunk=100), policy=policy, pace=usual_pace())
        assert content(found) == DATA
        assert len(pieces) >= 11
        del found
        run(lambda: asyncio.sleep(0.01), wait=30, what="the last callbacks")
        assert [piece() for piece in pieces if piece() is not None] == []
    finally:
        gc.enable()


# ------------------------------------------------------------------------------------------------ everything at random

FAULTS = st.one_of(
    st.sampled_from([GOOD, Answer(shift=3)]),
    st.builds(Answer, error=st.sampled_from([Fault("timeout", "t"), Fault("throttled", "b", wait=0.001)])),
    st.builds(Answer, after=st.integers(0, 300), ends=st.sampled_from(["connection", "early", "server error"])),
)


@given(
    st.lists(FAULTS, max_size=12),
    st.integers(0, 300),
    st.one_of(st.none(), st.integers(1, 300)),
    st.integers(1, 100),
)
def test_whatever_happens_the_bytes_are_the_bytes(script, offset, length, chunk) -> None:
    data = DATA[:301]
    if length is not None:
        length = min(length, 301 - offset)
    client = ScriptedClient(data, *script, chunk=chunk)
    stubborn = RetryPolicy(first=0, cap=0, wrong=100)
    found = read(client, offset, length, policy=stubborn)
    assert content(found) == data[offset:][:length]
