"""A place in each store, empty and of its own, for every test that asks for one; and how to get there around our code.

Fixtures ``s3``, ``azure``, ``web`` and ``gcs`` for all of ``tests/``; `Place` says what they give.
"""

from __future__ import annotations

import contextlib
import json
import os
import urllib.error
import urllib.parse
import urllib.request
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from . import servers
from .servers import ACCOUNT, ACCOUNT_KEY, KEY, NARROW_KEY, NARROW_SECRET, SECRET

# gcsfs asks Google's gRPC service about each bucket first, which the emulator does not have: a minute's wait for each.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"

BUCKET = "tests"
OPEN = "open"  # everybody may read it


class Place(ABC):
    """Somewhere below a bucket, that nobody else uses.

    Attributes:
        endpoint: ``http://host:port`` of the server, where a proxy would go.
        options: ``storage_options`` that lead there.
        environment: Variables that do the same without options.
        name: Path of the place in its bucket.
    """

    endpoint: str
    options: dict[str, Any]
    environment: dict[str, str]
    name: str

    @abstractmethod
    def url(self, path: str = "") -> str:
        """The URL of the place, or of something in it."""

    @abstractmethod
    def plant(self, path: str, data: bytes) -> None:
        """Put an object there."""

    @abstractmethod
    def dig(self, path: str) -> bytes | None:
        """An object as the server has it, or ``None``."""

    def __truediv__(self, path: str) -> str:
        return self.url(path)


class S3Place(Place):
    """In the bucket "tests" (or another) of SeaweedFS."""

    def __init__(self, endpoint: str, client: Any, bucket: str = BUCKET) -> None:
        self.endpoint, self.client, self.bucket, self.name = endpoint, client, bucket, uuid.uuid4().hex
        self.options = {"access_key_id": KEY, "secret_access_key": SECRET, "endpoint": endpoint}
        self.environment = {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": endpoint,
        }
        self.reader = {"access_key_id": NARROW_KEY, "secret_access_key": NARROW_SECRET, "endpoint": endpoint}

    def url(self, path: str = "") -> str:
        return f"s3://{self.bucket}/{self.name}{'/' if path else ''}{path}"

    def plant(self, path: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=f"{self.name}/{path}", Body=data)

    def dig(self, path: str) -> bytes | None:
        try:
            return self.client.get_object(Bucket=self.bucket, Key=f"{self.name}/{path}")["Body"].read()
        except self.client.exceptions.NoSuchKey:
            return None


class AzurePlace(Place):
    """In a container of Azurite."""

    def __init__(self, endpoint: str, service: Any, container: str = BUCKET) -> None:
        self.endpoint, self.service, self.container, self.name = endpoint, service, container, uuid.uuid4().hex
        self.options = {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY, "endpoint": f"{endpoint}/{ACCOUNT}"}
        self.connection_string = (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};"
            f"BlobEndpoint={endpoint}/{ACCOUNT};"
        )
        self.environment = {"AZURE_STORAGE_CONNECTION_STRING": self.connection_string}

    def url(self, path: str = "") -> str:
        return f"az://{self.container}/{self.name}{'/' if path else ''}{path}"

    def _blob(self, path: str) -> Any:
        return self.service.get_blob_client(self.container, f"{self.name}/{path}")

    def plant(self, path: str, data: bytes) -> None:
        self._blob(path).upload_blob(data, overwrite=True)

    def dig(self, path: str) -> bytes | None:
        from azure.core.exceptions import ResourceNotFoundError

        try:
            return self._blob(path).download_blob().readall()
        except ResourceNotFoundError:
            return None

    def sas(self, *, rights: str = "rl", hours: float = 1.0) -> str:
        """A SAS token of the container; with negative hours one that has expired."""
        from azure.storage.blob import generate_container_sas

        now = datetime.now(UTC)
        return generate_container_sas(
            ACCOUNT,
            self.container,
            account_key=ACCOUNT_KEY,
            permission=rights,
            start=now - timedelta(hours=2),
            expiry=now + timedelta(hours=hours),
        )


class WebPlace(Place):
    """In a folder that a web server serves: read only, without a list."""

    def __init__(self, endpoint: str, folder: Path) -> None:
        self.endpoint, self.name = endpoint, uuid.uuid4().hex
        self.folder = folder / self.name
        self.options = {}
        self.environment = {}

    def url(self, path: str = "") -> str:
        return f"{self.endpoint}/{self.name}{'/' if path else ''}{urllib.parse.quote(path)}"

    def plant(self, path: str, data: bytes) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def dig(self, path: str) -> bytes | None:
        target = self.folder / path
        return target.read_bytes() if target.exists() else None


