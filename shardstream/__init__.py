"""shardstream: very large data sets, streamed into PyTorch.

Pack once, then stream::

    import shardstream as ss

    ss.pack("list.tsv", "out/")
    fields = {"image": ss.decode.RandomResizedCrop(224, flip=True), "cls": None}
    ds = ss.ShardDataset("out/", fields=fields, shuffle=True)
    for images, labels in ss.Loader(ds.to_tuple("image", "cls"), batch_size=128, num_workers=8):
        ...

Rooms, from the bottom up: ``text`` and ``version``; ``errors``; ``rng``, ``extras``, ``sizes`` and ``names``;
``storage``; ``shards``, ``order`` and ``images``; ``pack`` and ``decode``; ``stream``; ``augment``; ``load``;
``diagnose``; ``report``; ``cli``; and, for users' own tests, ``testing``.
``docs/architecture.md`` shows them.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from shardstream import errors
from shardstream.attributes import imported_attribute
from shardstream.version import __version__ as __version__

if sys.platform in ("win32", "cygwin"):
    raise ImportError("shardstream does not run on Windows; install it in WSL, the Linux that `wsl --install` brings")

if TYPE_CHECKING:
    from shardstream import augment, decode, testing
    from shardstream import diagnose as diagnose  # not in `__all__`: its verbs are
    from shardstream.dataset.selected.rows import Rows
    from shardstream.diagnose.bench import bench
    from shardstream.diagnose.doctor import doctor
    from shardstream.diagnose.info import info
    from shardstream.diagnose.verify import verify
    from shardstream.formats.catalog.indexing import index
    from shardstream.load import DevicePrefetcher, Loader, Preemption, Synthetic, gather_stats, progress, trace
    from shardstream.load.filtering.find_rows import find_rows
    from shardstream.options import SourceOptions
    from shardstream.pack.encode.images import ImageOptions
    from shardstream.pack.export.run import export
    from shardstream.pack.merge import merge
    from shardstream.pack.options import PackedSequences, ShardOptions
    from shardstream.pack.output.places import StorageOptions
    from shardstream.pack.plan.pack_plan import PackPlan, pack_plan
    from shardstream.pack.repack import repack
    from shardstream.pack.run import pack
    from shardstream.pack.writer import ShardWriter
    from shardstream.report.viewing import view
    from shardstream.shards.manifest import Manifest
    from shardstream.storage.cache import Cache
    from shardstream.stream import Crops, Mixture, Ragged, Reader, ShardDataset, convert_state, positions, show
    from shardstream.stream.iteration.settings import OrderOptions, ReadOptions

__all__ = [
    "Cache",
    "Crops",
    "DevicePrefetcher",
    "ImageOptions",
    "Loader",
    "Manifest",
    "Mixture",
    "OrderOptions",
    "PackPlan",
    "PackedSequences",
    "Preemption",
    "Ragged",
    "ReadOptions",
    "Reader",
    "Rows",
    "ShardDataset",
    "ShardOptions",
    "ShardWriter",
    "SourceOptions",
    "StorageOptions",
    "Synthetic",
    "augment",
    "bench",
    "convert_state",
    "decode",
    "doctor",
    "errors",
    "export",
    "find_rows",
    "gather_stats",
    "index",
    "info",
    "merge",
    "pack",
    "pack_plan",
    "positions",
    "progress",
    "repack",
    "show",
    "testing",
    "trace",
    "verify",
    "view",
]

# Everything but the errors is imported at first use, so that the package and its command answer at once.
_STREAM = ("Crops", "Mixture", "Ragged", "Reader", "ShardDataset", "convert_state", "positions", "show")
_LOAD = ("DevicePrefetcher", "Loader", "Preemption", "Synthetic", "gather_stats", "progress", "trace")
_LAZY = {
    **dict.fromkeys(_LOAD, "shardstream.load"),
    "Cache": "shardstream.storage.cache",
    "Manifest": "shardstream.shards.manifest",
    **dict.fromkeys(("bench", "doctor", "info", "verify"), "shardstream.diagnose"),
    "Rows": "shardstream.dataset.selected.rows",
    "find_rows": "shardstream.load.filtering.find_rows",
    "index": "shardstream.formats.catalog.indexing",
    **dict.fromkeys(("PackPlan", "pack_plan"), "shardstream.pack.plan.pack_plan"),
    "ShardWriter": "shardstream.pack.writer",
    "SourceOptions": "shardstream.options",
    "ImageOptions": "shardstream.pack.encode.images",
    "PackedSequences": "shardstream.pack.options",
    "ShardOptions": "shardstream.pack.options",
    "StorageOptions": "shardstream.pack.output.places",
    **dict.fromkeys(("OrderOptions", "ReadOptions"), "shardstream.stream.iteration.settings"),
    "pack": "shardstream.pack.run",
    **{verb: f"shardstream.pack.{verb}" for verb in ("merge", "repack")},
    "export": "shardstream.pack.export.run",
    "view": "shardstream.report.viewing",
    **dict.fromkeys(_STREAM, "shardstream.stream"),
}
_MODULES = {
    "augment": "shardstream.augment",
    "decode": "shardstream.decode",
    "diagnose": "shardstream.diagnose",
    "testing": "shardstream.testing",
}


class _Package(ModuleType):
    """The package, whose public names stay what they are when a module of the same name is imported.

    Python binds each module in its package: ``ss.pack`` and ``ss.progress`` are functions, and stay them.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _LAZY and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        # cloudpickle (Ray, Dask, joblib) sends functions of a script with what they name, ``ss`` too, and knows plain
        # modules only
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Package


if not TYPE_CHECKING:  # type checkers find misspelt names themselves

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(_MODULES[name])
        return imported_attribute(__name__, name, _LAZY, __all__)


def __dir__() -> list[str]:
    return sorted((*__all__, "__version__"))
