"""Every example in a docstring runs, and gives what it says.

Examples see the names of their own module and, in the current folder, ``out/`` (200 photographs with the labels 17, 18,
...) and ``list.tsv`` (as many lines ``path<TAB>label``). What else they use without making it stands in `names`.
"""

from __future__ import annotations

import doctest
import importlib
import io
import pkgutil
import shutil
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import shardstream as ss
from shardstream.shards.fields import FieldType

SAMPLES = 200
# These make out/ themselves.
WRITERS = ("shardstream.pack.run", "shardstream.pack.writer")


def modules() -> list[str]:
    """Those with examples; to look through all names of the others takes far longer."""
    found = {info.name: find_spec(info.name) for info in pkgutil.walk_packages(ss.__path__, "shardstream.")}
    return [name for name, spec in found.items() if spec and ">>> " in Path(str(spec.origin)).read_text()]


def picture(width: int, height: int, kind: str) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.zeros((height, width, 3), np.uint8)).save(buffer, kind)
    return buffer.getvalue()


def names() -> dict[str, Any]:
    return {
        "ss": ss,
        "FieldType": FieldType,
        "np": np,
        "torch": torch,
        "jpeg_bytes": picture(500, 375, "JPEG"),
        "png_bytes": picture(640, 480, "PNG"),
        "pixels": np.zeros((375, 500, 3), np.uint8),
        "batch": np.zeros((8, 224, 224, 3), np.uint8),
        "manifest_fields": {"jpg": FieldType.parse("jpg"), "cls": FieldType.parse("int64")},
        "tokenizer": SimpleNamespace(encode=lambda text: [len(word) for word in text.split()]),
        **{name: getattr(ss.decode, name) for name in ss.decode.__all__},
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, data = tmp_path_factory.mktemp("made"), picture(500, 375, "JPEG")
    (folder / "photos").mkdir()
    with ss.ShardWriter(folder / "out") as writer, open(folder / "list.tsv", "w") as lines:
        for i in range(SAMPLES):
            writer.write({"__key__": f"photo/{i}", "jpg": data, "cls": 17 + i})
            (folder / "photos" / f"{i}.jpg").write_bytes(data)
            lines.write(f"photos/{i}.jpg\t{i}\n")
    return folder


@pytest.fixture
def workplace(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "photos").symlink_to(made / "photos")
    shutil.copytree(made / "out", tmp_path / "out")
    shutil.copy(made / "list.tsv", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def examples(module: str) -> list[doctest.DocTest]:
    return [test for test in doctest.DocTestFinder().find(importlib.import_module(module)) if test.examples]


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata calls it
@pytest.mark.parametrize("module", modules())
def test_examples_run(module: str, workplace: Path) -> None:
    if module in WRITERS:
        (workplace / "out").rename(workplace / "elsewhere")
    output: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in examples(module):
        test.globs = names() | test.globs
        if module not in WRITERS and ("ds." in test.docstring or "(ds" in test.docstring):
            fields = {"jpg": ss.decode.CenterCrop(32), "cls": None}
            test.globs["ds"] = ss.ShardDataset("out/", fields=fields, batch_size=8)
        runner.run(test, out=output.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(output)


def public_names() -> list[str]:
    """Every name in ``dir(ss)``, and those of its modules."""
    found = []
    for name in dir(ss):
        value = getattr(ss, name)
        if not isinstance(value, ModuleType):
            found.append(name)
        elif value is ss.errors:
            kinds = [one for one in vars(value).values() if isinstance(one, type)]
            found += [f"errors.{kind.__name__}" for kind in kinds if issubclass(kind, ss.errors.ShardStreamError)]
        else:
            found += [f"{name}.{inner}" for inner in dir(value)]
    return [name for name in found if name != "__version__" and not isinstance(attrgetter(name)(ss), ModuleType)]


def test_every_public_name_has_an_example() -> None:
    found = public_names()
    assert {"verify", "errors.UsageError", "decode.Slot", "augment.ImageBatch", "testing.make_dataset"} <= set(found)
    assert not [name for name in found if ">>> " not in (attrgetter(name)(ss).__doc__ or "")]


def test_nothing_is_skipped() -> None:
    skipped = [
        f"{test.name}: {example.source}"
        for module in modules()
        for test in examples(module)
        for example in test.examples
        if example.options.get(doctest.SKIP)
    ]
    assert not skipped
