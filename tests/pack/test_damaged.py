"""Damaged pictures: one behaviour, wherever they come from, and what becomes of those that are stored already."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shardstream import ImageOptions, ShardOptions
from shardstream.cli import app
from shardstream.diagnose import verify
from shardstream.errors import DecodeError, MissingExtraError, SourceError, UsageError
from shardstream.pack.encode import images
from shardstream.pack.options import PackOptions
from shardstream.pack.repack import repack
from shardstream.pack.run import pack, run_pack
from shardstream.pack.writer import ShardWriter
from shardstream.progress import ProgressEvent
from shardstream.testing.pictures import photo, save

from .making import samples
from .test_streams import write_tar

TRUNCATED = "the JPEG file is truncated: it has no end marker (EOI)"
PAGE = b"<!doctype html><title>404</title>"


@cache
def pictures() -> dict[str, bytes]:
    """Good ones, one that is cut short, one that only decoding finds, and no picture at all."""
    good = {f"good{i}": save(photo(48, 64, i), "JPEG") for i in range(3)}
    data = good["good0"]
    scan = data.index(b"\xff\xda")
    broken = data[: scan + 60] + data[scan + 100 :]
    return {**good, "short": data[:-200], "broken": broken, "page": PAGE}


def as_list(root: Path) -> Path:
    as_folder(root)
    (root / "list.tsv").write_text("".join(f"in/{name}.jpg\t0\n" for name in pictures()))
    return root / "list.tsv"


def as_folder(root: Path) -> Path:
    (root / "in").mkdir()
    for name, data in pictures().items():
        (root / "in" / f"{name}.jpg").write_bytes(data)
    return root / "in"


def as_tar(root: Path) -> str:
    write_tar(root / "in" / "a.tar", [(f"{name}.jpg", data) for name, data in pictures().items()])
    return f"{root}/in/*.tar"


def as_samples(root: Path) -> list[dict[str, Any]]:
    return [{"__key__": name, "jpg": data} for name, data in pictures().items()]


def as_generator(root: Path) -> Iterator[dict[str, Any]]:
    return iter(as_samples(root))


def as_table(root: Path) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    table = pyarrow.table({"name": list(pictures()), "jpg": list(pictures().values())})
    parquet.write_table(table, root / "table.parquet")
    return root / "table.parquet"


SOURCES: list[Callable[[Path], Any]] = [as_list, as_folder, as_tar, as_samples, as_generator, as_table]
HOW: dict[str, Any] = {"format": "record"}


def options(source: Callable[[Path], Any]) -> dict[str, Any]:
    if source is as_table:
        return {**HOW, "key": "name", "fields": {"jpg": "jpg"}}
    return {**HOW, "key": "stem" if source is as_list else "path"}


def named(rejects: Path) -> dict[str, str]:
    """The reasons of rejects, by which picture it is."""
    found = {}
    for line in (rejects / "rejects.jsonl").read_text().splitlines():
        reject = json.loads(line)
        name = Path(reject["path"]).stem
        found[name if name in pictures() else list(pictures())[reject["line"] - 1]] = reject["reason"]
    return found


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("check", ["header", "decode"])
def test_damaged_pictures_are_left_out_with_a_reason(tmp_path: Path, source: Callable[[Path], Any], check: Any) -> None:
    manifest = pack(
        source(tmp_path), tmp_path / "out", **options(source), images=ImageOptions(jpeg="keep", check=check), workers=0
    )
    found = named(tmp_path / "out")
    assert found.pop("short") == TRUNCATED
    assert found.pop("page") == "a web page (HTML) is here, not the data"
    if check == "decode":
        assert "does not decode: Corrupt JPEG data" in found.pop("broken")
    assert not found
    assert manifest.samples == (3 if check == "decode" else 4)
    assert "damaged" not in manifest.kinds.get("jpg", {})


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("check", "count"), [("header", 1), ("decode", 2)])
def test_they_are_kept_to_the_byte_and_counted(
    tmp_path: Path, source: Callable[[Path], Any], check: Any, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    given = {**options(source), "damaged": "keep", "images": ImageOptions(jpeg="keep", check=check)}
    manifest = pack(source(tmp_path), tmp_path / "out", **given, workers=0)
    assert manifest.kinds["jpg"]["damaged"] == count
    assert manifest.kinds["jpg"]["missing"] == 1  # the web page
    assert caplog.text.count(f"{count + 1} images stored as found (") == 1
    stored = {key.rsplit("/", 1)[-1]: sample["jpg"] for key, sample in samples(tmp_path / "out").items()}
    assert stored == pictures()
    assert not (tmp_path / "out" / "rejects.jsonl").exists()


def test_damaged_pictures_are_not_made_addressable_or_smaller(tmp_path: Path) -> None:
    for given in ({}, {"images": ImageOptions(max_side=20)}):
        out = tmp_path / f"out{len(given)}"
        manifest = pack(as_samples(tmp_path), out, damaged="keep", workers=0, **given)  # type: ignore[arg-type]
        stored = {key: sample["jpg"] for key, sample in samples(out).items()}
        assert stored["short"] == pictures()["short"]
        assert stored["page"] == PAGE
        assert manifest.kinds["jpg"]["damaged"] >= 1


def mended(sample: dict[str, Any]) -> dict[str, Any]:
    """Puts another picture in the place of what is no good one."""
    return sample | {"jpg": pictures()["good0"]} if sample["__key__"] in ("short", "page", "broken") else sample


@pytest.mark.parametrize("source", [as_folder, as_tar, as_generator])
def test_a_transform_gets_damaged_pictures_and_may_mend_them(tmp_path: Path, source: Callable[[Path], Any]) -> None:
    manifest = pack(
        source(tmp_path),
        tmp_path / "out",
        **HOW,
        images=ImageOptions(jpeg="keep", check="decode"),
        transform=mended,
        workers=0,
    )
    assert manifest.samples == 6
    assert verify(tmp_path / "out", decode=True).ok


def test_the_same_stream_is_read_again_with_another_check(tmp_path: Path) -> None:
    """Temporary shards of a run that looked at headers only are not taken for those of one that decoded."""
    source, seen = as_tar(tmp_path), []
    for check in ("header", "decode"):
        report = run_pack(
            source, tmp_path / check, PackOptions(**HOW, images=ImageOptions(jpeg="keep", check=check)), workers=0
        )  # type: ignore[arg-type]
        seen.append((report.rejects, report.manifest.plan))
    assert [count for count, _ in seen] == [2, 3]
    assert seen[0][1] != seen[1][1]


def test_other_formats_too(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for kind in ("TIFF", "BMP", "GIF", "WEBP", "PNG"):
        data = save(photo(48, 64), kind)
        (tmp_path / "in" / f"good-{kind}.{kind.lower()}").write_bytes(data)
        (tmp_path / "in" / f"short-{kind}.{kind.lower()}").write_bytes(data[:-40])
    given: dict[str, Any] = {**HOW, "images": ImageOptions(jpeg="keep"), "key": "stem", "workers": 0}
    assert pack(tmp_path / "in", tmp_path / "out", **given).samples == 5
    assert all(key.startswith("good") for key in samples(tmp_path / "out"))
    reasons = [json.loads(line)["reason"] for line in (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()]
    assert len(reasons) == 5
    assert all("truncated" in reason for reason in reasons)
    assert pack(tmp_path / "in", tmp_path / "all", **given, damaged="keep").samples == 10
    bad = [problem.key for problem in verify(tmp_path / "all", decode=True).problems]
    assert sorted(filter(None, bad)) == [f"short-{kind}" for kind in ("BMP", "GIF", "PNG", "TIFF", "WEBP")]
    assert repack(tmp_path / "all", tmp_path / "made", drop_damaged=True, workers=0).samples == 5


def test_repack_keeps_what_cannot_be_looked_at_here(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(_data: bytes) -> None:
        raise MissingExtraError("pi-heif is needed for HEIC files", hint="install it")

    monkeypatch.setattr(images, "probe", lacking)
    manifest = repack(stored, tmp_path / "same", workers=0)
    assert manifest.samples == 6
    assert not manifest.kinds
    with pytest.raises(SourceError, match="pi-heif is needed"):
        repack(stored, tmp_path / "dropped", drop_damaged=True, workers=0)


def test_wrong_values_of_both_options() -> None:
    with pytest.raises(UsageError, match="damaged must be 'reject' or 'keep', got 'drop'"):
        PackOptions(damaged="drop")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="check must be 'header' or 'decode', got None"):
        ImageOptions(check=None)  # type: ignore[arg-type]


def assert_says_keep(error: DecodeError) -> None:
    assert "damaged='keep'" in str(error.hint)


@pytest.mark.parametrize(("check", "bad"), [("header", ["short", "page"]), ("decode", ["short", "page", "broken"])])
def test_a_writer_refuses_damaged_pictures_by_name_and_goes_on(tmp_path: Path, check: Any, bad: list[str]) -> None:
    refused = []
    with ShardWriter(tmp_path / "out", images=ImageOptions(check=check)) as writer:
        for sample in as_samples(tmp_path):
            try:
                writer.write(sample)
            except DecodeError as error:
                refused.append((error.place["key"], error.place["field"]))
                assert_says_keep(error)
    assert refused == [(name, "jpg") for name in pictures() if name in bad]
    assert list(samples(tmp_path / "out")) == [name for name in pictures() if name not in bad]


def test_a_writer_keeps_them_where_it_is_told_to(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "out", damaged="keep", images=ImageOptions(check="decode")) as writer:
        for sample in as_samples(tmp_path):
            writer.write(sample | {"jpg": memoryview(sample["jpg"])})
    assert {key: sample["jpg"] for key, sample in samples(tmp_path / "out").items()} == pictures()


@pytest.fixture(params=["tar", "record"])
def stored(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A data set with damaged pictures in it."""
    given: dict[str, Any] = {
        "format": request.param,
        "shards": ShardOptions(zstd=["jpg"] if request.param == "record" else ()),
    }
    with ShardWriter(tmp_path / "stored", damaged="keep", shard_size="5kB", **given) as writer:
        for i, sample in enumerate(as_samples(tmp_path)):
            writer.write(sample | {"cls": i, "png": None if i else save(photo(8, 8), "PNG")})
    return tmp_path / "stored"


