"""PySpark: what is started here, and a session that is there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from .contract import EngineTests

sql = pytest.importorskip("pyspark.sql", reason="PySpark is not installed: tools/engines runs these tests")

LOCAL = {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}


@pytest.fixture(autouse=True)
def _this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)


class TestSpark(EngineTests):
    on = "spark"

    @contextmanager
    def attached(self) -> Iterator[Any]:
        session = sql.SparkSession.builder.config(map=LOCAL).getOrCreate()
        try:
            yield session
        finally:
            session.stop()

    def is_attached(self) -> bool:
        return sql.SparkSession.getActiveSession() is not None
