"""Peers on small samples of one size, each in the form that it has for them: rows of a tensor, nothing to decode."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader

from bench.data import BATCH, WORKERS
from bench.peers import bare_streaming
from bench.race.corpora import SHAPES, Kind
from bench.race.epochs import one_thread, repeated
from bench.race.processes import grain_batches


def with_webdataset(store: str, kind: Kind, count: int, workers: int) -> dict[str, Any]:
    """Bytes, joined by numpy."""
    import webdataset

    urls = sorted(str(path) for path in Path(store).glob("*.tar"))
    dataset = webdataset.WebDataset(urls, shardshuffle=100, seed=1).shuffle(1000).to_tuple("bin")
    dataset = dataset.batched(BATCH, partial=True, collation_fn=partial(_joined, kind))
    return _by_loader(dataset, count, workers, make=webdataset.WebLoader, batch_size=None)


def _joined(kind: Kind, samples: list[tuple[bytes]]) -> Tensor:
    shape, dtype = SHAPES[kind]
    octets = bytearray().join(sample[0] for sample in samples)
    return torch.from_numpy(np.frombuffer(octets, dtype).reshape(-1, *shape))


def _by_loader(dataset: Any, count: int, workers: int, make: Any = DataLoader, **arguments: Any) -> dict[str, Any]:
    fixed = {"num_workers": workers, "worker_init_fn": one_thread, "persistent_workers": True}
    loader = make(dataset, **{"batch_size": BATCH, **fixed, **arguments})
    return repeated(lambda: loader, count)


def with_streaming(store: str, kind: Kind, count: int, workers: int) -> dict[str, Any]:
    """MosaicML Streaming's arrays of a fixed shape."""
    bare_streaming()
    from streaming.base.dataset import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()
    dataset = StreamingDataset(local=store, shuffle=True, batch_size=BATCH, num_canonical_nodes=1)
    return _by_loader(dataset, count, workers, collate_fn=_stacked)


def _stacked(samples: list[dict[str, NDArray[Any]]]) -> Tensor:
    return torch.from_numpy(np.stack([sample["x"] for sample in samples]))


def with_litdata(store: str, kind: Kind, count: int, workers: int) -> dict[str, Any]:
    """LitData's tensors, or its blocks of tokens."""
    import litdata

    arguments = {"item_loader": litdata.TokensLoader(block_size=SHAPES[kind][0][0])} if kind == "tokens" else {}
    dataset = litdata.StreamingDataset(store, shuffle=True, **arguments)
    return _by_loader(dataset, count, workers, make=litdata.StreamingDataLoader)


def with_ffcv(store: str, kind: Kind, count: int) -> dict[str, Any]:
    """FFCV's arrays, copied by two threads."""
    from ffcv.fields.decoders import NDArrayDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import ToTensor

    loader = Loader(
        store,
        batch_size=BATCH,
        num_workers=WORKERS,
        order=OrderOption.RANDOM,
        os_cache=True,
        pipelines={"x": [NDArrayDecoder(), ToTensor()]},
    )
    return repeated(lambda: (batch for (batch,) in loader), count)


def with_dali(store: str, kind: Kind, count: int) -> dict[str, Any]:
    """DALI's reader of WebDataset's tar files."""
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    urls = sorted(str(path) for path in Path(store).glob("*.tar"))
    shape, dtype = SHAPES[kind]
    stored = types.INT32 if dtype == np.int32 else types.UINT8

    @pipeline_def(batch_size=BATCH, num_threads=WORKERS, device_id=None, seed=1)  # type: ignore[untyped-decorator]
    def pipeline() -> Any:
        data = fn.readers.webdataset(
            paths=urls, ext=["bin"], dtypes=[stored], random_shuffle=True, initial_fill=1000, name="tar"
        )
        return fn.reshape(data, shape=list(shape))

    iterator = DALIGenericIterator([pipeline()], ["x"], reader_name="tar", auto_reset=True)
    return repeated(lambda: (one["x"] for (one,) in iterator), count)


def with_grain(store: str, kind: Kind, count: int, workers: int) -> dict[str, Any]:
    """Grain's ArrayRecord files."""
    batches: Iterable[Any] = grain_batches(store, partial(_unpacked, kind), workers)
    return repeated(lambda: batches, count)


def _unpacked(kind: Kind, record: bytes) -> NDArray[Any]:
    shape, dtype = SHAPES[kind]
    return np.frombuffer(record, dtype).reshape(shape)
