"""The same stores through fsspec, and fsspec's own, by the same contract."""

from __future__ import annotations

import uuid

import pytest

from .contract import ReadingPlace, WritingPlace
from .places import Place


class MemoryPlace(Place):
    """In fsspec's store in memory, which one process has to itself."""

    def __init__(self) -> None:
        import fsspec

        self.files = fsspec.filesystem("memory")
        self.name = uuid.uuid4().hex
        self.options = {}

    def url(self, path: str = "") -> str:
        return f"memory://{self.name}{'/' if path else ''}{path}"

    def plant(self, path: str, data: bytes) -> None:
        self.files.pipe_file(f"/{self.name}/{path}", data)

    def dig(self, path: str) -> bytes | None:
        return self.files.cat_file(f"/{self.name}/{path}") if self.files.exists(f"/{self.name}/{path}") else None


class TestMemory(WritingPlace):
    @pytest.fixture
    def place(self):
        return MemoryPlace()


class TestS3Fs(WritingPlace):
    transport = "fsspec"

    @pytest.fixture
    def place(self, s3):
        return s3


# aiohttp's advice to adlfs and gcsfs on how to send large bodies.
@pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")
class TestAdlfs(WritingPlace):
    transport = "fsspec"

    @pytest.fixture
    def place(self, azure):
        return azure


@pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")
class TestGcsfs(WritingPlace):
    transport = "fsspec"

    @pytest.fixture
    def place(self, gcs):
        return gcs


class TestHttpFs(ReadingPlace):
    transport = "fsspec"
    missing = ("y", "folder/y")  # a folder may be a page; this server forbids it

    @pytest.fixture
    def place(self, web):
        return web
