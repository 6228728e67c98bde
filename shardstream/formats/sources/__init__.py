"""Sources to pack, from data in the formats of other libraries.

=================  =============================================================
``foreign``        ``ForeignSource``: a dataset that is opened in place
``foreign_items``  its rows as items to pack
``packages``       formats that only their own packages read
``table_rows``     whether the rows of a table are samples or lines of a list
``containers``     which names say that a file holds many samples
=================  =============================================================
"""
