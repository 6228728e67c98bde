"""The stream: one worker's share of an epoch, as samples or batches. Knows ranks and workers, but no devices.

=============  ==================================================================================
``dataset``    ``ShardDataset``: the glue of one worker
``settings``   its arguments, checked, as one value
``ranks``      which rank of how many this process is
``epochs``     the epoch number, shared with workers
``run``        one epoch of one rank as steps
``rows``       stored values by (shard, row), with a bounded number of open shards
``samples``    rows -> samples: decode, transform
``batches``    rows -> batches: decode into slots of slabs
``collate``    values of many samples as one value of a batch
``slabs``      where batches are written
``ragged``     ``Ragged``: values of different lengths as one slab
``skips``      what is done about broken samples
``parcel``     what travels from a worker to ``ss.Loader``
``reader``     ``Reader``: random access
=============  ==================================================================================
"""

from shardstream.stream.dataset import ShardDataset
from shardstream.stream.ragged import Ragged
from shardstream.stream.reader import Reader

__all__ = ["Ragged", "Reader", "ShardDataset"]
