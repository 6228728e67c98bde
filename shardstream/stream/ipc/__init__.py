"""How batches travel from a worker to the training process.

================  ==================================================================
``worker_batch``  what travels from a worker to ``ss.Loader``, and what comes out
``handover``      how the tensors of a batch travel on it
``spans``         what took how long in a worker, for a trace; travels with the batch
``orphans``       a worker whose training process was killed goes too
================  ==================================================================
"""
