"""From another library to this one: what a data set is, what packing it would gain, the code before and after.

============  ======================================================================================
``run``       ``migrate``: all of it, as a value
``facts``     ``Facts``: what code for a data set has to name
``columns``     what the library calls fields, where we call them otherwise
``writing``   text of programs: quoted, indented, one loop over batches
``after``     the program with this library
``before``    the program with the library that the data are of: which one, by format
``streams``   of libraries that stream: webdataset, mosaicml-streaming, litdata, ffcv, tfrecord
``samples``   of data sets that give a sample by its number: torchvision's, ``datasets``, or of ten lines
``gain``      ``Gain``: a sample of it, in place against packed
============  ======================================================================================
"""

from __future__ import annotations

from shardstream.formats.migrate.gain import Gain
from shardstream.formats.migrate.run import Migration, migrate

__all__ = ["Gain", "Migration", "migrate"]
