"""What a shard is: fields, index, framings and the manifest. Knows nothing of ranks, training or images.

===============  =============================================================================
``fields``       field types, a class for each kind: value <-> bytes, both ways
``field_names``  names of fields: which are allowed, and what becomes of others
``scalars``      what single numbers a column holds
``arrays``       arrays as NPY files, torch tensors as safetensors files
``compression``  zstd, value by value
``index``        ``ShardIndex``: columnar numpy, read without copying; keys, and their names in a tar
``layout``       index <-> bytes, with the trailer that finds it from the end of an object; the one checksum
``framing``      the framing contract: ``scan``, ``plan``, ``extract``; how large one value may become
``indexed``      what the framings that end with our index share
``tar``          plain tar in WebDataset naming, the index as its last member
``record``       payloads back to back, the index as footer
``framings``     the framings by name
``writing``      what writers of both framings share: one shard, and its index while it grows
``heads``        ``dataset.json`` without the table, its checksum, and the heads of old versions
``manifest``     ``dataset.json``: what a data set is
``external``     what a manifest says of a dataset in another library's format
``bins``         what a manifest says of samples that are rows of tokens, and how their fields are called
``growing``      manifests of several data sets as one
``table``        the table of its shards, and their names
``key_table``    the table of its keys: which sample has a key
===============  =============================================================================

``docs/format.md`` specifies the bytes.
"""
