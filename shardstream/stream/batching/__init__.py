"""From stored rows to samples and batches.

==============  ========================================================
``pipeline``    samples and batches, for all sources, in one process
``samples``     rows -> samples: decode, transform, in threads if wanted
``batches``     rows -> batches: decode into slots of slabs, or collate
``collate``     values of many samples as one value of a batch
``columns``     rows -> batches where whole columns make them, of several steps at once
``bins``        rows that are bins of documents -> tokens, labels, where documents begin
``lost_slots``  the warning if filters leave out many samples of batches
==============  ========================================================
"""
