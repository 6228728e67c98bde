"""What all scans of objects share.

================  =============================================================================
``object_bytes``  ``ObjectBytes``: bytes of an object for its scan, mapped or in large reads
``rows``          ``ScannedRows``, ``RowBuilder``: what a scan gives, row by row or as arrays
``choosing``      which columns of a scan are wanted, under which names
``held``          columns of values that the index itself holds
``whole_column``  columns of values whose type is known once all of an object was seen
``names``         what names of files say: splits, and what accompanies what
``text_spool``    parts of an object that are wanted again later, in another order
``yaml_files``    YAML files that describe datasets
``protobuf``      the wire format of protobuf
================  =============================================================================
"""
