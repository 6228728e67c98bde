"""A list of forty rows as people have them: each is packed and trained on, or rejected with a reason."""

from __future__ import annotations

import csv
import io
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, features
from typer.testing import CliRunner

import shardstream as ss
from shardstream.cli.app import app

ROWS = 40
PICTURES = "jpg;png;webp;gif;tif;bmp;avif;jp2;tga;ppm;ico"


def encoded(image: Image.Image, format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def several(frames: list[Image.Image], format: str) -> bytes:
    return encoded(frames[0], format, save_all=True, append_images=frames[1:])


def pictures(rgb: Image.Image) -> dict[str, bytes]:
    """Files that hold what their names promise, more or less."""
    grey16 = Image.fromarray(np.arange(72 * 96, dtype=np.uint16).reshape(72, 96) * 9)
    frames = [rgb, rgb.rotate(180), rgb.rotate(90)]
    exif = Image.Exif()
    exif[0x0112] = 6
    jpg, png = encoded(rgb, "JPEG"), encoded(rgb, "PNG")
    return {
        "plain.jpg": jpg,
        "cmyk.jpg": encoded(rgb.convert("CMYK"), "JPEG"),
        "grey.jpg": encoded(rgb.convert("L"), "JPEG"),
        "progressive.jpg": encoded(rgb, "JPEG", progressive=True),
        "turned.jpg": encoded(rgb, "JPEG", exif=exif),
        "trailing.jpg": jpg + bytes(40),
        "one.jpg": encoded(rgb.resize((1, 1)), "JPEG"),
        "with blanks, and a comma.jpg": jpg,
        "M\u00fcller \u732b.jpg": jpg,
        "Mu\u0308ller.jpg": jpg,  # the umlaut as two characters, as macOS writes it
        "really_png.jpg": png,
        "really_jpg.png": jpg,
        "really_gif.jpg": encoded(rgb, "GIF"),
        "grey16.png": encoded(grey16, "PNG"),
        "palette.png": encoded(rgb.convert("P"), "PNG"),
        "transparent.png": encoded(rgb.convert("P"), "PNG", transparency=3),
        "alpha.png": encoded(rgb.convert("RGBA"), "PNG"),
        "bit.png": encoded(rgb.convert("1"), "PNG"),
        "animated.png": several(frames, "PNG"),
        "animated.webp": several(frames, "WEBP"),
        "animated.gif": several(frames, "GIF"),
        "scan.tif": several(frames, "TIFF"),
        "grey16.tif": encoded(grey16, "TIFF"),
        "old.bmp": encoded(rgb, "BMP"),
        "new.avif": encoded(rgb, "AVIF"),
        "cinema.jp2": encoded(rgb, "JPEG2000"),
        "paint.tga": encoded(rgb, "TGA"),
        "plain.ppm": encoded(rgb, "PPM"),
        "icon.ico": encoded(rgb, "ICO"),
    }


def not_pictures(rgb: Image.Image) -> dict[str, tuple[bytes, str]]:
    """Files that are none, or not any more, and a part of the reason that is given."""
    jpg, png = encoded(rgb, "JPEG"), encoded(rgb, "PNG")
    return {
        "empty.jpg": (b"", "empty"),
        "page.jpg": (b"<!DOCTYPE html><html><body>404 Not Found</body></html>", "web page"),
        "cut.jpg": (jpg[: len(jpg) // 2], "end"),
        "cut.png": (png[: len(png) // 2], "end"),
        "bomb.png": (png[:16] + (60_000).to_bytes(4, "big") * 2 + png[24:], "checksum"),
        "figure.eps": (encoded(rgb, "EPS"), "EPS"),
    }


@pytest.fixture
def awkward(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """The list, and of what is rejected a part of the reason."""
    if "avif" not in features.get_supported():
        pytest.skip("this Pillow reads no AVIF")
    pixels = np.random.default_rng(0).integers(0, 255, (9, 12, 3), dtype=np.uint8)
    rgb = Image.fromarray(pixels).resize((96, 72))
    (tmp_path / "my files").mkdir()
    good, bad = pictures(rgb), not_pictures(rgb)
    for name, data in (good | {name: data for name, (data, _) in bad.items()}).items():
        (tmp_path / "my files" / name).write_bytes(data)
    reasons = {f"my files/{name}": reason for name, (_, reason) in bad.items()}
    reasons |= {"my files/missing.jpg": "no such file", "my files": "extension", " my files/grey.jpg ": "'jpg '"}
    again = ["my files/plain.jpg", "my files/grey.jpg"]  # twice each, with another label
    rows = [f"my files/{name}" for name in good] + [*reasons, *again]
    with (tmp_path / "list.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label"])
        writer.writerows((path, i % 3) for i, path in enumerate(rows))
    assert len(rows) == ROWS
    return tmp_path / "list.csv", reasons


def test_every_row_is_accounted_for_from_the_list_to_training(awkward: tuple[Path, dict[str, str]]) -> None:
    source, reasons = awkward
    out = source.parent / "out"
    runner = CliRunner()
    packed = runner.invoke(app, ["pack", str(source), str(out), "--key", "auto", "--quiet"])
    assert packed.exit_code == 0, packed.output
    rejects = {one["path"]: one["reason"] for one in map(json.loads, (out / "rejects.jsonl").read_text().splitlines())}
    assert rejects.keys() == reasons.keys()
    assert all(reasons[path] in reason for path, reason in rejects.items()), rejects

    told = runner.invoke(app, ["info", str(out), "--json"])
    assert json.loads(told.output)["samples"] == ROWS - len(rejects)
    assert runner.invoke(app, ["verify", str(out), "--decode", "--quiet"]).exit_code == 0

    fields = {"image": ss.decode.RandomResizedCrop(32, source=PICTURES), "cls": None}
    ds = ss.ShardDataset(str(out), fields=fields, batch_size=8, shuffle=True, tail="exact")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is decoded with a remark
        batches = list(ss.Loader(ds, num_workers=2))
    assert sum(len(batch["cls"]) for batch in batches) == ROWS - len(rejects)
    assert {batch["image"].shape[1:] for batch in batches} == {(3, 32, 32)}
    reader = ss.Reader(str(out))
    assert len({sample["__key__"] for sample in reader}) == len(reader) == ROWS - len(rejects)