BAD = ["short", "broken", "page"]


def test_verify_names_what_is_damaged_already(stored: Path) -> None:
    events: list[ProgressEvent] = []
    assert verify(stored).ok
    report = verify(stored, decode=True, progress=events.append)
    assert [problem.key for problem in report.problems] == BAD
    assert {problem.check for problem in report.problems} == {"picture"}
    assert report.problems[0].what == TRUNCATED
    assert report.pictures == 7
    assert events[-1].problems == 3
    one = report.problems[0]
    assert one.field == "jpg"
    assert one.sample is not None
    assert one.offset is not None


def test_verify_does_not_decode_what_was_changed_since(stored: Path) -> None:
    first = verify(stored, decode=True).problems[0]
    path = stored / first.shard
    data = bytearray(path.read_bytes())
    assert first.offset is not None
    data[first.offset + 30] ^= 0xFF
    path.write_bytes(data)
    kinds = [problem.check for problem in verify(stored, decode=True).problems if problem.key == first.key]
    assert kinds == ["value"]


def test_verify_says_which_picture_needs_what_is_not_installed(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "path" / "PIL").mkdir(parents=True)
    (tmp_path / "path" / "PIL" / "__init__.py").write_text("raise ImportError('not here')")
    monkeypatch.syspath_prepend(tmp_path / "path")  # of the processes that decode
    with pytest.raises(MissingExtraError, match=r".*key good0, field png"):
        verify(stored, decode=True)


