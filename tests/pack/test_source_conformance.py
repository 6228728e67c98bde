"""Every kind of source that can be packed, by the conformance class that users have for theirs."""

from __future__ import annotations

import tarfile
from typing import ClassVar

import pytest

from shardstream import SourceOptions
from shardstream.dataset.opening import open_dataset
from shardstream.pack.sources.stored import StoredSource
from shardstream.testing import SourceConformance, make_dataset

from .making import jpeg, photo_list, photos

COUNT = 20


class AtPath(SourceConformance):
    """Where `write` put it."""

    expected = COUNT

    @pytest.fixture(autouse=True)
    def _written(self, tmp_path):
        self.place = self.write(tmp_path)

    def make_source(self):
        return self.place


class TestList(AtPath):
    def write(self, folder):
        return str(photo_list(folder, COUNT))


class TestListWithWhatIsMissing(AtPath):
    expected = COUNT - 1

    def write(self, folder):
        path = photo_list(folder, COUNT)
        (folder / "c0" / "00003.jpg").unlink()
        return str(path)


class TestCsv(AtPath):
    arguments: ClassVar = {"fields": {"jpg": "file", "cls": "label:int"}, "key": "id"}

    def write(self, folder):
        lines = [f"{path},{i},id{i}\n" for i, path in enumerate(photos(folder, COUNT))]
        (folder / "list.csv").write_text("file,label,id\n" + "".join(lines))
        return str(folder / "list.csv")


class TestFolder(AtPath):
    def write(self, folder):
        photos(folder, COUNT)
        return str(folder)


class TestGroups(AtPath):
    arguments: ClassVar = {"reading": SourceOptions(group="stem")}

    def write(self, folder):
        for path in photos(folder, COUNT):
            (folder / path).with_suffix(".txt").write_text(path)
        return str(folder)


class TestTar(AtPath):
    def write(self, folder):
        with tarfile.open(folder / "one.tar", "w") as out:
            for path in photos(folder, COUNT):
                out.add(folder / path, path.replace("/", "-"))
        return str(folder / "one.tar")


class TestLmdb(AtPath):
    def write(self, folder):
        lmdb = pytest.importorskip("lmdb")
        with lmdb.open(str(folder / "db"), map_size=1 << 24) as env, env.begin(write=True) as out:
            for number in range(COUNT):
                out.put(f"{number:04d}".encode(), jpeg(number))
        return str(folder / "db")


class TestStored(AtPath):
    """What `repack` reads: a data set of ours."""

    def write(self, folder):
        make_dataset(folder / "stored", samples=COUNT, fields={"id": "int32", "emb": "array:float32:3", "txt": "str"})
        return folder / "stored"

    def make_source(self):
        return StoredSource(open_dataset(self.place))


class TestSequence(SourceConformance):
    expected = COUNT

    def make_source(self):
        return [{"__key__": f"k{number}", "jpg": jpeg(number), "cls": number} for number in range(COUNT)]


class TestSequenceWithoutKeys(SourceConformance):
    expected = COUNT
    arguments: ClassVar = {"key": "line"}

    def make_source(self):
        return [{"id": number, "txt": str(number)} for number in range(COUNT)]


class TestIterable(SourceConformance):
    expected = COUNT

    def make_source(self):
        return ({"__key__": f"k{number}", "id": number} for number in range(COUNT))
