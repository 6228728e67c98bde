"""What errors mean, and that what they quote is never shown; with a server that answers as real ones do elsewhere."""

from __future__ import annotations

import asyncio
import datetime
import http.client
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from shardstream.errors import AccessError, ChangedError, NotFoundError, StorageError, UsageError
from shardstream.storage import locate
from shardstream.storage.base.location import with_transport
from shardstream.storage.clients import region
from shardstream.storage.clients.obstore_errors import Expired, NoRole, OutOfRange, WrongRegion, explain
from shardstream.storage.opening import make_client
from shardstream.storage.transfer.client import Client, Fault

HIDDEN = "geheim0815geheim"


def status(number: int, code: str = "", rest: str = "") -> Exception:
    """An error as obstore writes it, with secrets wherever real ones have stood."""
    body = f"<Error><Code>{code}</Code><Message>{HIDDEN}</Message>{rest}</Error>" if code else ""
    text = (
        f"Generic S3 error: Error performing GET https://host/a?X-Amz-Signature={HIDDEN} in 1ms - Server returned "
        f"non-2xx status code: {number} Some Reason: {body}\n\nDebug source:\nGeneric {{ uri: /a?sig={HIDDEN} }}"
    )
    return FileNotFoundError(text) if number == 404 else RuntimeError(text)


def http_error(kind: str, inside: str = "") -> Exception:
    return RuntimeError(
        f"Generic S3 error: Error performing GET https://host/a?sig={HIDDEN} in 1ms - HTTP error: error sending request"
        f"\n\nDebug source:\nGeneric {{ inner: Http(HttpError {{ kind: {kind}, source: {inside} {HIDDEN} }}) }}"
    )


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (status(503, "SlowDown"), "throttled", "SlowDown"),
        (status(503, "ServerBusy"), "throttled", "ServerBusy"),
        (status(429), "throttled", "429"),
        (status(503), "server error", "503"),
        (status(500, "InternalError"), "server error", "InternalError"),
        (status(502), "server error", "502"),
        (status(408), "timeout", "gave up"),
        (status(400, "RequestTimeout"), "timeout", "gave up"),
        (http_error("Timeout"), "timeout", "read timeout"),
        (http_error("Connect", "tcp connect error"), "connection", "no connection"),
        (http_error("Connect", "dns error"), "connection", "name of the host"),
        (http_error("Request"), "connection", "broke"),
        (http_error("Interrupted", "IncompleteBody"), "short body", "too early"),
        (http_error("Interrupted", "ConnectionReset"), "connection", "broke"),
        (
            RuntimeError("Generic S3 error: Requested 3..13, got 50..60\n\nUnexpectedRange"),
            "wrong range",
            "another range",
        ),
        (
            RuntimeError("Received non-partial response when range requested\n\nNotPartial"),
            "wrong range",
            "another range",
        ),
    ],
)
def test_what_may_pass(error, kind, said) -> None:
    found = explain(error, bucket="bucket", hint="hint")
    assert isinstance(found, Fault)
    assert found.kind == kind
    assert said in str(found)
    assert HIDDEN not in f"{found} {found!r}"


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (status(404, "NoSuchKey"), NotFoundError, "no such object"),
        (status(404), NotFoundError, "no such object"),
        (status(404, "NoSuchBucket"), NotFoundError, "no bucket or container 'bucket'"),
        (status(404, "ContainerNotFound"), NotFoundError, "no bucket or container 'bucket'"),
        (status(403, "AccessDenied"), AccessError, "access is denied"),
        (status(403), AccessError, "refuses"),
        (status(403, "SignatureDoesNotMatch"), AccessError, "secret key does not belong"),
        (status(403, "AuthorizationPermissionMismatch"), AccessError, "lacks the right"),
        (status(403, "RequestTimeTooSkewed"), AccessError, "clock is wrong"),
        (status(400, "InvalidToken"), AccessError, "session token"),
        (status(412, "PreconditionFailed"), ChangedError, "replaced"),
        (status(400, "InvalidRequest"), StorageError, "status 400 (InvalidRequest)"),
        (status(501), StorageError, "status 501"),
        (http_error("Connect", "invalid peer certificate: UnknownIssuer"), StorageError, "certificate"),
        (RuntimeError(f"External AWS credential provider: ValueError: {HIDDEN}"), AccessError, "provider failed"),
        (ValueError(f'Could not parse path: Path "a//{HIDDEN}"'), UsageError, "empty part"),
        (RuntimeError(HIDDEN), StorageError, "obstore failed (RuntimeError)"),
    ],
)
def test_what_will_not_pass(error, kind, said) -> None:
    found = explain(error, bucket="bucket", hint="hint")
    assert type(found) is kind
    assert said in str(found)
    assert HIDDEN not in f"{found} {found!r}"


