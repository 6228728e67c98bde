"""A real S3 server behind a line that fails: reads bring the right bytes or one clear error, writes all or nothing."""

from __future__ import annotations

import asyncio
import pickle
import random
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardstream.errors import AccessError, ChangedError, NotFoundError, StorageError, UsageError
from shardstream.storage import RetryPolicy, counters, open_store
from shardstream.storage.base.location import with_transport
from shardstream.storage.transfer.loop import run
from shardstream.storage.transfer.remote import RemoteStore

from .faults import FaultProxy

DATA = random.Random(5).randbytes(1_500_000)
QUICK = RetryPolicy(stall=0.4, first=0.01, cap=0.05)
SHORT = RetryPolicy(stall=0.1, first=0.01, cap=0.05, deadline=0.3, contact=0.3, slowest=1e9)

# What passes, and by which counter it is told.
PASSING = {
    "reset in body": ({"after": 400_000}, "retries_connection"),
    "close in body": ({"after": 400_000}, "retries_short"),
    "stall in body": ({"after": 400_000}, "retries_timeout"),
    "short length": ({"by": 10_000}, "retries_short"),
    "wrong range": ({"by": 10}, "retries_range"),
    "reset": ({}, "retries_connection"),
    "stall": ({}, "retries_timeout"),
    "status 429": ({"status": 429, "headers": {"Retry-After": "0"}}, "retries_throttled"),
    "status 500": ({"status": 500}, "retries_server"),
    "status 502": ({"status": 502}, "retries_server"),
    "status 503": ({"status": 503, "body": "<Error><Code>SlowDown</Code></Error>"}, "retries_throttled"),
}


@pytest.fixture(scope="module")
def line(s3_server):
    with FaultProxy(s3_server[0].removeprefix("http://")) as proxy:
        yield proxy


@pytest.fixture
def proxy(line):
    line.up()
    line.clear()
    line.reset_counts()
    return line


@pytest.fixture(params=["obstore", pytest.param("fsspec", marks=pytest.mark.full)])
def store(request, s3, proxy) -> RemoteStore:
    options = s3.options | {"endpoint": proxy.url}
    store = open_store(with_transport(s3.url(), request.param), storage_options=options)
    assert isinstance(store, RemoteStore)
    return store.with_policy(QUICK)


@pytest.fixture
def exact(request) -> bool:
    """Whether each failure reaches us: fsspec's file systems make some attempts of their own, and hide ranges."""
    return "obstore" in request.node.name


@pytest.fixture
def counted():
    before = counters().snapshot()
    return lambda: {name: count for name, count in counters().since(before).items() if count}


def inject(proxy: FaultProxy, name: str, **more) -> str:
    what = name.split(" 4")[0].split(" 5")[0]
    proxy.add(what, **PASSING[name][0], **more)
    return what


def read(store: RemoteStore, offset: int, length: int, size: int | None = len(DATA)) -> bytes:
    return b"".join(run(lambda: store.read("x", offset, length, size=size), wait=60, what="the test"))


# -------------------------------------------------------------------------------------------------------------- reads


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", PASSING)
def test_what_passes_is_overcome_and_counted(store, s3, proxy, counted, name, exact) -> None:
    s3.plant("x", DATA)
    assert read(store, 0, 10) == DATA[:10]  # connected, as most reads are
    what = inject(proxy, name, ranged=True, times=2)
    assert read(store, 1000, 1_400_000) == DATA[1000:1_401_000]
    assert proxy.hits(what) == 2 or not exact
    assert counted().get(PASSING[name][1]) == 2 or not exact


@pytest.mark.parametrize("name", ["reset in body", "close in body", "stall in body"])
def test_what_had_come_is_not_sent_again(store, s3, proxy, counted, name, exact) -> None:
    data = DATA * 8
    s3.plant("x", data)
    proxy.add(name, after=9_000_000, ranged=True, times=1)
    assert read(store, 0, len(data), len(data)) == data
    if exact:
        assert counted()["resumed"] == 1
        assert proxy.body_bytes < 1.4 * len(data)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", [name for name in PASSING if name not in ("status 429", "status 500", "status 502")])
def test_what_stays_is_one_clear_error(store, s3, proxy, name, exact) -> None:
    s3.plant("x", DATA)
    read(store, 0, 10)
    what = name.split(" 4")[0].split(" 5")[0]
    proxy.add(what, **PASSING[name][0] | ({"after": 1000} if "body" in what else {}))
    if name == "wrong range" and not exact:
        return
    with pytest.raises(StorageError, match=r"gave up reading after .* s; tried \d+ times") as caught:
        read(store.with_policy(SHORT), 1000, 1_400_000)
    assert caught.value.place["url"] == s3.url("x")
    assert s3.options["secret_access_key"] not in str(caught.value)


