"""A server that speaks S3, on loopback, and a proxy before it that adds latency and counts requests.

The proxy is the one that the tests provoke faults with; it is started by its path, since nothing here imports tests.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.data import HOME, ROOT

BUCKET = "records"
KEY, SECRET = "bench", "a-key-of-loopback"
_START = 60.0  # seconds it may take to answer


def options(endpoint: str) -> dict[str, Any]:
    """``storage_options`` of shardstream and of obstore."""
    return {"access_key_id": KEY, "secret_access_key": SECRET, "endpoint": endpoint, "region": "us-east-1"}


def environment(endpoint: str) -> dict[str, str]:
    """The same as variables, for boto3 and those that use it."""
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "S3_ENDPOINT_URL": endpoint,
        "AWS_ENDPOINT_URL": endpoint,
    }


@contextmanager
def s3() -> Iterator[str]:
    """A fresh server with an empty bucket that anybody may read; gives ``http://host:port``."""
    folder = HOME / "s3"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "data").mkdir(parents=True)
    identities = [
        {
            "name": "bench",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        },
        {"name": "anonymous", "actions": [f"Read:{BUCKET}", f"List:{BUCKET}"]},
    ]
    (folder / "s3.json").write_text(json.dumps({"identities": identities}))
    ports = free_ports(8)
    names = ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc"]
    command = [
        *(str(Path(sys.executable).with_name("weed")), "server", f"-dir={folder / 'data'}"),
        *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.volumeSizeLimitMB=1024", "-volume.max=40"),
        *(f"-{name}={port}" for name, port in zip(names, ports[2:], strict=True)),
        *("-master.telemetry=false", "-filer", "-s3", f"-s3.port={ports[0]}", f"-s3.port.grpc={ports[1]}"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false", f"-s3.config={folder / 's3.json'}"),
    ]
    url = f"http://127.0.0.1:{ports[0]}"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder, preexec_fn=_die_with_parent
        )
    try:
        _wait_for(url, process, folder / "log")
        yield url
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def slowed(url: str, seconds: float) -> Iterator[Any]:
    """The tests' ``FaultProxy`` before a server, waiting so long before each answer; it counts requests."""
    path = ROOT / "tests" / "storage" / "faults.py"
    spec = importlib.util.spec_from_file_location("bench_faults", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.FaultProxy(url.removeprefix("http://")) as proxy:
        if seconds:
            proxy.add("latency", seconds=seconds)
        yield proxy


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START
    while True:
        try:
            urllib.request.urlopen(f"{url}/status", timeout=2).close()  # noqa: S310 - http, made above
        except urllib.error.HTTPError:
            return  # it refuses us, so it is there
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the S3 server did not start:\n{log.read_text(errors='replace')[-2000:]}") from None
            time.sleep(0.05)
        else:
            return


def _die_with_parent() -> None:
    os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