@pytest.mark.parametrize(
    "code", ["ExpiredToken", "TokenRefreshRequired", "InvalidAuthenticationInfo", "AuthenticationFailed"]
)
def test_what_a_new_token_may_help(code) -> None:
    for number in (400, 401, 403):
        assert isinstance(explain(status(number, code), bucket="", hint=""), Expired)


def test_cases_for_the_client() -> None:
    assert isinstance(explain(status(416, "InvalidRange"), bucket="", hint=""), OutOfRange)
    azure = RuntimeError("Wanted range starting at 10, but object was only 10 bytes long")
    assert isinstance(explain(azure, bucket="", hint=""), OutOfRange)
    wrong = explain(status(400, "AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>"), bucket="", hint="")
    assert isinstance(wrong, WrongRegion)
    assert wrong.region == "eu-west-1"
    bare = RuntimeError("Received redirect without LOCATION, this normally indicates an incorrectly configured region")
    assert isinstance(explain(bare, bucket="", hint=""), WrongRegion)
    for text in ("PUT http://169.254.169.254/latest error sending", "GET http://169.254.170.2/v2 status code: 403"):
        assert isinstance(explain(RuntimeError(text), bucket="", hint=""), NoRole)


# ----------------------------------------------------------------------------------------------- a server of our own

Answer = tuple[int, dict[str, str], bytes]


@pytest.fixture
def scripted() -> Iterator[Callable[[Callable[[BaseHTTPRequestHandler], Answer]], str]]:
    """A server that answers as a function says, for what no server that runs here does: other regions, expiry."""
    servers = []

    def serve(answer: Callable[[BaseHTTPRequestHandler], Answer]) -> str:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                number, headers, body = answer(self)
                self.send_response(number)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_HEAD = do_GET

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield serve
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


