"""Where batches lie: memory that is used again, and the shapes that values of different sizes take.

===========  =========================================================================
``numbers``  which dtype numbers have in a batch
``slabs``    where batches are written: memory that is used again, shared in a worker
``ragged``   ``Ragged``: values of different lengths as one slab
``joined``   rows of stored values as one ``Ragged``
``crops``    ``Crops``: crops of different sizes as one slab, which the device resizes
``nested``   a function applied to all tensors of a batch, however nested
===========  =========================================================================
"""
