"""Tasks, and what runs them: this process, workers, executors, clusters.

============  ================================================================================
``task``      one shard: read, write, report
``jobs``      the contract between tasks and what runs them; what all tasks do alike
``workers``   tasks in processes, or on an executor
``worker``    what runs in a worker process
``channel``   objects between the two, of any size: nobody waits for one who waits for him
``lending``   a plan in files that workers of this machine inherit, so that a task is a number
``engines/``  tasks on a cluster: Dask, Ray, Spark
============  ================================================================================
"""
