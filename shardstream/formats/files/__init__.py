"""Folders of pictures and lists of files: every value an object of its own.

===========  ====================================================
``format``   what is one, and which files there are
``folders``  files in class folders, or flat, as runs of samples
``layouts``  tables beside a directory of files: imagefolder, Kaggle, Common Voice, LJSpeech, LibriSpeech
``lists``    a list, read twice: what all of it shares, then its rows
``tables``   the rows of a Parquet file that lists files
``elsewhere``  the directory that holds a list and all its files
``written``  how a list is written, by its first records
``text``     the records of a list, a piece at a time, also of a compressed one
``columns``  which column of a list is what
``values``   what becomes of the cells of a column
``names``    names of files in lists, keys, and types by suffix
===========  ====================================================
"""
