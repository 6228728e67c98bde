"""Catalogs: datasets of other libraries are found and indexed, and then opened like ours.

================  =============================================================================
``catalog``       a dataset of ours without the bytes: objects of other libraries, and the indexes of their samples
``object_table``  its objects, their shards, and the blocks of compressed ones
``selected``      the objects that a user means, and what is remembered of how they are read
``places``        lists of files whose names are those of another directory than the list's own
``plan``          what a listing has, and how it is to be scanned
``scan``          one object to the indexes of its samples
``scanning``      all objects, some of them side by side; how long that takes
``journal``       what was scanned, on the disk, so that a killed run goes on
``write``         what was scanned becomes a catalogue
``whole_scans``  objects of web servers without ranges, scanned out of the cache
``kept``          where a catalogue lies: beside the data, or in a folder of this machine
``make``          finding a catalogue, or making it; what is known already is not scanned again
``dataset``       ``ExternalDataset``: read through its catalog like a dataset of ours
``own_checksums`` checksums that the formats keep themselves, compared
``indexing``      ``index``: the same as a verb
================  =============================================================================
"""

from __future__ import annotations

__all__ = ["CATALOGUE_NAME"]

CATALOGUE_NAME = "shardstream-catalogue.json"
"""Name of the file that a catalog begins with; it is here so that looking for one imports no format."""
