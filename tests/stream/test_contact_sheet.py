"""What a notebook shows of a reader: small, whatever is stored, and never markup of somebody else's."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import shardstream as ss
from shardstream.errors import MissingExtraError, UsageError
from shardstream.images.encode import encode
from shardstream.images.thumbnail import thumbnail
from shardstream.testing import MemoryStore, make_dataset

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=y>"


class Tags(HTMLParser):
    """The tags of a page, with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data


def pictures(page: str) -> list[np.ndarray]:
    files = re.findall(r"data:image/jpeg;base64,([A-Za-z0-9+/=]+)", page)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(file)))) for file in files]


def write(folder: Path, *samples: dict, **options) -> ss.Reader:
    with ss.ShardWriter(folder, **options) as writer:
        for i, sample in enumerate(samples):
            writer.write({"__key__": f"k{i}", **sample})
    return ss.Reader(folder)


@pytest.mark.parametrize("kind", ["jpg", "png", "webp"])
def test_a_reader_is_a_contact_sheet_of_its_first_samples(tmp_path: Path, kind: str) -> None:
    colours = [(255, 0, 0), (0, 255, 0), (0, 0, 255)]
    images = [np.full((200, 400, 3), colour, np.uint8) for colour in colours]
    samples = [{kind: encode(image, kind), "cls": i, "txt": f"text {i}"} for i, image in enumerate(images)]
    page = write(tmp_path, *samples, classes=["red", "green", "blue"])._repr_html_()
    shown = pictures(page)
    assert [one.shape for one in shown] == [(56, 112, 3)] * 3
    for one, colour in zip(shown, colours, strict=True):
        assert np.abs(one.astype(int) - colour).max() < 20
    words = Tags(page).words
    assert all(text in words for text in ("k0", "cls 1 (green)", "txt text 2", "3 samples in 1 shard"))


def test_a_page_is_small_whatever_the_pictures_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    noise = [
        {"png": encode(rng.integers(0, 256, (300, 300, 3), np.uint8), "png"), "txt": "&" * 5000} for _ in range(20)
    ]
    page = write(tmp_path, *noise)._repr_html_()
    assert len(pictures(page)) == 12
    assert len(page) < 110_000


def test_only_what_is_shown_is_read() -> None:
    store = MemoryStore()
    make_dataset(store, samples=400, fields={"jpg": "jpg", "emb": "array:float32:20000"}, shards=4)
    reader = ss.Reader(store)
    before = len(store.requests)
    assert len(pictures(reader._repr_html_())) == 12
    asked = store.requests[before:]
    assert len({request.path for request in asked}) == 1, "one shard holds the first samples"
    assert sum(ss.Reader(store).manifest.table.sizes) > 10_000_000
    assert len(asked) < 20


@pytest.mark.parametrize("with_pictures", [True, False])
def test_what_was_packed_does_not_become_markup(tmp_path: Path, *, with_pictures: bool) -> None:
    image = {"png": encode(np.zeros((8, 8, 3), np.uint8), "png")} if with_pictures else {}
    sample = {"__key__": HOSTILE, "cls": 0, "txt": HOSTILE, **image}
    reader = write(tmp_path, sample, classes=[HOSTILE])
    for page in (reader._repr_html_(), reader.manifest._repr_html_()):
        found = Tags(page)
        assert {tag for tag, _ in found.tags} <= {"div", "p", "figure", "figcaption", "img", "br", "i"} | {
            *("table", "thead", "tbody", "tr", "th", "td")
        }
        assert not [name for _, attributes in found.tags for name in attributes if name.startswith("on")]
        assert all(attributes["src"].startswith("data:image/jpeg") for tag, attributes in found.tags if tag == "img")
        assert "<script>" in found.words


@pytest.mark.parametrize("with_pictures", [True, False])
def test_long_keys_differ_in_what_is_shown_of_them(tmp_path: Path, *, with_pictures: bool) -> None:
    image = {"png": encode(np.zeros((8, 8, 3), np.uint8), "png")} if with_pictures else {}
    keys = [f"train/n01440764/{'n01440764_' * 4}{number}" for number in (10026, 10027)]
    reader = write(tmp_path, *({"__key__": key, "txt": "word " * 50, **image} for key in keys))
    words = Tags(reader._repr_html_()).words
    for key in keys:
        assert key not in words
        assert f"train/n01440764…{key[-24:]}" in words
    assert "word word…" in words


def test_a_damaged_picture_is_said_to_be_one(tmp_path: Path) -> None:
    good = encode(np.zeros((64, 64, 3), np.uint8), "png")
    reader = write(tmp_path, {"png": good}, {"png": good[:60]}, {"txt": "none"}, damaged="keep")
    page = reader._repr_html_()
    assert len(pictures(page)) == 1
    assert "does not decode" in page