OBJECT: Answer = (200, {"ETag": '"1"', "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}, b"123")


def error(number: int, code: str, rest: str = "") -> Answer:
    return number, {}, f"<Error><Code>{code}</Code>{rest}</Error>".encode()


def read(client: Client) -> bytes:
    async def whole() -> bytes:
        body = await client.open("x", 0, None)
        return b"".join([bytes(chunk) async for chunk in body.chunks(1)])

    return asyncio.run(whole())


KEYS = {"access_key_id": "a", "secret_access_key": "b"}


def test_the_region_that_the_answer_names_is_used(scripted) -> None:
    seen = []

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        scope = re.search(r"Credential=a/\d+/([a-z0-9-]+)/", request.headers["Authorization"])
        assert scope
        seen.append(scope[1])
        if scope[1] == "eu-west-1":
            return OBJECT
        return error(400, "AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>")

    client = make_client(locate("s3://bucket/a", storage_options={**KEYS, "endpoint": scripted(answer)}))
    assert read(client) == read(client) == b"123"
    assert seen == ["us-east-1", "eu-west-1", "eu-west-1"]
    assert asyncio.run(client.head("x")).size == 3


def test_the_region_is_asked_for_where_the_answer_does_not_name_it(scripted, monkeypatch) -> None:
    asked = []

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        if request.path == "/bucket":
            asked.append(request.command)
            return 403, {"x-amz-bucket-region": "eu-west-1"}, b""
        return OBJECT if "/eu-west-1/" in request.headers["Authorization"] else (301, {}, b"")

    host = scripted(answer).removeprefix("http://")
    monkeypatch.setattr(http.client, "HTTPSConnection", http.client.HTTPConnection)
    assert asyncio.run(region.bucket_region("bucket", host=host)) == "eu-west-1"
    assert asyncio.run(region.bucket_region("bu/cket?", host=host)) is None
    assert asked == ["HEAD"]
    client = make_client(locate("s3://bucket/a", storage_options={**KEYS, "endpoint": f"http://{host}"}))
    with pytest.raises(StorageError, match="lies in another region than 'us-east-1'") as caught:
        read(client)  # an endpoint of one's own has its regions for itself: AWS is not asked
    assert "AWS_REGION" in str(caught.value)
    client._settings.detect_region = True
    monkeypatch.setattr(region, "_HOST", host)
    assert read(client) == b"123"


class Provider:
    """Gives one key after the other, each said to last an hour."""

    def __init__(self, *keys: str) -> None:
        self.keys = list(keys)

    def __call__(self) -> dict[str, object]:
        key = self.keys.pop(0) if len(self.keys) > 1 else self.keys[0]
        expires = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
        return {"access_key_id": key, "secret_access_key": "s", "token": "t", "expires_at": expires}


def test_an_expired_session_token_is_asked_for_anew_once(scripted) -> None:
    seen = []

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        key = request.headers["Authorization"].partition("Credential=")[2].partition("/")[0]
        seen.append((request.command, key))
        return OBJECT if key == "new" else error(400, "ExpiredToken")

    endpoint = scripted(answer)

    def client(*keys: str) -> Client:
        options = {"credential_provider": Provider(*keys), "endpoint": endpoint}
        return make_client(locate("s3://bucket/a", storage_options=options))

    assert read(client("old", "new")) == b"123"
    assert seen == [("GET", "old"), ("GET", "new")]
    seen.clear()
    assert asyncio.run(client("old", "new").head("x")).size == 3
    assert seen == [("HEAD", "old"), ("GET", "old"), ("HEAD", "new")]
    seen.clear()
    with pytest.raises(AccessError, match="the session token has expired"):
        read(client("old"))
    assert seen == [("GET", "old"), ("GET", "old")]
    seen.clear()
    fixed = {"access_key_id": "old", "secret_access_key": "s", "endpoint": endpoint}
    with pytest.raises(AccessError, match="the session token has expired"):
        read(make_client(locate("s3://bucket/a", storage_options=fixed)))
    assert seen == [("GET", "old")]


def test_many_reads_renew_together(scripted) -> None:
    def answer(request: BaseHTTPRequestHandler) -> Answer:
        return OBJECT if "Credential=new/" in request.headers["Authorization"] else error(403, "ExpiredToken")

    provider = Provider("old", "new", "newer")
    client = make_client(
        locate("s3://bucket/a", storage_options={"credential_provider": provider, "endpoint": scripted(answer)})
    )

    async def all_of_them() -> list[int]:
        return [body.head.size for body in await asyncio.gather(*[client.open("x", 0, None) for _ in range(8)])]

    assert asyncio.run(all_of_them()) == [3] * 8
    assert provider.keys == ["newer"]


@pytest.mark.parametrize("options", [{"requester_pays": True}, {"request_payer": "requester"}])
def test_requester_pays_is_said_in_every_request(options, scripted) -> None:
    seen = []

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        seen.append(request.headers.get("x-amz-request-payer"))
        return OBJECT

    options = {**KEYS, **options, "endpoint": scripted(answer)}
    client = make_client(locate("s3://bucket/a", storage_options=options))
    assert read(client) == b"123"
    assert asyncio.run(client.head("x")).size == 3
    assert seen == ["requester", "requester"]


@pytest.mark.parametrize("transport", ["obstore", "fsspec"])
@pytest.mark.parametrize("scheme", ["s3", "az", "http"])
def test_reads_are_tried_once_by_the_libraries(scheme, transport, scripted) -> None:
    seen = []

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        seen.append(request.command)
        return error(503, "SlowDown")

    endpoint = scripted(answer)
    url, options = {
        "s3": ("s3://bucket/a", {**KEYS, "endpoint": endpoint}),
        "az": ("az://data/a", {"account_name": "acme", "account_key": "YWJj", "endpoint": f"{endpoint}/acme"}),
        "http": (f"{endpoint}/a", {}),
    }[scheme]

    async def work() -> None:
        client = make_client(locate(with_transport(url, transport), storage_options=options))
        with pytest.raises(Fault) as caught:
            await client.open("x", 0, 5)
        assert caught.value.kind in ("throttled", "server error")

    asyncio.run(work())
    assert len(seen) == 1
