"""TFRecord files.

============  =============================================================================
``format``    the records, one after another
``examples``  ``Example`` and ``SequenceExample`` without protobuf: where each value lies
``columns``   the features of all records as columns
``tfds``      ``features.json`` of TensorFlow Datasets
``crc32c``    the checksum of records
============  =============================================================================
"""
