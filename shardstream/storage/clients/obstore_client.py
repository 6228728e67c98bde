"""S3, Azure, GCS and web servers through obstore: one attempt at a time, what came of it said in our words."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from shardstream.errors import AccessError, NotFoundError, StorageError, UsageError
from shardstream.extras import require
from shardstream.storage.base.location import Location
from shardstream.storage.base.store import Head, ObjectMeta, version_number
from shardstream.storage.clients import forked_obstore
from shardstream.storage.clients.aws import s3_settings
from shardstream.storage.clients.azure import azure_settings
from shardstream.storage.clients.gcs import gcs_settings
from shardstream.storage.clients.no_bytes import answer_without_bytes
from shardstream.storage.clients.obstore_errors import (
    Expired,
    NoRole,
    OddKey,
    OutOfRange,
    WrongRegion,
    answer_of,
    explain,
)
from shardstream.storage.clients.odd_keys import HINT, list_signed
from shardstream.storage.clients.options import StoreSettings
from shardstream.storage.clients.region import bucket_region
from shardstream.storage.clients.web import not_listed, read_only, web_settings
from shardstream.storage.transfer.client import Body, Client, Fault, Upload, check_version

_T = TypeVar("_T")
_PART = 8 << 20  # bytes of a part of an upload: 10,000 of them, S3's limit, are 80 GB
_PARTS = 4  # sent at once: enough to fill 10 Gbit/s at 20 ms; each costs its size in memory
_ROLES = 2  # more questions to a machine that gave no credentials: where there are some, it may be busy
# Sending has no use for a read timeout, which would count the time that a part takes to go out.
_SENDING = {"timeout": "300s"}
_READ_RETRIES = {"max_retries": 0}
_SIGNED = timedelta(minutes=5)  # how long a signed URL holds


def settings_of(location: Location, environment: Mapping[str, str] = os.environ) -> StoreSettings:
    """What obstore's store for a place is made of, from its URL, its options and the environment.

    Raises:
        UsageError: Options that cannot work.
        AccessError: No credentials.
        MissingExtraError: Credentials that need a package which is not installed.
    """
    address, options = location.address, location.access.library_options
    if address.kind == "http":
        return web_settings(address, options)
    make = {"s3": s3_settings, "azure": azure_settings, "gcs": gcs_settings}[address.kind]
    return make(address, options, environment)


def check(location: Location) -> None:
    """Say early what cannot work: a missing package, options that contradict each other, no credentials."""
    kind = location.address.kind
    if kind == "s3":
        require("obstore", extra="s3", purpose="for s3:// URLs")
    elif kind == "azure":
        require("obstore", extra="azure", purpose="for Azure's storage")
    elif kind == "gcs":
        require("obstore", extra="gcs", purpose="for gs:// URLs")
    else:
        require("obstore", extra="http", purpose="for http:// and https:// URLs")
    settings_of(location)


class ObstoreClient(Client):
    """A bucket, container or web folder through obstore.

    Made without asking anybody. Credentials that expire are asked for anew, once, before an error is raised.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        self._kind = location.address.kind
        self._bucket = location.address.bucket
        self.suffix_ranges = self._kind != "azure"
        # S3's directory buckets do not, https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html
        self.lists_in_order = not self._bucket.endswith("--x-s3")
        self._obs = forked_obstore.obstore()
        self._region: str | None = None
        self._generation = 0  # how many times the stores were made
        self._seen = False  # whether the bucket has answered with something, so that "not found" means the object
        self._renewing = asyncio.Lock()
        self._build()

    def _build(self) -> None:
        self._settings = settings = settings_of(self._location)
        if self._region:
            settings.config["region"] = self._region
        # Separate clients, because a read timeout and no retries suit reads only.
        self._reading = self._make(settings, settings.client, _READ_RETRIES)
        sending = {key: value for key, value in settings.client.items() if key != "read_timeout"}
        self._sending = self._make(settings, _SENDING | sending, settings.retry)
        self._generation += 1

    def _make(self, settings: StoreSettings, client: dict[str, Any], retry: dict[str, Any] | None) -> Any:
        # The time of a whole request says nothing about a large range on a slow line; stalls are cut by read_timeout.
        client = {"timeout": "6h"} | client
        kind = getattr(forked_obstore.module("store"), settings.kind)
        arguments: dict[str, Any] = {"client_options": client, "retry_config": retry}
        if settings.kind != "HTTPStore":
            arguments |= {"config": _texts(settings.config), "prefix": settings.prefix or None}
            if settings.provider is not None:
                arguments["credential_provider"] = settings.provider
        try:
            return kind(settings.place, **arguments)
        except (ValueError, TypeError, forked_obstore.module("exceptions").BaseError) as error:
            found = explain(error, bucket=self._bucket, hint=settings.hint)
            if isinstance(found, UsageError):
                raise found.at(url=self._location.url) from None
            raise UsageError(
                f"storage_options are not what obstore takes ({type(error).__name__})",
                url=self._location.url,
                hint=f"look at the values of {', '.join(sorted(self._location.access.options)) or 'the variables'}",
            ) from None

    @staticmethod
    def settle() -> None:
        # Any call will do: what obstore's threads let go of is dropped by the next one that comes in.
        forked_obstore.module("store").MemoryStore()

    # -------------------------------------------------------------------------------------------------- one attempt

    async def _try(self, ask: Callable[[Any], Awaitable[_T]], *, sending: bool = False) -> _T:
        """Ask, with the credentials and the region of now; again where either turns out to be outdated."""
        if sending and self._kind == "http":
            raise read_only()
        tried: dict[type[Exception], int] = {}
        while True:
            generation = self._generation
            try:
                found = await ask(self._sending if sending else self._reading)
            except Exception as error:  # obstore raises built-in errors too; all are explained
                said = explain(error, bucket=self._bucket, hint=self._settings.advice(), sending=sending)
                if await self._mend(said, tried.get(type(said), 0), generation):
                    tried[type(said)] = tried.get(type(said), 0) + 1
                    continue
                raise self._last_word(said, answer_of(error).status) from None
            else:
                self._seen = True
                return found

    async def _mend(self, said: Exception, tried: int, generation: int) -> bool:
        """Whether what stood in the way was removed, so that asking again makes sense."""
        if isinstance(said, NoRole) and tried < _ROLES:
            await asyncio.sleep(0.5)
            return True
        if isinstance(said, Expired) and not tried and self._settings.renewable:
            await self._rebuild(generation)
            return True
        if isinstance(said, WrongRegion) and not tried and self._kind == "s3":
            return await self._move(generation, said.region)
        return False

    def _last_word(self, said: Exception, status: int) -> Exception:
        """What is raised for a case that could not be mended; other errors as they are."""
        if isinstance(said, Expired):
            return said.refusal
        if isinstance(said, WrongRegion):
            if self._kind != "s3":
                return StorageError("the server redirects, and does not say where")
            used = self._settings.config.get("region")
            return StorageError(
                f"the bucket {self._bucket!r} lies in another region than {used!r}",
                hint="set AWS_REGION, or storage_options={'region': ...}",
            )
        if isinstance(said, NoRole):
            if self._seen:  # it has had credentials, so it will have them again
                return Fault("connection", "this machine did not give the credentials of its role")
            return AccessError(
                "there are no credentials, and this machine has no role that gives any", hint=self._settings.hint
            )
        if isinstance(said, AccessError) and not status:
            return getattr(self._settings.provider, "problem", None) or said  # it knows better
        return said

    async def _rebuild(self, generation: int) -> None:
        async with self._renewing:
            if self._generation == generation:  # else somebody has done so
                self._build()

    async def _move(self, generation: int, region: str) -> bool:
        """Go on in the bucket's own region, if it can be found."""
        if not self._settings.detect_region and not region:
            return False
        async with self._renewing:
            if self._generation != generation:
                return True
            found = region or await bucket_region(self._bucket)
            if found is None or found == self._settings.config.get("region"):
                return False
            self._region = found
            self._build()
            return True

    # ------------------------------------------------------------------------------------------------------ reading

    async def open(self, path: str, start: int, stop: int | None, *, etag: str | None = None) -> Body:
        if stop is not None and start >= stop:
            return await answer_without_bytes(self, path, start, etag)
        options: dict[str, Any] = {}
        if start < 0:
            options["range"] = {"suffix": -start}
        elif stop is not None:
            options["range"] = (start, stop)
        elif start:
            options["range"] = {"offset": start}
        if etag and not etag.startswith("W/"):  # a weak one never matches
            options["if_match"] = etag
        try:
            found = await self._try(lambda store: self._obs.get_async(store, path, options=options))
        except OutOfRange:
            return await answer_without_bytes(self, path, start, etag, asked=stop is not None)
        head = Head(found.meta["size"], found.meta["e_tag"])
        check_version(head, etag)
        return _Body(self, found, head)

    async def head(self, path: str) -> Head:
        async def ask(store: Any) -> Head:
            try:
                found = await self._obs.head_async(store, path)
            except Exception as error:
                answer = answer_of(error)
                # An answer to HEAD has no body, hence no code that says what is missing or refused; and a web server
                # may not know HEAD, or have signed the URL for GET.
                if answer.code or answer.status not in (400, 403, 404, 405, 501):
                    raise
                if answer.status == 404 and (self._seen or self._kind == "http"):
                    raise
                try:
                    found = (await self._obs.get_async(store, path, options={"range": (0, 1)})).meta
                except Exception as better:
                    if answer_of(better).status in (0, 416):
                        raise error from None
                    raise
            return Head(found["size"], found["e_tag"])

        return await self._try(ask)

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[list[ObjectMeta]]:
        if self._kind == "http":
            raise not_listed()
        folder = prefix.rpartition("/")[0]  # obstore lists folders; any other prefix is ours to compare

        async def first(store: Any) -> tuple[Any, Any]:
            pages = self._obs.list(store, folder or None, offset=after or None, chunk_size=1000)
            return pages, await anext(pages, None)

        async def following(_store: Any) -> Any:
            return await anext(pages, None)

        try:
            pages, page = await self._try(first)
            while page is not None:
                metas = [ObjectMeta(meta["path"], meta["size"], version_number(meta["e_tag"])) for meta in page]
                yield [meta for meta in metas if meta.path.startswith(prefix)]
                after = metas[-1].path if metas else after
                page = await self._try(following)
        except OddKey as error:
            if self._kind != "s3" or not self.lists_in_order:
                what = f"obstore lists no key with an empty part, '.', '..', or a control character: {error.key!r}"
                raise StorageError(what, hint=HINT) from None
            root = f"{self._settings.prefix}/" if self._settings.prefix else ""
            async for listed in list_signed(self._sign, root, prefix, after):
                yield [meta for meta in listed if meta.path > after]

    async def _sign(self, query: str) -> str:
        """The URL of a query of the bucket, signed for S3.

        obstore signs URLs of objects only. A store of which the endpoint is the bucket's URL with the query signs that.
        """

        async def sign(_store: Any) -> str:
            plain = replace(self._settings, prefix="")
            url = await self._obs.sign_async(self._make(plain, plain.client, None), "GET", "x", _SIGNED)
            config = plain.config | {"aws_endpoint_url_s3": f"{url.partition('?')[0][:-2]}?{query}&x-id="}
            asking = replace(plain, config=config | {"virtual_hosted_style_request": "true"})
            return str(await self._obs.sign_async(self._make(asking, plain.client, None), "GET", "x", _SIGNED))

        return await self._try(sign)

    # ------------------------------------------------------------------------------------------------------ writing

    async def put(self, path: str, data: bytes | bytearray | memoryview) -> None:
        payload = data if isinstance(data, bytes) else memoryview(data).cast("B")
        await self._try(lambda store: self._obs.put_async(store, path, payload, use_multipart=False), sending=True)

    async def upload(self, path: str) -> Upload:
        return _Upload(self, path)

    async def delete(self, path: str) -> None:
        try:
            await self._try(lambda store: self._obs.delete_async(store, path), sending=True)
        except NotFoundError as error:
            if "bucket" in error.what:
                raise

    async def copy(self, path: str, target: str) -> None:
        await self._try(lambda store: self._obs.copy_async(store, path, target), sending=True)


