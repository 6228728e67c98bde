"""From workers to the training loop. Knows nothing of formats.

=============  =====================================================================
``loader``     ``Loader``: a ``DataLoader`` with the right settings and a state
``agreement``  ranks compare what they are about to read
``report``     ``LoaderStats``: what was delivered, and how long training waited
=============  =====================================================================
"""

from shardstream.load.loader import Loader
from shardstream.load.report import LoaderStats

__all__ = ["Loader", "LoaderStats"]
