"""Which objects of another library hold samples, and where values lie in them: a file or a folder a format.

=============  =============================================================================
``registry``   which formats there are, and which one a listing is
``tar/``       WebDataset, and tars of tars
``chunks/``    MosaicML MDS and LitData
``tfrecord/``  TFRecord files
``recordio/``  RecordIO files of MXNet
``lmdb/``      LMDB databases
``zip/``       zip files
``hdf5/``      HDF5 files
``tokens/``    Megatron's and nanoGPT's tokens
``arrow/``     Arrow files, and what ``datasets`` saves
``parquet/``   Parquet files
``npy``        numpy's arrays
``beton``      FFCV
=============  =============================================================================
"""
