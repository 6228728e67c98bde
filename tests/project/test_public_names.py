"""What somebody meets who explores the package at a prompt: names, near misses, and what objects say of themselves."""

from __future__ import annotations

import pickle
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch

import shardstream as ss
from shardstream.errors import UsageError
from shardstream.storage import open_store
from shardstream.testing import make_dataset

SECRET = "hidden-signature"


def test_dir_shows_what_is_public() -> None:
    assert dir(ss) == sorted([*ss.__all__, "__version__"])
    for name in ("augment", "decode", "diagnose", "errors", "load", "storage", "testing"):
        module = import_module(f"shardstream.{name}")
        assert dir(module) == sorted(module.__all__)
        assert all(getattr(module, one) is not None for one in dir(module))
    assert all(getattr(ss, name) is not None for name in dir(ss))


@pytest.mark.parametrize(
    ("module", "name", "near"),
    [
        (ss, "ShardDatset", "ShardDataset"),
        (ss, "Manifests", "Manifest"),
        (ss.decode, "RandomResizeCrop", "RandomResizedCrop"),
        (ss.augment, "RandomErase", "RandomErasing"),
    ],
)
def test_a_misspelt_name_names_the_near_miss(module: ModuleType, name: str, near: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    assert str(caught.value) == f"module {module.__name__!r} has no attribute {name!r}; did you mean {near!r}?"
    assert caught.value.name == name


def test_a_name_that_is_near_to_none_names_none() -> None:
    assert not hasattr(ss, "xyzzy")
    with pytest.raises(AttributeError, match=r"has no attribute 'xyzzy'$"):
        _ = ss.decode.xyzzy


def test_the_package_travels_by_its_name_with_functions_that_use_it() -> None:
    assert pickle.loads(pickle.dumps(ss)) is ss


def test_every_object_says_what_it_is(tmp_path: Path) -> None:
    url = str(tmp_path / "out")
    make_dataset(url, samples=20, fields={"cls": "int64", "txt": "str"})
    ds = ss.ShardDataset(url, batch_size=8)
    loader = ss.Loader(ds, num_workers=0)
    of = f"Loader(ShardDataset({url!r}: 20 samples in 2 shards, in stored order, as batches of 8), num_workers=0)"
    plan = ss.pack_plan([{"__key__": "a", "n": 1}], tmp_path / "plan")
    writer = ss.ShardWriter(tmp_path / "written")
    said = {
        repr(ss.Reader(url)): f"Reader({url!r}: 20 samples in 2 shards, version 1; cls int64, txt str)",
        repr(loader): of,
        repr(ss.Synthetic(loader)): f"Synthetic({of})",
        repr(ss.DevicePrefetcher(loader, "cpu")): f"DevicePrefetcher({of}, 'cpu', depth=2)",
        repr(ss.DevicePrefetcher([torch.zeros(1)], "cpu")): "DevicePrefetcher(list, 'cpu', depth=2)",
        repr(plan): f"PackPlan({str(tmp_path / 'plan')!r}: 1 sample in 1 shard, to be packed)",
        repr(writer): f"ShardWriter({str(tmp_path / 'written')!r}: tar, 0 samples, not open)",
        repr(open_store(url)): f"LocalStore({url!r})",
        repr(ds.manifest.table): "ShardTable(2 shards, 20 samples)",
    }
    assert list(said) == list(said.values())
    with pytest.raises(UsageError, match=r"ss\.Reader\(url\)\[0\]"):
        _ = ds[0]


def test_no_secret_of_a_url_is_shown() -> None:
    store = f"https://user:{SECRET}@127.0.0.1:1/data?sig={SECRET}"
    keys = {"access_key_id": SECRET, "secret_access_key": SECRET}
    shown = [repr(open_store(store)), repr(open_store("s3://b/c", storage_options=keys))]
    assert "127.0.0.1" in shown[0]
    plan = ss.pack_plan(
        [{"__key__": "a", "n": 1}], "memory://plan", storage=ss.StorageOptions(options={"token": SECRET})
    )
    shown.append(repr(plan))
    writer = ss.ShardWriter("memory://written", storage=ss.StorageOptions(options={"token": SECRET}))
    with writer:
        writer.write({"__key__": "a", "n": 1})
    shown += [repr(writer), repr(writer._destination)]
    options = {"storage_options": {"token": SECRET}}
    manifest, reader = ss.Manifest.load("memory://written", **options), ss.Reader("memory://written", **options)
    ds = ss.ShardDataset("memory://written", batch_size=1, **options)
    shown += [repr(manifest), manifest._repr_html_(), repr(reader), reader._repr_html_(), repr(ds)]
    shown += [repr(ss.Loader(ds, num_workers=0)), repr(ss.Mixture({"a": ds}))]
    assert not [text for text in shown if SECRET in text]
