"""Data of other libraries, read where it lies: what of it becomes one of our indexes, and how.

===============  =============================================================================
``contract``     ``ForeignFormat``: recognise objects in a listing, scan one into rows
``object_bytes`` ``ObjectBytes``: bytes of an object for its scan, mapped or in large reads
``rows``         ``ScannedRows``, ``RowBuilder``: what a scan gives, row by row or as arrays
``forms``        foreign encodings of a value: pure functions to the bytes of our types
``formats/``     a file a format, and ``registry``: which there are, and which one a listing is
===============  =============================================================================

``docs/foreign.md`` says per format what is read. No code of their libraries is needed, and nothing that a file names
is ever called.
"""
