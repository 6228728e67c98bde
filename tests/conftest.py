"""What every test shares: how many examples hypothesis draws, and which tests run where."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from .storage.places import azure, azure_server, gcs, gcs_server, s3, s3_server, web, web_server  # noqa: F401

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # or importing it asks the network for a newer version of itself

# No deadline: machines are shared, and a slow example is not a wrong one (a hang ends by faulthandler_timeout).
settings.register_profile("default", max_examples=50, deadline=None)
# The same verdict for the same tree, whenever it is asked.
settings.register_profile("ci", settings.get_profile("default"), max_examples=10, derandomize=True, print_blob=True)
settings.register_profile(
    "full", max_examples=1000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run tests marked `full` too, and draw 1000 examples each")


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background jobs ignore Ctrl-C, and so would everything that is started here and has to be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not config.getoption("--hypothesis-profile"):
        default = os.environ.get("SHARDSTREAM_HYPOTHESIS", "default")
        settings.load_profile("full" if config.getoption("--full") else default)


@pytest.fixture(scope="session", autouse=True)
def _cache_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tables of keys that readers keep for a user must not be left behind by a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache-home")))
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    full = config.getoption("--full")
    for item in items:
        if item.get_closest_marker("full") and not full:
            item.add_marker(pytest.mark.skip(reason="takes long; run with --full"))
        if item.get_closest_marker("gpu") and not _has_gpu():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
