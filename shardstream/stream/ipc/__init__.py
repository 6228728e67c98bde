"""How batches travel from a worker to the training process.

================  ==========================================================================
``worker_batch``  what travels from a worker to ``ss.Loader``
``handover``      how the tensors of a parcel travel on it
``items``         what a training loop gets, of which the last item says that it is the last
``orphans``       a worker whose training process was killed goes too
================  ==========================================================================
"""
