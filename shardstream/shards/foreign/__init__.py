"""Data of other libraries, read where it lies: what of it becomes one of our indexes, and how.

==================  ==========================================================================
``contract``        ``ForeignFormat``: recognise objects in a listing, scan one into rows
``object_bytes``    ``ObjectBytes``: bytes of an object for its scan, mapped or in large reads
``rows``            ``ScannedRows``, ``RowBuilder``: what a scan gives, row by row or as arrays
``forms``           foreign encodings of a value: pure functions to the bytes of our types
``index_files``     ``index.json`` of MDS and LitData: names and numbers in it, checked
``sized_records``   their records: a table of offsets, sizes before values; taken apart with numpy
``encoded_values``  their arrays, pixels and lists of images, as the bytes of our types
``pytree_names``    names for the leaves of LitData's samples
``tagged_values``   LitData's own binary form of lists and dictionaries, as JSON
``formats/``        a file a format, and ``registry``: which there are, and which one a listing is
==================  ==========================================================================

``docs/foreign.md`` says per format what is read. No code of their libraries is needed, and nothing that a file names
is ever called.
"""
