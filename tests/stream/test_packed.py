"""Bins of documents in batches: the same as one by one, in any length, by any number of workers, resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shardstream as ss
from shardstream.decode import Packed
from shardstream.errors import DecodeError
from shardstream.testing import MemoryStore

SIZE = 16


@pytest.fixture(scope="module")
def bins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draws = np.random.default_rng(0)
    out = tmp_path_factory.mktemp("bins") / "out"
    documents = []
    for i in range(400):
        ids = draws.integers(1, 60_000, draws.integers(1, 24))
        documents.append({"__key__": f"d{i}", "ids": ids, "n": i} | ({"loss_mask": ids % 3 > 0} if i % 4 == 0 else {}))
    ss.pack(
        documents,
        out,
        bins=ss.PackedSequences(SIZE, token_dtype="uint16"),
        format="record",
        shard_size="3kB",
        workers=0,
    )
    return out


def batches(url: Any, spec: Packed, **options: Any) -> list[dict[str, Any]]:
    return list(ss.ShardDataset(url, fields={"text": spec}, **{"batch_size": 4, "tail": "exact", **options}))


@pytest.mark.parametrize("length", [SIZE, SIZE // 4])
def test_a_batch_is_its_samples(bins: Path, length: int) -> None:
    spec = Packed(length, pieces="continue", labels="next")
    whole = batches(bins, spec)
    single = list(ss.ShardDataset(bins, fields={"text": spec}, tail="exact"))
    for name in ("ids", "labels", "position_ids", "segment_ids"):
        together = torch.cat([batch[name] for batch in whole])
        alone = np.concatenate([sample[name].reshape(-1, length) for sample in single])
        assert np.array_equal(together.numpy(), alone)
    assert whole[0]["ids"].shape == (4 * SIZE // length, length)
    assert [key for batch in whole for key in batch["__key__"]] == [sample["__key__"] for sample in single]
    assert whole[0]["max_seqlen"] == int(whole[0]["cu_seqlens"].diff().max())
    assert whole[0]["cu_seqlens"][-1] == 4 * SIZE


def test_a_reader_gives_the_same(bins: Path) -> None:
    first = ss.Reader(bins, fields={"text": Packed()})[0]
    (batch,) = batches(bins, Packed(), batch_size=1)[:1]
    for name in ("ids", "labels", "position_ids", "segment_ids"):
        assert np.array_equal(first[name], batch[name][0].numpy())


def test_with_another_column_and_only_some_outputs(bins: Path) -> None:
    fields = {"text": Packed(outputs=["labels"]), "n": None, "ids.keys": None}
    batch = ss.ShardDataset(bins, fields=fields, batch_size=4).peek()
    assert set(batch) == {"__key__", "labels", "n", "ids.keys"}
    assert [f"d{n}" for row in batch["n"] for n in row.tolist()] == [key for keys in batch["ids.keys"] for key in keys]


def test_outputs_are_renamed_and_selected(bins: Path) -> None:
    dataset = ss.ShardDataset(bins, fields={"text": Packed()}, batch_size=4)
    assert [tuple(one.shape) for one in dataset.to_tuple("labels", "ids").peek()] == [(4, SIZE), (4, SIZE)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_is_resumed_in_another_length_and_batch(bins: Path, workers: int) -> None:
    def loader(length: int, batch_size: int) -> ss.Loader:
        fields = {"text": Packed(length, outputs=("ids", "segment_ids"))}
        dataset = ss.ShardDataset(bins, fields=fields, batch_size=batch_size, shuffle=True, tail="exact", seed=3)
        return ss.Loader(dataset, num_workers=workers)

    whole = torch.cat([batch["ids"].reshape(-1) for batch in loader(SIZE, 4)])
    begun = loader(SIZE, 4)
    iterator = iter(begun)
    first = [next(iterator)["ids"].reshape(-1) for _ in range(5)]
    state = json.loads(json.dumps(begun.state_dict()))
    rest = loader(SIZE // 2, 2)
    rest.load_state_dict(state)
    again = [batch["ids"].reshape(-1) for batch in rest]
    assert torch.equal(torch.cat(first + again), whole)


def test_a_bin_that_contradicts_itself_is_an_error_or_skipped() -> None:
    store = MemoryStore({})
    with ss.ShardWriter(
        store, format="record", fields={"ids": "array:uint16:4", "ids.lengths": "values:int32"}
    ) as writer:
        for i in range(8):
            lengths = [4] if i != 3 else [3]
            writer.write(
                {"__key__": f"{i}", "ids": np.full(4, i, np.uint16), "ids.lengths": np.array(lengths, np.int32)}
            )
    with pytest.raises(DecodeError, match=r"lengths of 3 tokens in a bin of 4.*key 3|key 3.*lengths of 3"):
        batches(store, Packed())
    batch = batches(store, Packed(), on_error="skip", batch_size=8)[0]
    assert batch["ids"][:, 0].tolist() == [0, 1, 2, 4, 5, 6, 7]
    batch = batches(store, Packed(), on_error="skip", batch_size=8, dropped="repeat")[0]
    assert batch["ids"][:, 0].tolist() == [0, 1, 2, 0, 4, 5, 6, 7]
    assert batch["__valid__"].tolist() == [True, True, True, False, True, True, True, True]
    with pytest.raises(DecodeError, match="lengths of 3 tokens"):
        list(ss.ShardDataset(store, fields={"text": Packed()}))


class Attention(torch.nn.Module):
    """A transformer of one layer that is told which tokens may see which."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(60_000, 16), torch.nn.Embedding(SIZE, 16)
        self.mixed, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 32)

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(ids) + self.places(positions)
        query, key, value = (one.unsqueeze(1) for one in self.mixed(hidden).chunk(3, -1))
        mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=seen.unsqueeze(1))
        return self.out(hidden + mixed.squeeze(1))


def same_number(numbers: torch.Tensor) -> torch.Tensor:
    """Whether two tokens of a row have one number, and the first does not come before the second: (rows, L, L)."""
    causal = torch.ones(numbers.shape[-1], numbers.shape[-1], dtype=torch.bool).tril()
    return (numbers[:, :, None] == numbers[:, None, :]) & causal


def test_attention_does_not_cross_documents(bins: Path) -> None:
    torch.manual_seed(0)
    model = Attention().eval()
    (batch, *_) = batches(bins, Packed(), batch_size=8)
    ids, positions, segments = batch["ids"], batch["position_ids"], batch["segment_ids"]
    bounds = batch["cu_seqlens"].long()
    lengths = bounds.diff()
    masks = {
        "segment_ids": same_number(segments),
        "position_ids": same_number((positions == 0).cumsum(-1)),
        "cu_seqlens": same_number(torch.arange(len(lengths)).repeat_interleave(lengths).reshape(ids.shape)),
    }
    documents = 0
    with torch.no_grad():
        logits = {name: model(ids, positions, seen) for name, seen in masks.items()}
        for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            row, at = divmod(begin, SIZE)
            if segments[row, at] == 0:
                continue
            documents += 1
            alone = ids[row, at : at + end - begin][None]
            causal = same_number(torch.zeros_like(alone))
            expected = model(alone, torch.arange(alone.shape[1])[None], causal)[0]
            for name, found in logits.items():
                assert torch.allclose(found[row, at : at + end - begin], expected, atol=1e-5), name
    assert documents > 8