def test_repack_leaves_them_out_and_says_which(stored: Path, tmp_path: Path) -> None:
    same = repack(stored, tmp_path / "same", workers=0)
    assert same.samples == 6
    assert (same.kinds["jpg"]["damaged"], same.kinds["jpg"]["missing"]) == (1, 1)
    assert {key: sample["jpg"] for key, sample in samples(tmp_path / "same").items()} == pictures()
    made = repack(stored, tmp_path / "made", drop_damaged=True, workers=0)
    assert list(samples(tmp_path / "made")) == ["good0", "good1", "good2"]
    assert made.samples == 3
    rejects = [json.loads(line) for line in (tmp_path / "made" / "rejects.jsonl").read_text().splitlines()]
    assert [one["line"] for one in rejects] == [4, 5, 6]
    assert rejects[0]["reason"] == TRUNCATED
    assert verify(tmp_path / "made", decode=True).ok


def run(*args: object) -> Any:
    return CliRunner().invoke(app.app, [str(one) for one in args])


def test_the_commands(tmp_path: Path) -> None:
    source, kept = as_folder(tmp_path), tmp_path / "kept"
    flags = ("--jpeg", "keep", "--workers", 0, "--quiet")
    done = run("pack", source, tmp_path / "out", *flags, "--check", "decode")
    assert done.exit_code == 0, done.output
    assert "3 samples could not be read" in done.output
    done = run("pack", source, kept, *flags, "--damaged", "keep", "--json")
    assert json.loads(done.stdout.splitlines()[-1])["damaged"] == 1
    assert (
        "jpg: kept as they are: 1 damaged, 1 missing"
        in run("pack", source, tmp_path / "k", *flags, "--damaged", "keep").output
    )
    assert "plain, 1 damaged, 1 missing" in run("info", kept).output
    assert run("verify", kept, "--quiet").exit_code == 0
    found = run("verify", kept, "--decode", "--quiet")
    assert found.exit_code == 1
    assert "key short" in found.stdout
    assert "6 pictures decoded" in found.stdout
    assert f"next: shardstream repack {kept} DEST --drop-damaged" in found.stdout
    told = json.loads(run("verify", kept, "--decode", "--json").stdout)
    assert [problem["key"] for problem in told["problems"]] == sorted(BAD, key=list(samples(kept)).index)
    assert not told["ok"]
    done = run("repack", kept, tmp_path / "made", "--drop-damaged", "--workers", 0, "--quiet")
    assert "3 samples could not be read" in done.output
    sound = run("verify", tmp_path / "made", "--decode", "--quiet")
    assert sound.exit_code == 0
    assert "3 pictures decoded" in sound.stdout
