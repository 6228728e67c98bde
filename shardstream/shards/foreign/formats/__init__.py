"""A file a format: which objects hold samples, and where values lie in them. ``registry`` knows them all.

============  ==============================================
``recordio``  RecordIO files of MXNet
``tfrecord``  TFRecord files
============  ==============================================
"""
