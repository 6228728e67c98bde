"""Apache Arrow: IPC files and streams, Feather, and the folders of Hugging Face's ``datasets``.

===============  =============================================================================
``format``       ``Arrow``
``folders``      which objects are meant, in the folders of ``datasets`` and in others
``rows``         batches joined and cut into pieces; rows that are chosen
``places``       where the values of a column lie in a batch
``blocks``       compressed buffers, and values that are written down anew
``messages``     the batches of an object, and where each buffer lies
``metadata``     schemas and heads of batches, from flatbuffers
``flatbuffers``  their wire format
``schema``       ``ArrowField``: the types of columns, of Arrow's own or of pyarrow's schema
``columns``      which of our fields the columns of a schema become; Parquet's too
===============  =============================================================================
"""
