"""Data in the formats of other libraries: found in a listing, indexed where it lies, and packed.

================  =============================================================================
``registry``      the formats by name, and which of them a listing is
``plugins``       formats and recognizers that other distributions bring
``contract``      ``SourceFormat``: recognize objects in a listing, scan one into rows
``framing``       reads values where the index of a catalog says that they are
``loose``         values that are objects of their own: files, and lists of them
``catalog/``      catalogs: scan a dataset, keep what was found, open it
``scans/``        what all scans share: bytes of an object, rows, names
``blocks/``       compressed objects, shown inflated
``isolated/``     packages of other libraries, in processes of their own
``packages/``     formats that only their own packages read, for packing
``sources/``      sources to pack, from data of other libraries
``migrate/``      what it takes to move a project of another library
``commands/``     commands: ``index``, ``migrate``
``arrow/``        Arrow files, and what ``datasets`` saves
``beton``         FFCV
``chunks/``       MosaicML MDS and LitData
``detection/``    COCO and YOLO
``files/``        directories of images, and lists of files
``hdf5/``         HDF5 files
``jsonl/``        JSON lines
``lmdb/``         LMDB databases
``npy``           NumPy arrays
``parquet/``      Parquet files
``recordio/``     RecordIO files of MXNet
``tar/``          WebDataset, and tars of tars
``tfrecord/``     TFRecord files
``tokens/``       tokens of Megatron and nanoGPT
``zip/``          zip files
================  =============================================================================

No code of the other libraries is needed, except for ``isolated/``, and nothing that a file names is ever called.
``docs/foreign.md`` says per format what is read.
"""

from __future__ import annotations

from typing import Any

from shardstream.attributes import imported_attribute

__all__ = ["find_dataset", "rooted"]

# What ``dataset/formats.py`` calls, imported at first use, so that no module of the package imports all others.
_LAZY = {"find_dataset": "shardstream.formats.catalog.dataset", "rooted": "shardstream.formats.catalog.places"}


def __getattr__(name: str) -> Any:
    return imported_attribute(__name__, name, _LAZY, __all__)
