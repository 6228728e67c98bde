"""Which sample of a data set has a key, and which bins hold a document.

===============  ==============================================================================================
module
===============  ==============================================================================================
``listings``     what tables list: the keys of samples, or those of the documents in bins
``tables``       the tables in a data set: writing them, and finding them
``finder``       ``KeyFinder``: the number of a sample by its key, through a table, made on this machine if need be
``keyed_rows``   the rows of all samples of some keys
``selection``    which rows ``where=`` and ``exclude_keys=`` mean, also by files of keys
``documents``    ``DocumentFinder``: documents that lie in bins, whole
===============  ==============================================================================================
"""
