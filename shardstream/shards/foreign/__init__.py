"""Data of other libraries, read where it lies: what of it becomes one of our indexes, and how.

====================  ==============================================================================
``contract``          ``ForeignFormat``: recognise objects in a listing, scan one into rows
``object_bytes``      ``ObjectBytes``: bytes of an object for its scan, mapped or in large reads
``rows``              ``ScannedRows``, ``RowBuilder``: what a scan gives, row by row or as arrays
``whole_column``      ``WholeColumn``: a field of a whole object, cut into the columns of its pieces
``forms``             foreign encodings of a value: pure functions to the bytes of our types
``protobuf``          the wire format of protocol buffers, for many messages at once
``crc32c``            CRC-32C of many short runs of bytes at once
``examples``          ``tf.train.Example``: where the values of each feature lie, and their forms
``example_columns``   what features become: fields, decided from all samples of an object
``tfds``              ``features.json`` of TensorFlow Datasets
``recordio_samples``  what the records of MXNet hold: images with labels, faces, or bytes
``formats/``          a file a format, and ``registry``: which there are, and which one a listing is
====================  ==============================================================================

``docs/foreign.md`` says per format what is read. No code of their libraries is needed, and nothing that a file names
is ever called.
"""