BRIEF = [name for name in PASSING if "stall" not in name and "429" not in name]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_range_through_any_faults_is_right(s3, proxy, data) -> None:
    s3.plant("x", DATA)
    options = s3.options | {"endpoint": proxy.url}
    store = open_store(s3.url(), storage_options=options)
    assert isinstance(store, RemoteStore)
    store = store.with_policy(RetryPolicy(stall=0.4, first=0.0, cap=0.0, wrong=100))
    offset = data.draw(st.integers(0, len(DATA) - 1))
    length = data.draw(st.integers(1, len(DATA) - offset))
    proxy.clear()
    for name in data.draw(st.lists(st.sampled_from(BRIEF), max_size=3)):
        what, how = name.split(" 5")[0], dict(PASSING[name][0])
        if "after" in how:
            how["after"] = data.draw(st.integers(0, length))
        if "by" in how:
            how["by"] = data.draw(st.integers(1, length))
        proxy.add(what, **how, ranged=True, times=1, skip=data.draw(st.integers(0, 2)))
    assert read(store, offset, length) == DATA[offset : offset + length]
    tail, size = store.get_tail("x", length)
    assert (bytes(tail), size) == (DATA[-length:], len(DATA))


def test_azure_through_faults(azure, counted) -> None:
    """No ranges from the end there, and another way of saying that it is busy."""
    azure.plant("x", DATA)
    with FaultProxy(azure.endpoint.removeprefix("http://")) as proxy:
        endpoint = azure.options["endpoint"].replace(azure.endpoint, proxy.url)
        store = open_store(azure.url(), storage_options=azure.options | {"endpoint": endpoint})
        assert isinstance(store, RemoteStore)
        store = store.with_policy(QUICK)
        busy = "<?xml version='1.0'?><Error><Code>ServerBusy</Code></Error>"
        proxy.add("status", status=503, body=busy, headers={"x-ms-error-code": "ServerBusy"}, times=1)
        proxy.add("stall in body", after=400_000, ranged=True, skip=1, times=1)
        proxy.add("reset in body", after=400_000, ranged=True, skip=2, times=1)
        assert read(store, 1000, 1_400_000) == DATA[1000:1_401_000]
        assert bytes(store.get_tail("x", 500_000)[0]) == DATA[-500_000:]
        assert [proxy.hits(what) for what in ("status", "stall in body", "reset in body")] == [1, 1, 1]
        retried = {name: count for name, count in counted().items() if name.startswith("retries_")}
        assert retried == {"retries_throttled": 1, "retries_timeout": 1, "retries_connection": 1}


@pytest.mark.parametrize("transport", ["obstore", "fsspec"])
def test_a_web_server_that_answers_with_another_range(web, counted, transport) -> None:
    """S3 and Azure sign the range that they are asked for; nobody else does."""
    web.plant("x", DATA)
    with FaultProxy(web.endpoint.removeprefix("http://")) as proxy:
        url = web.url().replace(web.endpoint, proxy.url)
        store = open_store(with_transport(url, transport), storage_options=web.options)
        assert isinstance(store, RemoteStore)
        store = store.with_policy(QUICK)
        proxy.add("shifted range", by=10, ranged=True, times=2)
        assert read(store, 1000, 400_000) == DATA[1000:401_000]
        assert proxy.hits("shifted range") == counted()["retries_range"] == 2
        for what, how in (("shifted range", {"by": 10}), ("ignored range", {})):
            proxy.clear()
            proxy.add(what, **how)
            with pytest.raises(StorageError) as caught:
                read(store, 1000, 400_000)
            assert caught.value.place["url"] == f"{url}/x"


@pytest.mark.parametrize("after", ["100000", "Fri, 31 Dec 2100 23:59:59 GMT"])
@pytest.mark.parametrize("server", ["s3", "web"])
def test_what_a_server_asks_to_wait_is_heeded_where_the_library_shows_it(request, server, after) -> None:
    """Through fsspec: obstore says which status came, and none of the headers."""
    place = request.getfixturevalue(server)
    place.plant("x", DATA)
    with FaultProxy(place.endpoint.removeprefix("http://")) as proxy:
        options = place.options | ({"endpoint": proxy.url} if server == "s3" else {})
        store = open_store(
            with_transport(place.url().replace(place.endpoint, proxy.url), "fsspec"), storage_options=options
        )
        assert read(store, 0, 10) == DATA[:10]
        proxy.add("status", status=503, headers={"Retry-After": after})
        with pytest.raises(StorageError, match=r"status 503.*asked to wait [0-9.e+]{6,} s"):
            read(store, 0, 10)  # longer than this reader has patience: there is no sense in waiting
        assert proxy.hits("status") <= 5


