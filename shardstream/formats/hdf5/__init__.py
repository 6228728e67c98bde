"""HDF5 files: their library says where data lie, in a process of its own, and reads none.

===========  ==========================================================================
``format``   ``Hdf5``: recognises files, finds their blocks, scans them
``columns``  from data sets to fields, and where their values lie
``chunks``   the blocks of data sets that are not stored as their samples are read
``heap``     values of any length
``file``     what is in a file, compared with it
``compact``  values that are in an object header
``program``  asks the library, in the other process
===========  ==========================================================================
"""
