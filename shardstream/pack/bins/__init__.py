"""Documents as bins: rows of so many tokens each, in which no document is cut that need not be.

==================== ===================================================================
``sequences``        ``PackedSequences``: the options of bins
``binning``          how documents become bins, checked
``tokenizers``       tokenizers of other libraries, in a form that travels
``texts``            the texts of samples as tokens
``documents``        from the contents of a sample to a document: tokens, and what it has besides
``stored_documents`` the documents of a data set of bins, to be packed anew
``fitting``          which document lies where
``windows``          documents wait until there are enough of them, and become bins
``counts``           how many documents, pieces and tokens are in the bins of a shard
==================== ===================================================================
"""
