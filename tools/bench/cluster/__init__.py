"""A simulation of a large cluster by the order's own arithmetic: ``tools/bench/run cluster``.

- `reads`: what each worker of each rank reads in an epoch, as stretches of shards.
- `cache`: a node's cache that admits whole shards until it is full and never evicts.
- `study`: the cluster, what its nodes fetch, and the tables.
"""
