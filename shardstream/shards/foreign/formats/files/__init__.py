"""Folders of pictures and lists of files: every value an object of its own.

===========  ====================================================
``format``   what is one, and which files there are
``folders``  files in class folders, or flat, as runs of samples
``lists``    a list, read twice: what all of it shares, then its rows
``text``     the records of a list, a piece at a time, also of a compressed one
``quotes``   quotes as csv writes them: which lines are one record, and whether lines with tabs have such quotes
``records``  a record of a list, from its bytes to its columns
``columns``  which column of a list is what
``chosen``   ``fields=``: columns and types that a user chose, names of files made of cells
``values``   what becomes of the cells of a column
``names``    names of files in lists, keys, and types by suffix
===========  ====================================================
"""
