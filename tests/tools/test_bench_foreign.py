"""What the table of data of other libraries rests on: every format is written and read, and every cell is printed."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shardstream import Reader

TOOLS = Path(__file__).resolve().parents[2] / "tools"
COUNT = 12


def bench(name: str) -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOOLS))
        return importlib.import_module(f"bench.{name}")


bars = bench("foreign.bars")
corpora = bench("foreign.corpora")
measured = bench("foreign.measured")
page = bench("foreign.page")
pairs = bench("foreign.pairs")
scans = bench("foreign.scans")
stores = bench("foreign.stores")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


def written(name: str, out: Path) -> Path:
    """Small values in a format."""
    getattr(stores, name)(str(out), kind="values", count=COUNT)
    return out


# MDS, LitData and TFRecord are written by packages that the tests do without.
@pytest.mark.parametrize("name", ["webdataset", "recordio", "lmdb", "zip", "npz", "beton"])
def test_every_format_that_can_be_written_here_holds_the_samples(name: str, tmp_path: Path) -> None:
    octets, label = corpora.FORMATS[name].names["values"]
    found = list(Reader(written(name, tmp_path / name), fields=[octets, label]))
    for sample, expected in zip(found, corpora.samples("values", COUNT), strict=True):
        assert (bytes(sample[octets]), int(sample[label])) == (expected.octets, expected.label)


def test_a_pair_a_scan_and_a_start_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in ((pairs, "AT_LEAST", 0.0), (pairs, "BATCH", 4), (pairs, "WORKERS", 0)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(scans, "AT_LEAST", 0.0)
    monkeypatch.setattr(scans, "BATCH", 4)
    place = written("webdataset", tmp_path / "wds")
    stores.packed(str(tmp_path / "packed"), str(place))
    result = pairs.beside(str(place), str(tmp_path / "packed"), ["bin", "cls"], "bytes", turns=1)
    assert result["delivered"] == {"batches": 3, "samples": COUNT}
    assert set(scans.scan(str(place), "webdataset")["figures"]) == {"samples/s", *scans.JOBS}
    assert scans.catalogue(str(place), "cls")["figures"]["beside keys"] > 0
    cached = pairs.beside(
        str(place), str(tmp_path / "packed"), ["bin", "cls"], "bytes", turns=1, cache=str(tmp_path / "cache")
    )
    assert cached["delivered"] == result["delivered"]
    folder = scans.link(tmp_path / "many", 3)
    assert scans.start(str(folder))["delivered"] == {"samples": 3 * scans.ROWS}


def cells(**rounds: Any) -> Any:
    """Cells of which only these have figures."""
    found = measured.Measured()
    for (what, name, kind), figures in rounds["cells"].items():
        found[what, name, kind].rounds = figures
    return found


def test_every_cell_is_printed_with_its_verdict() -> None:
    pair = {pairs.IN_PLACE: 95.0, pairs.PACKED: 100.0, pairs.RATIO: 0.95, pairs.CPU_RATIO: 0.85}
    found = cells(
        cells={
            ("bytes", "lmdb", "values"): [pair],
            ("ours", "zip", "values"): [{"samples/s": 100.0, "samples/CPU s": 200.0}] * 2,
            ("theirs", "zip", "values"): [{"samples/s": 100.0, "samples/CPU s": 100.0}] * 2,
        }
    )
    found["bytes", "zip", "values"].problem = "failed: it is gone"
    text = page.section(found, "origin\n")
    assert "| LMDB | 1 KB, bytes | 95 | 100 | 0.95 (0.95–0.95) | 0.85 (0.85–0.85) | ≥ 0.9 | reached |" in text
    assert "| zip, stored | 1 KB, bytes | failed: it is gone |  |  |  | ≥ 0.9 | not measured |" in text
    assert "| JSON lines, `.gz` | 1 KB, bytes | not measured |  |  |  | ≥ 0.5 | not measured |" in text
    assert "| JSON lines, `.gz` | 1 KB, bytes, second epoch with a cache | not measured |  |  |  | ≥ 0.9 |" in text
    assert "| npz | photographs, bytes | holds no such samples |" in text
    reader = (
        "| zip, `Dataset` of ten lines | 1 KB | 100 | 100 | 1.00 (1.00–1.00) | 2.00 (2.00–2.00) | ≥ 1.5 | **missed** |"
    )
    assert reader in text
    assert text.endswith("origin\n")


def test_a_bar_that_nobody_measured_is_not_reached() -> None:
    assert bars.verdict([], 1) == "not measured"
    assert [bars.verdict([1, 3], 2), bars.verdict([3], 2, most=True)] == ["reached", "**missed**"]
