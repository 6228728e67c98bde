"""Both clients, one attempt at a time: what `Client` promises beyond what stores show."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from shardstream.errors import ChangedError, NotFoundError, StorageError
from shardstream.storage import locate
from shardstream.storage.base.location import with_transport
from shardstream.storage.opening import make_client
from shardstream.storage.transfer.client import Client, Fault

from .places import Place

T = TypeVar("T")
PART = 8 << 20


def ask(place: Place, work: Callable[[Client], Awaitable[T]], transport: str = "auto", **options: object) -> T:
    """What a client of its own loop gives."""

    async def main() -> T:
        client = make_client(
            locate(with_transport(place.url(), transport), storage_options={**place.options, **options})
        )
        return await work(client)

    return asyncio.run(main())


async def read(client: Client, *arguments, least: int = 1, **named) -> tuple[int, int, bytes]:
    body = await client.open(*arguments, **named)
    chunks = [chunk async for chunk in body.chunks(least)]
    assert all(chunk.readonly and chunk.format == "B" for chunk in chunks)
    assert all(len(chunk) >= least for chunk in chunks[:-1])
    return body.start, body.stop, b"".join(chunks)


# Of GCS, the emulator speaks Google's JSON interface, as gcsfs does; obstore speaks the XML interface.
READ = [*((store, way) for store in ("s3", "azure", "web") for way in ("obstore", "fsspec")), ("gcs", "fsspec")]
WRITTEN = [(store, way) for store, way in READ if store != "web"]


@pytest.fixture
def place(request) -> Place:
    return request.getfixturevalue(request.param)


reading = pytest.mark.parametrize(("place", "transport"), READ, indirect=["place"])
writing = pytest.mark.parametrize(("place", "transport"), WRITTEN, indirect=["place"])


@pytest.mark.one_in(3)
@reading
def test_ranges(place, transport) -> None:
    data = bytes(range(256)) * 3000
    place.plant("x", data)
    size = len(data)

    async def work(client: Client) -> None:
        for start, stop, expected in (
            (0, None, (0, size)),
            (5, 500_000, (5, 500_000)),
            (5, size + 99, (5, size)),
            (size - 1, size, (size - 1, size)),
            (size, None, (size, size)),
            (7, 7, (7, 7)),
        ):
            got = await read(client, "x", start, stop, least=100_000)
            assert got == (*expected, data[slice(*expected)])
        if client.suffix_ranges:
            assert await read(client, "x", -10, None) == (size - 10, size, data[-10:])
            assert await read(client, "x", -size - 10, None) == (0, size, data)
        for start, stop in ((size, size + 1), (size + 1, None), (size + 5, size + 9)):
            with pytest.raises(StorageError) as caught:
                await client.open("x", start, stop)
            assert not isinstance(caught.value, NotFoundError)

    ask(place, work, transport)


@reading
def test_another_version_is_not_read(place, transport) -> None:
    place.plant("x", b"one")

    async def work(client: Client) -> None:
        head = await client.head("x")
        assert head.size == 3
        assert head.etag
        assert (await read(client, "x", 0, None, etag=head.etag))[2] == b"one"
        place.plant("x", b"three")
        for start, stop in ((0, None), (1, 2), (0, 0)):
            with pytest.raises(ChangedError):
                await client.open("x", start, stop, etag=head.etag)

    ask(place, work, transport)


@pytest.mark.parametrize("place", ["s3", "azure", "gcs"], indirect=True)
def test_a_range_of_several_requests_is_not_of_two_versions(place) -> None:
    """Through fsspec, whose requests cannot name a version."""
    size = 800_000
    place.plant("x", bytes(size))

    async def work(client: Client) -> None:
        assert (await read(client, "x", 0, None, least=300_000))[2] == bytes(size)
        chunks = (await client.open("x", 0, None)).chunks(300_000)
        assert await anext(chunks) == bytes(300_000)
        place.plant("x", b"1" * size)
        with pytest.raises(ChangedError):
            async for _ in chunks:
                pass

    ask(place, work, "fsspec")


@pytest.mark.one_in(4)
@writing
@pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")  # aiohttp's advice to adlfs
@pytest.mark.parametrize("sizes", [[], [1], [PART], [PART - 1, 2], [3 << 20] * 7], ids=str)
def test_uploads_show_when_they_are_finished(sizes, place, transport) -> None:
    pieces = [bytes([i + 1]) * size for i, size in enumerate(sizes)]

    async def work(client: Client) -> None:
        upload = await client.upload("x")
        for piece in pieces:
            await upload.send(piece)
        assert place.dig("x") is None
        await upload.finish()

    ask(place, work, transport)
    assert place.dig("x") == b"".join(pieces)


@pytest.mark.one_in(4)
@writing
@pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")  # aiohttp's advice to adlfs
@pytest.mark.parametrize("size", [0, 1, 20 << 20])
def test_uploads_that_are_given_up_leave_nothing(size, place, transport) -> None:
    if place.url().startswith("gs") and size > PART:
        pytest.skip("the emulator cannot drop an upload")

    async def work(client: Client) -> None:
        upload = await client.upload("x")
        if size:
            await upload.send(bytes(size))
        await upload.abort()
        await upload.abort()
        assert [page async for page in client.list("") if page] == []

    ask(place, work, transport)
    assert place.dig("x") is None
    if place.url().startswith("s3"):
        found = place.client.list_multipart_uploads(Bucket=place.bucket, Prefix=place.name)
        assert found.get("Uploads", []) == []


def test_an_upload_that_is_refused_says_so_while_it_is_sent(s3) -> None:
    async def work(client: Client) -> None:
        upload = await client.upload("x")

        async def send_for_ever() -> None:
            while True:
                await upload.send(bytes(PART))

        with pytest.raises(StorageError, match="refuses"):
            await send_for_ever()
        await upload.abort()

    ask(s3, work, **s3.reader)
    assert s3.dig("x") is None


@pytest.mark.parametrize("transport", ["obstore", "fsspec"])
def test_nobody_there_is_a_fault(transport, s3) -> None:
    async def work(client: Client) -> None:
        for request in (lambda: client.head("x"), lambda: client.open("x", 0, None)):
            with pytest.raises(Fault) as caught:
                await request()
            assert caught.value.kind == "connection"

    ask(s3, work, transport, endpoint="http://127.0.0.1:1")


def test_a_server_that_stays_silent_is_a_timeout(s3) -> None:
    async def work(client: Client) -> None:
        with pytest.raises(Fault) as caught:
            await client.open("x", 0, None)
        assert caught.value.kind == "timeout"

    with socket.create_server(("127.0.0.1", 0)) as silent:  # connections are made by the kernel; nobody takes them
        ask(s3, work, endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}", read_timeout=0.2)
