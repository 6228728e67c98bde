"""Every store that fsspec knows, and S3, Azure and GCS where it is asked for.

fsspec runs its coroutines on a loop of its own, in a thread that it makes anew after a fork; file systems without
coroutines are called in threads. Each range asks for the object's size and version first, because few file systems give
them with the data; and again where it took several requests, so that no range is of two versions.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from shardstream.errors import AccessError, MissingExtraError, NotFoundError, StorageError, UsageError, did_you_mean
from shardstream.extras import install_command, private, require
from shardstream.storage.base.address import Address
from shardstream.storage.base.location import Location
from shardstream.storage.base.policy import seconds
from shardstream.storage.base.store import Head, ObjectMeta, version_number
from shardstream.storage.clients.aws import s3fs_arguments
from shardstream.storage.clients.azure import adlfs_arguments
from shardstream.storage.clients.gcs import gcsfs_arguments
from shardstream.storage.clients.obstore_errors import (
    Answer,
    Expired,
    OutOfRange,
    WrongRegion,
    from_answer,
    refusal,
    untrusted_certificate,
)
from shardstream.storage.clients.options import CONNECT_TIMEOUT, READ_TIMEOUT
from shardstream.storage.transfer.client import Body, Client, Fault, Upload, check_version, replaced
from shardstream.threads import start

_T = TypeVar("_T")
_PART = 8 << 20  # bytes of a part of an upload
_SPOOL = 64 << 20  # bytes of an upload that stay in memory, where it goes out as one
_LEAST = 256 << 10  # bytes of a request that is worth its round trip
_VERSION = ("ETag", "etag", "e_tag", "generation", "blob_id", "md5Hash", "md5", "checksum")
_TIMES = ("LastModified", "last_modified", "mtime", "modified", "updated")
# File systems whose files, open for writing, show nothing before they are closed.
_SHOW_WHEN_CLOSED = ("s3", "abfs", "gs")
_PROTOCOLS = {"s3": "s3", "azure": "abfs", "gcs": "gs"}
# Options of obstore's HTTP client that mean nothing to fsspec, and do no harm when they are left out.
_OBSTORE_ONLY = ("allow_http", "client_options", "retry_config", "virtual_hosted_style_request")


def check(location: Location) -> None:
    """Say early what cannot work: a missing package, a protocol that nobody knows.

    Raises:
        UsageError: An unknown protocol, or options that cannot work.
        MissingExtraError: A package is not installed.
    """
    _class_of(_protocol_of(location.address), location.url)
    _arguments_of(location.address, location.access.library_options)


def _protocol_of(address: Address) -> str:
    """What fsspec calls the file system of an address."""
    return _PROTOCOLS.get(address.kind, address.scheme)


def _arguments_of(address: Address, options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the file system of an address; UsageError for options that cannot work there."""
    given = {name.lower(): value for name, value in options.items() if value is not None}
    if address.kind != "fsspec":
        given = {name: value for name, value in given.items() if name not in _OBSTORE_ONLY}
    waits = {
        name: seconds(name, given.pop(name, usual))
        for name, usual in (("connect_timeout", CONNECT_TIMEOUT), ("read_timeout", READ_TIMEOUT))
    }
    if address.kind == "s3":
        return s3fs_arguments(given, waits, os.environ)
    if address.kind == "azure":
        return adlfs_arguments(address, given, waits, os.environ)
    if address.kind == "gcs":
        return gcsfs_arguments(given, os.environ)
    if address.query:
        raise UsageError("a query has no meaning in this URL", url=address.url, hint="give it by storage_options")
    return given


def _root_of(address: Address) -> str:
    """The path that stands before those of objects."""
    if address.kind in _PROTOCOLS:
        return f"{address.bucket}/{address.prefix}".rstrip("/")
    user = f"{address.user}@" if address.user else ""
    return f"{address.scheme}://{user}{address.prefix}"


_EXTRAS = ("s3fs", "adlfs", "gcsfs")


