"""Pictures of all formats behave alike in lists, folders, columns, tars and `ShardWriter`."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.errors import FieldError
from shardstream.images.header import probe
from shardstream.pack.options import PackOptions
from shardstream.pack.run import run_pack
from shardstream.testing.pictures import photo, save

from .making import samples

GIF, TIFF, PNG = (save(photo(20, 30)[..., 0], kind) for kind in ("GIF", "TIFF", "PNG"))
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n"
HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(40)
FILES = {"a.gif": GIF, "b.tif": TIFF, "c.png": PNG, "d.jpg": GIF, "e.eps": EPS, "f.jpg": EPS, "g.gif": b"<html>404"}
# By key: the field and what it holds; what is left out, with what its reason says.
PACKED = {"a": ("gif", GIF), "b": ("tif", TIFF), "c": ("png", PNG), "d": ("jpg", GIF)}
REJECTED = {
    "e": "EPS files are never opened",
    "f": "EPS files are never opened",
    "g": "a web page (HTML) is here, not the data",
}


def files(root: Path, contents: dict[str, bytes]) -> Path:
    root.mkdir(exist_ok=True)
    for name, data in contents.items():
        (root / name).write_bytes(data)
    return root


def folder(root: Path) -> Path:
    return files(root, FILES)


def list_of_paths(root: Path) -> Path:
    names = [path.name for path in sorted(folder(root).iterdir())]
    (root / "list.txt").write_text("".join(f"{name}\n" for name in names))
    return root / "list.txt"


def tar(root: Path) -> Path:
    with tarfile.open(root / "x.tar", "w") as out:
        for name, data in FILES.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            out.addfile(member, io.BytesIO(data))
    return root / "x.tar"


def dicts(root: Path) -> list[dict[str, Any]]:
    return [{"__key__": name[0], name[2:]: data} for name, data in FILES.items()]


def table(root: Path) -> Path:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"key": [name[0] for name in FILES], "image": list(FILES.values())}
    parquet.write_table(pa.table(columns), root / "x.parquet")
    return root / "x.parquet"


@pytest.mark.parametrize("source", [folder, list_of_paths, tar, dicts])
def test_one_behaviour(source: Callable[[Path], Any], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    report = run_pack(source(tmp_path / "in"), tmp_path / "out", PackOptions(), workers=0)
    found = samples(tmp_path / "out")
    assert {key: dict(values) for key, values in found.items()} == {k: {n: d} for k, (n, d) in PACKED.items()}
    rejects = [json.loads(line) for line in (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()]
    assert len(rejects) == len(REJECTED) == report.rejects
    for reject, said in zip(rejects, REJECTED.values(), strict=True):
        assert reject["reason"].startswith(said)
    kinds = {"gif": "image", "tif": "image", "png": "png", "jpg": "jpg"}
    assert {name: str(kind) for name, kind in report.manifest.fields.items()} == kinds


def test_columns_of_bytes(tmp_path: Path) -> None:
    """They stay together under one name, and are pictures where nearly all are, or that is said."""
    path = table(tmp_path)
    report = run_pack(path, tmp_path / "out", PackOptions(key="key"), workers=0)
    assert (report.rejects, str(report.manifest.fields["image"])) == (0, "bytes")
    found = samples(tmp_path / "out")
    assert {key: found[key] for key in PACKED} == {
        key: {"image": data, "key": key.encode()} for key, (_, data) in PACKED.items()
    }
    for spec in ("image:image", "image"):
        out = tmp_path / spec.replace(":", "-")
        report = run_pack(path, out, PackOptions(key="key", fields={"image": spec}), workers=0)
        if spec == "image":  # not nearly all of them are pictures, so it is not a column of pictures
            assert (report.rejects, str(report.manifest.fields["image"])) == (0, "bytes")
        else:
            assert (report.rejects, str(report.manifest.fields["image"])) == (3, "image")
            assert {key: values["image"] for key, values in samples(out).items()} == {
                key: data for key, (_, data) in PACKED.items()
            }


def test_a_column_of_pictures_is_one(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"image": [GIF, PNG, TIFF] * 10 + [b"junk"]}), tmp_path / "x.parquet")
    options = PackOptions(key="line", fields={"image": "image"})
    report = run_pack(tmp_path / "x.parquet", tmp_path / "out", options, workers=0)
    assert (report.rejects, str(report.manifest.fields["image"])) == (1, "image")


@pytest.mark.parametrize("bad", [1, 20])
def test_a_stream_of_pictures_is_one_too(tmp_path: Path, bad: int) -> None:
    """One web page among them does not make bytes of all, which nobody would make smaller, or decode."""
    files = [GIF, PNG, TIFF] * 10 + [b"<html>"] * bad
    stream = ({"__key__": f"{number}", "image": data} for number, data in enumerate(files))
    report = run_pack(stream, tmp_path / "out", PackOptions(images=ss.ImageOptions(max_side=8)), workers=0)
    expected = (1, "image", 8) if bad == 1 else (0, "bytes", 30)
    first = probe(samples(tmp_path / "out")["0"]["image"])
    assert (report.rejects, str(report.manifest.fields["image"]), first.width) == expected


def test_the_writer_stores_them_as_images(tmp_path: Path) -> None:
    pixels = photo(8, 9)
    with ss.ShardWriter(tmp_path / "out", fields={"any": "image"}) as writer:
        writer.write({"__key__": "a", "gif": GIF, "img": TIFF, "any": pixels})
        writer.write({"__key__": "b", "gif": bytearray(GIF), "img": memoryview(PNG), "any": GIF})
        with pytest.raises(FieldError, match="EPS files are never opened") as caught:
            writer.write({"__key__": "c", "eps": EPS})
    assert "fields={'eps': 'bytes'}" in str(caught.value)
    manifest = ss.Manifest.load(tmp_path / "out")
    assert {name: str(kind) for name, kind in manifest.fields.items()} == dict.fromkeys(("any", "gif", "img"), "image")
    reader = ss.Reader(tmp_path / "out", fields=["any", "gif"])
    np.testing.assert_array_equal(reader[0]["any"], pixels)
    with ss.ShardWriter(tmp_path / "declared", fields={"eps": "bytes"}) as writer:
        writer.write({"__key__": "c", "eps": EPS})
    assert ss.Reader(tmp_path / "declared")[0]["eps"] == EPS


def test_what_is_not_always_a_picture_is_bytes(tmp_path: Path) -> None:
    """Within a shard, from shard to shard, and where a data set grows."""
    for name, size in (("one", "1MB"), ("many", "1B")):
        with ss.ShardWriter(tmp_path / name, shard_size=size) as writer:
            for key, data in (("a", GIF), ("b", b"junk"), ("c", GIF)):
                writer.write({"__key__": key, "image": data})
        assert str(ss.Manifest.load(tmp_path / name).fields["image"]) == "bytes"
    with ss.ShardWriter(tmp_path / "grown") as writer:
        writer.write({"__key__": "a", "image": GIF})
    with ss.ShardWriter(tmp_path / "grown", append=True, fields={"image": "bytes"}) as writer:
        writer.write({"__key__": "b", "image": b"junk"})
    grown = ss.Manifest.load(tmp_path / "grown")
    assert (str(grown.fields["image"]), str(ss.Manifest.load(tmp_path / "grown", version=1).fields["image"])) == (
        "bytes",
        "image",
    )


@pytest.mark.parametrize("streamed", [False, True])
def test_appending_makes_bytes_of_pictures_only_where_it_is_told_to(tmp_path: Path, streamed: bool) -> None:
    def given(name: str, data: bytes) -> Any:
        found = [{"__key__": f"{name}{number}", "image": data} for number in range(3)]
        return iter(found) if streamed else found

    out = tmp_path / "out"
    ss.pack(given("a", GIF), out, workers=0)
    with pytest.raises(FieldError, match="too few of the values that are appended are pictures"):
        ss.pack(given("b", b"junk"), out, append=True, workers=0)
    assert str(ss.Manifest.load(out).fields["image"]) == "image"
    grown = ss.pack(given("b", b"junk"), out, append=True, fields={"image": "bytes"}, workers=0)
    assert (grown.samples, str(grown.fields["image"])) == (6, "bytes")


def test_several_data_sets_have_pictures_where_all_of_them_do(tmp_path: Path) -> None:
    for name, kind in (("image", "image"), ("bytes", "bytes")):
        with ss.ShardWriter(tmp_path / name, fields={"gif": kind}) as writer:
            writer.write({"__key__": "a", "gif": GIF})
    for names in (["image", "bytes"], ["bytes", "image"]):
        found = ss.ShardDataset([tmp_path / name for name in names])
        assert [sample["gif"] for sample in found] == [GIF, GIF]


def test_the_manifest_says_it_beside_the_type(tmp_path: Path) -> None:
    """Readers that do not know it see bytes: type, index and fingerprint are those of bytes."""
    for name, kind in (("image", "image"), ("bytes", "bytes")):
        with ss.ShardWriter(tmp_path / name, fields={"gif": kind}) as writer:
            writer.write({"__key__": "a", "gif": GIF})
    heads = [json.loads((tmp_path / name / "dataset.json").read_text()) for name in ("image", "bytes")]
    assert [head["fields"]["gif"] for head in heads] == [{"type": "bytes", "as": "image"}, {"type": "bytes"}]
    assert heads[0]["fingerprint"] == heads[1]["fingerprint"]
    assert ss.Reader(tmp_path / "bytes")[0]["gif"] == GIF
    assert ss.Reader(tmp_path / "image")[0]["gif"].shape == (20, 30, 3)
    assert ss.Reader(tmp_path / "image", fields={"gif": "bytes"})[0]["gif"] == GIF


def test_repack_merge_and_export_keep_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with ss.ShardWriter(tmp_path / name) as writer:
            writer.write({"__key__": name, "gif": GIF, "image": TIFF})
    ss.repack(tmp_path / "a", tmp_path / "repacked", workers=0)
    ss.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "merged")
    for name in ("repacked", "merged"):
        fields = ss.Manifest.load(tmp_path / name).fields
        assert {field: str(kind) for field, kind in fields.items()} == {"gif": "image", "image": "image"}
    ss.export(tmp_path / "merged", tmp_path / "files", to="files", workers=0)
    assert (tmp_path / "files" / "a.gif").read_bytes() == GIF


def test_jpeg_files_among_other_pictures_are_made_addressable_and_restored(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    jpeg = save(photo(300, 400), "JPEG")
    source = files(tmp_path / "in", {"a.jpg": jpeg, "b.tif": TIFF, "c.txt": b"notes"})
    names = sorted(os.listdir(source))
    (source / "list.jsonl").write_text("".join(json.dumps({"at": name}) + "\n" for name in names))
    options = PackOptions(fields={"photo": "at:file"})
    report = run_pack(source / "list.jsonl", tmp_path / "out", options, workers=0)
    assert (report.rejects, str(report.manifest.fields["photo"])) == (1, "image")
    assert report.manifest.kinds == {"photo": {"addressable": 1}}
    assert samples(tmp_path / "out")["a"]["photo"] != jpeg
    ss.export(tmp_path / "out", tmp_path / "files", to="files", workers=0)
    assert (tmp_path / "files" / "a.photo").read_bytes() == jpeg


def test_resuming_keeps_it(tmp_path: Path) -> None:
    """A receipt holds the type as well."""
    source = files(tmp_path / "in", {f"{i}.gif": GIF for i in range(4)})
    plan = ss.pack_plan(source, tmp_path / "out", shard_size="4kB")
    for task in plan.tasks:
        task.run()
    assert str(plan.commit().fields["gif"]) == "image"


def test_pictures_of_too_many_pixels_are_rejected_by_their_header(tmp_path: Path) -> None:
    data = bytearray(GIF)
    data[6:10] = b"\xff\xff\xff\xff"
    source = files(tmp_path / "in", {"a.gif": GIF, "b.gif": bytes(data)})
    report = run_pack(source, tmp_path / "out", PackOptions(images=ss.ImageOptions(max_pixels=10_000)), workers=0)
    assert report.first_reject is not None
    assert (report.first_reject.path, "4294836225 pixels" in report.first_reject.reason) == ("b.gif", True)


def test_heic_without_its_reader_is_a_reject_that_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shardstream.errors import MissingExtraError
    from shardstream.images import opening

    def missing() -> Any:
        raise MissingExtraError("the package 'pi_heif' is needed", hint='pip install "shardstream[heif]"')

    monkeypatch.setattr(opening, "_heif_reader", missing)
    source = files(tmp_path / "in", {"a.heic": HEIC, "b.gif": GIF})
    report = run_pack(source, tmp_path / "out", PackOptions(), workers=0)
    assert report.first_reject is not None
    assert "shardstream[heif]" in report.first_reject.reason


def test_larger_ones_become_png(tmp_path: Path) -> None:
    manifest = ss.pack(
        files(tmp_path / "in", {"a.gif": GIF}), tmp_path / "out", images=ss.ImageOptions(max_side=15), workers=0
    )
    assert str(manifest.fields["gif"]) == "image"
    info = probe(samples(tmp_path / "out")["a"]["gif"])
    assert (info.kind, info.width, info.height) == ("png", 15, 10)
