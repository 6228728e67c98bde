"""Rejects, any number of them: in order, counted, and never all in memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import StorageError
from shardstream.pack.options import PackOptions
from shardstream.pack.output import rejects as rejects_module
from shardstream.pack.output.receipts import ShardResult, from_bytes, receipt_name, reject_entry, rejects_of, to_bytes
from shardstream.pack.output.rejects import SortedRejects, StoredRejects, lines_of, summary_of
from shardstream.pack.output.stats import PackStats
from shardstream.pack.plan.pack_plan import pack_plan
from shardstream.pack.run import pack, run_pack
from shardstream.pack.sources import Reject
from shardstream.shards.fields import FieldType
from shardstream.shards.writing import ShardSummary
from shardstream.storage import locate, open_store

from .making import photo_list

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.text('\0\1\2\3ab"\\,[]', max_size=6)
REJECTS = st.lists(st.builds(Reject, st.integers(1, 4) | st.integers(1, 10**12), TEXTS, TEXTS), max_size=12)
FIELDS = {"rejects": FieldType.parse("int64"), "jpg": FieldType.parse("jpg")}


@given(REJECTS, st.integers(1, 3))
def test_they_come_back_in_order(rejects: list[Reject], parts: int) -> None:
    with SortedRejects() as found:
        for part in range(parts):
            found.add(rejects[part::parts])
        assert [one[:3] for one in found] == [one[:3] for one in sorted(rejects, key=lambda one: one[:3])]
        assert Counter(found) == Counter(rejects)  # as often as asked


def result(rejects: int) -> ShardResult:
    summary = ShardSummary(3, 4, 5, 6, FIELDS)
    return ShardResult(
        1, summary, {"jpg": {'"rejects":[': 2}}, PackStats(samples=3, rejects=rejects), {10: 3}, kept=True
    )


@given(REJECTS)
def test_a_receipt_holds_them_and_tells_all_else(rejects: list[Reject]) -> None:
    store = open_store("memory://receipts")
    data = to_bytes(result(len(rejects)), b",".join(map(reject_entry, rejects)))
    store.put(receipt_name("a.tar"), data)
    assert json.loads(data)["rejects"] == [list(one) for one in rejects]
    assert from_bytes(data) == result(len(rejects))
    assert list(rejects_of(store, result(len(rejects)), "a.tar")) == rejects


def test_receipts_of_earlier_versions_are_understood() -> None:
    rejects = [Reject(7, "a", 'no "x"'), Reject(9, "ä", "[]")]
    short = [list(one[:3]) for one in rejects]
    entry = json.loads(to_bytes(result(2)))
    order = ("number", "samples", "bytes", "checksum", "index_bytes", "fields", "rejects", "kinds", "tally", "sizes")
    entry["rejects"] = short
    data = json.dumps({name: entry[name] for name in order}, ensure_ascii=False, separators=(",", ":")).encode()
    assert from_bytes(data) == result(2)
    store = open_store("memory://receipts")
    store.put(receipt_name("old.tar"), data)
    assert list(rejects_of(store, result(2), "old.tar")) == rejects


def test_a_receipt_that_was_cut_is_none() -> None:
    data = to_bytes(result(2), b",".join(map(reject_entry, [Reject(7, "a", "b"), Reject(8, "ä", "]}")])))
    for end in range(len(data)):
        with pytest.raises((ValueError, KeyError, TypeError, IndexError)):
            from_bytes(data[:end])


def test_a_receipt_that_is_gone_is_an_error(tmp_path: Path) -> None:
    source = photo_list(tmp_path / "in", 20)
    (tmp_path / "in" / "c0" / "00003.jpg").unlink()
    plan = pack_plan(source, tmp_path / "out", shard_size="10kB")
    results = [task.run() for task in plan.tasks]
    (lacking,) = (one for one in results if one.tally.rejects)
    os.unlink(tmp_path / "out" / receipt_name(plan.tasks[lacking.number].name))
    with pytest.raises(StorageError, match="the receipt of a shard is gone") as caught:
        plan.commit(results)
    assert caught.value.place["shard"] == plan.tasks[lacking.number].name
    assert not (tmp_path / "out" / "dataset.json").exists()
    assert run_pack(source, tmp_path / "out", PackOptions(shard_size="10kB"), workers=0).rejects == 1


@given(st.lists(st.sampled_from(["a 1", "a 22", "b 'x'", 'b "y"', "c"])))
def test_equal_faults_count_as_one(reasons: list[str]) -> None:
    found = summary_of(Reject(i, "p", reason) for i, reason in enumerate(reasons, 1))
    expected = Counter({"a": "a …", "b": "b …", "c": "c"}[reason[0]] for reason in reasons)
    assert found.reasons == expected
    assert list(found.reasons.values()) == sorted(expected.values(), reverse=True)
    assert (found.count, found.first) == (len(reasons), Reject(1, "p", reasons[0]) if reasons else None)


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("neither JPEG, PNG nor WebP: begins with 3c 21 44 4f ff", "neither JPEG, PNG nor WebP: begins with …"),
        ("neither JPEG, PNG nor WebP: begins with ff d8", "neither JPEG, PNG nor WebP: begins with …"),
        ("the label 'cat' is not a 64-bit integer", "the label … is not a 64-bit integer"),
        ("column 'n': 1e+300 does not fit float32", "column …: … does not fit float32"),
        ("ends at byte 1,024 of 2048.", "ends at byte … of …."),
        ("column 'v': expected array:float32:2, got an array of float32 [1.5]", None),
        ("ValueError: no mask of img_0012b", "ValueError: no mask of img_…b"),
        ("we need 8 more bytes be fed", "we need … more bytes be fed"),
    ],
)
def test_masked_reasons_can_be_read(reason: str, shown: str | None) -> None:
    expected = shown or "column …: expected array:float32:…, got an array of float32 […]"
    assert list(summary_of([Reject(1, "a", reason)]).reasons) == [expected]


def test_different_faults_are_counted_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejects_module, "_COUNTED", 100)
    monkeypatch.setattr(rejects_module, "_REASONS", 2)
    letters = "abcdefghij"
    names = [f"{a}{b}{c}" for a in letters for b in letters for c in letters]
    found = summary_of(Reject(1, "", reason) for one in names for reason in (one, "often", "usual"))
    assert found.reasons == {"often": 1000, "usual": 1000}
    assert found.count == 3000


@given(REJECTS, st.integers(1, 40))
def test_lists_are_read_in_pieces_of_any_size(rejects: list[Reject], piece: int) -> None:
    place = locate("memory://rejects")
    open_store(place).put("rejects.jsonl", b"".join(lines_of(rejects)))
    before, rejects_module._PIECE = rejects_module._PIECE, piece
    try:
        assert list(StoredRejects(place)) == rejects
    finally:
        rejects_module._PIECE = before


@pytest.mark.parametrize("text", ['{"line": 1}\n', "{\n", '{"path": "a", "line": 1, "reason": "cut"}'])
def test_a_damaged_list_is_an_error(tmp_path: Path, text: str) -> None:
    source = photo_list(tmp_path / "in", 20)
    (tmp_path / "in" / "c0" / "00003.jpg").unlink()
    pack(source, tmp_path / "out", workers=0)
    (tmp_path / "out" / "rejects.jsonl").write_text(text)
    with pytest.raises(StorageError, match="the list of rejects is damaged"):
        pack(source, tmp_path / "out", workers=0)


def test_a_list_that_grows_keeps_what_it_held(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        source = photo_list(tmp_path / name, 20)
        (tmp_path / name / "c0" / "00003.jpg").unlink()
        pack(source, tmp_path / "out", workers=0, append=True, key="line" if name == "one" else "path")
        found.append((tmp_path / "out" / "rejects.jsonl").read_text())
    assert found[1] == found[0] * 2


# --------------------------------------------------------------------------------------------------------------- memory

PEAK = """
import json, sys
from pathlib import Path
from shardstream import ShardOptions
from shardstream.pack.options import PackOptions
from shardstream.pack.run import run_pack
from shardstream.pack.output.receipts import reject_entry
from shardstream.pack.output.rejects import SortedRejects, StoredRejects, save_rejects, summary_of
from shardstream.pack.sources import Reject
from shardstream.storage import locate, open_store

