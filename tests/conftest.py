"""What every test shares: how many examples hypothesis draws, and which tests run where."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from importlib.machinery import PathFinder
from itertools import compress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from .storage.places import azure, azure_server, gcs, gcs_server, s3, s3_server, web, web_server  # noqa: F401

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # or importing it asks the network for a newer version of itself

# No deadline: machines are shared, and a slow example is not a wrong one (a hang ends by faulthandler_timeout).
settings.register_profile("default", max_examples=20, deadline=None)
# The same verdict for the same tree, whenever it is asked.
settings.register_profile("ci", settings.get_profile("default"), max_examples=10, derandomize=True, print_blob=True)
settings.register_profile(
    "full", max_examples=30, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run tests marked `full` too, and draw 30 examples each")


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # collecting tests makes objects that stay: until it has ended, there is nothing to look for
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


# What extras and the group `test` bring. Tests that need none of what is missing run without it.
_OPTIONAL = {
    "PIL", "adlfs", "aiohttp", "albumentations", "array_record", "azure", "botocore", "cramjam", "cv2", "datasets",
    "fsspec", "gcsfs", "h5py", "imageio", "indexed_gzip", "kornia", "lance", "lmdb", "numba", "obstore",
    "pyarrow", "rich", "s3fs", "simplejpeg", "typer", "webdataset", "yaml", "zarr", "zstandard",
}  # fmt: skip


def _skip_for_a_package(
    report: pytest.CollectReport | pytest.TestReport, path: Path, error: BaseException | None
) -> None:
    """Make a skip of a failure, if it is that a package is not installed: not one that a test hides."""
    while error is not None:
        name = (isinstance(error, ModuleNotFoundError) and error.name) or ""
        if name.partition(".")[0] in _OPTIONAL and PathFinder.find_spec(name.partition(".")[0]) is None:
            report.outcome = "skipped"
            report.longrepr = (str(path), 0, f"Skipped: {name.partition('.')[0]} is not installed")
            return
        error = getattr(error, "cause", None) or error.__cause__ or error.__context__


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, pytest.CollectReport]:
    report: pytest.CollectReport = yield
    if report.outcome != "passed":
        # Or those that import from this one would find the half of it.
        sys.modules.pop(".".join(collector.path.relative_to(collector.config.rootpath).with_suffix("").parts), None)
        _skip_for_a_package(report, collector.path, vars(report)["call"].excinfo.value)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, pytest.TestReport]:
    report: pytest.TestReport = yield
    if report.failed and call.excinfo is not None:
        _skip_for_a_package(report, item.path, call.excinfo.value)
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--full"):
        of_a_test = Counter[str]()
        runs = [not _is_left_out(item, of_a_test) for item in items]
        config.hook.pytest_deselected(items=[item for item, here in zip(items, runs, strict=True) if not here])
        items[:] = compress(items, runs)
    for item in items:
        if item.get_closest_marker("gpu"):
            # Torch says of much that it does on a device that it is new, or slow: that is no failure of ours.
            item.add_marker(pytest.mark.filterwarnings("default"))
            if not _has_gpu():
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def pytest_report_collectionfinish(config: pytest.Config) -> str:
    return "" if config.getoption("--full") else "what takes long is deselected, and runs with --full"


def pytest_collection_finish() -> None:
    """What all tests have in common is looked through once, not by every collection of garbage from now on."""
    gc.collect()
    gc.freeze()
    gc.enable()


def _is_left_out(item: pytest.Item, of_a_test: Counter[str]) -> bool:
    """Of a test marked ``one_in(n)`` the first set of parameters runs, and each nth one after it; of ``full``, none."""
    if item.get_closest_marker("full"):
        return True
    marker = item.get_closest_marker("one_in")
    if marker is None:
        return False
    test = item.nodeid.partition("[")[0]
    of_a_test[test] += 1
    return (of_a_test[test] - 1) % marker.args[0] != 0


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
