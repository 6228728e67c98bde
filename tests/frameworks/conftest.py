"""Each script runs once on one rank and once on two, for all tests of its module."""

from __future__ import annotations

from typing import Any

import pytest

from .running import Reports, ran


@pytest.fixture(scope="module", params=[1, 2], ids=["1 rank", "2 ranks"])
def ranks(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture(scope="module")
def reports(request: pytest.FixtureRequest, ranks: int, tmp_path_factory: pytest.TempPathFactory) -> Reports:
    found = ran(request.module.SCRIPT, tmp_path_factory.mktemp("framework"), ranks)

    def of(name: str) -> list[Any]:
        return [rank[name] for rank in found]

    return of
