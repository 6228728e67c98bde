"""The framing contract, held by both framings of our own and by one that is not."""

from __future__ import annotations

import pytest

from shardstream.errors import FormatError, UsageError
from shardstream.shards.framings import framing_of, writer_of
from shardstream.storage.local.store import LocalStore
from shardstream.testing import FramingConformance

from .loose_files import LooseFiles
from .making import shard_bytes, write_shard


class OwnFraming(FramingConformance):
    zstd: frozenset[str] = frozenset()

    def write(self, folder, samples):
        path = f"shard{self.framing.suffix}"
        write_shard(LocalStore(folder), path, self.framing.name, samples, **({"zstd": self.zstd} if self.zstd else {}))
        return path

    def place_of(self, folder, path, row):
        payload = self.samples()[row][1]["jpg"]
        data = (folder / path).read_bytes()
        # Every sample's bytes are a run of its own number, none longer than this one.
        return folder / path, data.index(payload)


class TestTar(OwnFraming):
    framing = framing_of("tar")


class TestRecord(OwnFraming):
    framing = framing_of("record")


class TestCompressedRecord(OwnFraming):
    framing = framing_of("record")
    zstd = frozenset({"txt"})


class TestLooseFiles(FramingConformance):
    framing = LooseFiles()
    holds = ("jpg", "cls", "txt")
    checks = False
    counts = (1, 8, 9)  # an empty list is an error

    def write(self, folder, samples):
        lines = []
        for i, (key, values) in enumerate(samples):
            (folder / f"{i}.jpg").write_bytes(values["jpg"])
            text = f"texts/{i}" if "txt" in values else ""
            if text:
                (folder / "texts").mkdir(exist_ok=True)
                (folder / text).write_bytes(values["txt"].encode())
            lines.append(f"{key}\t{values['cls']}\t{i}.jpg\t{text}\n")
        (folder / "list.tsv").write_text("".join(lines))
        return "list.tsv"


@pytest.mark.parametrize("ask", [framing_of, writer_of])
def test_framings_go_by_name(ask) -> None:
    assert {ask(name) for name in ("tar", "record")}
    with pytest.raises(UsageError, match="'zip'") as caught:
        ask("zip")
    assert "tar, record" in str(caught.value.hint)


@pytest.mark.parametrize("framing", ["tar", "record"])
def test_a_shard_of_the_other_framing_is_refused(tmp_path, framing) -> None:
    other = {"tar": "record", "record": "tar"}[framing]
    (tmp_path / "x").write_bytes(shard_bytes(tmp_path, framing, []))
    with pytest.raises(FormatError):
        framing_of(other).scan(LocalStore(tmp_path), "x")
