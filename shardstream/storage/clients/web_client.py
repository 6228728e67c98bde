"""Web servers through aiohttp: one request per range, and redirects followed here.

A token may be in any header. obstore sends most headers on to the host that a redirect names, so this client reads
web servers when headers are given. fsspec provides the session and its event loop, and closes them.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import weakref
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import quote
from urllib.request import getproxies, proxy_bypass

from shardstream.errors import AccessError, StorageError, UsageError
from shardstream.extras import require
from shardstream.storage.base.location import Location
from shardstream.storage.base.no_ranges import no_ranges
from shardstream.storage.base.policy import seconds
from shardstream.storage.base.store import Head, ObjectMeta
from shardstream.storage.clients.fsspec_client import retry_after, without_answer
from shardstream.storage.clients.no_bytes import answer_without_bytes
from shardstream.storage.clients.obstore_errors import (
    Answer,
    Expired,
    OutOfRange,
    WrongRegion,
    endless_redirects,
    from_answer,
)
from shardstream.storage.clients.web import not_listed, read_only, web_settings
from shardstream.storage.transfer.client import Body, Client, Fault, Upload, check_version

_T = TypeVar("_T")
_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)")
_PURPOSE = "to send headers to a web server, or for fsspec+http:// URLs"
_REDIRECTS = 10  # one after another; as many as obstore follows
# These mean nothing to aiohttp, and leaving them out does no harm.
_OBSTORE_ONLY = ("http1_only", "http2_only", "pool_idle_timeout", "pool_max_idle_per_host", "randomize_addresses")


def check(location: Location) -> None:
    """Raise an error now for options that cannot work, or a missing package.

    Raises:
        UsageError: An option that a web server has no use for.
        MissingExtraError: A package is not installed.
    """
    require("fsspec", extra="http", purpose=_PURPOSE)
    require("aiohttp", extra="http", purpose=_PURPOSE)
    _Requests(location)


class _Requests:
    """Options of every request, from storage_options. Holds secrets: never shown.

    Attributes:
        headers: Headers for the user's own host.
        session: Arguments of the session.
        options: Arguments of each request.
        proxy: The proxy given for every request; empty: the environment decides.
        insecure: Whether a server of an ``https`` URL may redirect to ``http``.
        hint: Action after a refusal.
    """

    def __init__(self, location: Location) -> None:
        address = location.address
        settings = web_settings(address, location.access.library_options)
        given = {name: value for name, value in settings.client.items() if name not in _OBSTORE_ONLY}
        from aiohttp import ClientTimeout

        self.hint = settings.hint
        self.headers: dict[str, str] = dict(given.pop("default_headers", {}))
        if agent := given.pop("user_agent", None):
            self.headers["User-Agent"] = agent
        self.insecure = bool(given.pop("allow_http", False))
        self.proxy: str = given.pop("proxy_url", "")
        times = {name: _seconds(name, given.pop(name, None)) for name in ("timeout", "connect_timeout", "read_timeout")}
        self.session = {
            "timeout": ClientTimeout(
                total=times["timeout"], sock_connect=times["connect_timeout"], sock_read=times["read_timeout"]
            ),
            "auto_decompress": False,  # sizes and offsets are those of the file as it is stored
        }
        self.options: dict[str, Any] = {"allow_redirects": False}
        certificate, unchecked = given.pop("root_certificate", None), given.pop("allow_invalid_certificates", False)
        if unchecked:
            self.options["ssl"] = False
        elif certificate:
            self.options["ssl"] = _trusting(certificate, location.url)
        if given:
            raise UsageError(
                f"storage_options: {min(given)!r} has no meaning together with headers, or in an fsspec+http:// URL",
                url=location.url,
                hint="leave it out",
            )

    def proxy_of(self, host: str, scheme: str) -> str | None:
        """The proxy for a host, by the options or else by the environment."""
        return self.proxy or (None if proxy_bypass(host) else getproxies().get(scheme))


def _trusting(certificate: str | bytes, url: str) -> ssl.SSLContext:
    """The usual authorities and one more, given as PEM."""
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(cadata=certificate.decode() if isinstance(certificate, bytes) else certificate)
    except (ValueError, ssl.SSLError) as error:
        hint = "give the text of a PEM file, as of Path('ca.pem').read_text()"
        raise UsageError("storage_options: 'root_certificate' is no certificate", url=url, hint=hint) from error
    return context


def _seconds(name: str, value: Any) -> float | None:
    if value is None or isinstance(value, timedelta):
        return None if value is None else value.total_seconds()
    return seconds(name, value)


class WebClient(Client):
    """A directory of a web server, which can be read by range."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._address = location.address
        self._requests = _Requests(location)
        # fsspec keeps instances by their arguments, so that datasets share connections.
        self._files = require("fsspec.implementations.http", extra="http", purpose=_PURPOSE).HTTPFileSystem(
            client_kwargs=self._requests.session
        )

    async def _on_loop(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run work on fsspec's loop; its errors become ours."""
        try:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._files.loop))
        except Exception as error:
            raise without_answer(error, self._requests.hint) from None

    async def _request(self, method: str, path: str, headers: Mapping[str, str]) -> Any:
        """The answer to a request, on fsspec's loop, redirects followed."""
        from yarl import URL

        address = self._address
        query = f"?{address.query}" if address.query else ""
        url = URL(f"{address.url}/{quote(path)}{query}", encoded=True)
        session, own = await self._files.set_session(), self._requests.headers
        for _ in range(_REDIRECTS + 1):
            answer = await session.request(
                method,
                url,
                headers={**own, **headers, "Accept-Encoding": "identity"},
                proxy=self._requests.proxy_of(url.host or "", url.scheme),
                **self._requests.options,
            )
            place = answer.headers.get("Location")
            if answer.status not in (301, 302, 303, 307, 308) or not place:
                return answer
            answer.release()
            target = url.join(_url(place))
            if target.scheme not in ("http", "https"):
                raise StorageError("the web server redirects to something that is no web address")
            if target.origin() != url.origin():
                own = self._elsewhere(target, secure=url.scheme == "https")
            url = target
        raise endless_redirects()

    def _elsewhere(self, target: Any, *, secure: bool) -> dict[str, str]:
        """The headers for another host, after a redirect to it; later redirects get no more than these."""
        if self._location.access.same_host:
            what = f"the web server redirects to another host, {target.host}"
            raise AccessError(what, hint="SourceOptions(allow_other_origins=True) permits it")
        if secure and target.scheme == "http" and not self._requests.insecure:
            what = f"the web server redirects from https to http, at {target.host}"
            raise AccessError(what, hint="storage_options={'allow_http': True} permits it")
        return {}

    async def _get(self, path: str, headers: Mapping[str, str], *, method: str = "GET") -> tuple[Any, Head]:
        """An answer that is no error, and the size and version of its object."""

        async def ask() -> Any:
            answer = await self._request(method, path, headers)
            if answer.status not in (200, 206):
                answer.close()
            return answer

        answer = await self._on_loop(ask())
        if answer.status not in (200, 206):
            raise self._explain(answer.status, retry_after(answer.headers))
        return answer, Head(_size_of(answer), answer.headers.get("ETag"))

    def _explain(self, status: int, wait: float | None) -> Exception:
        said = from_answer(Answer(status, "", "", wait), bucket="", hint=self._requests.hint)
        if isinstance(said, WrongRegion) or 300 <= status < 400:
            return StorageError("the server redirects, and does not say where")
        return said.refusal if isinstance(said, Expired) else said

    async def open(self, path: str, start: int, stop: int | None, *, etag: str | None = None) -> Body:
        if stop is not None and start >= stop:
            return await answer_without_bytes(self, path, start, etag)
        headers = {}
        if start or stop is not None:
            headers["Range"] = f"bytes={start}" if start < 0 else f"bytes={start}-{'' if stop is None else stop - 1}"
        if etag and not etag.startswith("W/"):  # a weak one never matches
            headers["If-Match"] = etag
        try:
            answer, head = await self._get(path, headers)
        except OutOfRange:
            return await answer_without_bytes(self, path, start, etag, asked=stop is not None)
        body = _Body(self, answer, head)
        check_version(head, etag)
        if "Range" in headers and answer.status != 206:
            body.close()
            raise no_ranges()
        return body

    async def head(self, path: str) -> Head:
        try:
            return (await self._get(path, {}, method="HEAD"))[1]
        except StorageError:
            # The server may not know HEAD, may leave out the size, or may have signed the URL for GET.
            with suppress(OutOfRange):
                answer, head = await self._get(path, {"Range": "bytes=0-0"})
                _Body(self, answer, head).close()
                return head
            raise

    def list(self, prefix: str, after: str = "") -> AsyncIterator[list[ObjectMeta]]:
        raise not_listed()

    async def put(self, path: str, data: bytes | bytearray | memoryview) -> None:
        raise read_only()

    async def upload(self, path: str) -> Upload:
        raise read_only()

    async def delete(self, path: str) -> None:
        raise read_only()

    async def copy(self, path: str, target: str) -> None:
        raise read_only()


