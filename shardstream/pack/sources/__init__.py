"""Where samples come from.

=================  ===============================================================================
``opening``        ``open_source``: the source that a user wants packed
``recognizers``    an ordered list of recognizers: which of these sources it is
``base``           the contract: ``Source``, ``Part``, ``Item``, ``Reject``; what a file becomes
``lists/``         lists: tab-separated lines, csv, JSON lines, Parquet and others
``folders``        folders of class folders, flat folders, patterns; one file a sample, or several
``listings``       all files below a folder or URL
``look``           some of the names in a directory, by which it is recognized
``keys``           keys from paths, line numbers and columns
``paths``          paths and URLs; pure text
``media``          which files are images, audio or video
``tars``           tar files that can only be read in order: compressed ones, and pipes
``python``         sequences and iterables of dicts, Hugging Face's among them
``stored``         data sets of ours, to be packed again
``duplicates``     equal keys, in eight bytes a key: refused, or numbered
``numbered``       a source whose equal keys are numbered
``classes``        ``classes=``: from what users give to the names of classes
``values``         values from Python, typed and encoded
``declared``       types that users declare, and how values become them
=================  ===============================================================================
"""

from __future__ import annotations

from shardstream.pack.sources.base import File, Item, Reject, Source, SourcePart

__all__ = ["File", "Item", "Reject", "Source", "SourcePart"]