def packed(source, out):
    options = PackOptions(format="record", shard_size="1MB", key="id", shards=ShardOptions(rows=True))
    return run_pack(source, out, options, workers=2).rejects

def listed(count, out):
    with SortedRejects() as found:
        for i in range(int(count)):
            found.add([Reject(i * 7 % int(count) + 1, f"a/{'x' * 40}/{i}", "there is no such file")])
        summary_of(found)
        save_rejects(open_store(locate(out)), found)
    return summary_of(StoredRejects(locate(out))).count

rejects = {"packed": packed, "listed": listed}[sys.argv[1]](*sys.argv[2:])
lines = Path("/proc/self/status").read_text().splitlines()
print(rejects, next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")))
"""


def peak(*arguments: object) -> tuple[int, int]:
    """Rejects, and the most memory that was held."""
    command = [sys.executable, "-c", PEAK, *map(str, arguments)]
    rejects, most = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return int(rejects), int(most)


@pytest.mark.full
def test_lists_of_any_length_take_little_memory(tmp_path: Path) -> None:
    few, low = peak("listed", 100_000, tmp_path / "few")
    many, high = peak("listed", 500_000, tmp_path / "many")
    assert (few, many) == (100_000, 500_000)
    assert (high - low) / (many - few) < 50


@pytest.mark.full
def test_memory_of_the_parent_does_not_grow_with_them(tmp_path: Path) -> None:
    """A line costs some 16 bytes, and a reject what is sorted at once: it took 670 bytes, and as much again later."""
    (tmp_path / "a.bin").write_bytes(bytes(100))
    seen = []
    for lines in (30_000, 150_000):
        source = tmp_path / f"{lines}.tsv"
        with source.open("w") as file:
            file.write("path\tlabel\tid\n")
            file.writelines(f"{'gone/b' if i % 3 else 'a'}.bin\t{i % 7}\tx/{i:08}\n" for i in range(lines))
        seen.append(peak("packed", source, tmp_path / str(lines)))
    (few, low), (many, high) = seen
    assert (few, many) == (20_000, 100_000)
    assert (high - low) / (many - few) < 300