def _url(text: str) -> Any:
    from yarl import URL

    try:
        return URL(text)
    except ValueError:
        raise StorageError("the web server redirects to something that is no web address") from None


def _size_of(answer: Any) -> int:
    """The size of the object that an answer is about, or is a part of."""
    text = answer.headers.get("Content-Length") if answer.status == 200 else None
    if answer.status == 206 and (match := _RANGE.fullmatch(answer.headers.get("Content-Range", "").strip())):
        text = match[3]
    if text is None or not text.isdecimal():
        answer.close()
        raise StorageError("the server does not say how long the file is")
    return int(text)


class _Body(Body):
    def __init__(self, client: WebClient, answer: Any, head: Head) -> None:
        self._client = client
        self._answer = answer
        self.head, self.start, self.stop = head, 0, head.size
        if match := _RANGE.fullmatch(answer.headers.get("Content-Range", "").strip()):
            self.start, self.stop = int(match[1]), int(match[2]) + 1
        # Ends the answer of a body that is not read to its end, on the loop that it belongs to.
        self.close = weakref.finalize(self, client._files.loop.call_soon_threadsafe, answer.close)
        self.close.atexit = False

    async def chunks(self, least: int) -> AsyncIterator[memoryview]:
        at = self.start
        while at < self.stop:
            data = await self._client._on_loop(self._read(max(1, least)))
            if not data:
                raise Fault("short body", "the answer ended too early")
            at += len(data)
            yield memoryview(data).toreadonly()

    async def _read(self, least: int) -> bytes:
        pieces: list[bytes] = []
        length = 0
        while length < least and (piece := await self._answer.content.readany()):
            pieces.append(piece)
            length += len(piece)
        return b"".join(pieces)