def _class_of(protocol: str, url: str) -> Any:
    fsspec = require("fsspec", extra="fsspec", purpose=f"for {protocol}:// URLs")
    known = sorted(fsspec.available_protocols())
    if protocol not in known and protocol not in fsspec.registry:
        raise UsageError(
            f"unknown URL scheme {protocol}://",
            url=url,
            hint=did_you_mean(protocol, known)
            + "known: a local path, s3, az, abfss, gs, https, and those of fsspec.available_protocols()",
        )
    try:
        return fsspec.get_filesystem_class(protocol)
    except (ImportError, ValueError) as error:
        packages = {
            "s3": "s3fs",
            "abfs": "adlfs",
            "gs": "gcsfs",
            "hf": "huggingface_hub",
        }
        package = packages.get(protocol)
        raise MissingExtraError(
            f"fsspec needs another package for {protocol}:// URLs",
            url=url,
            hint=(install_command(package) if package in _EXTRAS else f"pip install {package}")
            if package
            else f"fsspec says: {error}",
        ) from error


class FsspecClient(Client):
    """A store through fsspec."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._address = location.address
        self._sending: Any = None
        self._protocol = _protocol_of(location.address)
        arguments = _arguments_of(location.address, location.access.library_options)
        # fsspec keeps instances by their arguments, so that data sets of one bucket share connections.
        self._arguments = arguments | {"use_listings_cache": False}
        once = {}
        if self._protocol == "s3":
            once = {"config_kwargs": {"retries": {"total_max_attempts": 1}, **self._arguments["config_kwargs"]}}
        self._files = self._make(_class_of(self._protocol, location.url), self._arguments | once)
        _no_retries(self._files)
        root = private(self._files, "_strip_protocol", "fsspec")(_root_of(location.address))
        self._root = str(root).rstrip("/")

    def _make(self, kind: Any, arguments: dict[str, Any]) -> Any:
        try:
            return kind(**arguments)
        except Exception as error:
            raise UsageError(
                f"fsspec's {self._protocol} does not take these options ({type(error).__name__})",
                url=self._location.url,
                hint=f"look at {', '.join(sorted(self._location.access.options)) or 'the environment'}",
            ) from None

    def _name(self, path: str) -> str:
        return f"{self._root}/{path}" if self._root else path

    def _writing(self) -> Any:
        """The file system with the retries of its own, of which reading has no need."""
        if self._sending is None:
            self._sending = self._make(type(self._files), self._arguments | {"skip_instance_cache": True})
        return self._sending

    async def _call(self, name: str, *arguments: Any, sending: bool = False, **named: Any) -> Any:
        """One call of a file system, on its loop or in a thread."""
        files = self._writing() if sending else self._files
        try:
            if files.async_impl and hasattr(files, f"_{name}"):
                work = getattr(files, f"_{name}")(*arguments, **named)
                return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, files.loop))
            return await in_thread(lambda: getattr(files, name)(*arguments, **named))
        except Exception as error:
            raise self._explain(error, sending=sending) from None

    def _explain(self, error: BaseException, *, sending: bool = False) -> Exception:
        hint = "look at storage_options, and at the variables that the file system reads"
        bucket = self._address.bucket or self._address.prefix.partition("/")[0]
        answer = answer_of(error)
        if not answer.status and not answer.code:
            return without_answer(error, hint)
        said = from_answer(answer, bucket=bucket, hint=hint, sending=sending)
        if isinstance(said, Expired):
            return said.refusal
        if isinstance(said, WrongRegion):
            return StorageError(f"the bucket {bucket!r} lies in another region", hint="set AWS_REGION")
        if isinstance(said, OutOfRange):
            return StorageError("the range lies past the end of the object")
        return said

    # ------------------------------------------------------------------------------------------------------ reading

    async def head(self, path: str) -> Head:
        try:
            info = await self._call("info", self._name(path))
        except (AccessError, NotFoundError):
            if self._address.kind in ("s3", "azure"):
                # An answer to HEAD has no body, hence no code that says what is missing or refused.
                await self._call("cat_file", self._name(path), start=0, end=1)
            raise
        size = info.get("size")
        if info.get("type") == "directory" or (size is None and info.get("type") != "file"):
            raise NotFoundError("no such object")
        if size is None:
            raise StorageError("the server does not say how long the file is")
        version = _version_of(info)
        return Head(int(size), None if version is None else str(version))

    async def open(self, path: str, start: int, stop: int | None, *, etag: str | None = None) -> Body:
        head = await self.head(path)
        check_version(head, etag)
        first = max(0, head.size + start) if start < 0 else start
        last = head.size if stop is None else min(stop, head.size)
        if first > head.size or (first == head.size and stop is not None and stop > first):
            raise StorageError(f"byte {first} lies past the end of an object of {head.size} bytes", offset=first)
        return _Body(self, path, head, first, max(first, last))

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[list[ObjectMeta]]:
        folder = self._name(prefix.rpartition("/")[0]).rstrip("/")
        try:
            found = await self._call("find", folder, detail=True)
        except NotFoundError as error:
            if "bucket" in error.what:
                raise
            return
        base = f"{self._root}/" if self._root else ""
        page = []
        for name, info in found.items():
            path = name.lstrip("/") if not base else name.removeprefix(base)
            if path.startswith(prefix) and path > after and info.get("type") != "directory":
                page.append(ObjectMeta(path, int(info["size"]), version_number(_version_of(info))))
        yield page

    # ------------------------------------------------------------------------------------------------------ writing

    async def put(self, path: str, data: bytes | bytearray | memoryview) -> None:
        await self._folder(path)
        await self._call("pipe_file", self._name(path), bytes(data), sending=True)

    async def _folder(self, path: str) -> None:
        """Make the folder of an object that is to be written, where the store has such."""
        if self._protocol not in _SHOW_WHEN_CLOSED:
            with suppress(Exception):
                await in_thread(lambda: self._files.makedirs(self._name(path).rpartition("/")[0], exist_ok=True))

    async def upload(self, path: str) -> Upload:
        await self._folder(path)
        return _Upload(self, path)

    async def delete(self, path: str) -> None:
        with suppress(NotFoundError):
            await self._call("rm_file", self._name(path), sending=True)

    async def copy(self, path: str, target: str) -> None:
        await self._folder(target)
        await self._call("cp_file", self._name(path), self._name(target), sending=True)


class _Body(Body):
    def __init__(self, client: FsspecClient, path: str, head: Head, start: int, stop: int) -> None:
        self._client = client
        self._path = path
        self.head, self.start, self.stop = head, start, stop

    async def chunks(self, least: int) -> AsyncIterator[memoryview]:
        at = self.start
        while at < self.stop:
            until = min(self.stop, at + max(least, _LEAST))
            data = await self._client._call("cat_file", self._client._name(self._path), start=at, end=until)
            if len(data) != until - at:
                raise Fault("short body", f"{len(data)} bytes came where {until - at} were asked for")
            yield memoryview(data).toreadonly()
            at = until
        if self.stop - self.start > max(least, _LEAST):  # several requests, none of which can name a version
            now = await self._client.head(self._path)
            if now != self.head:
                raise replaced()


class _Upload(Upload):
    """A file of the file system that shows when it is closed; for others, one that is sent as a whole."""

    def __init__(self, client: FsspecClient, path: str) -> None:
        self._client = client
        self._path = path
        self._file: Any = None

    async def send(self, data: bytes) -> None:
        await self._do(lambda: self._open().write(data))

    async def finish(self) -> None:
        if self._client._protocol in _SHOW_WHEN_CLOSED:
            await self._do(lambda: self._open().close())
            return

        def send() -> None:
            with self._open() as spool:
                spool.seek(0)
                self._client._writing().pipe_file(self._client._name(self._path), spool.read())

        await self._do(send)

    async def abort(self) -> None:
        with suppress(Exception):
            await self._do(self._drop)

    def _open(self) -> Any:
        if self._file is None:
            client = self._client
            if client._protocol in _SHOW_WHEN_CLOSED:
                self._file = client._writing().open(client._name(self._path), "wb", block_size=_PART)
            else:
                self._file = tempfile.SpooledTemporaryFile(_SPOOL)  # noqa: SIM115 - `finish` closes it
        return self._file

    def _drop(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        if self._client._protocol in _SHOW_WHEN_CLOSED:
            with suppress(Exception):
                file.discard()
            file.closed = True  # or its end would be taken for a close, and show it
        else:
            file.close()

    async def _do(self, work: Callable[[], _T]) -> _T:
        try:
            return await in_thread(work)
        except Exception as error:
            raise self._client._explain(error, sending=True) from None


async def in_thread(work: Callable[[], _T]) -> _T:
    """A blocking call, in a thread of its own that nobody waits for at the end of the process."""
    done: Future[_T] = Future()
    done.set_running_or_notify_cancel()  # so that whoever no longer waits does not cancel it

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(RuntimeError("StopIteration") if isinstance(error, StopIteration) else error)

    start(threading.Thread(target=run, name="shardstream-fsspec", daemon=True))
    return await asyncio.wrap_future(done)


def _no_retries(files: Any) -> None:
    """Retries are made in one place, for all stores; where a file system's own can be turned off, they are."""
    if hasattr(files, "retries") and isinstance(files.retries, int):
        files.retries = 1
    policy = getattr(getattr(getattr(files, "service_client", None), "_config", None), "retry_policy", None)
    if policy is not None and hasattr(policy, "total_retries"):
        policy.total_retries = 0


