"""Tensors of kinds that few loaders meet: each arrives as it was, or is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.nn.utils.rnn import pack_sequence

import shardstream as ss
from gpu.setting import Row, Setting, first_line
from shardstream.stream.tensors.nested import tensors_in

# Kinds of tensors, and how to see all that is in one.
KINDS: dict[str, Callable[[], Any]] = {
    "no elements": lambda: torch.empty(0, 3),
    "one number": lambda: torch.tensor(3),
    "bool": lambda: torch.tensor([True, False]),
    "complex64": lambda: torch.randn(4, 2, dtype=torch.complex64),
    "conjugated": lambda: torch.randn(4, 2, dtype=torch.complex64).conj(),
    "bfloat16": lambda: torch.randn(3, 5).bfloat16(),
    "float8": lambda: torch.randn(3, 5).to(torch.float8_e4m3fn),
    "uint16": lambda: torch.arange(7).to(torch.uint16),
    "expanded": lambda: torch.arange(4).expand(3, 4),
    "transposed": lambda: torch.arange(12).reshape(3, 4).T,
    "every other row": lambda: torch.arange(12).reshape(6, 2)[::2],
    "channels last": lambda: torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "with a gradient": lambda: torch.randn(3, requires_grad=True),
    "sparse, COO": lambda: torch.eye(4).to_sparse(),
    "sparse, CSR": lambda: torch.eye(4).to_sparse_csr(),
    "sparse, BSR": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    "quantised": lambda: torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8),
    "nested, strided": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "nested, jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "a parameter": lambda: torch.nn.Parameter(torch.randn(3)),
    "a PackedSequence": lambda: pack_sequence([torch.ones(3), torch.ones(2)]),
    "on the device already": lambda: torch.arange(5, device="cuda" if torch.cuda.is_available() else "cpu"),
    "strings and None beside it": lambda: {"x": torch.arange(3), "key": ["a", "b"], "none": None},
    "a named tuple": lambda: Pair(torch.arange(3), torch.arange(2)),
    "rows of different length": lambda: ss.Ragged(torch.arange(5), torch.tensor([0, 3, 5])),
}


class Pair(NamedTuple):
    """A batch of a user's own."""

    left: torch.Tensor
    right: torch.Tensor


def run(setting: Setting) -> Iterator[Row]:
    """Each kind, through the prefetcher and back."""
    for name, make in KINDS.items():
        yield _arrives(name, make, setting.device)
    hidden = "MKLDNN, which hides its memory"
    if setting.device.type == "cuda":
        yield _refused(hidden, lambda: list(ss.DevicePrefetcher([torch.zeros(2, 2).to_mkldnn()], setting.device)))
    else:
        yield Row(hidden, "not moved on the CPU")
    loader = ss.Loader(ss.ShardDataset(setting.shards, fields=["cls"], batch_size=8), pin_memory=True)
    yield _refused("a loader that pins memory itself", lambda: ss.DevicePrefetcher(loader, setting.device))


def _arrives(name: str, make: Callable[[], Any], device: torch.device) -> Row:
    value = make()
    try:
        ahead = ss.DevicePrefetcher([{"value": value}, {"value": value}], device)
        for batch in ahead:
            there = batch["value"]
            places = {tensor.device.type for tensor in tensors_in(there)}
            if not _same(value, there):
                return Row(name, f"arrived as {there!r}", failed=True)
    except Exception as error:  # the report says which
        return Row(name, f"{type(error).__name__}: {first_line(error)}", failed=True)
    return Row(name, f"arrived on {' and '.join(sorted(places))}" + (", alone" if ahead.stats.alone else ""))


def _same(one: Any, other: Any) -> bool:
    pairs = zip(tensors_in(one), tensors_in(other), strict=True)
    return all(
        (here.dtype, here.layout) == (there.dtype, there.layout) and _elements(here) == _elements(there)
        for here, there in pairs
    )


def _elements(tensor: torch.Tensor) -> list[Any]:
    """All elements, whatever the kind."""
    here = tensor.detach().cpu()
    if here.is_nested:
        return [_elements(one) for one in here.unbind()]
    if here.is_quantized:
        here = here.int_repr()
    if here.layout is not torch.strided:
        here = here.to_dense()
    if here.dtype is torch.float8_e4m3fn:
        here = here.view(torch.uint8)
    found: list[Any] = here.resolve_conj().tolist() if here.ndim else [here.item()]
    return found


def _refused(name: str, act: Callable[[], Any]) -> Row:
    try:
        act()
    except ss.errors.UsageError as error:
        return Row(name, f"refused: {first_line(error)}")
    return Row(name, "was not refused", failed=True)
