"""What a mixture has handed out of each source, counted from positions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shardstream.order import Remaining
from shardstream.stream.iteration.content import Content
from shardstream.stream.iteration.ranks import Rank
from shardstream.stream.iteration.settings import StreamOptions
from shardstream.stream.iteration.state import ResumePoint


def samples_seen(content: Content, settings: StreamOptions, rank: Rank, point: ResumePoint) -> NDArray[np.int64]:
    """How many samples of each source of a mixture lie before a point of a run: int64 (sources,)."""
    parameters = point.parameters or content.parameters(settings, rank, 0)
    order = content.order(settings, point.epoch, parameters)
    rest = Remaining(content.dealt_samples(parameters), position=point.position, stops=point.stops)
    beyond, _, _ = order.locate(rest.handed_out())
    assert beyond is not None, "of a mixture"
    found: NDArray[np.int64] = order.before(rest.start) + np.bincount(beyond, minlength=len(content.parts))
    return found
