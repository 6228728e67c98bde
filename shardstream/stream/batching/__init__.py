"""From stored rows to samples and batches.

===============  =========================================================
``pipeline``     samples and batches, for all sources, in one process
``samples``      rows -> samples: decode, transform
``batches``      rows -> batches: decode into slots of slabs
``decoding``     the samples of a step on their way, some of it in threads
``decode_pool``  these threads
``collate``      values of many samples as one value of a batch
``budget``       how many bytes that may be
``stages``       where the time of a parcel went
===============  =========================================================
"""