def answer_of(error: BaseException) -> Answer:
    """What the server's answer said, as boto, azure-core, aiohttp, gcsfs and the hub keep it."""
    status, code, wait = 0, "", None
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        seen.append(cause)
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            status = status or int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) or 0)
            code = code or str(response.get("Error", {}).get("Code", ""))
            wait = wait or retry_after(response.get("ResponseMetadata", {}).get("HTTPHeaders"))
        values = [getattr(holder, name, None) for holder in (cause, response) for name in ("status_code", "status")]
        wait = wait or retry_after(getattr(cause, "headers", None)) or retry_after(getattr(response, "headers", None))
        values.append(vars(cause).get("code"))  # not a property: aiohttp's warns
        status = status or next((value for value in values if isinstance(value, int) and 100 <= value < 600), 0)
        named = getattr(cause, "error_code", None)
        code = code or (str(getattr(named, "value", named)) if named else "")
        cause = cause.__cause__ or cause.__context__
    return Answer(status, code if code.isalnum() and not code.isdigit() else "", "", wait)


def retry_after(headers: Any) -> float | None:
    """How long ``Retry-After`` asks to wait: seconds, or until a date."""
    if not isinstance(headers, Mapping):
        return None
    text = str(headers.get("retry-after") or headers.get("Retry-After") or "")
    if text.isdecimal():
        return float(text)
    with suppress(ValueError, TypeError):
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    return None