def test_without_a_library_for_images_there_is_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shardstream.stream import contact_sheet

    def missing(data: object, **_: object) -> None:
        raise MissingExtraError("the package 'PIL' is needed", hint='pip install "shardstream[pillow]"')

    monkeypatch.setattr(contact_sheet.backends, "decode", missing)
    page = write(tmp_path, {"png": encode(np.zeros((64, 64, 3), np.uint8), "png"), "n": 7})._repr_html_()
    assert "<img" not in page
    assert "<table>" in page
    assert "shardstream[pillow]" in Tags(page).words


def test_a_store_that_fails_is_said_and_no_traceback() -> None:
    store = MemoryStore()
    make_dataset(store, samples=4, fields={"jpg": "jpg"})
    reader = ss.Reader(store)
    for path in [path for path, *_ in store.list() if path.endswith((".tar", ".rec"))]:
        store.delete(path)
    assert "Reader(" in reader._repr_html_()
    assert "no such object" in reader._repr_html_()


@pytest.fixture
def packed(tmp_path: Path) -> str:
    make_dataset(tmp_path / "out", samples=40, fields={"jpg": "jpg", "cls": "int64", "txt": "str"}, classes=["a", "b"])
    return str(tmp_path / "out")


def test_show_is_a_contact_sheet_of_a_batch_as_training_gets_it(packed: str) -> None:
    fields = {"jpg": ss.decode.CenterCrop((40, 80)), "cls": None, "txt": None}
    ds = ss.ShardDataset(packed, fields=fields, batch_size=30)
    batch = ds.peek()
    page = ss.show(batch, classes=ds.classes)._repr_html_()
    shown = pictures(page)
    assert [one.shape for one in shown] == [(40, 80, 3)] * 24
    stored = batch["jpg"][0].permute(1, 2, 0).numpy()
    assert abs(shown[0].astype(int).mean() - stored.mean()) < 3
    words = Tags(page).words
    assert "30 samples, the first 24 of them" in words
    assert f"cls {int(batch['cls'][1])} ({'ab'[int(batch['cls'][1])]})" in words
    assert f"txt {batch['txt'][0]}"[:30] in words
    assert len(page) < 110_000


def test_show_takes_tuples_samples_floats_crops_and_ragged(packed: str) -> None:
    fields = {"jpg": ss.decode.CenterCrop(40), "cls": None}
    ds = ss.ShardDataset(packed, fields=fields, batch_size=4)
    images, labels = ds.to_tuple("jpg", "cls").peek()
    crops = ss.ShardDataset(packed, fields={"jpg": ss.decode.RandomResizedCrop(40, resize="device")}, batch_size=4)
    reader = ss.Reader(packed)
    ends, shapes = torch.tensor([0, 60, 90]), torch.tensor([[4, 5, 3], [2, 5, 3]])
    ragged = ss.Ragged(torch.arange(90, dtype=torch.uint8), ends, shapes)
    for value, count in (
        ((images, labels), 4),
        (((images.float() / 255 - 0.45) / 0.2, labels), 4),
        ({"image": images.bfloat16()}, 4),
        (crops.peek(), 4),
        (reader[0], 1),
        (reader[:3], 3),
        (ss.ShardDataset(packed).peek(), 1),
        ({"image": ragged}, 2),
        ((images[:, :1], labels), 4),
    ):
        assert len(pictures(ss.show(value)._repr_html_())) == count


def test_show_is_a_table_of_text_elsewhere(packed: str) -> None:
    batch = ss.ShardDataset(packed, fields=["cls"], batch_size=2).peek()
    assert repr(ss.show(batch, classes=["a\x1b[1m", "b"])).splitlines() == [
        "2 samples",
        "  key     cls",
        "  000000  0 (a\\x1b[1m)",
        "  000001  1 (b)",
    ]
    assert "&lt;b&gt;" in ss.show({"__key__": ["<b>"], "cls": [1]})._repr_html_()


@pytest.mark.parametrize("value", [None, 3, "text", {}, [], {"a": 1}, torch.zeros(())])
def test_show_says_what_it_takes(value: object) -> None:
    with pytest.raises(UsageError, match=r"ds\.peek\(\)"):
        ss.show(value)


def test_a_thumbnail_keeps_the_ratio_and_enlarges_nothing() -> None:
    for source, result in (((50, 20), (50, 20)), ((1000, 10), (100, 1)), ((300, 400), (75, 100))):
        file, size = thumbnail(np.zeros((*source, 3), np.uint8), 100, most=10_000)
        assert size == result
        assert np.asarray(Image.open(io.BytesIO(file))).shape[:2] == result
