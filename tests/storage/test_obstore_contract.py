"""Every store that obstore speaks to, by contract."""

from __future__ import annotations

import pytest

from shardstream.errors import StorageError

from .contract import ReadingPlace, WritingPlace


class TestS3(WritingPlace):
    @pytest.fixture
    def place(self, s3):
        return s3


class TestAzure(WritingPlace):
    @pytest.fixture
    def place(self, azure):
        return azure


class TestWeb(ReadingPlace):
    missing = ("y", "folder/y")  # a folder may be a page; this server forbids it

    @pytest.fixture
    def place(self, web):
        return web

    def test_a_web_server_is_read_only_and_has_no_list(self) -> None:
        store = self.make_store()
        self.plant("x", b"1")
        for ask in (
            lambda: store.put("y", b"1"),
            lambda: store.delete("x"),
            lambda: store.move("x", "y"),
            lambda: list(store.list()),
        ):
            with pytest.raises(StorageError, match=r"read only|does not list"):
                ask()
        assert bytes(store.get("x")) == b"1"