def without_answer(error: BaseException, hint: str) -> Exception:
    """What to raise in an error's place, where no server's answer stands behind it."""
    names = {kind.__name__ for kind in type(error).__mro__}
    for one in (error, error.__cause__):
        if isinstance(one, StorageError | UsageError | MissingExtraError):
            return one
    if isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError):
        return NotFoundError("no such object")
    if isinstance(error, PermissionError) or names & {
        "NoCredentialsError",
        "PartialCredentialsError",
        "TokenRetrievalError",
    }:
        return refusal(403, "", hint)
    if isinstance(error, TimeoutError) or names & {"FSTimeoutError", "ReadTimeoutError", "ServerTimeoutError"}:
        return Fault("timeout", "nothing came for as long as the read timeout")
    if names & {"IncompleteReadError", "ClientPayloadError", "IncompleteRead", "ResponseStreamingError"}:
        return Fault("short body", "the answer ended too early")
    if isinstance(error, ssl.SSLCertVerificationError):
        return untrusted_certificate()
    connection = {
        "ClientConnectionError",
        "ConnectionError",  # botocore's, which is not Python's ConnectionError
        "HTTPClientError",
        "ServiceRequestError",
        "ServiceResponseError",
        "TransportError",
    }
    if isinstance(error, ConnectionError) or names & (connection | {"ClientError", "ConnectError", "RequestException"}):
        return Fault("connection", "the connection broke, or could not be made")
    if isinstance(error, NotImplementedError):
        return StorageError("the file system cannot do that")
    return StorageError(f"fsspec failed ({type(error).__name__})")


def _version_of(info: Mapping[str, Any]) -> Any:
    """What the file system says of an object that changes when it is replaced; ``None`` where it says nothing."""
    return next((info[name] for name in (*_VERSION, *_TIMES) if info.get(name)), None)
