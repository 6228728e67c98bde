"""Folders of pictures and lists of files: every value an object of its own.

===========  ====================================================
``format``   what is one, and which files there are
``folders``  files in class folders, or flat, as runs of samples
``lists``    lines of a list, as cells
``columns``  which column of a list is what
``names``    names of files in lists, keys, and types by suffix
===========  ====================================================
"""
