"""A file a format: which objects hold samples, and where values lie in them.

============  =======================================================
``mds``       MosaicML Streaming
``litdata``   LitData
``registry``  all of them by name, and which one a listing is
============  =======================================================
"""
