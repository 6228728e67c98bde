"""Lists of files: text in several forms.

=================  =================================================================
``source``         lists: tab-separated lines, csv, JSON lines, and others
``quotes``         quotes as csv writes them: which lines are one record, and whether lines with tabs have such quotes
``records``        a record of a list, from its bytes to its columns
``json_rows``      rows of JSON lines: the first ones, and why a line is not one
``mpdataset``      what a list of MPDataset and its classes are called
``chosen``         ``fields=``: columns and types that a user chose, names of files made of cells
``lines``          where the lines of a list begin, in numpy
``columns``        which column of a list is what, headers, labels
``labels``         labels: integers, names, and the classes that names are looked up in
``mapping``        ``fields=``: which column becomes which field, and as what
``line_reader``    how a record of a list becomes a sample
``scan``           a whole list read once: common folder, names of labels, equal keys
``spans``          where paths stand in a block of lines, in numpy
``path_objects``   paths from Python as a list
``objects``        JSON lines as lines of plain text
``spool``          records by number, read by workers; copied to a temporary file
=================  =================================================================
"""
