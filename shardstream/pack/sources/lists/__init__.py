"""Lists of files: text in several forms, Parquet and Arrow.

=================  =================================================================
``source``         lists: tab-separated lines, csv, JSON lines, and others
``list_file``      lists as files read by range, also those that lie elsewhere
``compressed``     what gzip, bzip2, xz and zstd files hold, a piece at a time
``decompression``  compressed text, read once from its beginning to its end
``quotes``         quotes as csv writes them: which lines are one record, and whether lines with tabs have such quotes
``records``        a record of a list, from its bytes to its columns
``chosen``         ``fields=``: columns and types that a user chose, names of files made of cells
``lines``          where the lines of a list begin, in numpy
``columns``        which column of a list is what, headers, labels
``labels``         labels: integers, names, and the classes that names are looked up in
``mapping``        ``fields=``: which column becomes which field, and as what
``line_reader``    how a record of a list becomes a sample
``scan``           a whole list read once: common folder, names of labels, equal keys
``spans``          where paths stand in a block of lines, in numpy
``objects``        JSON lines as lines of plain text
``selection``      which samples ``where=`` and ``exclude_keys=`` mean, also by the lines of a list
``spool``          records by number, read by workers; copied to a temporary file
``tables``         lists in Parquet and Arrow files
``table_fields``   their columns as the readers in place have them
=================  =================================================================
"""
