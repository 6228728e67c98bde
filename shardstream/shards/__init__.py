"""What a shard is: fields, index, framings and the manifest. Knows nothing of ranks, training or images.

===============  =============================================================================
``fields``       field types: value <-> bytes, both ways
``codecs``       the encodings behind them (text, JSON, msgpack)
``npy``          arrays as NPY files
``tensors``      torch tensors as safetensors files
``compression``  zstd, value by value
``checksum``     XXH3-64 and why
``index``        ``ShardIndex``: columnar numpy, read without copying
``builder``      ``IndexBuilder``: the same columns while a shard is being written
``layout``       index <-> bytes, with the trailer that finds it from the end of an object
``framing``      the framing contract: ``scan``, ``plan``, ``extract``
``indexed``      what the framings that end with our index share
``tar``          plain tar in WebDataset naming, the index as its last member
``record``       payloads back to back, the index as footer
``limits``       how large one value may become
``framings``     the framings by name
``writing``      what writers of both framings share
``keys``         keys as tar member names
``heads``        ``dataset.json`` without the table, its checksum, and the heads of old versions
``manifest``     ``dataset.json``: what a data set is
``growing``      manifests of several data sets as one
``table``        the table of its shards, and their names
``key_table``    the table of its keys: which sample has a key
===============  =============================================================================

``docs/format.md`` specifies the bytes.
"""
