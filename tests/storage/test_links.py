"""Links in a directory are followed, but for those that another account planted to read what it may not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import shardstream as ss
from shardstream.storage.local.links import may_follow
from shardstream.storage.local.store import LocalStore
from tests.pack.making import jpeg

ME, OTHER, THIRD, ROOT = 1000, 1001, 1002, 0
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another account")


def _stat(owner: int, mode: int = 0o100600) -> os.stat_result:
    return os.stat_result((mode, 1, 1, 1, owner, owner, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("link", "target", "mode", "follow"),
    [
        (ME, ME, 0o600, True),
        (ME, OTHER, 0o600, True),  # what I chose myself
        (ROOT, ME, 0o600, True),
        (OTHER, OTHER, 0o600, True),  # somebody's directory of links to their own files
        (OTHER, ROOT, 0o644, True),  # to data of the whole machine
        (OTHER, ROOT, 0o640, False),
        (OTHER, ME, 0o644, False),
        (OTHER, THIRD, 0o644, False),
    ],
)
def test_who_may_link_to_what(link: int, target: int, mode: int, follow: bool) -> None:
    assert may_follow(_stat(link, 0o120777), _stat(target, 0o100000 | mode), ME) is follow


def _plant(link: Path, target: Path, owner: int = OTHER) -> None:
    link.symlink_to(target)
    os.chown(link, owner, owner, follow_symlinks=False)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    folder = tmp_path / "secret"
    folder.mkdir(mode=0o700)
    (folder / "pic.jpg").write_bytes(jpeg(0))
    (folder / "pic.jpg").chmod(0o600)
    return folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name in ("a/0.jpg", "b/1.jpg"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / name).write_bytes(jpeg(0))
    return tmp_path / "photos"


@as_root
class TestAPlantedLink:
    def test_is_refused_by_the_store(self, tmp_path: Path, secret: Path) -> None:
        _plant(tmp_path / "x", secret / "pic.jpg")
        _plant(tmp_path / "folder", secret)
        for path in ("x", "folder/pic.jpg"):
            with pytest.raises(ss.errors.AccessError, match="belongs to account 1001") as raised:
                LocalStore(tmp_path).get(path)
            assert path.split("/")[0] in str(raised.value)
            with pytest.raises(ss.errors.AccessError):
                list(LocalStore(tmp_path).pieces(path, 10))

    def test_is_refused_where_the_directory_is_read_in_place(self, photos: Path, secret: Path) -> None:
        _plant(photos / "b/2.jpg", secret / "pic.jpg")
        samples = ss.Reader(photos)
        assert samples[1]["jpg"].shape
        with pytest.raises(ss.errors.AccessError, match="not followed"):
            samples[2]

    def test_is_a_rejected_sample_of_pack(self, photos: Path, secret: Path, tmp_path: Path) -> None:
        _plant(photos / "b/2.jpg", secret / "pic.jpg")
        assert ss.pack(photos, tmp_path / "out").samples == 2
        assert "belongs to account 1001" in (tmp_path / "out/rejects.jsonl").read_text()

    def test_to_a_class_folder_ends_pack(self, photos: Path, secret: Path, tmp_path: Path) -> None:
        _plant(photos / "c", secret)
        with pytest.raises(ss.errors.SourceError, match="not followed"):
            ss.pack(photos, tmp_path / "out")

    def test_is_refused_as_a_chunk_of_zarr(self, secret: Path, tmp_path: Path) -> None:
        zarr = pytest.importorskip("zarr")
        array = zarr.create_array(str(tmp_path / "x.zarr"), shape=(4, 5), chunks=(2, 5), dtype="u1", zarr_format=2)
        array[:] = 1
        (tmp_path / "x.zarr/1.0").unlink()
        _plant(tmp_path / "x.zarr/1.0", secret / "pic.jpg")
        with pytest.raises(ss.errors.ShardStreamError, match="not followed"):
            ss.pack(tmp_path / "x.zarr", tmp_path / "out")


class TestALinkOfOnesOwn:
    def test_is_followed_to_anywhere(self, photos: Path, secret: Path, tmp_path: Path) -> None:
        (photos / "b/2.jpg").symlink_to(secret / "pic.jpg")
        assert len(ss.Reader(photos)) == 3
        assert ss.Reader(photos)[2]["jpg"].shape
        (photos / "c").symlink_to(secret)
        assert ss.pack(photos, tmp_path / "out").samples == 4

    def test_in_the_hugging_face_cache_is_followed(self, tmp_path: Path) -> None:
        parquet, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
        cached = tmp_path / "datasets--x--y"
        snapshot, blobs = cached / "snapshots/0123abcd/data", cached / "blobs"
        snapshot.mkdir(parents=True)
        blobs.mkdir()
        for number in range(2):
            parquet.write_table(pa.table({"text": [f"{number}"] * 3}), blobs / f"{number:064x}")
            (snapshot / f"train-0000{number}-of-00002.parquet").symlink_to(f"../../../blobs/{number:064x}")
        samples = ss.Reader(snapshot.parent)
        assert [sample["text"] for sample in samples] == ["0", "0", "0", "1", "1", "1"]
        assert ss.pack(snapshot.parent, tmp_path / "out").samples == 6
