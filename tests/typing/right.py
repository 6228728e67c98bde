"""What users write. Type checkers find nothing to say about it; `test_typing` asks them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

import shardstream as ss


def brighter(sample: dict[str, Any]) -> dict[str, Any] | None:
    return None if sample["cls"] < 0 else sample


def pack() -> str:
    manifest: ss.Manifest = ss.pack("photos/", "out/", format="record", shard_size="64MB", seed=1)
    with ss.ShardWriter("emb/", fields={"emb": "array:float32:8"}) as writer:
        writer.write({"__key__": "a", "emb": np.zeros(8, np.float32), "cls": 3})
    return f"{manifest.samples:,} samples of {sorted(manifest.fields)}"


def train(model: torch.nn.Module) -> Mapping[str, Any]:
    crops = {"jpg": ss.decode.RandomResizedCrop(224, flip=True), "cls": None, "txt": str.upper}
    ds = ss.ShardDataset("out/", fields=crops, shuffle=True, transform=brighter)
    ds.set_epoch(3)
    half = ds.take(len(ds) // 2)
    loader = ss.Loader(half.to_tuple("jpg", "cls"), batch_size=32, num_workers=2, pin_memory=False)
    for images, labels in loader:
        model(images).backward(labels)
    for images, labels in ss.DevicePrefetcher(loader, "cpu", transform=ss.augment.ImageBatch((0.5,) * 3, (0.2,) * 3)):
        model(images).backward(labels)
    for event, batch in ss.progress(loader):
        print(event.done, batch["jpg"].shape)
    loader.load_state_dict(loader.state_dict())
    share: float = loader.stats.wait_share
    print(f"{share:.0%}", loader.stats.report())
    return loader.state_dict()


def evaluate() -> int:
    ds = ss.ShardDataset(["a/", "b/"], fields=["cls"], split=("val", {"train": 0.9, "val": 0.1}), batch_size=64)
    mixed = ss.Mixture({"a": (ds, 0.5), "b": (ss.ShardDataset("b/", where={"cls": [1, 2]}), 0.5)}, batch_size=8)
    return sum(len(batch["cls"]) for batch in ss.Loader(mixed))


def look() -> bool:
    reader = ss.Reader("out/")
    sample: Mapping[str, Any] = reader[0]
    print(sample["cls"], reader.get("cat/1")["jpg"].shape)
    ss.view("out/", samples=20).save("page.html")
    print([finding.fact for finding in ss.doctor("out/")], ss.info("out/").samples, ss.bench("out/").samples_per_second)
    try:
        ss.verify("out/")
    except ss.errors.StorageError as error:
        print(error.place, error.hint)
    return ss.verify("out/").ok


def test_of_a_user(folder: str) -> None:
    ss.testing.make_dataset(folder, samples=20, fields={"cls": "int64"})
    assert look()
