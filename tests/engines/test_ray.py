"""Ray: what is started here, and a cluster that runs already."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shardstream.pack.run import pack

from ..pack.making import tree
from ..pack.test_kill import until
from ..processes import session
from .contract import ROOT, SMALL, EngineTests, command, ended

ray = pytest.importorskip("ray", reason="Ray is not installed: tools/engines runs these tests")

RAY = [sys.executable, "-m", "ray.scripts.scripts"]
QUIET = {"log_to_driver": False, "include_dashboard": False}


@pytest.fixture(autouse=True)
def _by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # else it keeps a token in the home folder
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def head(tmp_path: Path) -> Iterator[str]:
    """The address of a cluster of this machine, as users start it."""
    arguments = ["start", "--head", "--block", "--port", "0", "--num-cpus", "2", "--include-dashboard", "false"]
    log = tmp_path / "log"
    with log.open("w") as out, subprocess.Popen([*RAY, *arguments], stdout=out, start_new_session=True) as process:
        try:
            until(lambda: "--block" in log.read_text(), 60)
            found = re.search(r"--address='([^']+)'", log.read_text())
            assert found, log.read_text()
            yield found[1]
        finally:
            process.terminate()
            process.wait()
            until(lambda: not session(process.pid))


class TestRay(EngineTests):
    on = "ray"

    @contextmanager
    def attached(self) -> Iterator[Any]:
        with ray.init(address="local", num_cpus=2, **QUIET) as context:
            yield context

    def is_attached(self) -> bool:
        return bool(ray.is_initialized())

    def test_the_cluster_of_the_environment(
        self, head: str, source: Path, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RAY_ADDRESS", head)
        pack(source, tmp_path / "out", shard_size=SMALL, on="ray")
        assert tree(tmp_path / "out") == whole
        assert not self.is_attached()

    def test_no_cluster_where_the_environment_says(
        self, source: Path, helpers: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
        for patience in ("gcs_server_port_wait_time_s", "py_gcs_connect_timeout_s", "gcs_rpc_server_connect_timeout_s"):
            monkeypatch.setenv(f"RAY_{patience}", "1")
        process = ended(command(helpers, "out", "slow", "--on", "ray"), helpers)
        assert process.returncode == 2
        assert "no Ray cluster can be reached at 127.0.0.1:9" in process.stderr
