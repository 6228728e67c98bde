"""Chunks of records behind a table of offsets, with an ``index.json``.

==================  =============================================================================
``mds``             MosaicML Streaming
``litdata``         LitData
``framed``          LitData's chunks of compressed frames
``hashes``          hashes that an ``index.json`` has
``index_files``     their ``index.json``, read with care
``records``         the table of offsets and the sizes of values, as columns
``encoded_values``  encodings of values that both have
``tagged_values``   those of LitData that begin with a tag
``pytree_names``    names of the leaves of LitData's samples
==================  =============================================================================
"""
