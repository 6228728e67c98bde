"""Formats that are packed, and not streamed: their own packages read them, each in a process of its own.

===========  ==========================================================================
``known``    ``PackageFormat``: which there are, how they are told, and who answers
``columns``  columns of some samples, as they travel from those processes
``zarr``     answers of zarr
``codecs``   which codecs of a Zarr array may be opened
``lance``    answers of pylance
``records``  answers of array_record
===========  ==========================================================================
"""
