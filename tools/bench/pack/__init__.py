"""Packing photographs beside its peers, with bars: ``tools/bench/run pack``.

- `corpus`: the photographs, several copies of each, with their lists.
- `timing`: how a contender is timed, and what it delivered counted.
- `ours`: shardstream, and its transcoder in a plain loop.
- `peers`: everybody else.
- `webserver`: the server that photographs are fetched from.
- `bars`: which of ours has to be how many times as fast as whom.
- `study`: runs it all, and gives the section.
"""
