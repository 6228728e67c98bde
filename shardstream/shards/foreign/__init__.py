"""Data of other libraries, read where it lies: what of it becomes one of our indexes, and how.

================  =============================================================================
``contract``      ``ForeignFormat``: recognise objects in a listing, scan one into rows
``object_bytes``  ``ObjectBytes``: bytes of an object for its scan, mapped or in large reads
``found_blocks``  ``FoundBlocks``: the blocks of an object that is compressed
``compressed``    what is compressed as a whole, told by its first bytes; its blocks
``gzip_parts``    the blocks of what is compressed with gzip: parts of large files
``zstd_frames``   the blocks of what is compressed with zstd
``decompression`` compressed text, read once from its beginning to its end
``rows``          ``ScannedRows``, ``RowBuilder``: what a scan gives, row by row or as arrays
``choosing``      which columns of a scan are wanted, under which names
``text_spool``    parts of an object that are wanted again later, in another order
``held``          columns of values that the index itself holds
``whole_column``  columns of values whose type is known once all of an object was seen
``names``         what names of files say: splits, and what accompanies what
``strays``        which names are not data, for all listings and members of archives
``globs``         patterns of paths, whose wildcards leave these names out
``yaml_files``    files of YAML that describe data sets
``protobuf``      protobuf's wire format
``framing``       values of foreign objects, where an index of a catalogue says that they lie
``apart/``        packages of other libraries, in processes of their own
``loose``         values that are objects of their own: files, and lists of them
``packages/``     formats that their own packages read, for packing alone
``formats/``      a file or a folder a format, and ``registry``: which there are
================  =============================================================================

``docs/foreign.md`` says per format what is read. No code of their libraries is needed, and nothing that a file names
is ever called.
"""
