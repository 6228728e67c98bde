"""Documents in bins: that kernels keep them apart, what a training step waits for, tokens a second that arrive."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from bench import step
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import shardstream as ss
from gpu.setting import Row, Setting, first_line, synchronize

VOCABULARY, SIZE = 50_257, 2048
HEADS = 64  # width of one

Batch: TypeAlias = dict[str, Any]
Attend: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Batch], torch.Tensor]
"""Of queries, keys and values, (rows, heads, L, HEADS)."""


class Kernel(NamedTuple):
    """A way to keep documents apart.

    Attributes:
        attend: The attention.
        flat: Whether it takes all rows as one, without padding.
    """

    attend: Attend
    flat: bool = False


class Block(nn.Module):
    """Attention and a perceptron."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor, attend: Attend, batch: Batch) -> torch.Tensor:
        """(rows, L, width), as it was given."""
        q, k, v = (one.unflatten(-1, (-1, HEADS)).transpose(1, 2) for one in self.mixed(self.before(x)).chunk(3, -1))
        x = x + self.out(attend(q, k, v, batch).transpose(1, 2).flatten(2))
        added: torch.Tensor = x + self.wide(self.between(x))
        return added


class Gpt(nn.Module):
    """GPT-2 in its smallest size, or a smaller one."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(SIZE, width)
        for table in (self.tokens, self.places):
            nn.init.normal_(table.weight, std=0.02)
        self.blocks, self.norm = nn.ModuleList(Block(width) for _ in range(layers)), nn.LayerNorm(width)

    def forward(self, batch: Batch, attend: Attend) -> torch.Tensor:
        """Logits, (rows, L, VOCABULARY)."""
        x = self.tokens(batch["ids"]) + self.places(batch["position_ids"])
        for block in self.blocks:
            x = block(x, attend, batch)
        found: torch.Tensor = self.norm(x) @ self.tokens.weight.T
        return found


def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, _: Batch) -> torch.Tensor:
    """Of one document, or across all of them."""
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def by_mask(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, batch: Batch) -> torch.Tensor:
    """A mask of all pairs, of ``segment_ids``."""
    of = batch["segment_ids"]
    later = torch.ones(of.shape[1], of.shape[1], dtype=torch.bool, device=of.device).triu(1)
    seen = (of[:, :, None] == of[:, None, :]) & ~later
    return scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None])


def kernels(device: torch.device) -> dict[str, Kernel]:
    """Those that are there."""
    found = {"`segment_ids`, scaled_dot_product_attention with a mask": Kernel(by_mask)}
    if device.type == "cuda":
        found["`segment_ids`, flex_attention"] = Kernel(_flexible())
        varlen = _varlen()
        if varlen is not None:
            found["`cu_seqlens`, varlen_attn (FlashAttention)"] = Kernel(varlen, flat=True)
    return found


def _flexible() -> Attend:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, batch: Batch) -> torch.Tensor:
        of = batch["segment_ids"]

        def seen(row: Any, _head: Any, query: Any, key: Any) -> Any:
            return (of[row, query] == of[row, key]) & (query >= key)

        mask = create_block_mask(seen, len(of), None, of.shape[1], of.shape[1], device=of.device)
        attended: torch.Tensor = compiled(q, k, v, block_mask=mask)
        return attended

    return attend


def _varlen() -> Attend | None:
    try:
        varlen: Any = importlib.import_module("torch.nn.attention.varlen").varlen_attn
    except ImportError:
        return None
    known = inspect.signature(varlen).parameters
    how: dict[str, Any] = {"is_causal": True} if "is_causal" in known else {"window_size": (-1, 0)}

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, batch: Batch) -> torch.Tensor:
        bounds, longest = batch["cu_seqlens"], int(batch["max_seqlen"])
        laid = (one[0].transpose(0, 1).contiguous() for one in (q, k, v))
        attended: torch.Tensor = varlen(*laid, bounds, bounds, longest, longest, **how)
        return attended.transpose(0, 1)[None]

    return attend


def run(setting: Setting) -> Iterator[Row]:
    """Logits, a step, delivery."""
    shards = _packed(Path(setting.scratch) / "bins", setting.some(4_000_000))
    yield from _apart(setting, shards)
    if setting.device.type == "cuda":
        yield from _step(setting, shards)
    yield from _delivered(setting, shards)


def _packed(folder: Path, tokens: int) -> Path:
    """Documents of log-normal lengths, in bins."""
    draws = np.random.default_rng(0)
    lengths = np.clip(draws.lognormal(np.log(490), 1.2, tokens // 800), 1, None).astype(int)
    documents = ({"ids": draws.integers(0, VOCABULARY, length)} for length in lengths)
    ss.pack(documents, folder, bins=ss.PackedSequences(SIZE, token_dtype="uint16"), format="record", shard_size="2MB")  # noqa: S106
    return folder


def _loader(shards: Path, rows: int, workers: int, *, flat: bool = False, outputs: tuple[str, ...] = ()) -> ss.Loader:
    wanted: dict[str, Any] = {"outputs": outputs} if outputs else {}
    fields = {"text": ss.decode.Packed(labels="next", flat=flat, **wanted)}
    dataset = ss.ShardDataset(shards, fields=fields, batch_size=rows, shuffle=True)
    return ss.Loader(dataset.repeat(1000), num_workers=workers)


def _apart(setting: Setting, shards: Path) -> Iterator[Row]:
    device = setting.device
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    torch.manual_seed(0)
    model = Gpt(256, 2).to(device, dtype).eval()
    (crossing, expected) = (_differ(model, shards, device, Kernel(attend)) for attend in (causal, by_mask))
    yield Row("the same, were documents not kept apart", f"{crossing:.3f}", failed=crossing < 4 * expected)
    for name, kernel in kernels(device).items():
        what = f"logits of packed documents differ from those of each alone at most by, {name}"
        try:
            found = _differ(model, shards, device, kernel)
        except Exception as error:  # what this GPU or this torch cannot do is told
            yield Row(what, f"{type(error).__name__}: {first_line(error)}", failed=True)
            continue
        yield Row(what, f"{found:.4f}, {dtype}", aim="rounding", failed=found > crossing / 4)


@torch.no_grad()
def _differ(model: Gpt, shards: Path, device: torch.device, kernel: Kernel) -> float:
    """The largest difference of a logit, of the documents of two bins."""
    batch = next(iter(ss.DevicePrefetcher(_loader(shards, 2, 0, flat=kernel.flat), device)))
    together = model(batch, kernel.attend).flatten(0, 1)
    ids, worst = batch["ids"].flatten(), 0.0
    filled = None if kernel.flat else batch["segment_ids"].flatten() > 0
    for begin, end in pairwise(batch["cu_seqlens"].tolist()):
        if filled is not None and not filled[begin]:
            continue
        places = torch.arange(end - begin, device=device)
        alone = model({"ids": ids[None, begin:end], "position_ids": places[None]}, causal)[0]
        worst = max(worst, float((together[begin:end].float() - alone.float()).abs().max()))
    return worst


def _step(setting: Setting, shards: Path) -> Iterator[Row]:
    """GPT-2's smallest, bf16, 65,536 tokens a step."""
    device, rows, steps = setting.device, 32, setting.some(40)
    model = Gpt(768, 12).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, fused=True)
    name, kernel = list(kernels(device).items())[-1]
    train, loader = partial(_train, model, optimizer, kernel.attend), _loader(shards, rows, 2, flat=kernel.flat)
    contenders: dict[str, Callable[[], Any]] = {
        "synthetic tokens": lambda: ss.DevicePrefetcher(ss.Synthetic(loader, batches=step.WARM_UP + steps), device),
        "DevicePrefetcher": lambda: ss.DevicePrefetcher(_loader(shards, rows, 2, flat=kernel.flat), device),
    }
    took: dict[str, list[float]] = {one: [] for one in contenders}
    waits: list[float] = []
    for _ in range(1 if setting.quick else 2):
        for one, begin in contenders.items():
            seconds, waited = step.timed(begin(), train, steps, partial(synchronize, device))
            took[one].append(seconds)
            if one == "DevicePrefetcher":
                waits.append(sum(waited) / (seconds * steps))
    synthetic = median(took["synthetic tokens"])
    for one, seconds_of in took.items():
        rate = f"{rows * SIZE / median(seconds_of):,.0f} tokens/s, {median(seconds_of) / synthetic:.2f} × synthetic"
        ours = one == "DevicePrefetcher"
        waited_for = f", waited {median(waits):.1%}" if ours else ""
        yield Row(f"GPT-2 (124 M) in bf16, {name}, {one}", rate + waited_for, aim="1.02 ×, 2 %" if ours else "")


def _train(model: Gpt, optimizer: torch.optim.Optimizer, attend: Attend, batch: Batch) -> None:
    with torch.autocast(batch["ids"].device.type, torch.bfloat16):
        loss = cross_entropy(model(batch, attend).flatten(0, 1), batch["labels"].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


def _delivered(setting: Setting, shards: Path) -> Iterator[Row]:
    for told, outputs in (("ids and labels", ("ids", "labels")), ("all outputs", ())):
        for workers in (1, 4):
            batches = ss.DevicePrefetcher(_loader(shards, 32, workers, outputs=outputs), setting.device)
            seconds, _ = step.timed(batches, lambda _: None, setting.some(500), partial(synchronize, setting.device))
            rate = f"{32 * SIZE / seconds / 1e6:,.0f} M tokens/s"
            yield Row(f"bins that reach the device, {told}, workers: {workers}", rate)
