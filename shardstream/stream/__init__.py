"""The stream: one worker's share of an epoch, as samples or batches. Knows ranks and workers, but no devices.

=================  ====================================================================
``dataset``        ``ShardDataset``: a data set, or several end to end
``mixture``        ``Mixture``: several, drawn from by weight
``reader``         ``Reader``: random access
``showing``        ``show``: batches and samples as contact sheets
``contact_sheet``  samples as small pictures, for notebooks
``base``           ``Stream``: what both have in common: iteration, epochs, ranks, states
``pickling``       how these are pickled
``batching/``      samples and batches, made of stored rows
``ipc/``           how batches travel from workers
``iteration/``     epochs, ranks, steps, states
``tensors/``       where batches lie
=================  ====================================================================
"""

from typing import TYPE_CHECKING, Any

from shardstream.attributes import imported_attribute
from shardstream.stream.base import Stream
from shardstream.stream.dataset import ShardDataset
from shardstream.stream.tensors.crops import Crops
from shardstream.stream.tensors.ragged import Ragged

if TYPE_CHECKING:
    from shardstream.stream.iteration.convert import convert_state
    from shardstream.stream.iteration.positions import positions
    from shardstream.stream.mixture import Mixture
    from shardstream.stream.reader import Reader
    from shardstream.stream.showing import show

__all__ = ["Crops", "Mixture", "Ragged", "Reader", "ShardDataset", "Stream", "convert_state", "positions", "show"]

# What a worker does without, imported at first use.
_LAZY = {
    "Mixture": "shardstream.stream.mixture",
    "Reader": "shardstream.stream.reader",
    "convert_state": "shardstream.stream.iteration.convert",
    "positions": "shardstream.stream.iteration.positions",
    "show": "shardstream.stream.showing",
}


if not TYPE_CHECKING:  # type checkers find misspelt names themselves

    def __getattr__(name: str) -> Any:
        return imported_attribute(__name__, name, _LAZY, __all__)
