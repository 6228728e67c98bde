"""Where batches lie: memory that is used again, and the shapes that values of different sizes take.

================  =========================================================================
``numbers``       which dtype numbers have in a batch
``slabs``         where batches are written
``pool``          memory that is used again once nobody refers to what lay there
``shared_slabs``  memory that goes back and forth between a worker and the training process
``ragged``        ``Ragged``: values of different lengths as one slab
``crops``         ``Crops``: crops of different sizes as one slab, which the device resizes
``nested``        a function applied to all tensors of a batch, however nested
================  =========================================================================
"""
