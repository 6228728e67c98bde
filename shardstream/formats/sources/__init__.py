"""Sources to pack, from data in the formats of other libraries.

=================  =============================================================
``recognizers``    which of these sources a user means
``foreign``        ``ForeignSource``: a dataset that is opened in place
``foreign_items``  its rows as items to pack
``packages``       formats that only their own packages read
``layouts``        lists beside directories of files, as imagefolder and corpora of speech have them
``tables``         lists in Parquet and Arrow files
``table_fields``   their columns as the readers in place have them
``table_rows``     whether the rows of a table are samples or lines of a list
``containers``     which names say that a file holds many samples
=================  =============================================================
"""

from __future__ import annotations

from shardstream.formats.sources.containers import holds_containers, is_container, is_table, names_containers
from shardstream.formats.sources.recognizers import RECOGNIZERS

__all__ = ["RECOGNIZERS", "holds_containers", "is_container", "is_table", "names_containers"]
