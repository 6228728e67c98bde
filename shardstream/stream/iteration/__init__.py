"""Which samples an iteration has, in which order, who reads them, and where it stands.

================  ====================================================================
``content``       ``Content``: sources, and the order their samples come in
``plain``         parts of a content as plain values, for pickles
``settings``      their arguments, checked, as values; what is done about broken samples
``ranks``         which rank of how many this process is, and which ranks share a node
``dealt``         whether a framework deals out to ranks what this one reads
``epoch_run``     what is left of one epoch of one rank, as steps
``cursor``        ``Cursor``: how far one has come in them
``recipe``        what is made of each sample, in words that ranks compare
``agreement``     ``Agreement``: what ranks have said in a store about what they read
``rank_entries``  what ranks leave in a store, with its time
``epoch_state``   the epoch number and a loaded state, shared with workers
``state``         what a checkpoint holds
``positions``     ``positions``: which of them some steps take
``seen``          what a mixture has handed out of each source
``versions``      the version of its data that a loaded state was saved at
``worker_logs``   what workers log, for the loggers of the training process
``convert``       ``convert_state``: from torchdata's state to ours
``assignment``    what a ``Loader`` tells its workers
================  ====================================================================
"""
