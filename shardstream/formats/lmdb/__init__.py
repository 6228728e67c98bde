"""LMDB databases, read by a B-tree reader of our own.

==============  ==============================================================================
``format``      ``LmdbFormat``: which objects are databases, and which layout one has
``pages``       ``Pages``: the trees in a file, entry by entry; every pointer is checked
``files``       a file a value: LSUN, BasicSR, mmcv; what nothing else claims
``numbered``    a value a field and number: ``image-%09d``, ``label-%09d``, ``num-samples``
``datum``       Caffe's ``Datum``, a message of protobuf
``serialised``  a pickle or msgpack object a sample, in the order of ``__keys__`` if it is there
``fields``      parts of such an object as fields
``forms``       arrays, and lists and dicts, that are made when they are read
``pickled``     what a pickle says, without unpickling it
``packed``      what a msgpack object says, with places; numpy arrays as msgpack-numpy writes them
``values``      what ``pickled`` and ``packed`` find
==============  ==============================================================================
"""