def _texts(config: Mapping[str, Any]) -> dict[str, str | bool]:
    """Values as obstore takes them: text, or truth values."""
    return {name: value if isinstance(value, str | bool) else str(value) for name, value in config.items()}


class _Body(Body):
    def __init__(self, client: ObstoreClient, found: Any, head: Head) -> None:
        self._client = client
        self._found = found
        self.head = head
        self.start, self.stop = found.range

    async def chunks(self, least: int) -> AsyncIterator[memoryview]:
        if self.stop - self.start <= least:  # at half the cost of a stream of one chunk
            yield memoryview(await self._next(self._found.bytes_async())).toreadonly()
            return
        stream = self._found.stream(min_chunk_size=max(1, least))
        while (chunk := await self._next(anext(stream, None))) is not None:
            yield memoryview(chunk).toreadonly()

    async def _next(self, coming: Awaitable[Any]) -> Any:
        try:
            return await coming
        except Exception as error:
            said = explain(error, bucket="", hint="")
            raise said if isinstance(said, Fault) else Fault("connection", "the answer broke off") from None


class _Upload(Upload):
    """Parts go through obstore's own upload, which reads them from here, one at a time.

    An exception in what it reads makes it abort, and drop the parts.
    """

    def __init__(self, client: ObstoreClient, path: str) -> None:
        self._room: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        self._aborted = False
        self._task = asyncio.ensure_future(
            client._try(
                lambda store: client._obs.put_async(
                    store, path, self._parts(), use_multipart=True, chunk_size=_PART, max_concurrency=_PARTS
                ),
                sending=True,
            )
        )

    async def _parts(self) -> AsyncIterator[bytes]:
        while (part := await self._room.get()) is not None:
            yield part
        if self._aborted:
            raise _Aborted

    async def _hand(self, data: bytes | None) -> None:
        handing = asyncio.ensure_future(self._room.put(data))
        try:
            await asyncio.wait({handing, self._task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            handing.cancel()
        if self._task.done():
            self._task.result()

    async def send(self, data: bytes) -> None:
        if data:
            await self._hand(data)

    async def finish(self) -> None:
        await self._hand(None)
        await self._task

    async def abort(self) -> None:
        if self._task.done():
            with suppress(Exception):
                self._task.result()
            return
        self._aborted = True
        with suppress(Exception):
            await self._hand(None)
        await asyncio.wait({self._task})
        with suppress(Exception, asyncio.CancelledError):
            self._task.result()


class _Aborted(Exception):
    """The upload is not wanted any more."""
