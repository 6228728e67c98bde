"""How many samples are lost of damaged files: known or said to be unknown, in every format."""

from __future__ import annotations

from pathlib import Path

import pytest

import shardstream as ss
from shardstream.dataset.opening import open_dataset
from shardstream.errors import ShardStreamError
from shardstream.formats.catalog.catalog import Catalogue
from tests.formats.catalog.every import SETS


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.parametrize("name", [name for name in SETS if name not in ("hdf5", "plain hdf5")])
def test_every_loss_has_a_number_of_samples_or_says_that_it_is_unknown(name: str, tmp_path: Path) -> None:
    """With its last object cut in the middle, what is left and what is told lost are all there was."""
    folder = tmp_path / "data"
    folder.mkdir()
    one = SETS[name]
    one.make(folder)
    options = dict(one.options)
    before = ss.index(folder, reading=ss.SourceOptions(options=options), workers=0)
    catalogue = open_dataset(folder).manifest
    assert isinstance(catalogue, Catalogue)
    path = folder / list(catalogue.names)[-1]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    try:
        after = ss.index(folder, reading=ss.SourceOptions(options=options), workers=0, damaged="reject")
    except ShardStreamError:
        return  # nothing of it can be read, or files beside it contradict it
    catalogue = open_dataset(folder).manifest
    assert isinstance(catalogue, Catalogue)
    losses = [loss for lost in catalogue.lost.values() for loss in lost]
    told = " ".join(after.notes)
    if any(loss.samples is None for loss in losses):
        assert "number of samples unknown" in told
    elif losses:
        assert after.samples + sum(loss.samples or 0 for loss in losses) == before.samples
