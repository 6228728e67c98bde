"""``fingerprint=`` pins which data are opened."""

from __future__ import annotations

from pathlib import Path

import pytest

import shardstream as ss
from tests.pack.making import jpeg


@pytest.fixture
def grown(tmp_path: Path) -> str:
    """A dataset with two versions."""
    for number in range(2):
        with ss.ShardWriter(tmp_path / "out", append=bool(number)) as writer:
            writer.write({"__key__": f"{number}", "n": number})
    return str(tmp_path / "out")


def test_a_dataset_opens_with_its_own_fingerprint_only(grown: str) -> None:
    own = ss.Manifest.load(grown).fingerprint
    assert len(ss.ShardDataset(grown, fingerprint=own)) == len(ss.Reader(grown, fingerprint=own)) == 2
    other = own[::-1]
    for opened in (ss.ShardDataset, ss.Reader, ss.info):
        with pytest.raises(ss.errors.DataError, match=f"fingerprint {own}, and not {other}") as raised:
            opened(grown, fingerprint=other)
        assert "look at where it came from" in str(raised.value.hint)


def test_an_older_version_is_named(grown: str) -> None:
    first = ss.Manifest.load(grown, version=1).fingerprint
    with pytest.raises(ss.errors.DataError) as raised:
        ss.Reader(grown, fingerprint=first)
    assert "version=1" in str(raised.value.hint)
    assert len(ss.Reader(grown, fingerprint=first, version=1)) == 1


def test_several_datasets_have_a_list(grown: str) -> None:
    own = ss.Manifest.load(grown).fingerprint
    assert len(ss.ShardDataset([grown, grown], fingerprint=[own, None])) == 4
    with pytest.raises(ss.errors.UsageError, match="1 entry for 2 datasets"):
        ss.ShardDataset([grown, grown], fingerprint=own)
    with pytest.raises(ss.errors.UsageError, match="32 hexadecimal digits"):
        ss.Reader(grown, fingerprint=own[:8])


def test_data_of_another_library_have_one_too(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        (folder / name / "0.jpg").write_bytes(jpeg(0))
    own = ss.Reader(folder).manifest.fingerprint
    assert len(ss.Reader(folder, fingerprint=own)) == 2
    (folder / "b/1.jpg").write_bytes(jpeg(1))
    with pytest.raises(ss.errors.DataError, match="and not"):
        ss.Reader(folder, fingerprint=own)