def test_refusals_fail_at_once_with_url_and_reason(store, s3, proxy, exact) -> None:
    s3.plant("x", DATA)
    read(store, 0, 10)
    for status, code, kind in ((403, "AccessDenied", AccessError), (404, "NoSuchKey", NotFoundError)):
        proxy.clear()
        proxy.reset_counts()
        proxy.add("status", status=status, body=f"<Error><Code>{code}</Code><Key>topsecret</Key></Error>")
        with pytest.raises(kind) as caught:
            read(store, 0, 1000)
        assert caught.value.place["url"] == s3.url("x")
        assert "topsecret" not in str(caught.value)
        assert proxy.requests <= (2 if exact else 5)


def test_an_object_replaced_in_the_middle_is_never_mixed(store, s3, proxy) -> None:
    s3.plant("x", DATA)
    store = store.with_policy(RetryPolicy(stall=3, first=0.01))
    proxy.add("bandwidth", bytes_per_second=1_500_000, ranged=True)
    proxy.add("reset in body", after=1_000_000, times=1, ranged=True)
    replacing = threading.Timer(0.3, s3.plant, ("x", DATA[::-1]))
    replacing.start()
    try:
        found = read(store, 0, len(DATA))
    except ChangedError as error:
        found, place = DATA, error.place
        assert place["url"] == s3.url("x")
    finally:
        replacing.join()
    assert found in (DATA, DATA[::-1])
    assert proxy.hits("reset in body") == 1


def test_a_replacement_between_two_reads_is_told(store, s3) -> None:
    s3.plant("x", DATA)
    assert read(store, 0, 1000) == DATA[:1000]
    s3.plant("x", DATA[::-1])
    with pytest.raises(ChangedError):
        read(store, 1000, 1000)
    assert bytes(store.get("x")) == DATA[::-1]  # asked for whole: as it is now
    assert read(store, 1000, 1000) == DATA[::-1][1000:2000]


def test_another_version_header_is_told(store, s3, proxy) -> None:
    s3.plant("x", DATA)
    read(store, 0, 10)
    proxy.add("header", headers={"ETag": '"another"'})
    with pytest.raises(ChangedError):
        read(store, 10, 10)


def test_stalled_requests_are_overtaken(store, s3, proxy, counted) -> None:
    """Every 25th request is never answered, second attempts included; none waits for the stall deadline."""
    s3.plant("x", DATA)
    patient = store.with_policy(RetryPolicy(stall=3600, deadline=3600, contact=3600))
    proxy.add("latency", seconds=0.01)
    proxy.add("stall", ranged=True, every=25, skip=10)

    async def everything() -> list[list[memoryview]]:
        room = asyncio.Semaphore(8)

        async def one(offset: int) -> list[memoryview]:
            async with room:
                return await patient.read("x", offset, 10_000, size=len(DATA))

        return await asyncio.gather(*[one(offset) for offset in range(0, len(DATA), 10_000)])

    found = run(everything, wait=60, what="the test")
    assert b"".join(piece for pieces in found for piece in pieces) == DATA
    # Second attempts were stalled, too, and were given up for others.
    assert 30 > counted()["hedged"] >= proxy.hits("stall") >= 5
    assert "retries" not in counted()


def test_a_server_that_goes_away_and_comes_back(store, s3, proxy) -> None:
    s3.plant("x", DATA)
    read(store, 0, 10)
    proxy.down()
    comes_back = threading.Timer(0.5, proxy.up)
    comes_back.start()
    try:
        assert read(store, 1000, 500_000) == DATA[1000:501_000]
    finally:
        comes_back.join()


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("transport", "patience"), [("obstore", 0.5), ("fsspec", "0.5s")])
def test_patience_is_an_option(s3, proxy, transport, patience) -> None:
    s3.plant("x", DATA)
    options = {**s3.options, "endpoint": proxy.url, "patience": patience}
    store = pickle.loads(pickle.dumps(open_store(with_transport(s3.url(), transport), storage_options=options)))
    assert bytes(store.get("x")) == DATA
    proxy.add("status", status=503)
    for do in (lambda: store.get("x"), lambda: store.put("y", b"")):
        began = time.monotonic()
        with pytest.raises(StorageError, match=r"gave up (reading|writing) after"):
            do()
        assert time.monotonic() - began < 60  # of the 180 that others have
    assert proxy.requests > 3