class GcsPlace(Place):
    """In a bucket of the emulator of Google's storage."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint, self.name = endpoint, uuid.uuid4().hex
        self.options = {"endpoint": endpoint, "anon": True}
        self.environment = {"STORAGE_EMULATOR_HOST": endpoint}

    def url(self, path: str = "") -> str:
        return f"gs://{BUCKET}/{self.name}{'/' if path else ''}{path}"

    def plant(self, path: str, data: bytes) -> None:
        # In two parts, because the emulator drops the connection when the one part of a simple upload is empty.
        head = b"Content-Type: application/json\r\n\r\n" + json.dumps({"name": f"{self.name}/{path}"}).encode()
        body = b"Content-Type: application/octet-stream\r\n\r\n" + data
        parts = b"--=+=\r\n" + head + b"\r\n--=+=\r\n" + body + b"\r\n--=+=--\r\n"
        target = f"{self.endpoint}/upload/storage/v1/b/{BUCKET}/o?uploadType=multipart"
        headers = {"Content-Type": 'multipart/related; boundary="=+="'}
        urllib.request.urlopen(urllib.request.Request(target, parts, headers), timeout=30).close()

    def dig(self, path: str) -> bytes | None:
        name = urllib.parse.quote(f"{self.name}/{path}", safe="")
        try:
            with urllib.request.urlopen(
                f"{self.endpoint}/storage/v1/b/{BUCKET}/o/{name}?alt=media", timeout=30
            ) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise


def _server(kind: str, factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    root = factory.getbasetemp()
    if root.name.startswith("popen-"):  # a worker of pytest-xdist: its siblings share the folder above
        root = root.parent
    try:
        found = servers.shared(kind, root)
    except servers.Unavailable as error:
        pytest.skip(str(error))
    yield found
    servers.release(kind, root)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any]]:
    """Endpoint of an S3 server with the buckets "tests" and "open", and a client of botocore."""
    for endpoint, _ in _server("weed", tmp_path_factory):
        client = s3_client(endpoint)
        make_buckets(client)
        yield endpoint, client
        client.close()


def s3_client(endpoint: str) -> Any:
    """A client that is none of ours."""
    import botocore.session

    return botocore.session.Session().create_client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
    )


def make_buckets(client: Any, *names: str) -> None:
    """Make the buckets that are not there; another test process may make them at the same time."""
    there = {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}
    for name in names or (BUCKET, OPEN):
        if name not in there:
            with contextlib.suppress(client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
                client.create_bucket(Bucket=name)


@pytest.fixture
def s3(s3_server: tuple[str, Any]) -> S3Place:
    """A place on an S3 server."""
    return S3Place(*s3_server)


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any]]:
    """Endpoint of Azurite with the containers "tests" and "open" (which everybody may read), and Azure's own client."""
    for endpoint, _ in _server("azurite", tmp_path_factory):
        from azure.core.exceptions import ResourceExistsError
        from azure.storage.blob import BlobServiceClient

        credential = {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY}
        with BlobServiceClient(f"{endpoint}/{ACCOUNT}", credential=credential) as service:
            for name, public in ((BUCKET, None), (OPEN, "container")):
                with contextlib.suppress(ResourceExistsError):
                    service.create_container(name, public_access=public)
            yield endpoint, service


@pytest.fixture
def azure(azure_server: tuple[str, Any]) -> AzurePlace:
    """A place on an Azure server."""
    return AzurePlace(*azure_server)


@pytest.fixture(scope="session")
def web_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """URL and folder of a web server."""
    pytest.importorskip("aiohttp")
    for endpoint, run in _server("web", tmp_path_factory):
        yield endpoint, run / "data"


@pytest.fixture
def web(web_server: tuple[str, Path]) -> WebPlace:
    """A folder on a web server."""
    return WebPlace(*web_server)


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Endpoint of an emulator of Google's storage with the bucket "tests"."""
    for endpoint, _ in _server("gcs", tmp_path_factory):
        body = json.dumps({"name": BUCKET}).encode()
        target = urllib.request.Request(
            f"{endpoint}/storage/v1/b?project=tests", body, {"Content-Type": "application/json"}
        )
        try:
            urllib.request.urlopen(target, timeout=30).close()
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise
        yield endpoint


@pytest.fixture
def gcs(gcs_server: str) -> GcsPlace:
    """A place on a GCS server."""
    return GcsPlace(gcs_server)
