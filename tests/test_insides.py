"""Versions of other packages that lack what is used of their insides: one clear error, or it works without."""

from __future__ import annotations

import _thread
import importlib.util
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data.dataloader import DataLoader, _MultiProcessingDataLoaderIter

import shardstream as ss
from shardstream import waits
from shardstream.errors import MissingExtraError
from shardstream.extras import NEWEST_TESTED, private
from shardstream.images import resize
from shardstream.load import workers
from shardstream.load.device import packing
from shardstream.storage.clients import forked_obstore
from shardstream.testing import make_dataset

HINT = f'pip install "torch=={NEWEST_TESTED["torch"]}.*"'


def import_again(module: object) -> None:
    """Run a module's source under another name."""
    spec = importlib.util.spec_from_file_location("again", str(module.__file__))
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_the_error_names_the_package_its_version_and_what_it_lacks() -> None:
    assert private(torch, "_C", "torch") is torch._C
    with pytest.raises(MissingExtraError, match=r"torch \d.* lacks .*_gone_by_now") as caught:
        private(torch, "_gone_by_now", "torch")
    assert caught.value.hint == HINT
    with pytest.raises(MissingExtraError, match="numpy"):
        private(torch, "_gone_by_now", "numpy")


@pytest.mark.parametrize(
    ("module", "owner", "name"),
    [
        (workers, torch._C, "_remove_worker_pids"),
        (workers, DataLoader, "_get_iterator"),
        (packing, torch.utils._python_dispatch, "is_traceable_wrapper_subclass"),
    ],
)
def test_what_is_needed_at_once_is_looked_for_at_once(
    module: object, owner: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(owner, name)
    with pytest.raises(MissingExtraError, match=name) as caught:
        import_again(module)
    assert caught.value.hint == HINT


@pytest.mark.parametrize("name", [*workers._METHODS, *workers._ATTRIBUTES])
def test_another_iterator_of_torch_is_one_clear_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def renamed(self: object, loader: object) -> None:  # as torch would: nothing has the name any more
        started.append(True)
        vars(self).update(dict.fromkeys(set(workers._ATTRIBUTES) - {name}), _shutdown=True)
        vars(self).pop(name, None)

    make_dataset(tmp_path, samples=4)
    loader = ss.Loader(ss.ShardDataset(tmp_path, batch_size=2), num_workers=1)
    monkeypatch.setattr(_MultiProcessingDataLoaderIter, "__init__", renamed)
    monkeypatch.setattr(_MultiProcessingDataLoaderIter, "__del__", lambda _: None)
    for kind in _MultiProcessingDataLoaderIter.__mro__:
        monkeypatch.delattr(kind, name, raising=False)
    with pytest.raises(MissingExtraError, match=f"torch .* lacks .*{name} of _MultiProcessingDataLoaderIter"):
        next(iter(loader))
    assert bool(started) == (name in workers._ATTRIBUTES)  # without a method no worker is started


def test_the_antialiased_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resize, "_torch", lambda: SimpleNamespace(ops=SimpleNamespace(aten=SimpleNamespace())))
    with pytest.raises(MissingExtraError, match="_upsample_bilinear2d_aa"):
        resize._resample(np.zeros((8, 8, 3), np.uint8), np.zeros((4, 4, 3), np.uint8), antialias=True)


def test_an_obstore_whose_extension_has_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setattr(forked_obstore, "_EXTENSION", "obstore._renamed")
    with pytest.raises(MissingExtraError, match=r"obstore \d.* lacks .*obstore\._renamed"):
        forked_obstore.obstore()


def test_a_thread_begins_where_python_waits_for_it_by_another_name() -> None:
    done = threading.Event()

    class Thread(threading.Thread):
        def start(self) -> None:
            _thread.start_new_thread(self.run, ())

    waits.begin(Thread(target=done.set))
    assert done.wait(60)
