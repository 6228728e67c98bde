"""Settings that tests vary one by one, as the objects that datasets take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import shardstream as ss
from shardstream.options import options_of

_GROUPS: dict[str, type] = {"order": ss.OrderOptions, "reads": ss.ReadOptions, "reading": ss.SourceOptions}


def grouped(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a `ShardDataset`, a `Mixture` or a `Reader`, of settings such as ``lanes`` or ``rank``."""
    new = dict(settings)
    for argument, kind in _GROUPS.items():
        was = {one.was: name for name, one in options_of(kind).items()}
        given = {was[name]: new.pop(name) for name in settings if name in was}
        if given:
            new[argument] = kind(**given)
    ranks = new.pop("rank", None), new.pop("world_size", None)
    return new if ranks == (None, None) else new | {"ranks": ranks}
