"""What the tests of decoders share."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as functional

from shardstream.decode import compile_fields
from shardstream.shards.fields import FieldType


def made(fields, values, context, types=None):
    """All outputs of one sample, as a batch maker would."""
    types = {name: FieldType.parse(name) for name in values if name not in (types or {})} | (types or {})
    plan = compile_fields(fields, types)
    for name in plan.beside:
        raw = values.get(name)
        context.beside[name] = types[name], memoryview(raw) if isinstance(raw, bytes) else raw
    results = {}
    for output in plan.outputs:
        out = None if output.slot is None else np.full(output.slot.shape, 111, output.slot.dtype)
        source = next(name for name in output.sources if name in values)
        raw = values[source]
        raw = memoryview(raw) if isinstance(raw, bytes) else raw
        results[output.name] = output.value(types[source], raw, context, out)
        if out is not None:
            assert results[output.name] is out
    return results


def resized(pixels, size):
    planes = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None].contiguous()
    return functional.interpolate(planes, size, mode="bilinear", antialias=True)[0].permute(1, 2, 0).numpy()
