"""shardstream: very large data sets, streamed into PyTorch.

Pack once, then stream::

    import shardstream as ss

    ss.pack("list.tsv", "out/")
    fields = {"jpg": ss.decode.RandomResizedCrop(224, flip=True), "cls": None}
    ds = ss.ShardDataset("out/", fields=fields, shuffle=True)
    for images, labels in ss.Loader(ds.to_tuple("jpg", "cls"), batch_size=128, num_workers=8):
        ...

Rooms, from the bottom up: ``text``; ``errors``; ``rng``, ``extras``, ``sizes`` and ``braces``; ``storage``; ``shards``,
``order`` and ``images``; ``pack`` and ``decode``; ``stream``; ``augment``; ``load``; ``diagnose``; ``report``; ``cli``;
and, for users' own tests, ``testing``.
``docs/architecture.md`` shows them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shardstream import errors
from shardstream.pack import PackPlan, ShardWriter, export, merge, pack, pack_plan, repack
from shardstream.shards.manifest import Manifest

if TYPE_CHECKING:
    from shardstream import augment, decode, testing
    from shardstream import diagnose as diagnose  # not in `__all__`: its verbs are
    from shardstream.dataset.foreign.indexing import index
    from shardstream.diagnose.bench import bench
    from shardstream.diagnose.doctor import doctor
    from shardstream.diagnose.info import info
    from shardstream.diagnose.verify import verify
    from shardstream.load import DevicePrefetcher, Loader, Synthetic, gather_stats, progress
    from shardstream.report.viewing import view
    from shardstream.storage.cache import Cache
    from shardstream.stream import Crops, Mixture, Ragged, Reader, ShardDataset, convert_state, show

__version__ = "0.1.0"

__all__ = [
    "Cache",
    "Crops",
    "DevicePrefetcher",
    "Loader",
    "Manifest",
    "Mixture",
    "PackPlan",
    "Ragged",
    "Reader",
    "ShardDataset",
    "ShardWriter",
    "Synthetic",
    "augment",
    "bench",
    "convert_state",
    "decode",
    "doctor",
    "errors",
    "export",
    "gather_stats",
    "index",
    "info",
    "merge",
    "pack",
    "pack_plan",
    "progress",
    "repack",
    "show",
    "testing",
    "verify",
    "view",
]

# What needs torch, or is for tests, is imported at first use, so that the command line answers at once.
_STREAM = ("Crops", "Mixture", "Ragged", "Reader", "ShardDataset", "convert_state", "show")
_LOAD = ("DevicePrefetcher", "Loader", "Synthetic", "gather_stats", "progress")
_LAZY = {
    **dict.fromkeys(_LOAD, "shardstream.load"),
    "Cache": "shardstream.storage.cache",
    **dict.fromkeys(("bench", "doctor", "info", "verify"), "shardstream.diagnose"),
    "index": "shardstream.dataset.foreign.indexing",
    "view": "shardstream.report.viewing",
    **dict.fromkeys(_STREAM, "shardstream.stream"),
}

# The module of this name is here by now; `ss.progress` is the function of `load`, as `ss.pack` is that of `pack`.
globals().pop("progress", None)


if not TYPE_CHECKING:  # type checkers find misspelt names themselves

    def __getattr__(name: str) -> Any:
        if name in ("augment", "decode", "diagnose", "testing"):
            return import_module(f"shardstream.{name}")
        if name in _LAZY:
            return getattr(import_module(_LAZY[name]), name)
        raise errors.no_attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return sorted((*__all__, "__version__"))
