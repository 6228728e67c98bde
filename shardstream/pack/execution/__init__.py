"""Tasks, and what runs them: this process, workers, executors, clusters.

=============  ================================================================================
``task``       one shard: read, write, report
``jobs``       the contract between tasks and what runs them; what all tasks do alike
``workers``    tasks in processes, or on an executor
``worker``     what runs in a worker process
``process``    how processes of our own start and end
``isolated``   calls that may end their process, such as decoding, made in another one
``isolating``  what runs in that one
``loading``    samples are loaded, several at once where `isolated` does a part of that
``channel``    objects between the two, of any size: nobody waits for one who waits for him
``lending``    a plan in files that workers of this machine inherit, so that a task is a number
``engines/``   tasks on a cluster: Dask, Ray, Spark
=============  ================================================================================
"""