@pytest.mark.parametrize("patience", [0, -1, "soon", True, float("nan")])
def test_patience_is_a_number_of_seconds(s3, patience) -> None:
    with pytest.raises(UsageError, match="patience must be"):
        open_store(s3.url(), storage_options={**s3.options, "patience": patience})


def test_a_server_that_is_not_there_is_one_clear_error(s3, proxy) -> None:
    proxy.down()
    store = open_store(s3.url(), storage_options=s3.options | {"endpoint": proxy.url})
    assert isinstance(store, RemoteStore)
    with pytest.raises(StorageError, match="connection") as caught:
        store.with_policy(RetryPolicy(contact=0.2, first=0.01)).get("x")
    assert caught.value.place["url"] == s3.url("x")


def test_no_secret_is_said_or_logged(s3, proxy, caplog) -> None:
    secret = s3.options["secret_access_key"]
    store = open_store(s3.url(), storage_options=s3.options | {"endpoint": proxy.url})
    assert isinstance(store, RemoteStore)
    store = store.with_policy(replace(SHORT, deadline=20.0, contact=20.0))
    said = [repr(store)]
    proxy.add("status", status=503, body=f"<Error><Code>SlowDown</Code><Message>{secret}</Message></Error>", times=3)
    proxy.add("status", status=403, body=f"<Error><Code>AccessDenied</Code><Message>{secret}</Message></Error>", skip=3)
    with caplog.at_level("DEBUG"):
        for ask in (store.get, store.size, lambda path: store.get_tail(path, 5), store.delete):
            with pytest.raises(AccessError) as caught:
                ask("x")
            said += [str(caught.value), repr(caught.value), "".join(traceback.format_exception(caught.value))]
    assert caplog.text
    assert secret not in caplog.text + "".join(said)


def test_reading_lists_nothing(store, s3, proxy) -> None:
    s3.plant("x", DATA)
    store.get("x")
    store.get_tail("x", 100)
    store.size("x")
    read(store, 5, 5)
    passed = proxy.log()
    assert len(passed) >= 4
    assert not [entry for entry in passed if "list-type" in entry.target or "prefix=" in entry.target]


# ------------------------------------------------------------------------------------------------------------- writes


def test_small_writes_overcome_what_passes(store, s3, proxy) -> None:
    proxy.add("status", status=503, method="PUT", times=2)
    proxy.add("reset", method="PUT", skip=2, times=1)
    store.put("x", DATA)
    assert s3.dig("x") == DATA


def test_large_writes_overcome_what_passes(store, s3, proxy) -> None:
    data = DATA * 14
    proxy.add("status", status=503, method="PUT", times=1)
    with store.create("x") as out:
        for start in range(0, len(data), 999_999):
            out.write(data[start : start + 999_999])
        assert s3.dig("x") is None
    assert s3.dig("x") == data


def test_a_large_write_that_is_given_up_shows_nothing(store, s3) -> None:
    out = store.create("x")
    out.write(DATA * 14)
    out.discard()
    out.discard()
    assert s3.dig("x") is None
    assert list(store.list()) == []


def test_a_write_that_is_refused_says_so(store, s3, proxy) -> None:
    proxy.add("status", status=403, method="PUT", body="<Error><Code>AccessDenied</Code></Error>")
    proxy.add("status", status=403, method="POST", body="<Error><Code>AccessDenied</Code></Error>")
    for data in (b"123", DATA * 14):
        with pytest.raises(AccessError) as caught, store.create("x") as out:
            out.write(data)
        assert caught.value.place["url"] == s3.url("x")
    proxy.clear()
    assert s3.dig("x") is None


def test_a_writer_that_is_killed_leaves_no_object(s3, proxy) -> None:
    program = """
import sys
from shardstream.storage import open_store

options = {"endpoint": sys.argv[1], "access_key_id": sys.argv[2], "secret_access_key": sys.argv[3]}
out = open_store(sys.argv[4], storage_options=options).create("x")
while True:
    out.write(bytes(1 << 20))
"""
    keys = [s3.options["access_key_id"], s3.options["secret_access_key"]]
    process = subprocess.Popen([sys.executable, "-c", program, proxy.url, *keys, s3.url()])
    try:
        while proxy.sent_bytes < 20_000_000:
            assert process.poll() is None
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    assert s3.dig("x") is None
    assert list(open_store(s3.url(), storage_options=s3.options).list()) == []
