"""The stream: one worker's share of an epoch, as samples or batches. Knows ranks and workers, but no devices.

What is streamed:

=============  ==================================================================================
``dataset``    ``ShardDataset``: a data set, or several end to end
``mixture``    ``Mixture``: several, drawn from by weight
``base``       ``Stream``: what both have in common: iteration, epochs, ranks, states
``settings``   their arguments, checked, as values
``places``     a folder, a list, a glob, braces -> folders or URLs
``homes``      these, with replicas, cache and credentials -> ``Home``
``home``       ``Home``: one data set: where its bytes lie, and its manifest
``view``       split, filter, first n: which rows of each shard
``source``     ``Source``: data sets through a view
``content``    ``Content``: sources, and the order their samples come in
=============  ==================================================================================

Who reads what, and when:

==============  =================================================================================
``ranks``       which rank of how many this process is, and which ranks share a node
``dealt``       whether a framework deals out to ranks what this one reads
``run``         what is left of one epoch of one rank, as steps
``step``        ``Step``: the samples of a step by where they lie
``coming``      the steps of one worker, across the end of an epoch
``progress``    how far an iteration in one process has come
``items``       what a training loop gets, of which the last item says that it is the last
``epochs``      the epoch number and a loaded state, shared with workers
``state``       what a checkpoint holds
``versions``    the version of its data that a loaded state was saved at
``convert``     ``convert_state``: from torchdata's state to ours
``assignment``  what a ``Loader`` tells its workers
``shared``      small facts in anonymous shared memory
==============  =================================================================================

How samples and batches are made:

=============  ==================================================================================
``opened``     the shards whose index is at hand, bounded in number
``ahead``      ``ReadAhead``: bytes of coming samples, fetched before anybody waits for them
``budget``     how many bytes that may be
``rows``       stored values by (shard, row)
``gather``     the same over all shards of a step at once, where their files are mapped
``stored``     ``Rows``: what came of it
``samples``    rows -> samples: decode, transform
``batches``    rows -> batches: decode into slots of slabs
``decoding``   the samples of a step on their way, some of it in threads
``crew``       these threads
``makers``     samples and batches, for all sources, in one process
``collate``    values of many samples as one value of a batch
``numbers``    which dtype numbers have in a batch
``nested``     a function applied to all tensors of a batch, however nested
``slabs``      where batches are written
``pool``       memory that is used again once nobody refers to what lay there
``lent``       memory that goes back and forth between a worker and the training process
``handover``   how the tensors of a parcel travel on it
``orphans``    a worker whose training process was killed goes too
``ragged``     ``Ragged``: values of different lengths as one slab
``crops``      ``Crops``: crops of different sizes as one slab, which the device resizes
``skips``      what is done about broken samples
``stages``     where the time of a parcel went
``parcel``     what travels from a worker to ``ss.Loader``
``reader``     ``Reader``: random access
=============  ==================================================================================
"""

from shardstream.stream.base import Stream
from shardstream.stream.convert import convert_state
from shardstream.stream.crops import Crops
from shardstream.stream.dataset import ShardDataset
from shardstream.stream.mixture import Mixture
from shardstream.stream.ragged import Ragged
from shardstream.stream.reader import Reader

__all__ = ["Crops", "Mixture", "Ragged", "Reader", "ShardDataset", "Stream", "convert_state"]
