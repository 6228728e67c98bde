"""Settings that tests vary one by one, as the objects that datasets take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import shardstream as ss
from shardstream.options import options_of


def grouped(settings: Mapping[str, Any], of: Callable[..., Any] = ss.ShardDataset.__init__) -> dict[str, Any]:
    """Arguments of a dataset, or of another verb, of settings such as ``lanes``, ``rank``, or ``source_format``."""
    new, groups = dict(settings), getattr(of, "groups", {})
    for argument, kind in groups.items():
        was = {one.was: name for name, one in options_of(kind).items()}
        given = {was[name]: new.pop(name) for name in settings if name in was}
        if given:
            new[argument] = kind(**given)
    ranks = new.pop("rank", None), new.pop("world_size", None)
    return new if ranks == (None, None) else new | {"ranks": ranks}
