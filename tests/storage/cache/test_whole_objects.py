"""Web servers that send whole objects only, as Python's own: each object is fetched into the cache, once."""

from __future__ import annotations

import http.server
import io
import tarfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.errors import StorageError
from shardstream.storage.base.counters import counters

COUNT = 30
DATA = {f"k{i:02d}": np.random.default_rng(i).bytes(100_000) for i in range(COUNT)}


class Server:
    """A server of a directory. ``cut`` and ``spoil`` are how many answers end too early, or have a wrong byte."""

    def __init__(self, folder: Path) -> None:
        self.whole: Counter[str] = Counter()  # requests without a range, by path
        self.cut = self.spoil = 0
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self, directory=str(folder)))
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


class _Handler(http.server.SimpleHTTPRequestHandler):
    def __init__(self, state: Server, *args: Any, **kwargs: Any) -> None:
        self._state = state
        super().__init__(*args, **kwargs)

    def log_message(self, *_: Any) -> None:
        pass

    def copyfile(self, source: Any, out: Any) -> None:
        state, data = self._state, source.read()
        whole = self.headers.get("Range") is None
        state.whole[self.path] += whole
        if whole and self.path.endswith(".tar"):
            if state.cut:
                state.cut -= 1
                data = data[: len(data) // 2]
            elif state.spoil:
                state.spoil -= 1
                data = data[:-5000] + bytes([data[-5000] ^ 1]) + data[-4999:]
        with suppress(OSError):  # a client that asked for a range goes away
            out.write(data)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    web = tmp_path / "web"
    samples = [{"__key__": key, "x.bin": data} for key, data in DATA.items()]
    ss.pack(samples, web / "ours", shard_size="1600kB", workers=0)
    for number in range(2):
        with tarfile.open(web / f"part-{number}.tar", "w") as tar:
            for key in list(DATA)[number::2]:
                member = tarfile.TarInfo(f"{key}.x.bin")
                member.size = len(DATA[key])
                tar.addfile(member, io.BytesIO(DATA[key]))
    found = Server(web)
    yield found
    found.close()


def place(server: Server, kind: str) -> str:
    return f"{server.url}/{'ours' if kind == 'ours' else 'part-{0..1}.tar'}"


def read(url: str, **options: Any) -> dict[str, bytes]:
    return {one["__key__"]: bytes(one["x.bin"]) for one in ss.Reader(url, fields={"x.bin": "bytes"}, **options)}


@pytest.mark.parametrize(("kind", "client"), [("ours", "obstore"), ("tars", "obstore"), ("ours", "aiohttp")])
def test_each_object_is_fetched_once_by_all_readers(server: Server, kind: str, client: str, tmp_path: Path) -> None:
    """Readers share nothing but the cache, as processes do; a later one asks for no object."""
    options: dict[str, Any] = {"cache": tmp_path / "cache"}
    if client == "aiohttp":
        options["storage_options"] = {"headers": {"X-Token": "t"}}
    with ThreadPoolExecutor() as pool:
        found = [*pool.map(lambda _: read(place(server, kind), **options), range(3))]
    assert [*found, read(place(server, kind), **options)] == [DATA] * 4
    fetched = {path: count for path, count in server.whole.items() if path.endswith(".tar")}
    assert len(fetched) == 2
    assert set(fetched.values()) == {1}


@pytest.mark.parametrize("kind", ["ours", "tars"])
def test_downloads_that_break_begin_again(server: Server, kind: str, tmp_path: Path) -> None:
    server.cut = 2
    assert read(place(server, kind), cache=tmp_path / "cache") == DATA
    assert sum(count for path, count in server.whole.items() if path.endswith(".tar")) == 4


def test_an_object_that_was_spoilt_on_its_way_is_fetched_again(server: Server, tmp_path: Path) -> None:
    server.spoil = 1
    before = counters().snapshot()
    assert read(place(server, "ours"), cache=tmp_path / "cache") == DATA
    assert counters().since(before)["cache_repaired"] > 0


@pytest.mark.parametrize("kind", ["ours", "tars"])
@pytest.mark.parametrize("size", [None, "1MB"])
def test_without_room_in_a_cache_the_error_names_a_server(
    server: Server, kind: str, size: str | None, tmp_path: Path
) -> None:
    cache = None if size is None else ss.Cache(tmp_path / "cache", size=size)
    with pytest.raises(StorageError, match="does not send parts of a file") as caught:
        read(place(server, kind), cache=cache)
    assert "cache=DIR" in caught.value.hint
    assert "python -m RangeHTTPServer" in caught.value.hint


def test_a_directory_of_a_web_server_is_told_how_to_name_its_files(server: Server) -> None:
    with pytest.raises(StorageError, match="does not list its files") as caught:
        ss.ShardDataset(f"{server.url}/")
    assert "shard-{0000..0099}.tar" in caught.value.hint
