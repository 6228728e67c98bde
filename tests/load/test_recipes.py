"""The recipes of docs/watching.md, run as they stand there, against the real packages."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss

from ..stream.making import numbered, write_dataset

PAGE = Path(__file__).parents[2] / "docs/watching.md"
pytestmark = pytest.mark.full
WHY = "the recipe for it needs the real package"


def run_recipe(package: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the block of the page that needs this package, in a folder of its own, then train on its loader."""
    (code,) = re.findall(rf"<!-- not run: needs {package} -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    monkeypatch.chdir(folder)
    ds = ss.ShardDataset(write_dataset(folder / "d", numbered([20])), batch_size=5)
    names: dict[str, Any] = {"ss": ss, "ds": ds}
    exec(code.replace("num_workers=8", "num_workers=0").replace("(9100)", "(0)"), names)
    assert len(list(names["loader"])) == 4
    return names


def test_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard", reason=WHY)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run_recipe("tensorboard", tmp_path, monkeypatch)["writer"].close()
    read = EventAccumulator(str(tmp_path / "runs/1"))
    read.Reload()
    (event,) = read.Scalars("data/samples_per_second")
    assert event.step == 4
    assert event.value > 0


def test_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason=WHY)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = run_recipe("wandb", tmp_path, monkeypatch)["run"]
    assert run.summary["data/samples_total"] == 20
    run.finish()


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason=WHY)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # newer ones want a database
    mlflow.set_tracking_uri(tmp_path.joinpath("runs").as_uri())
    run_recipe("mlflow", tmp_path, monkeypatch)
    number = mlflow.active_run().info.run_id
    mlflow.end_run()
    (metric,) = mlflow.MlflowClient().get_metric_history(number, "data/samples_total")
    assert (metric.value, metric.step) == (20, 4)


def test_prometheus_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = pytest.importorskip("prometheus_client", reason=WHY)
    begin, served = client.start_http_server, []
    monkeypatch.setattr(client, "start_http_server", lambda port: served.append(begin(port, "127.0.0.1")))
    run_recipe("prometheus_client", tmp_path, monkeypatch)
    ((server, thread),) = served
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert "\nshardstream_samples_total 20.0\n" in text
