"""What a mixture has handed out of each source, counted from positions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shardstream.order import Place
from shardstream.stream.iteration.content import Content
from shardstream.stream.iteration.ranks import Rank
from shardstream.stream.iteration.settings import StreamOptions
from shardstream.stream.iteration.state import ResumePoint


def samples_seen(content: Content, settings: StreamOptions, rank: Rank, point: ResumePoint) -> NDArray[np.int64]:
    """How many samples of each source of a mixture lie before a point of a run: int64 (sources,)."""
    parameters = point.parameters or content.parameters(settings, rank, 0)
    samples = content.dealt_samples(parameters)

    def before(place: Place) -> NDArray[np.int64]:
        return content.order(settings, place[0], parameters).before(min(place[1], samples))

    rest = point.left_of(samples)
    beyond, _, _ = content.order(settings, point.epoch, parameters).locate(rest.handed_out())
    assert beyond is not None, "of a mixture"
    reached = point.epoch, rest.start
    found: NDArray[np.int64] = before(reached) + np.bincount(beyond, minlength=len(content.parts))
    for begin, end in point.skips:
        if begin < reached:
            found -= before(min(end, reached)) - before(begin)
    return found
